//! What is shared: `[NAME=]DIR[:ro][:encrypt]`, and the folders behind it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ropeway_local::{LocalStore, StoreOptions};
use ropeway_smb_server::{Links, Share};
use ropeway_smb_wire::Text;
use ropeway_smb_wire::upcase;

use crate::args::{ServeArgs, ServeLinks};
use crate::failure::{Failure, code};

/// Most shares. A guess: clients list them all at once.
const SHARES_MAX: usize = 1000;
/// Longest name in UTF-16 units, as Windows has it (`NNLEN`).
const NAME_UNITS_MAX: usize = 80;

/// A share as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) name: String,
    /// As given.
    pub(super) folder: PathBuf,
    pub(super) read_only: bool,
    pub(super) encrypt: bool,
    /// Who names no user may come in.
    pub(super) anonymous: bool,
    /// Symbolic links that clients may make.
    pub(super) links: Links,
}

impl Wanted {
    /// Reads one.
    ///
    /// # Errors
    /// The folder is missing or none; the name cannot be a share's.
    fn parse(text: &str) -> Result<Self, Failure> {
        let (name, rest) = match text.split_once('=') {
            Some((name, rest)) if !name.is_empty() && !name.contains('/') => (Some(name), rest),
            _ => (None, text),
        };
        let (folder, read_only, encrypt) = without_options(rest);
        if folder.is_empty() {
            return Err(Failure::usage(format!("{text:?} names no folder")).hint("write NAME=DIR or DIR"));
        }
        let folder = PathBuf::from(folder);
        let whole = folder.canonicalize().and_then(|whole| {
            let is_folder = whole.metadata()?.is_dir();
            is_folder
                .then_some(whole)
                .ok_or_else(|| std::io::ErrorKind::NotADirectory.into())
        });
        let whole = whole.map_err(|error| cannot_share(&folder, &crate::ends::cause(&error)))?;
        let name = match name {
            Some(name) => name.to_owned(),
            None => whole
                .file_name()
                .map_or_else(|| "root".to_owned(), |name| name.to_string_lossy().into_owned()),
        };
        check_name(&name).map_err(|why| {
            Failure::usage(format!(
                "{} cannot be shared as {name:?}: {why}",
                folder.display()
            ))
            .hint("give it another name: NAME=DIR")
        })?;
        Ok(Self {
            name,
            folder: whole,
            read_only,
            encrypt,
            anonymous: false,
            links: Links::default(),
        })
    }

    /// What it is, for people.
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

/// The folder, and whether `:ro` and `:encrypt` stand behind it; a colon with nothing behind ends the options.
fn without_options(text: &str) -> (&str, bool, bool) {
    let (mut folder, mut read_only, mut encrypt) = (text, false, false);
    while let Some((before, option)) = folder.rsplit_once(':') {
        match option {
            "ro" => read_only = true,
            "encrypt" => encrypt = true,
            "" => return (before, read_only, encrypt),
            _ => break,
        }
        folder = before;
    }
    (folder, read_only, encrypt)
}

fn cannot_share(folder: &Path, cause: &str) -> Failure {
    let text = folder.to_string_lossy();
    let hint = if text == "user" {
        "the commands of users come first: `ropeway serve user list --users FILE`"
    } else if text.contains(':') {
        "behind a folder there may be :ro and :encrypt"
    } else {
        "name a folder that this user can read"
    };
    Failure::new(code::SOURCE, format!("cannot share {text}: {cause}")).hint(hint)
}

/// Whether a share can be called so; else why not.
fn check_name(name: &str) -> Result<(), &'static str> {
    /// What stands for other things in UNC paths, patterns and lists ([MS-FSCC] 2.1.6).
    const FORBIDDEN: &str = "\"/\\[]:|<>+=;,*?";
    /// Shares that servers have by themselves ([MS-SRVS] 3.1.1.7; `PIPE` and `MAILSLOT` are refused there too).
    const RESERVED: [&str; 3] = ["IPC$", "PIPE", "MAILSLOT"];
    if name.is_empty() || name.trim() != name {
        return Err("it is empty, or has blanks around it");
    }
    if name.encode_utf16().count() > NAME_UNITS_MAX {
        return Err("it is longer than 80 characters");
    }
    if name.chars().any(|c| c.is_control() || FORBIDDEN.contains(c)) {
        return Err("none of \"/\\[]:|<>+=;,*? may be in it");
    }
    if name == "." || name == ".." || name.contains('\u{FFFD}') {
        return Err("clients cannot write it");
    }
    if RESERVED
        .iter()
        .any(|reserved| reserved.eq_ignore_ascii_case(name))
    {
        return Err("servers need that name themselves");
    }
    Ok(())
}

/// The shares that the flags ask for.
///
/// # Errors
/// There are none, too many, two of a name, or one that cannot be.
pub(super) fn wanted(args: &ServeArgs) -> Result<Vec<Wanted>, Failure> {
    let mut wanted: Vec<Wanted> = Vec::new();
    for text in args.shares.iter().chain(&args.share) {
        let mut share = Wanted::parse(text)?;
        share.read_only |= args.read_only;
        share.links = match args.links {
            ServeLinks::Refuse => Links::Refuse,
            ServeLinks::Inside => Links::Inside,
            ServeLinks::Any => Links::Any,
        };
        share.anonymous = args.login.anonymous || args.login.guest;
        if let Some(other) = wanted.iter().find(|other| other.is_called(&share.name)) {
            return Err(Failure::usage(format!(
                "{} and {} would both be called {}",
                other.folder.display(),
                share.folder.display(),
                share.name
            ))
            .hint("give one of them another name: NAME=DIR"));
        }
        wanted.push(share);
    }
    if wanted.is_empty() {
        return Err(Failure::usage("no folder is named")
            .hint("e.g. ropeway serve photos=/srv/photos; or share = [\"/srv/photos\"] below [serve] in the configuration"));
    }
    if wanted.len() > SHARES_MAX {
        return Err(Failure::usage(format!("more than {SHARES_MAX} shares")).hint("share a folder above"));
    }
    Ok(wanted)
}

/// The folders that are open, by what they are shared as.
pub(super) struct Folders {
    open: Vec<Folder>,
    descriptors: usize,
}

#[derive(Clone)]
struct Folder {
    wanted: Wanted,
    /// Device and inode: another volume may be mounted there since.
    id: (u64, u64),
    store: Arc<LocalStore>,
}

fn id_of(folder: &Path) -> Result<(u64, u64), Failure> {
    let metadata = folder.metadata();
    let metadata = metadata.map_err(|error| cannot_share(folder, &crate::ends::cause(&error)))?;
    Ok((metadata.dev(), metadata.ino()))
}

impl Folders {
    /// None yet; all together may have so many descriptors open.
    pub(super) fn new(descriptors: usize) -> Self {
        Self {
            open: Vec::new(),
            descriptors,
        }
    }

    /// Opens what is wanted; folders that are open already are kept. On failure everything stays as it is.
    ///
    /// # Errors
    /// A folder cannot be opened.
    pub(super) fn set(&mut self, wanted: Vec<Wanted>) -> Result<Vec<Share>, Failure> {
        let options = StoreOptions {
            // A few are enough to work with, slowly; more than the default never help.
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

    /// Whether exactly that is shared already.
    pub(super) fn is_current(&self, wanted: &[Wanted]) -> bool {
        self.now().eq(wanted)
            && self
                .open
                .iter()
                .all(|folder| id_of(&folder.wanted.folder).is_ok_and(|id| id == folder.id))
    }

    /// What is shared now.
    pub(super) fn now(&self) -> impl Iterator<Item = &Wanted> {
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

    #[test]
    fn options_stand_behind_the_folder() {
        for (text, expected) in [
            ("/srv", ("/srv", false, false)),
            ("/srv:ro", ("/srv", true, false)),
            ("/srv:encrypt:ro", ("/srv", true, true)),
            ("/srv:rw", ("/srv:rw", false, false)),
            ("/a:b:ro", ("/a:b", true, false)),
            ("/odd:ro:", ("/odd:ro", false, false)),
            ("/odd:ro::encrypt", ("/odd:ro", false, true)),
            ("/odd::", ("/odd:", false, false)),
        ] {
            assert_eq!(without_options(text), expected, "{text}");
        }
    }

    #[test]
    fn folders_are_called_as_given_or_as_they_are() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("a=b:c");
        fs::create_dir(&folder).unwrap();
        fs::write(place.path().join("file"), "").unwrap();
        let text = |name: &str| format!("{name}{}", folder.display());
        let named = Wanted::parse(&format!("{}:ro", text("Photos="))).unwrap();
        assert_eq!(
            (named.name.as_str(), named.read_only, named.encrypt),
            ("Photos", true, false)
        );
        assert_eq!(named.folder, folder.canonicalize().unwrap());
        let failure = Wanted::parse(&text("")).unwrap_err();
        assert!(
            failure.code == 1 && failure.message.contains("a=b:c"),
            "{failure:?}"
        );
        for missing in ["none", "file", "file/below"] {
            let path = place.path().join(missing).display().to_string();
            let failure = Wanted::parse(&path).unwrap_err();
            assert!(
                failure.code == 3 && failure.message.contains(&path),
                "{failure:?}"
            );
        }
        assert_eq!(Wanted::parse("x=").unwrap_err().code, 1);
    }

    #[test]
    fn a_folder_stays_open_unless_it_is_another_one() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("data");
        fs::create_dir(&folder).unwrap();
        let wanted = || vec![Wanted::parse(&folder.display().to_string()).unwrap()];
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

    #[test]
    fn names_that_cannot_be() {
        for bad in [
            "",
            " a",
            "ipc$",
            "Pipe",
            "a\\b",
            "a:b",
            "a\tb",
            "..",
            &"x".repeat(81),
        ] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
        for good in ["a", "Ann's photos", "zoë", "hidden$", &"x".repeat(80)] {
            assert!(check_name(good).is_ok(), "{good}");
        }
    }
}
