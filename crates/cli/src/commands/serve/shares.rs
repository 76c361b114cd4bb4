//! The shares: `[NAME=]DIR[:ro][:encrypt]`, and their open folders.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ropeway_local::{LocalStore, StoreOptions};
use ropeway_smb_server::{Links, Share};
use ropeway_smb_wire::Text;
use ropeway_smb_wire::upcase;

use crate::args::{ServeArgs, ServeLinks, ShareSpec, check_share_name};
use crate::failure::{Failure, code};

/// Maximum number of shares. A guess: clients list them all at once.
const SHARES_MAX: usize = 1000;
/// A share as requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestedShare {
    pub(super) name: String,
    /// Canonical path.
    pub(super) folder: PathBuf,
    pub(super) read_only: bool,
    pub(super) encrypt: bool,
    /// Whether anonymous and guest sessions may use it.
    pub(super) anonymous: bool,
    /// Symbolic links that clients may create.
    pub(super) links: Links,
}

impl RequestedShare {
    /// Finds the folder of a share.
    ///
    /// # Errors
    /// The folder is missing or not a folder, or its own name is not valid for a share.
    fn find(spec: &ShareSpec) -> Result<Self, Failure> {
        let folder = &spec.folder;
        let whole = folder.canonicalize().and_then(|whole| {
            let is_folder = whole.metadata()?.is_dir();
            is_folder
                .then_some(whole)
                .ok_or_else(|| std::io::ErrorKind::NotADirectory.into())
        });
        let whole = whole.map_err(|error| cannot_share(folder, &crate::ends::cause(&error)))?;
        let name = match &spec.name {
            Some(name) => name.clone(),
            None => whole
                .file_name()
                .map_or_else(|| "root".to_owned(), |name| name.to_string_lossy().into_owned()),
        };
        check_share_name(&name).map_err(|why| {
            Failure::usage(format!(
                "{} cannot be shared as {name:?}: {why}",
                folder.display()
            ))
            .hint("choose a name: NAME=DIR")
        })?;
        Ok(Self {
            name,
            folder: whole,
            read_only: spec.read_only,
            encrypt: spec.encrypt,
            anonymous: false,
            links: Links::default(),
        })
    }

    /// Returns the folder and its options, for people.
    pub(super) fn shown(&self) -> String {
        let mut shown = self.folder.display().to_string();
        if self.read_only {
            shown.push_str(", read-only");
        }
        if self.encrypt {
            shown.push_str(", encrypted");
        }
        shown
    }

    pub(super) fn is_called(&self, name: &str) -> bool {
        upcase::equal(&Text::from(self.name.as_str()), &Text::from(name))
    }
}

fn cannot_share(folder: &Path, cause: &str) -> Failure {
    let text = folder.to_string_lossy();
    let hint = if text == "user" {
        "put the command for users first: `ropeway serve user list --users FILE`"
    } else if text.contains(':') {
        "only the options :ro and :encrypt can follow a folder"
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
        share.links = match args.links {
            ServeLinks::Refuse => Links::Refuse,
            ServeLinks::Inside => Links::Inside,
            ServeLinks::Any => Links::Any,
        };
        share.anonymous = args.login.anonymous || args.login.guest;
        if let Some(other) = wanted.iter().find(|other| other.is_called(&share.name)) {
            return Err(Failure::usage(format!(
                "{} and {} would both have the name {}",
                other.folder.display(),
                share.folder.display(),
                share.name
            ))
            .hint("choose another name for one of them: NAME=DIR"));
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

/// The open folders, with the shares that use them.
pub(super) struct Folders {
    open: Vec<Folder>,
    descriptors: usize,
}

#[derive(Clone)]
struct Folder {
    wanted: RequestedShare,
    /// Device and inode; another volume may have been mounted since.
    id: (u64, u64),
    store: Arc<LocalStore>,
}

fn id_of(folder: &Path) -> Result<(u64, u64), Failure> {
    let metadata = folder.metadata();
    let metadata = metadata.map_err(|error| cannot_share(folder, &crate::ends::cause(&error)))?;
    Ok((metadata.dev(), metadata.ino()))
}

impl Folders {
    /// Makes an empty set; `descriptors` is the limit for all folders together.
    pub(super) fn new(descriptors: usize) -> Self {
        Self {
            open: Vec::new(),
            descriptors,
        }
    }

    /// Opens the requested folders; those that are open already stay open. On failure everything
    /// stays as it was.
    ///
    /// # Errors
    /// A folder cannot be opened.
    pub(super) fn set(&mut self, wanted: Vec<RequestedShare>) -> Result<Vec<Share>, Failure> {
        let options = StoreOptions {
            // A few suffice to work, slowly. More than the default never helps.
            descriptors_max: (self.descriptors / wanted.len().max(1)).clamp(64, 12_000),
            ..StoreOptions::default()
        };
        let mut open: Vec<Folder> = Vec::with_capacity(wanted.len());
        for wanted in wanted {
            let id = id_of(&wanted.folder)?;
            let same = |other: &&Folder| other.wanted.folder == wanted.folder && other.id == id;
            let store = match self.open.iter().chain(&open).find(same) {
                Some(folder) => Arc::clone(&folder.store),
                None => {
                    let store = LocalStore::open(&wanted.folder, &options);
                    Arc::new(store.map_err(|error| cannot_share(&wanted.folder, &error.to_string()))?)
                }
            };
            open.push(Folder { wanted, id, store });
        }
        self.open = open;
        Ok(self.open.iter().map(shared).collect())
    }

    /// Returns whether exactly these shares are open already.
    pub(super) fn is_current(&self, wanted: &[RequestedShare]) -> bool {
        self.now().eq(wanted)
            && self
                .open
                .iter()
                .all(|folder| id_of(&folder.wanted.folder).is_ok_and(|id| id == folder.id))
    }

    /// Returns the current shares.
    pub(super) fn now(&self) -> impl Iterator<Item = &RequestedShare> {
        self.open.iter().map(|folder| &folder.wanted)
    }
}

fn shared(folder: &Folder) -> Share {
    let wanted = &folder.wanted;
    let mut share = Share::new(&wanted.name, Arc::clone(&folder.store) as Arc<_>);
    share.read_only = wanted.read_only;
    share.encrypt = wanted.encrypt;
    share.anonymous = wanted.anonymous;
    share.links = wanted.links;
    share
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn find(folder: &Path) -> Result<RequestedShare, Failure> {
        RequestedShare::find(&ShareSpec {
            name: None,
            folder: folder.into(),
            read_only: true,
            encrypt: false,
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
            read_only: true,
            encrypt: false,
        });
        let named = named.unwrap();
        assert_eq!(
            (named.name.as_str(), named.read_only, named.encrypt),
            ("Photos", true, false)
        );
        assert_eq!(named.folder, folder.canonicalize().unwrap());
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
        let mut folders = Folders::new(1000);
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
