//! Places that arguments name: local paths, and servers or shares with paths on them.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use ropeway_smb_wire::names::{NameMapping, to_wire};
use ropeway_vfs::{Name, RelPath};

use crate::failure::{Failure, code};
use crate::spelling::{Refusal, Spelling, spelling};
use crate::url::{Address, SmbUrl};

/// A place, absolute or as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A path on this machine.
    Local(PathBuf),
    /// A server, a share, or a path on a share.
    Remote(SmbUrl),
}

impl Place {
    /// Returns the URL, if the place is on a share.
    pub(crate) fn url(&self) -> Option<&SmbUrl> {
        match self {
            Self::Remote(url) => Some(url),
            Self::Local(_) => None,
        }
    }

    /// Parses an argument. A name that other programs take for a place on another machine
    /// (`nas:backup`) is a path if such a file exists.
    ///
    /// # Errors
    /// The argument begins like a URL but is not a valid one, or names a place that cannot be reached
    /// ([`Spelling`]).
    pub(crate) fn parse(argument: &Path) -> Result<Self, Failure> {
        let url = match spelling(argument.as_os_str().as_bytes()) {
            Spelling::Path => return Ok(Self::Local(argument.to_path_buf())),
            Spelling::HostPath(_) | Spelling::Switch(_) if argument.symlink_metadata().is_ok() => {
                return Ok(Self::Local(argument.to_path_buf()));
            }
            Spelling::Slashes(_) if is_local(argument) => return Ok(Self::Local(argument.to_path_buf())),
            Spelling::HostPath(refusal) | Spelling::Switch(refusal) | Spelling::Refused(refusal) => {
                return Err(refused(argument, refusal));
            }
            Spelling::Smb => argument.as_os_str().as_bytes().to_vec(),
            Spelling::Unc(url) | Spelling::Slashes(url) => url,
        };
        SmbUrl::parse(&url).map(Self::Remote).map_err(|fault| {
            let message = match fault.is_quotable {
                true => format!("{}: {}", argument.display(), fault.message),
                false => fault.message,
            };
            Failure::usage(message).hint(fault.hint)
        })
    }

    /// Parses one end of a copy; a server without a share is refused.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse), and a URL without a share.
    pub(crate) fn parse_end(argument: &Path) -> Result<Self, Failure> {
        let place = Self::parse(argument)?;
        match &place {
            Self::Remote(url) if url.share.is_none() => {
                Err(Failure::usage(format!("{url} names a server, but no share"))
                    .hint(format!("`ropeway ls {url}` lists its shares")))
            }
            _ => Ok(place),
        }
    }

    /// Parses a place that is to be changed; a snapshot of a share is refused, and so is `nas:backup`
    /// even if a local file of that name exists: it may stem from an earlier mistake.
    ///
    /// # Errors
    /// As for [`parse_end`](Self::parse_end), and a path in a snapshot.
    pub(crate) fn parse_target(argument: &Path) -> Result<Self, Failure> {
        if let Spelling::HostPath(refusal) = spelling(argument.as_os_str().as_bytes()) {
            return Err(refused(argument, refusal));
        }
        let place = Self::parse_end(argument)?;
        match &place {
            Self::Remote(url) if url.snapshot().is_some() => Err(Failure::new(
                code::TARGET,
                format!("{url} is in a snapshot of the share, and snapshots are read-only"),
            )
            .hint("remove the component that begins with @GMT from the target")),
            _ => Ok(place),
        }
    }

    /// Returns the parent folder; `None` at the top.
    pub(crate) fn parent(&self) -> Option<Self> {
        match self {
            Self::Local(path) => path.parent().map(|parent| Self::Local(parent.to_path_buf())),
            Self::Remote(url) => url.parent().map(Self::Remote),
        }
    }

    /// Returns the last name.
    pub(crate) fn name(&self) -> Option<Name> {
        match self {
            Self::Local(path) => path.file_name().and_then(|name| Name::new(name.as_bytes())),
            Self::Remote(url) => url.file_name(),
        }
    }

    /// Returns what messages about nodes below this place begin with: its last name, if it has one.
    pub(crate) fn shown_name(&self) -> RelPath {
        self.name()
            .map_or_else(RelPath::root, |name| RelPath::root().join(&name))
    }

    /// Returns the place at a path below this one.
    pub(crate) fn join(&self, path: &RelPath) -> Self {
        match self {
            Self::Local(folder) if path.is_root() => Self::Local(folder.clone()),
            Self::Local(folder) => Self::Local(folder.join(path.as_path())),
            Self::Remote(url) => Self::Remote(url.with_path(url.path.join_path(path))),
        }
    }

    /// Returns the tree to open for a folder, and the folder's path in it. A tree's root must have
    /// only names that the server sees as plain text. A folder with other names is reached from its
    /// deepest ancestor that has none of them.
    pub(crate) fn rooted(&self) -> (Self, RelPath) {
        let Self::Remote(url) = self else {
            return (self.clone(), RelPath::root());
        };
        let is_plain = |name: &Name| {
            std::str::from_utf8(name.as_bytes()).is_ok_and(|text| {
                let units = to_wire(name.as_bytes(), NameMapping::None);
                !text.contains('\\') && text.encode_utf16().eq(units.units().iter().copied())
            })
        };
        let (mut root, mut rest, mut is_below) = (RelPath::root(), RelPath::root(), false);
        for name in url.path.components() {
            is_below |= !is_plain(&name);
            if is_below {
                rest = rest.join(&name);
            } else {
                root = root.join(&name);
            }
        }
        (Self::Remote(url.with_path(root)), rest)
    }

    /// Returns whether this place is `above` or is below it, judged by spelling alone.
    pub(crate) fn starts_with(&self, above: &Self) -> bool {
        match (self, above) {
            (Self::Local(path), Self::Local(above)) => path.starts_with(above),
            (Self::Remote(url), Self::Remote(above)) => {
                url.same_share(above) && url.path.strip_prefix(&above.path).is_some()
            }
            _ => false,
        }
    }

    /// Returns the text that identifies the place in a job's key. Different places have different
    /// texts; the user who logs in makes no difference.
    pub(crate) fn identity(&self) -> String {
        match self {
            Self::Local(path) => identity(path.as_os_str().as_bytes(), ""),
            Self::Remote(url) => {
                let share = url.share.as_deref().unwrap_or_default().to_lowercase();
                let server = format!("{}{}/{share}/", url.server.prefix(), Address(&url.server));
                identity(url.path.as_bytes(), &server)
            }
        }
    }

    /// Returns the name of a node below this place, for messages.
    pub(crate) fn below(&self, path: &RelPath) -> String {
        match path.is_root() {
            true => self.to_string(),
            false => format!("{}/{path}", self.to_string().trim_end_matches('/')),
        }
    }

    /// Returns the path if the place is on this machine.
    pub(crate) fn local(&self) -> Option<&Path> {
        match self {
            Self::Local(path) => Some(path),
            Self::Remote(_) => None,
        }
    }
}

fn refused(argument: &Path, refusal: Refusal) -> Failure {
    Failure::usage(format!("{}: {}", argument.display(), refusal.message)).hint(refusal.hint)
}

/// Whether a path that begins with two slashes is one of this machine: its first folder exists.
fn is_local(path: &Path) -> bool {
    let first = path.components().find_map(|part| match part {
        Component::Normal(name) => Some(name),
        _ => None,
    });
    first.is_some_and(|first| Path::new("/").join(first).symlink_metadata().is_ok())
}

/// Returns UTF-8 as it is, and other bytes in hexadecimal after a NUL, which no path can contain.
fn identity(bytes: &[u8], before: &str) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => format!("{before}{text}"),
        Err(_) => bytes
            .iter()
            .fold(format!("{before}\0"), |text, byte| format!("{text}{byte:02x}")),
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => write!(f, "{}", path.display()),
            Self::Remote(url) => write!(f, "{url}"),
        }
    }
}

impl From<PathBuf> for Place {
    fn from(path: PathBuf) -> Self {
        Self::Local(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    fn place(text: &str) -> Place {
        Place::parse(Path::new(text)).unwrap()
    }

    #[test]
    fn errors_quote_the_argument_but_never_a_password() {
        let failure = Place::parse(Path::new("smb://nas:x/s")).unwrap_err();
        assert!(
            failure.message.starts_with("smb://nas:x/s: ") && failure.hint.is_some(),
            "{failure:?}"
        );
        let failure = Place::parse(Path::new("smb://ann:hunter2@nas/s")).unwrap_err();
        assert!(!format!("{failure:?}").contains("hunter2"), "{failure:?}");
        assert!(
            Place::parse_end(Path::new("smb://nas/"))
                .unwrap_err()
                .message
                .contains("no share")
        );
        assert!(Place::parse(Path::new("cifs://nas/s")).is_err());
    }

    #[test]
    fn other_spellings_of_shares_are_places_on_them() {
        assert_eq!(place(r"\\NAS\photos\a"), place("smb://nas/photos/a"));
        assert_eq!(
            place("//no-such-folder/photos"),
            place("smb://no-such-folder/photos")
        );
        assert_eq!(place("//usr/share"), Place::Local("//usr/share".into()));
        for elsewhere in ["nas:backup", r"C:\x", "s3://bucket/x"] {
            let failure = Place::parse(Path::new(elsewhere)).unwrap_err();
            assert_eq!(failure.code, code::USAGE);
            assert!(failure.message.starts_with(elsewhere), "{failure:?}");
        }
    }

    #[test]
    fn a_local_name_with_a_colon_is_a_source_and_no_target() {
        let folder = tempfile::tempdir().unwrap();
        // Tests run beside each other, so the working folder stays what it is.
        let name = format!("nas:{}", folder.path().file_name().unwrap().display());
        std::fs::write(&name, b"").unwrap();
        let (source, target) = (
            Place::parse(Path::new(&name)),
            Place::parse_target(Path::new(&name)),
        );
        std::fs::remove_file(&name).unwrap();
        assert_eq!(source, Ok(Place::Local(PathBuf::from(&name))));
        assert!(target.is_err_and(|failure| failure.hint.is_some_and(|hint| hint.contains("./nas:"))));
    }

    #[test]
    fn equal_places_have_equal_identities() {
        let same = |one: &str, other: &str| assert_eq!(place(one).identity(), place(other).identity());
        same("smb://ann@NAS/Share/a", "smb://WORK;bob@nas:445/share/x/../a");
        let differs = |one: &str, other: &str| assert_ne!(place(one).identity(), place(other).identity());
        differs("smb://nas/s/a", "smb://nas:1445/s/a");
        differs("smb://nas/s/a", "smb://nas/s/A");
        differs("smb://nas/s/%ff", "smb://nas/s/%fe");
        let local = |bytes: &[u8]| Place::Local(OsStr::from_bytes(bytes).into()).identity();
        assert_ne!(local(b"/\xff"), local(b"/\xfe"));
        assert_eq!(local(b"/a"), "/a");
    }

    #[test]
    fn names_that_are_not_plain_text_stay_out_of_the_root() {
        let rooted = |text: &str| {
            let (root, rest) = place(text).rooted();
            (root.to_string(), rest.as_bytes().to_vec())
        };
        assert_eq!(
            rooted("smb://nas/s/a/é b"),
            ("smb://nas/s/a/é b".to_owned(), b"".to_vec())
        );
        assert_eq!(
            rooted("smb://nas/s/a/%ff/b"),
            ("smb://nas/s/a".to_owned(), b"\xff/b".to_vec())
        );
        assert_eq!(
            rooted("smb://nas/s/a%5Cb"),
            ("smb://nas/s".to_owned(), b"a\\b".to_vec())
        );
        assert_eq!(rooted("/a/b").1, b"");
    }

    #[test]
    fn starts_with_and_parent_follow_the_path() {
        assert!(place("smb://nas/s/a/b").starts_with(&place("smb://nas/S/a")));
        assert!(!place("smb://nas/s/ab").starts_with(&place("smb://nas/s/a")));
        assert!(!place("smb://nas/s/a").starts_with(&place("smb://nas/t")));
        assert!(!place("/s/a").starts_with(&place("smb://nas/s")));
        let root = place("smb://nas/s");
        assert_eq!(root.parent(), None);
        assert_eq!(root.join(&RelPath::parse(b"a").unwrap()), place("smb://nas/s/a"));
        assert_eq!(place("smb://nas/s/a").parent(), Some(root));
    }
}
