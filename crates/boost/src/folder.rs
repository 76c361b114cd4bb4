//! The folder of a cache: one preallocated file, its key, and its status.
//!
//! ```text
//! DIR/blocks        the cache (docs/adr/0017), locked while it is in use
//! DIR/key           32 random bytes, readable by their owner only
//! DIR/device.json   how fast the device was at creation
//! DIR/status.json   figures of the last or the running session
//! DIR/learned       what predictions have learned (`ahead`)
//! ```
//!
//! A folder with anything else in it is refused, and so is a file that is not a cache: neither is
//! changed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use ropeway_cache::{Cache, Config, FileDevice, Opened};
use rustix::fs::statvfs;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use crate::probe;

/// Largest size by default, in bytes.
const DEFAULT_MAX: u64 = 32 << 30;
/// Smallest useful size, in bytes: some segments and their reserve.
pub const SIZE_MIN: u64 = 128 << 20;

/// How long a cache may be in use by a process that is ending. A guess: flushing one takes less.
const BUSY_WAIT: Duration = Duration::from_secs(2);
const BUSY_PAUSE: Duration = Duration::from_millis(20);

const BLOCKS: &str = "blocks";
const KEY: &str = "key";
const DEVICE: &str = "device.json";
/// The folder of write-back journals (crate `write-back`).
const JOURNALS: &str = "write-back";
pub(crate) const STATUS: &str = "status.json";
pub(crate) const LEARNED: &str = "learned";

/// Why a folder cannot be used as a cache.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// There is no such folder.
    #[error("there is no folder {}", .0.display())]
    Missing(PathBuf),
    /// It has no cache.
    #[error("{} has no cache", .0.display())]
    NoCache(PathBuf),
    /// It has one already.
    #[error("{} has a cache already", .0.display())]
    Exists(PathBuf),
    /// It has other files, or a file that is not a cache.
    #[error("{} has other files ({name}); nothing was changed", .path.display())]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// One of the files.
        name: String,
    },
    /// Another process uses it.
    #[error("the cache in {} is in use by {by}", .path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
        /// The process.
        by: String,
    },
    /// Others may read the key.
    #[error("others may read the key {}", .0.display())]
    OpenKey(PathBuf),
    /// Others may change the folder.
    #[error("others may change the folder {}", .0.display())]
    OpenFolder(PathBuf),
    /// There is not enough space.
    #[error("{} has {free} bytes free; the cache would take {wanted}", .path.display())]
    NoSpace {
        /// The folder.
        path: PathBuf,
        /// Bytes free.
        free: u64,
        /// Bytes wanted.
        wanted: u64,
    },
    /// The engine refuses the file.
    #[error("cannot use the cache in {}: {error}", .path.display())]
    Cache {
        /// The folder.
        path: PathBuf,
        /// Why.
        error: ropeway_cache::Error,
    },
    /// A file of the folder cannot be read or written.
    #[error("cannot use {}: {error}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// What is known of the device.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct DeviceFigures {
    /// Bytes per second that it reads in sequence.
    pub sequential_read_bytes_per_s: Option<f64>,
}

/// A cache folder that this process holds.
pub struct OpenFolder {
    /// The cache.
    pub cache: Cache,
    /// What was found.
    pub opened: Opened,
    /// Whether the key was missing or damaged, and was made anew.
    pub is_key_new: bool,
    /// Bytes of the cache's file.
    pub size: u64,
    /// Figures of the device.
    pub figures: DeviceFigures,
    /// The folder.
    pub path: PathBuf,
}

/// Returns the default size of a cache on a volume with this free space.
pub fn default_size(free: u64) -> u64 {
    (free / 2).min(DEFAULT_MAX) / (1 << 20) * (1 << 20)
}

/// Returns the bytes free on a folder's volume.
pub fn free_space(path: &Path) -> Result<u64, FolderError> {
    let volume = statvfs(path).map_err(|error| io_error(path, error.into()))?;
    Ok(volume.f_bavail.saturating_mul(volume.f_frsize))
}

/// Whether a folder is missing or empty, so that a cache can be made in it.
pub fn is_vacant(path: &Path) -> Result<bool, FolderError> {
    if !path.try_exists().map_err(|error| io_error(path, error))? {
        return Ok(true);
    }
    Ok(foreign(path)?.is_none() && !path.join(BLOCKS).try_exists().unwrap_or(true))
}

/// Makes a cache in an empty or missing folder. `size`: bytes, or the default. Returns its size.
pub fn create(path: &Path, size: Option<u64>) -> Result<u64, FolderError> {
    let io = |error| io_error(path, error);
    if path.join(BLOCKS).symlink_metadata().is_ok() {
        return Err(FolderError::Exists(path.to_owned()));
    }
    if path.symlink_metadata().is_err() {
        fs::DirBuilder::new().mode(0o700).create(path).map_err(io)?;
    }
    check_owner(path)?;
    if let Some(name) = foreign(path)? {
        return Err(foreign_file(path, &name));
    }
    let free = free_space(path)?;
    let size = size.unwrap_or_else(|| default_size(free)) / 4096 * 4096;
    if size > free || size < SIZE_MIN {
        return Err(FolderError::NoSpace {
            path: path.to_owned(),
            free,
            wanted: size.max(SIZE_MIN),
        });
    }
    let figures = DeviceFigures {
        sequential_read_bytes_per_s: probe::sequential_read(path).ok(),
    };
    let text = serde_json::to_vec(&figures).map_err(|error| io(error.into()))?;
    replace(&path.join(DEVICE), &text).map_err(io)?;
    new_key(path).map_err(io)?;
    let made = FileDevice::open(&path.join(BLOCKS), size);
    let made = made.map_err(|error| cache_error(path, error));
    let opened = made.and_then(|device| {
        let (key, _) = key(path)?;
        open_cache(path, device, &key).map(|(cache, _)| cache.flush())
    });
    if opened.is_err() {
        // Ours: there was none before.
        let _ = fs::remove_file(path.join(BLOCKS));
    }
    opened.map(|_| size)
}

/// Opens the cache of a folder and locks it against other processes.
pub fn open(path: &Path) -> Result<OpenFolder, FolderError> {
    let io = |error| io_error(path, error);
    let file = path.join(BLOCKS);
    let found = match file.symlink_metadata() {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let is_there = path.try_exists().unwrap_or(false);
            return Err(match is_there {
                true => match foreign(path)? {
                    Some(name) => foreign_file(path, &name),
                    None => FolderError::NoCache(path.to_owned()),
                },
                false => FolderError::Missing(path.to_owned()),
            });
        }
        Err(error) => return Err(io(error)),
    };
    if !found.is_file() || found.len() == 0 {
        return Err(foreign_file(path, BLOCKS));
    }
    check_owner(path)?;
    let device = lock(&file).map_err(|error| match error {
        ropeway_cache::Error::Busy => FolderError::Busy {
            path: path.to_owned(),
            by: user_of(path),
        },
        error => cache_error(path, error),
    })?;
    let (key, is_key_new) = key(path)?;
    let (cache, opened) = open_cache(path, device, &key)?;
    if is_key_new {
        // Only now: a foreign file's folder is not changed.
        replace(&path.join(KEY), &key).map_err(io)?;
    }
    let figures = fs::read(path.join(DEVICE)).ok();
    Ok(OpenFolder {
        cache,
        opened,
        is_key_new,
        size: found.len(),
        figures: figures
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default(),
        path: path.to_owned(),
    })
}

/// Opens and locks the cache's file. After `umount` its last process still flushes for a moment.
fn lock(file: &Path) -> Result<FileDevice, ropeway_cache::Error> {
    let deadline = Instant::now() + BUSY_WAIT;
    loop {
        match FileDevice::open(file, 0) {
            Err(ropeway_cache::Error::Busy) if Instant::now() < deadline => thread::sleep(BUSY_PAUSE),
            opened => return opened,
        }
    }
}

/// Empties the cache of a folder: its blocks cannot be read any more. Returns its size.
pub fn clear(path: &Path) -> Result<u64, FolderError> {
    let io = |error| io_error(path, error);
    // Held until the new key is there.
    let held = open(path)?;
    new_key(path).map_err(io)?;
    let size = held.size;
    drop(held);
    let reopened = open(path)?;
    let flushed = reopened.cache.flush();
    flushed.map_err(|error| cache_error(path, error))?;
    let _ = fs::remove_file(path.join(STATUS));
    remove_learned(path)?;
    Ok(size)
}

/// Forgets what predictions have learned, and keeps the blocks.
pub fn forget(path: &Path) -> Result<(), FolderError> {
    // A session would save it again.
    let held = open(path)?;
    let removed = remove_learned(path);
    drop(held);
    removed
}

fn remove_learned(path: &Path) -> Result<(), FolderError> {
    match fs::remove_file(path.join(LEARNED)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error(path, error)),
        _ => Ok(()),
    }
}

/// Reads what predictions have learned; `None` if there is nothing, or too much to be true.
pub(crate) fn learned(path: &Path, bytes_max: u64) -> Option<Vec<u8>> {
    let file = File::open(path.join(LEARNED)).ok()?;
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= bytes_max).then_some(bytes)
}

/// Returns the bytes of a folder's cache.
pub fn size(path: &Path) -> Result<u64, FolderError> {
    match path.join(BLOCKS).symlink_metadata() {
        Ok(found) if found.is_file() => Ok(found.len()),
        Ok(_) => Err(foreign_file(path, BLOCKS)),
        Err(_) if !path.try_exists().unwrap_or(true) => Err(FolderError::Missing(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(FolderError::NoCache(path.to_owned())),
        Err(error) => Err(io_error(path, error)),
    }
}

/// Returns whether a process uses the cache, and which.
pub fn in_use_by(path: &Path) -> Option<String> {
    holder(path).map(named)
}

fn io_error(path: &Path, error: io::Error) -> FolderError {
    FolderError::Io {
        path: path.to_owned(),
        error,
    }
}

fn cache_error(path: &Path, error: ropeway_cache::Error) -> FolderError {
    FolderError::Cache {
        path: path.to_owned(),
        error,
    }
}

fn foreign_file(path: &Path, name: &str) -> FolderError {
    FolderError::Foreign {
        path: path.to_owned(),
        name: name.to_owned(),
    }
}

fn open_cache(path: &Path, device: FileDevice, key: &[u8; 32]) -> Result<(Cache, Opened), FolderError> {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let (epoch, start) = (since_epoch.unwrap_or_default(), Instant::now());
    let config = Config {
        seed: u64::from(epoch.subsec_nanos()),
        ..Config::default()
    };
    // Hours of the day, by a clock that does not go back.
    let clock = Arc::new(move || epoch + start.elapsed());
    Cache::open(Box::new(device), key, &config, clock).map_err(|error| match error {
        ropeway_cache::Error::Foreign => foreign_file(path, BLOCKS),
        error => cache_error(path, error),
    })
}

/// Returns the name of a file that is not part of a cache, if there is one.
fn foreign(path: &Path) -> Result<Option<String>, FolderError> {
    let io = |error| io_error(path, error);
    for entry in fs::read_dir(path).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        // An empty volume of ext4 has one.
        let is_ours = [
            "lost+found",
            KEY,
            DEVICE,
            STATUS,
            LEARNED,
            BLOCKS,
            JOURNALS,
            probe::NAME,
        ]
        .iter()
        .any(|own| name == *own);
        if !is_ours {
            return Ok(Some(name.to_string_lossy().into_owned()));
        }
    }
    Ok(None)
}

/// Refuses a folder that others may change: a link of theirs could lead what is written here to
/// another file, and blocks of theirs would be taken for the share's.
fn check_owner(path: &Path) -> Result<(), FolderError> {
    let found = path.metadata().map_err(|error| io_error(path, error))?;
    match found.mode() & 0o022 == 0 && is_owner_trusted(&found) {
        true => Ok(()),
        false => Err(FolderError::OpenFolder(path.to_owned())),
    }
}

/// Whether this user or root owns it.
fn is_owner_trusted(found: &fs::Metadata) -> bool {
    [0, geteuid().as_raw()].contains(&found.uid())
}

/// Reads the key; makes one up if it is missing or damaged.
fn key(path: &Path) -> Result<([u8; 32], bool), FolderError> {
    let at = path.join(KEY);
    let io = |error| io_error(&at, error);
    let mut bytes = Vec::new();
    match File::open(&at) {
        Ok(file) => {
            let found = file.metadata().map_err(io)?;
            if found.mode() & 0o077 != 0 || !is_owner_trusted(&found) {
                return Err(FolderError::OpenKey(at));
            }
            // Longer than a key is no key.
            file.take(64).read_to_end(&mut bytes).map_err(io)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(io(error)),
    }
    match bytes.try_into() {
        Ok(key) => Ok((key, false)),
        Err(_) => Ok((random_key().map_err(io)?, true)),
    }
}

fn random_key() -> io::Result<[u8; 32]> {
    let mut key = [0; 32];
    aws_lc_rs::rand::fill(&mut key).map_err(|_| io::Error::other("no random numbers"))?;
    Ok(key)
}

fn new_key(path: &Path) -> io::Result<()> {
    replace(&path.join(KEY), &random_key()?)
}

/// Replaces a file as a whole; only its owner can read it.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(probe::TEMPORARY);
    let temporary = path.with_file_name(name);
    // A killed process may have left one. What is opened is new: no link is followed.
    let _ = fs::remove_file(&temporary);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(content)?;
    fs::rename(&temporary, path)
}

/// Returns who uses the cache, for messages.
fn user_of(path: &Path) -> String {
    holder(path).map_or_else(|| "another process".to_owned(), named)
}

/// Returns the process that holds the lock (proc_locks(5)). Unknown on btrfs, whose files have
/// other device numbers than its volumes.
fn holder(path: &Path) -> Option<u32> {
    let found = path.join(BLOCKS).metadata().ok()?;
    let (major, minor) = (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
    let file = format!("{major:02x}:{minor:02x}:{}", found.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (kind, pid, place) = (fields.next()?, fields.nth(2)?, fields.next()?);
        (kind == "FLOCK" && place == file).then(|| pid.parse().ok())?
    })
}

fn named(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line).replace('\0', " ");
    match line.trim() {
        "" => format!("process {pid}"),
        line => format!("process {pid} ({line})"),
    }
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
