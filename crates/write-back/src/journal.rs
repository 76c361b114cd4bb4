//! The folder of a journal: whose it is, its key, its lock.
//!
//! ```text
//! DIR/write-back/sessions         see SessionFile
//! DIR/write-back/SHARE/share      the far share, its volume, and a hash of the key, as text
//!                      key        32 random bytes, readable by their owner only
//!                      lock       locked while a process uses the journal
//!                      status.json
//!                      *.log      the backlogs
//!                      *.damaged  parts of backlogs that could not be read
//! ```
//! The key is not the cache's: `boost clear` replaces that one, and a lost key would lose what was
//! acknowledged.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::disk::{Disk as _, FolderDisk};
use crate::log;

/// The folder of all journals in a cache's folder.
const FOLDER: &str = "write-back";
const SHARE: &str = "share";
const KEY: &str = "key";
const LOCK: &str = "lock";
/// Longest name of a share that is read, in bytes.
const SHARE_MAX: u64 = 64 << 10;

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Another process uses it.
    #[error("another process uses the write-back journal {}", .0.display())]
    Busy(PathBuf),
    /// It has a backlog of another share.
    #[error("the write-back journal {} belongs to {there}, not to {wanted}", .path.display())]
    Other {
        /// Its folder.
        path: PathBuf,
        /// The share that it belongs to.
        there: String,
        /// The share that was asked for.
        wanted: String,
    },
    /// Others may read the key.
    #[error("others may read the key {}", .0.display())]
    OpenKey(PathBuf),
    /// Others may change the folder.
    #[error("others may change the folder {}", .0.display())]
    OpenFolder(PathBuf),
    /// There is a backlog and no key for it, or another key.
    #[error("the key {} is missing, damaged or another one, and there is a backlog that only the right one opens", .0.display())]
    NoKey(PathBuf),
    /// A file cannot be read or written.
    #[error("cannot use the write-back journal {}: {error}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// A journal that this process holds.
#[derive(Debug)]
pub struct Journal {
    pub(crate) path: PathBuf,
    pub(crate) key: [u8; 32],
    /// Locked.
    pub(crate) lock: File,
}

/// A journal with a backlog, as it lies there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The far share that it belongs to.
    pub share: String,
    /// Its folder.
    pub path: PathBuf,
    /// Files with a backlog, and the bytes of their logs.
    pub files: u64,
    /// See [`files`](Self::files).
    pub bytes: u64,
}

impl Journal {
    /// Opens the journal of a far share in a cache's folder, makes it if there is none, and locks
    /// it. `volume` tells the volume behind the share's name from another one.
    ///
    /// # Errors
    /// Another process uses it, it belongs to another share, or its files cannot be used.
    pub fn open(cache: &Path, share: &str, volume: u64) -> Result<Self, JournalError> {
        let path = path_of(cache, share);
        let io = |error| io_error(&path, error);
        let parent = folder_of_all(cache)?;
        make_folder(path.clone())?;
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        let lock = options.open(path.join(LOCK)).map_err(io)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(JournalError::Busy(path)),
            locked => locked.map_err(|error| io(error.into()))?,
        }
        let (files, _) = logs(&path).map_err(io)?;
        let identity = format!("{share}\nvolume {volume:016x}\n");
        let there = read_share(&path).unwrap_or_default();
        if files > 0 && !there.starts_with(&identity) {
            let first = |text: &str| text.lines().next().unwrap_or("an unknown share").to_owned();
            let there = match first(&there) {
                same if same == share => format!("another volume of {same}"),
                other => other,
            };
            let wanted = share.to_owned();
            return Err(JournalError::Other { path, there, wanted });
        }
        let key = key(&path, files > 0)?;
        let identity = format!("{identity}key {}\n", hex(&hash_of_key(&key)));
        // Journals of versions before this one do not say which key they have.
        let has_other_key = there.lines().nth(2).is_some() && there != identity;
        if files > 0 && has_other_key {
            return Err(JournalError::NoKey(path.join(KEY)));
        }
        if there != identity {
            replace(&path, SHARE, identity.as_bytes()).map_err(io)?;
        }
        for folder in [&path, &parent, cache] {
            File::open(folder)
                .and_then(|folder| folder.sync_all())
                .map_err(io)?;
        }
        Ok(Self { path, key, lock })
    }

    /// Returns the journals of a cache's folder that have a backlog. They need not be locked for
    /// it.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn left(cache: &Path) -> Result<Vec<Left>, JournalError> {
        let left = Self::all(cache)?;
        Ok(left.into_iter().filter(|left| left.files > 0).collect())
    }

    /// Returns all journals of a cache's folder.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn all(cache: &Path) -> Result<Vec<Left>, JournalError> {
        let parent = cache.join(FOLDER);
        let entries = match fs::read_dir(&parent) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(io_error(&parent, error)),
        };
        let mut all = Vec::new();
        for entry in entries {
            let path = entry.map_err(|error| io_error(&parent, error))?.path();
            if !path.is_dir() {
                continue;
            }
            let (files, bytes) = logs(&path).map_err(|error| io_error(&path, error))?;
            let share = read_share(&path).unwrap_or_default();
            let share = share.lines().next().unwrap_or("an unknown share").to_owned();
            all.push(Left {
                share,
                path,
                files,
                bytes,
            });
        }
        all.sort_by(|a, b| a.share.cmp(&b.share));
        Ok(all)
    }
}

/// Makes the folder of all journals of a cache's folder, if there is none, and returns it.
pub(crate) fn folder_of_all(cache: &Path) -> Result<PathBuf, JournalError> {
    make_folder(cache.join(FOLDER))
}

/// Makes a folder if there is none. Refuses one that others may change.
fn make_folder(path: PathBuf) -> Result<PathBuf, JournalError> {
    match DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(io_error(&path, error)),
        _ => check_owner(&path)?,
    }
    Ok(path)
}

pub(crate) fn io_error(path: &Path, error: io::Error) -> JournalError {
    JournalError::Io {
        path: path.to_owned(),
        error,
    }
}

/// Returns the folder of a share's journal.
fn path_of(cache: &Path, share: &str) -> PathBuf {
    let hash = digest(&SHA256, share.as_bytes());
    cache.join(FOLDER).join(hex(&hash.as_ref()[..8]))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns what tells a key from another one, and says nothing else of it.
fn hash_of_key(key: &[u8; 32]) -> [u8; 8] {
    let mut text = b"ropeway write-back key ".to_vec();
    text.extend_from_slice(key);
    let hash = digest(&SHA256, &text);
    hash.as_ref().first_chunk().copied().unwrap_or_default()
}

/// Returns the number of files with a log, and the bytes of the logs.
fn logs(path: &Path) -> io::Result<(u64, u64)> {
    let (mut files, mut bytes) = (std::collections::HashSet::new(), 0);
    for (name, length) in FolderDisk::open(path)?.list()? {
        if let Some((file, _)) = log::parse_name(&name) {
            files.insert(file);
            bytes += length;
        }
    }
    Ok((files.len() as u64, bytes))
}

fn read_share(path: &Path) -> Option<String> {
    let mut text = String::new();
    let file = File::open(path.join(SHARE)).ok()?;
    file.take(SHARE_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Refuses a folder that others may change: they could remove what was acknowledged.
fn check_owner(path: &Path) -> Result<(), JournalError> {
    let found = path.metadata().map_err(|error| io_error(path, error))?;
    match found.mode() & 0o022 == 0 && is_owner_trusted(&found) {
        true => Ok(()),
        false => Err(JournalError::OpenFolder(path.to_owned())),
    }
}

/// Whether this user or root owns it.
fn is_owner_trusted(found: &fs::Metadata) -> bool {
    [0, geteuid().as_raw()].contains(&found.uid())
}

fn key(path: &Path, has_backlog: bool) -> Result<[u8; 32], JournalError> {
    let at = path.join(KEY);
    let mut bytes = Vec::new();
    match File::open(&at) {
        Ok(file) => {
            let found = file.metadata().map_err(|error| io_error(&at, error))?;
            if found.mode() & 0o077 != 0 || !is_owner_trusted(&found) {
                return Err(JournalError::OpenKey(at));
            }
            // Longer than a key is no key.
            let read = file.take(64).read_to_end(&mut bytes);
            read.map_err(|error| io_error(&at, error))?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(io_error(&at, error)),
    }
    if let Ok(key) = <[u8; 32]>::try_from(bytes) {
        return Ok(key);
    }
    if has_backlog {
        return Err(JournalError::NoKey(at));
    }
    let mut key = [0; 32];
    let filled = aws_lc_rs::rand::fill(&mut key);
    filled.map_err(|_| io_error(&at, io::Error::other("no random numbers")))?;
    replace(path, KEY, &key).map_err(|error| io_error(&at, error))?;
    Ok(key)
}

/// Replaces a file of the folder as a whole and makes it durable; only its owner can read it.
pub(crate) fn replace(folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    put(folder, name, content)?.sync_all()?;
    fs::rename(new_name(folder, name), folder.join(name))
}

/// Replaces a file of the folder as a whole.
pub(crate) fn replace_unsynced(folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    put(folder, name, content)?;
    fs::rename(new_name(folder, name), folder.join(name))
}

fn new_name(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.new"))
}

fn put(folder: &Path, name: &str, content: &[u8]) -> io::Result<File> {
    let new = new_name(folder, name);
    // A killed process may have left one. What is opened is new: no link is followed.
    let _ = fs::remove_file(&new);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(new)?;
    file.write_all(content)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_belongs_to_one_share_one_volume_and_one_process() {
        let cache = tempfile::tempdir().unwrap();
        let open = |share: &str, volume| Journal::open(cache.path(), share, volume);
        let first = open("smb://far/share", 1).unwrap();
        assert!(matches!(open("smb://far/share", 1), Err(JournalError::Busy(_))));
        let other = open("smb://far/other", 1).unwrap();
        assert_ne!(first.key, other.key);
        let (path, key) = (first.path.clone(), first.key);
        drop(first);
        // Without a backlog the share may be on another volume.
        let first = open("smb://far/share", 2).unwrap();
        assert_eq!((first.path.clone(), first.key), (path.clone(), key));
        drop(first);
        fs::write(path.join(log::name_of(1, 0)), b"x").unwrap();
        assert!(matches!(
            open("smb://far/share", 3),
            Err(JournalError::Other { .. })
        ));
        assert_eq!(open("smb://far/share", 2).unwrap().key, key);
        let left = Journal::left(cache.path()).unwrap();
        assert_eq!((left.len(), left[0].files, left[0].bytes), (1, 1, 1));
        assert_eq!(left[0].share, "smb://far/share");
        // Nor is another key taken: the backlog would be unreadable.
        fs::write(path.join(KEY), [9; 32]).unwrap();
        assert!(matches!(open("smb://far/share", 2), Err(JournalError::NoKey(_))));
        fs::write(path.join(KEY), key).unwrap();
        assert_eq!(open("smb://far/share", 2).unwrap().key, key);
        // Whoever owns the key could write to the far share, and whoever may change the folder could
        // remove what was acknowledged.
        if geteuid().is_root() {
            for at in [&path.join(KEY), &path] {
                std::os::unix::fs::chown(at, Some(12_345), None).unwrap();
                let refused = open("smb://far/share", 2);
                assert!(matches!(
                    refused,
                    Err(JournalError::OpenKey(_) | JournalError::OpenFolder(_))
                ));
                std::os::unix::fs::chown(at, Some(0), None).unwrap();
            }
        }
        // A key is never replaced under a backlog.
        fs::remove_file(path.join(KEY)).unwrap();
        assert!(matches!(open("smb://far/share", 2), Err(JournalError::NoKey(_))));
        assert!(
            Journal::left(tempfile::tempdir().unwrap().path())
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn a_link_in_place_of_an_unfinished_file_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("other");
        fs::write(&other, "another file").unwrap();
        std::os::unix::fs::symlink(&other, new_name(folder.path(), KEY)).unwrap();
        replace(folder.path(), KEY, b"key").unwrap();
        assert_eq!(fs::read(folder.path().join(KEY)).unwrap(), b"key");
        assert_eq!(fs::read(&other).unwrap(), b"another file");
    }
}
