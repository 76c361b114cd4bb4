//! The shares: `[NAME=]DIR[:ro][:encrypt][:bin][:snapshots][:ca]…` or `[NAME=]URL…`, and their open folders and far shares.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ropeway_copy::is_temporary;
use ropeway_live::format;
use ropeway_local::{LocalStore, SnapshotFolder, StoreOptions};
use ropeway_smb_server::{HandleJournal, Links, RecycleBin, RecycleLimits, Share, ShareSnapshots};
use ropeway_smb_wire::Text;
use ropeway_smb_wire::upcase;
use ropeway_vfs::decorate::traced_store::TracedStore;
use ropeway_vfs::store::{Snapshots as _, Store};
use ropeway_vfs::trace::SharedObserver;

use super::far::FarServers;
use super::handles;
use crate::args::{BinSpec, ServeArgs, ServeLinks, ShareSpec, SnapshotSpec, check_share_name};
use crate::failure::{Failure, code};
use crate::place::Place;
use crate::spelling::{Spelling, spelling};

/// Maximum number of shares. A guess: clients list them all at once.
const SHARES_MAX: usize = 1000;
/// Days for which deleted files are kept where nothing else is said, as in Windows and with many NAS.
const BIN_DAYS: u32 = 30;
/// A share as requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestedShare {
    pub(super) name: String,
    /// Canonical path of a folder, or URL of a far share.
    pub(super) place: Place,
    pub(super) read_only: bool,
    pub(super) encrypt: bool,
    /// Whether Macs are told that it takes their backups.
    pub(super) time_machine: bool,
    /// Whether handles survive the server.
    pub(super) available: bool,
    /// How deleted files are kept; with the number of days.
    pub(super) bin: Option<BinSpec>,
    /// Where the snapshots lie that clients may look at.
    pub(super) snapshots: Option<SnapshotSpec>,
    /// Whether anonymous and guest sessions may use it.
    pub(super) anonymous: bool,
    /// Symbolic links that clients may create.
    pub(super) links: Links,
}

impl RequestedShare {
    /// Finds the folder of a share. A far share is not looked for yet.
    ///
    /// # Errors
    /// The folder is missing or not a folder, a URL is invalid, or its own name is not valid for a
    /// share.
    fn find(spec: &ShareSpec) -> Result<Self, Failure> {
        if matches!(
            spelling(spec.folder.as_os_str().as_bytes()),
            Spelling::HostPath(_)
        ) && !spec.folder.exists()
        {
            // Rather an option that there is not than a place on another machine.
            return Err(cannot_share(&spec.folder, "no such folder"));
        }
        let place = match Place::parse_end(&spec.folder)? {
            Place::Local(folder) => Place::Local(canonical(&folder)?),
            remote @ Place::Remote(_) => remote,
        };
        let name = match &spec.name {
            Some(name) => name.clone(),
            None => place.name().map_or_else(
                || "root".to_owned(),
                |name| String::from_utf8_lossy(name.as_bytes()).into_owned(),
            ),
        };
        check_share_name(&name).map_err(|why| {
            Failure::usage(format!(
                "{} cannot be shared as {name:?}: {why}",
                spec.folder.display()
            ))
            .hint("choose a name: NAME=DIR")
        })?;
        let bin = spec.options.bin.map(|bin| BinSpec {
            days: bin.days.or(Some(BIN_DAYS)),
            ..bin
        });
        if bin.is_some() && place.local().is_none() {
            return Err(
                Failure::usage(format!("{place}: :bin is for folders of this machine"))
                    .hint("ask that server to keep what is deleted"),
            );
        }
        if spec.options.snapshots.is_some() && place.local().is_none() {
            return Err(
                Failure::usage(format!("{place}: :snapshots is for folders of this machine"))
                    .hint("ask that server for its own snapshots: smb://…/@GMT-2026.11.26-04.25.00"),
            );
        }
        if spec.options.available && place.local().is_none() {
            return Err(
                Failure::usage(format!("{place}: :ca is for folders of this machine"))
                    .hint("leave out :ca: the far server would not keep its own handles for this one"),
            );
        }
        if bin.is_some() && spec.options.read_only {
            return Err(
                Failure::usage(format!("nothing is deleted in {name}, which is read-only"))
                    .hint("leave out :bin or :ro"),
            );
        }
        Ok(Self {
            name,
            place,
            read_only: spec.options.read_only,
            encrypt: spec.options.encrypt,
            time_machine: spec.options.time_machine,
            available: spec.options.available,
            bin,
            snapshots: spec.options.snapshots.clone(),
            anonymous: false,
            links: Links::default(),
        })
    }

    /// Whether it is the share of a far server.
    pub(super) fn is_far(&self) -> bool {
        matches!(self.place, Place::Remote(_))
    }

    /// Returns the folder or URL and its options, for people.
    pub(super) fn shown(&self) -> String {
        let mut shown = self.place.to_string();
        if self.read_only {
            shown.push_str(", read-only");
        }
        if self.encrypt {
            shown.push_str(", encrypted");
        }
        if self.time_machine {
            shown.push_str(", for Time Machine");
        }
        if self.available {
            shown.push_str(", continuously available");
        }
        if let Some(bin) = self.bin {
            let days = bin.days.unwrap_or(BIN_DAYS);
            let size = bin
                .bytes
                .map_or_else(|| "a tenth of the volume".to_owned(), format::bytes);
            _ = write!(shown, ", deleted files are kept for {days} days, up to {size}");
        }
        if self.snapshots.is_some() {
            shown.push_str(", with its snapshots");
        }
        shown
    }

    pub(super) fn is_called(&self, name: &str) -> bool {
        upcase::equal(&Text::from(self.name.as_str()), &Text::from(name))
    }
}

fn canonical(folder: &Path) -> Result<PathBuf, Failure> {
    let whole = folder.canonicalize().and_then(|whole| {
        let is_folder = whole.metadata()?.is_dir();
        is_folder
            .then_some(whole)
            .ok_or_else(|| std::io::ErrorKind::NotADirectory.into())
    });
    whole.map_err(|error| cannot_share(folder, &crate::ends::cause(&error)))
}

fn cannot_share(folder: &Path, cause: &str) -> Failure {
    let text = folder.to_string_lossy();
    let hint = if text == "user" {
        "put the command for users first: `ropeway serve user list --users FILE`"
    } else if text.contains(':') {
        "only the options :ro, :encrypt, :timemachine, :bin (:bin=30d,20G), :snapshots and :ca can follow a folder"
    } else {
        "choose a folder that this user can read"
    };
    Failure::new(code::SOURCE, format!("cannot share {text}: {cause}")).hint(hint)
}

/// Returns the shares that the flags request.
///
/// # Errors
/// There is no share, there are too many, two have one name, or one is invalid.
pub(super) fn requested(args: &ServeArgs) -> Result<Vec<RequestedShare>, Failure> {
    let mut wanted: Vec<RequestedShare> = Vec::new();
    for spec in args.shares.iter().chain(&args.share) {
        let mut share = RequestedShare::find(spec)?;
        share.read_only |= args.read_only;
        share.bin = share.bin.filter(|_| !args.read_only);
        share.links = match args.links {
            ServeLinks::Refuse => Links::Refuse,
            ServeLinks::Inside => Links::Inside,
            ServeLinks::Any => Links::Any,
        };
        share.anonymous = args.login.anonymous || args.login.guest;
        if let Some(other) = wanted.iter().find(|other| other.is_called(&share.name)) {
            return Err(Failure::usage(format!(
                "{} and {} would both have the name {}",
                other.place, share.place, share.name
            ))
            .hint("choose another name for one of them: NAME=DIR"));
        }
        let mut others = wanted.iter().filter(|other| other.place == share.place);
        if others.any(|other| other.bin.is_some() && share.bin.is_some() && other.bin != share.bin) {
            return Err(Failure::usage(format!(
                "{} has two recycle bins with different limits",
                share.place
            ))
            .hint("write the same :bin for each share of a folder"));
        }
        wanted.push(share);
    }
    if wanted.is_empty() {
        return Err(Failure::usage("there is no folder to share")
            .hint("e.g. ropeway serve photos=/srv/photos, or share = [\"/srv/photos\"] in section [serve] of the configuration"));
    }
    if wanted.len() > SHARES_MAX {
        return Err(Failure::usage(format!("there are more than {SHARES_MAX} shares"))
            .hint("share a common parent folder"));
    }
    Ok(wanted)
}

/// The open folders and far shares, with the shares that use them.
pub(super) struct Folders {
    open: Vec<Folder>,
    descriptors: usize,
    far: Arc<FarServers>,
    /// Where the journals of handles lie; `None` for their default.
    handles: Option<PathBuf>,
    /// Receives the operations on all of them.
    observer: Option<SharedObserver>,
}

#[derive(Clone)]
struct Folder {
    wanted: RequestedShare,
    /// Device and inode of a folder; another volume may have been mounted since.
    id: Option<(u64, u64)>,
    store: Arc<dyn Store>,
    bin: Option<Arc<RecycleBin>>,
    snapshots: Option<Arc<ShareSnapshots>>,
    journal: Option<Arc<HandleJournal>>,
}

fn id_of(place: &Place) -> Result<Option<(u64, u64)>, Failure> {
    let Some(folder) = place.local() else {
        return Ok(None);
    };
    let metadata = folder.metadata();
    let metadata = metadata.map_err(|error| cannot_share(folder, &crate::ends::cause(&error)))?;
    Ok(Some((metadata.dev(), metadata.ino())))
}

/// Starts the recycle bin of a folder.
///
/// # Errors
/// It cannot be made.
fn start_bin(store: &Arc<dyn Store>, spec: BinSpec, place: &Place) -> Result<Arc<RecycleBin>, Failure> {
    let start = || {
        // The size of some volumes changes with their use: it is asked for once.
        let tenth = || store.space().map(|space| space.total / 10);
        let limits = RecycleLimits {
            days: spec.days.unwrap_or(BIN_DAYS),
            bytes: spec.bytes.map_or_else(tenth, Ok)?,
        };
        RecycleBin::start(Arc::clone(store), limits, is_temporary)
    };
    start().map_err(|error: ropeway_vfs::Error| {
        Failure::new(
            code::SOURCE,
            format!("{place} cannot have a recycle bin: {error}"),
        )
        .hint("the server's user must be able to make the folder .recycle there; or leave out :bin")
    })
}

/// Finds the snapshots of a folder.
///
/// # Errors
/// There are none where they are looked for.
fn find_snapshots(spec: &SnapshotSpec, folder: &Path) -> Result<Arc<ShareSnapshots>, Failure> {
    /// Nodes of a snapshot that are open at once: people look at some files.
    const DESCRIPTORS: usize = 64;
    /// Folders and bytes of names that are remembered, for names without regard to case.
    const INDEXED: (usize, usize) = (64, 16 << 20);
    let options = StoreOptions {
        descriptors_max: DESCRIPTORS,
        indexed_folders_max: INDEXED.0,
        indexed_bytes_max: INDEXED.1,
        ..StoreOptions::default()
    };
    let cannot = |why: String| {
        Failure::new(
            code::SOURCE,
            format!("{}: cannot find its snapshots: {why}", folder.display()),
        )
        .hint("name their folder, with * for the names that say when: :snapshots=/data/.snapshots/*/snapshot; or leave out :snapshots")
    };
    let found = match spec {
        SnapshotSpec::Found => SnapshotFolder::find(folder, &options)
            .map_err(|error| cannot(error.to_string()))?
            .ok_or_else(|| cannot("no .zfs/snapshot and no .snapshots in it or above it".to_owned()))?,
        SnapshotSpec::Pattern(pattern) => SnapshotFolder::new(pattern, &options)
            .map_err(|error| cannot(format!("{}: {error}", pattern.display())))?,
    };
    let times = found.times().map_err(|error| cannot(error.to_string()))?;
    if times.is_empty() {
        tracing::warn!(
            "no folder in {} has a time in its name; snapshots appear when there are some",
            found.parent().display()
        );
    }
    Ok(Arc::new(ShareSnapshots::new(Arc::new(found))))
}

impl Folders {
    /// Makes an empty set; `descriptors` is the limit for all folders together.
    pub(super) fn new(descriptors: usize, far: Arc<FarServers>) -> Self {
        Self {
            open: Vec::new(),
            descriptors,
            far,
            handles: None,
            observer: None,
        }
    }

    /// Sets where the journals of handles lie.
    pub(super) fn with_handles(mut self, handles: Option<PathBuf>) -> Self {
        self.handles = handles;
        self
    }

    /// Records the operations on all that is opened from now on.
    pub(super) fn traced(mut self, observer: Option<SharedObserver>) -> Self {
        self.observer = observer;
        self
    }

    /// Opens the requested folders and far shares; those that are open already stay open. On
    /// failure everything stays as it was.
    ///
    /// # Errors
    /// One cannot be opened.
    pub(super) fn set(&mut self, wanted: Vec<RequestedShare>) -> Result<Vec<Share>, Failure> {
        let options = StoreOptions {
            // A few suffice to work, slowly. More than the default never helps.
            descriptors_max: (self.descriptors / wanted.len().max(1)).clamp(64, 12_000),
            ..StoreOptions::default()
        };
        let mut open: Vec<Folder> = Vec::with_capacity(wanted.len());
        for wanted in wanted {
            let id = id_of(&wanted.place)?;
            let same = |other: &&Folder| other.wanted.place == wanted.place && other.id == id;
            let known = || self.open.iter().chain(&open).filter(same);
            let store = match known().next() {
                Some(folder) => Arc::clone(&folder.store),
                None => self.traced_store(&wanted, &options)?,
            };
            // A bin goes on as long as its limits stay.
            let with_limits = || known().filter(|folder| folder.wanted.bin == wanted.bin);
            let bin = match (wanted.bin, with_limits().find_map(|folder| folder.bin.clone())) {
                (None, _) => None,
                (Some(_), Some(bin)) => Some(bin),
                (Some(spec), None) => Some(start_bin(&store, spec, &wanted.place)?),
            };
            let snapshots = match (&wanted.snapshots, wanted.place.local()) {
                (Some(spec), Some(folder)) => {
                    let same_spec = || known().find(|folder| folder.wanted.snapshots.as_ref() == Some(spec));
                    match same_spec().and_then(|folder| folder.snapshots.clone()) {
                        Some(snapshots) => Some(snapshots),
                        None => Some(find_snapshots(spec, folder)?),
                    }
                }
                _ => None,
            };
            // Also if the folder was replaced: this server holds the journal's lock.
            let of_place = || {
                let all = self.open.iter().chain(&open);
                all.filter(|other| other.wanted.place == wanted.place)
            };
            let journal = match (wanted.available, wanted.place.local()) {
                (true, Some(folder)) => match of_place().find_map(|folder| folder.journal.clone()) {
                    Some(journal) => Some(journal),
                    None => Some(handles::start(folder, self.handles.as_deref())?),
                },
                _ => None,
            };
            open.push(Folder {
                wanted,
                id,
                store,
                bin,
                snapshots,
                journal,
            });
        }
        let before = std::mem::replace(&mut self.open, open);
        // Clients may still have a share of before open, and its bin with it.
        for bin in before.iter().filter_map(|folder| folder.bin.as_ref()) {
            let is_same = |folder: &Folder| folder.bin.as_ref().is_some_and(|now| Arc::ptr_eq(now, bin));
            if !self.open.iter().any(is_same) {
                bin.end();
            }
        }
        Ok(self.open.iter().map(shared).collect())
    }

    fn traced_store(
        &self,
        wanted: &RequestedShare,
        options: &StoreOptions,
    ) -> Result<Arc<dyn Store>, Failure> {
        let store = self.store(&wanted.place, options)?;
        Ok(match &self.observer {
            Some(observer) => TracedStore::wrap(store, Arc::clone(observer), &wanted.name),
            None => store,
        })
    }

    fn store(&self, place: &Place, options: &StoreOptions) -> Result<Arc<dyn Store>, Failure> {
        match place {
            Place::Remote(url) => self.far.open(url),
            Place::Local(folder) => match LocalStore::open(folder, options) {
                Ok(store) => Ok(Arc::new(store)),
                Err(error) => Err(cannot_share(folder, &error.to_string())),
            },
        }
    }

    /// Returns whether exactly these shares are open already.
    pub(super) fn is_current(&self, wanted: &[RequestedShare]) -> bool {
        self.now().eq(wanted)
            && self
                .open
                .iter()
                .all(|folder| id_of(&folder.wanted.place).is_ok_and(|id| id == folder.id))
    }

    /// Returns the current shares.
    pub(super) fn now(&self) -> impl Iterator<Item = &RequestedShare> {
        self.open.iter().map(|folder| &folder.wanted)
    }
}

fn shared(folder: &Folder) -> Share {
    let wanted = &folder.wanted;
    let mut share = Share::new(&wanted.name, Arc::clone(&folder.store));
    share.read_only = wanted.read_only;
    share.encrypt = wanted.encrypt;
    share.anonymous = wanted.anonymous;
    share.links = wanted.links;
    share.recycle_bin.clone_from(&folder.bin);
    share.snapshots.clone_from(&folder.snapshots);
    share.journal.clone_from(&folder.journal);
    share.far = wanted.is_far();
    // A far server reports by itself what it hides.
    share.hide_dot_files = !share.far;
    share
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    use crate::args::ShareOptions;

    const READ_ONLY: ShareOptions = ShareOptions {
        read_only: true,
        encrypt: false,
        time_machine: false,
        available: false,
        bin: None,
        snapshots: None,
    };

    fn find(folder: &Path) -> Result<RequestedShare, Failure> {
        RequestedShare::find(&ShareSpec {
            name: None,
            folder: folder.into(),
            options: READ_ONLY,
        })
    }

    #[test]
    fn a_share_has_the_given_name_or_that_of_its_folder() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("a=b:c");
        fs::create_dir(&folder).unwrap();
        fs::write(place.path().join("file"), "").unwrap();
        let named = RequestedShare::find(&ShareSpec {
            name: Some("Photos".to_owned()),
            folder: folder.clone(),
            options: READ_ONLY,
        });
        let named = named.unwrap();
        assert_eq!(
            (named.name.as_str(), named.read_only, named.encrypt),
            ("Photos", true, false)
        );
        assert_eq!(named.place, Place::Local(folder.canonicalize().unwrap()));
        let failure = find(&folder).unwrap_err();
        assert!(
            failure.code == 1 && failure.message.contains("a=b:c"),
            "{failure:?}"
        );
        for missing in ["none", "file", "file/below"] {
            let path = place.path().join(missing);
            let failure = find(&path).unwrap_err();
            assert!(
                failure.code == 3 && failure.message.contains(&path.display().to_string()),
                "{failure:?}"
            );
        }
    }

    #[test]
    fn a_folder_stays_open_unless_it_is_replaced() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("data");
        fs::create_dir(&folder).unwrap();
        let wanted = || vec![find(&folder).unwrap()];
        let mut folders = Folders::new(1000, Arc::new(FarServers::none()));
        folders.set(wanted()).unwrap();
        let first = Arc::clone(&folders.open[0].store);
        folders.set(wanted()).unwrap();
        assert!(Arc::ptr_eq(&first, &folders.open[0].store) && folders.is_current(&wanted()));
        fs::rename(&folder, place.path().join("old")).unwrap();
        fs::create_dir(&folder).unwrap();
        assert!(!folders.is_current(&wanted()));
        folders.set(wanted()).unwrap();
        assert!(!Arc::ptr_eq(&first, &folders.open[0].store) && folders.is_current(&wanted()));
    }
}
