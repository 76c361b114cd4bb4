//! The journal of a share's persistent handles: a folder with one record for each, so that they survive
//! the server's process ([MS-SMB2] 3.3.5.9.10).
//!
//! ```text
//! lock                     held by the server that uses the journal; touched while there are handles. Its
//!                          content is the difference of the clock and of the time since the boot
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
//! The folder is used by its descriptor: if it is renamed while the server runs, its records are still
//! written and removed.
//!
//! Who may write here may give a client handles with any rights. So the folder must belong to the server's
//! user, and be open to nobody else.

mod record;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ropeway_smb_proto::server::hub::OpenId;
use ropeway_smb_wire::Guid;
use ropeway_vfs::Timestamp;
use rustix::fs::{
    AtFlags, Dir, FlockOperation, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, flock, futimens, openat,
    renameat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

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
/// How far the clock may have been set while no server ran. A guess: more than what keeps it on time
/// does in minutes, and no more than the time between two signs of life.
const CLOCK_STEP_MAX: i128 = 1_000_000_000;

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
    folder: OwnedFd,
    boot: [u8; 16],
    /// Locked while the journal is used.
    lock: File,
    /// When the last server that used the journal was seen alive.
    last_alive: Timestamp,
    /// Whether the clock was not set since.
    clock_kept: bool,
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
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = match rustix::fs::open(folder, flags, Mode::empty()) {
            Err(Errno::LOOP | Errno::NOTDIR) => return Err(HandleJournalError::Exposed),
            opened => File::from(opened.map_err(io::Error::from)?),
        };
        let metadata = folder.metadata()?;
        let own = metadata.uid() == rustix::process::geteuid().as_raw();
        if !own || metadata.mode() & 0o077 != 0 {
            return Err(HandleJournalError::Exposed);
        }
        let folder = OwnedFd::from(folder);
        let lock = openat(&folder, LOCK, private() | OFlags::RDWR, Mode::RUSR | Mode::WUSR);
        let lock = File::from(lock.map_err(io::Error::from)?);
        wait_for_lock(&lock)?;
        let seen = lock.metadata()?;
        let nanoseconds = u32::try_from(seen.mtime_nsec()).unwrap_or(0);
        let last_alive = Timestamp::from_unix(seen.mtime(), nanoseconds);
        let mut difference = [0; 16];
        let known = lock.read_exact_at(&mut difference, 0).is_ok();
        let step = i128::from_le_bytes(difference).saturating_sub(clock_difference());
        let is_later = last_alive.0 <= now(ClockId::Realtime);
        Ok(Self {
            folder,
            boot,
            lock,
            last_alive,
            clock_kept: known && is_later && step.saturating_abs() <= CLOCK_STEP_MAX,
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

    /// Whether the clock was not set since the last server was seen alive. Otherwise the times of files
    /// do not say whether they changed since.
    pub(crate) fn is_clock_kept(&self) -> bool {
        self.clock_kept
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
        // Without them, clients lose their caches at the next start.
        _ = self.lock.write_all_at(&clock_difference().to_le_bytes(), 0);
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
        let name = name_of(id, RECORD);
        match self.unlink(&name) {
            Ok(()) => Ok(()),
            // A volume that became read-only says so of names that are not there, too.
            Err(error) => match statat(&self.folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => Ok(()),
                _ => Err(error.into()),
            },
        }
    }

    /// Reserves the numbers up to this one: handles of a later server get higher ones.
    pub(crate) fn reserve(&self, number: u64) -> io::Result<()> {
        self.replace("numbers.new", NUMBERS, format!("{number}\n").as_bytes())
    }

    /// Returns the number above which no handle has had one; `None` if it is not known.
    pub(crate) fn reserved(&self) -> Option<u64> {
        let bytes = self.read_bounded(NUMBERS, 32).ok()?;
        std::str::from_utf8(&bytes).ok()?.trim().parse().ok()
    }

    fn server_guid(&self) -> Option<Guid> {
        let kept = self.read_bounded(SERVER, 16).ok()?;
        <[u8; 16]>::try_from(kept).ok().map(Guid)
    }

    fn keep_server_guid(&self, guid: Guid) {
        if let Err(error) = self.replace("server.new", SERVER, &guid.0) {
            tracing::warn!(%error, "cannot keep the GUID of the server");
        }
    }

    fn unlink(&self, name: &str) -> rustix::io::Result<()> {
        unlinkat(&self.folder, name, AtFlags::empty())
    }

    fn replace(&self, new: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
        let write = || -> io::Result<()> {
            let flags = private() | OFlags::WRONLY | OFlags::TRUNC;
            let mut file = File::from(openat(&self.folder, new, flags, Mode::RUSR | Mode::WUSR)?);
            file.write_all(bytes)?;
            // Some file systems report a full disk only here.
            drop(file);
            Ok(renameat(&self.folder, new, &self.folder, name)?)
        };
        write().inspect_err(|_| _ = self.unlink(new))
    }

    /// Returns the records of this boot, the latest first: where two contradict each other, that one is
    /// right. All others are dropped, and the log says why.
    pub(crate) fn load(&self) -> io::Result<Vec<Record>> {
        let (mut records, mut of_other_boots) = (Vec::new(), 0_usize);
        for entry in Dir::read_from(&self.folder)?.take(NAMES_MAX) {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            match name.rsplit_once('.').map(|(_, ending)| ending) {
                Some(NEW) => _ = self.unlink(name),
                Some(RECORD) => match self.read_record(name) {
                    Ok((written, record)) if record.boot == self.boot => records.push((written, record)),
                    Ok(_) => {
                        of_other_boots += 1;
                        _ = self.unlink(name);
                    }
                    Err(error) => {
                        tracing::warn!(record = name, %error, "a persistent handle is lost: its record is unusable");
                        _ = self.unlink(name);
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
        records.sort_by_key(|(written, record)| (Reverse(*written), record.open.id));
        Ok(records.into_iter().map(|(_, record)| record).collect())
    }

    /// Returns a record, and when it was written.
    fn read_record(&self, name: &str) -> Result<((i64, i64), Record), ReadError> {
        let file = self.open_file(name)?;
        let metadata = file.metadata()?;
        let record = Record::decode(&bounded(file, LEN_MAX)?)?;
        match name == name_of(record.open.id, RECORD) {
            true => Ok(((metadata.mtime(), metadata.mtime_nsec()), record)),
            false => Err(ReadError::Name),
        }
    }

    fn open_file(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(&self.folder, name, flags, Mode::empty())?);
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn read_bounded(&self, name: &str, length_max: usize) -> io::Result<Vec<u8>> {
        bounded(self.open_file(name)?, length_max)
    }
}

/// Returns the GUID that the server had before by any of its journals, or this one if it had none, and
/// keeps it in all of them. Clients take a server with another GUID for another one ([MS-SMB2] 3.2.5.2).
pub(crate) fn server_guid(journals: &[Arc<HandleJournal>], new: Guid) -> Guid {
    let guid = journals.iter().find_map(|journal| journal.server_guid());
    let guid = guid.unwrap_or(new);
    for journal in journals {
        if journal.server_guid() != Some(guid) {
            journal.keep_server_guid(guid);
        }
    }
    guid
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

/// Returns how files are made here: following no link.
fn private() -> OFlags {
    OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// Reads a file of at most this length; a longer one is cut after one more byte.
fn bounded(file: File, length_max: usize) -> io::Result<Vec<u8>> {
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

/// Returns the difference of the clock and of the time since the boot, in nanoseconds. It changes when
/// the clock is set.
fn clock_difference() -> i128 {
    now(ClockId::Realtime).saturating_sub(now(ClockId::Boottime))
}

fn now(clock: ClockId) -> i128 {
    let now = clock_gettime(clock);
    Timestamp::from_unix(now.tv_sec, u32::try_from(now.tv_nsec).unwrap_or(0)).0
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
