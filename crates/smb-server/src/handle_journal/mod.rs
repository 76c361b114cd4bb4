//! The journal of a share's persistent handles: a folder with one record for each, so that they survive
//! the server's process ([MS-SMB2] 3.3.5.9.10).
//!
//! ```text
//! lock                     held by the server that uses the journal; touched while there are handles
//! numbers                  no handle has had a number above this
//! server                   the GUID of the server
//! 00000000000000a1.handle  a record, named after the number of its handle
//! 00000000000000a1.new     the next record of that handle, not complete yet
//! ```
//! A record is written under another name and then renamed, so there is a whole one or none. It is not made
//! durable: it must survive the process, and not the machine. After a power cut, what clients wrote may be
//! gone from the page cache, so they must not get their handles back. Each record names the boot of the
//! machine, and those of other boots are dropped.
//!
//! Who may write here may give a client handles with any rights. So the folder must belong to the server's
//! user, and be open to nobody else.

mod record;
#[cfg(test)]
mod tests;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use ropeway_smb_proto::server::hub::OpenId;
use ropeway_smb_wire::Guid;
use ropeway_vfs::Timestamp;
use rustix::fs::{FlockOperation, Timespec, Timestamps, UTIME_NOW, flock, futimens};

pub(crate) use record::Record;
use record::{LEN_MAX, RecordError};

/// Ending of a record's name.
const RECORD: &str = "handle";
/// Ending of a record that is not complete.
const NEW: &str = "new";
/// Name of the file that is locked.
const LOCK: &str = "lock";
/// Name of the file with the highest number.
const NUMBERS: &str = "numbers";

/// Name of the file with the server's GUID.
const SERVER: &str = "server";

/// Longest wait for a server that is just ending. A guess: the kernel releases a killed process' lock
/// when it has freed its memory.
const LOCK_PATIENCE: Duration = Duration::from_secs(3);
/// Number of names that are looked at. More than the hub's handles, and their incomplete records.
const NAMES_MAX: usize = 65_536;

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HandleJournalError {
    /// Another server uses it.
    #[error("another server keeps the handles of this folder there")]
    InUse,
    /// Others have access to it.
    #[error("it belongs to another user, or others have access to it")]
    Exposed,
    /// It cannot be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// The journal of the persistent handles of a folder. A share with one is continuously available.
#[derive(Debug)]
pub struct HandleJournal {
    folder: PathBuf,
    boot: [u8; 16],
    /// Locked while the journal is used.
    lock: File,
    /// When the last server that used the journal was seen alive.
    last_alive: Timestamp,
}

impl HandleJournal {
    /// Opens the journal in a folder, and makes it if it is missing.
    ///
    /// # Errors
    /// Another server uses it, others have access to it, or it cannot be read or written.
    pub fn open(folder: &Path) -> Result<Self, HandleJournalError> {
        Self::open_in_boot(folder, boot_id()?)
    }

    /// As [`Self::open`], in a boot of the machine that the caller names, for tests.
    ///
    /// # Errors
    /// As [`Self::open`].
    #[doc(hidden)]
    pub fn open_in_boot(folder: &Path, boot: [u8; 16]) -> Result<Self, HandleJournalError> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let metadata = fs::symlink_metadata(folder)?;
        let own = metadata.uid() == rustix::process::geteuid().as_raw();
        if !metadata.is_dir() || !own || metadata.mode() & 0o077 != 0 {
            return Err(HandleJournalError::Exposed);
        }
        let mut options = private();
        let lock = options.truncate(false).read(true).open(folder.join(LOCK))?;
        wait_for_lock(&lock)?;
        let seen = lock.metadata()?;
        let nanoseconds = u32::try_from(seen.mtime_nsec()).unwrap_or(0);
        Ok(Self {
            folder: folder.to_path_buf(),
            boot,
            lock,
            last_alive: Timestamp::from_unix(seen.mtime(), nanoseconds),
        })
    }

    /// Returns the boot of the machine, for new records.
    pub(crate) fn boot(&self) -> [u8; 16] {
        self.boot
    }

    /// Returns when the last server that used the journal was seen alive.
    pub(crate) fn last_alive(&self) -> Timestamp {
        self.last_alive
    }

    /// Notes that the server is alive. It watches its files until then: see `ops::restore`.
    pub(crate) fn note_alive(&self) {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        };
        let times = Timestamps {
            last_access: now,
            last_modification: now,
        };
        // Without it, clients lose their caches at the next start.
        _ = futimens(&self.lock, &times);
    }

    /// Writes the record of a handle, in place of an earlier one.
    pub(crate) fn put(&self, record: &Record) -> io::Result<()> {
        let bytes = record.encode();
        if bytes.len() > LEN_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.replace(
            &name_of(record.open.id, NEW),
            &name_of(record.open.id, RECORD),
            &bytes,
        )
    }

    /// Removes the record of a handle, if there is one.
    pub(crate) fn remove(&self, id: OpenId) -> io::Result<()> {
        match fs::remove_file(self.folder.join(name_of(id, RECORD))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Reserves the numbers up to this one: handles of a later server get higher ones.
    pub(crate) fn reserve(&self, number: u64) -> io::Result<()> {
        self.replace("numbers.new", NUMBERS, format!("{number}\n").as_bytes())
    }

    /// Returns the number above which no handle has had one; `None` if it is not known.
    pub(crate) fn reserved(&self) -> Option<u64> {
        let bytes = read_bounded(&self.folder.join(NUMBERS), 32).ok()?;
        std::str::from_utf8(&bytes).ok()?.trim().parse().ok()
    }

    /// Returns the GUID that the server had before, or this one if it had none. Clients take a server
    /// with another GUID for another one ([MS-SMB2] 3.2.5.2).
    pub(crate) fn server_guid(&self, new: Guid) -> Guid {
        let kept = read_bounded(&self.folder.join(SERVER), 16).ok();
        if let Some(Ok(kept)) = kept.map(<[u8; 16]>::try_from) {
            return Guid(kept);
        }
        if let Err(error) = self.replace("server.new", SERVER, &new.0) {
            tracing::warn!(%error, "cannot keep the GUID of the server");
        }
        new
    }

    fn replace(&self, new: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
        let new = self.folder.join(new);
        let write = || {
            let mut file = private().truncate(true).open(&new)?;
            file.write_all(bytes)?;
            // Some file systems report a full disk only here.
            drop(file);
            fs::rename(&new, self.folder.join(name))
        };
        write().inspect_err(|_| _ = fs::remove_file(&new))
    }

    /// Returns the records of this boot, by number. All others are dropped, and the log says why.
    pub(crate) fn load(&self) -> io::Result<Vec<Record>> {
        let (mut records, mut of_other_boots) = (Vec::new(), 0_usize);
        for entry in fs::read_dir(&self.folder)?.take(NAMES_MAX) {
            let path = entry?.path();
            match path.extension().and_then(|ending| ending.to_str()) {
                Some(NEW) => _ = fs::remove_file(&path),
                Some(RECORD) => match read_record(&path) {
                    Ok(record) if record.boot == self.boot => records.push(record),
                    Ok(_) => {
                        of_other_boots += 1;
                        _ = fs::remove_file(&path);
                    }
                    Err(error) => {
                        tracing::warn!(record = %path.display(), %error, "a persistent handle is lost: its record is unusable");
                        _ = fs::remove_file(&path);
                    }
                },
                _ => {}
            }
        }
        if of_other_boots > 0 {
            tracing::warn!(
                handles = of_other_boots,
                "the machine was started again: persistent handles from before are lost, as what was written may be"
            );
        }
        records.sort_by_key(|record| record.open.id);
        Ok(records)
    }
}

fn read_record(path: &Path) -> Result<Record, ReadError> {
    let record = Record::decode(&read_bounded(path, LEN_MAX)?)?;
    let name = path.file_name().and_then(|name| name.to_str());
    match name == Some(name_of(record.open.id, RECORD).as_str()) {
        true => Ok(record),
        false => Err(ReadError::Name),
    }
}

/// Why a file is no record.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Record(#[from] RecordError),
    #[error("its name is that of another handle")]
    Name,
}

fn name_of(id: OpenId, ending: &str) -> String {
    format!("{:016x}.{ending}", id.get())
}

/// Returns how files are made here: for the owner alone, following no link.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    let no_link = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0);
    options.write(true).create(true).mode(0o600).custom_flags(no_link);
    options
}

/// Reads a file of at most this length; a longer one is cut after one more byte.
fn read_bounded(path: &Path, length_max: usize) -> io::Result<Vec<u8>> {
    let mut options = OpenOptions::new();
    let no_link = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0);
    let file = options.read(true).custom_flags(no_link).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::new();
    file.take(length_max as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn wait_for_lock(file: &File) -> Result<(), HandleJournalError> {
    let mut waited = Duration::ZERO;
    let step = Duration::from_millis(50);
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::WOULDBLOCK) if waited < LOCK_PATIENCE => thread::sleep(step),
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(HandleJournalError::InUse),
            Err(error) => return Err(HandleJournalError::Io(error.into())),
        }
        waited += step;
    }
}

/// Returns the number that the kernel gave this boot of the machine.
fn boot_id() -> io::Result<[u8; 16]> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&digits, 16).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(number.to_be_bytes())
}

/// Decodes what may be a record, and encodes it again, for fuzz targets.
///
/// # Panics
/// A record that was decoded is not the same after it was encoded.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz_record(bytes: &[u8]) {
    // A checksum would keep nearly everything from the decoder.
    let mut framed = b"RopewayH\x01\x00".to_vec();
    framed.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    framed.extend_from_slice(&crc32fast::hash(bytes).to_le_bytes());
    framed.extend_from_slice(bytes);
    for input in [bytes, &framed] {
        if let Ok(record) = Record::decode(input) {
            assert_eq!(Record::decode(&record.encode()), Ok(record));
        }
    }
}
