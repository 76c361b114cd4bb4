//! The journal of a job: what a later run needs to go on where this one stopped.
//!
//! One file in the job's folder, records appended as they happen. A record is
//! `length: u32 | CRC-32: u32 | JSON`, little-endian; reading ends at the first record that is torn or does not
//! match its sum, so a kill in the middle of an append loses that record only. Records:
//!
//! * `Begin`: a run started: boot id and wall-clock time. Each run is an *epoch*.
//! * `File`: the transfer of a file larger than one batch began (token, size and time of its source).
//! * `Written`: every byte of that file below an offset was handed to the target.
//! * `Durable`: at the moment `before` (wall clock, taken before the sync) everything was durable, and of the open
//!   files the bytes below the given offsets.
//! * `Closed`: a file is finished.
//!
//! Trust ([`Memory::trust_whole`]): what was written in the same boot is there, the page cache outlives a killed
//! process. After another boot only what was durable is, told by the change time of the target file: older than
//! the epoch's last `Durable` moment.
//!
//! The folder is locked (flock) while a job runs; it is removed when the job is finished.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use ropeway_vfs::Timestamp;
use serde::{Deserialize, Serialize};

use crate::context::lock;

/// Format version; another one is not read.
const VERSION: u32 = 1;
/// Longest record; a longer length field means damage.
const RECORD_MAX: u32 = 1 << 20;
const FILE_NAME: &str = "journal";

/// Identity of a job: its sources and its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobKey([u8; 8]);

impl JobKey {
    /// The key of a job that copies `sources` (absolute paths or URLs, in order) to `target` (the final absolute
    /// path or URL).
    pub fn new(sources: &[String], target: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in sources.iter().map(String::as_str).chain(["", target]) {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        let mut id = [0; 8];
        hasher.finalize_xof().fill(&mut id);
        Self(id)
    }

    /// 16 hexadecimal digits.
    pub fn id(&self) -> String {
        format!("{:016x}", u64::from_be_bytes(self.0))
    }
}

/// Where a job keeps its journal.
#[derive(Clone, Debug)]
pub struct JournalSpec {
    /// Folder of all jobs, e.g. `$XDG_STATE_HOME/ropeway/jobs`; made if missing.
    pub state_dir: PathBuf,
    /// Identity of the running boot (`/proc/sys/kernel/random/boot_id`) and of the target's mount: what was written but
    /// not durable is lost with either. Empty: unknown, nothing written is trusted.
    pub boot_id: String,
    /// The job.
    pub key: JobKey,
}

/// Whether there is a journal of an unfinished job with this key.
pub fn unfinished(state_dir: &Path, key: &JobKey) -> bool {
    state_dir.join(key.id()).join(FILE_NAME).is_file()
}

/// Identity of a file within a job: a hash of root and path.
pub(crate) type Token = u64;

#[derive(Debug, Serialize, Deserialize)]
// Externally tagged: an internal tag goes through a buffer that cannot hold 128-bit times.
#[serde(rename_all = "snake_case")]
enum Record {
    Begin {
        version: u32,
        boot: String,
        started: Timestamp,
    },
    File {
        token: Token,
        size: u64,
        modified: Timestamp,
        durable: u64,
        /// The number of the file that is written, where it has its own name already.
        #[serde(default)]
        target: Option<u64>,
    },
    Written {
        token: Token,
        upto: u64,
    },
    Durable {
        before: Timestamp,
        files: Vec<(Token, u64)>,
    },
    Closed {
        token: Token,
    },
}

#[derive(Clone, Debug)]
struct Epoch {
    boot: String,
    started: Timestamp,
    durable_before: Option<Timestamp>,
}

impl Epoch {
    /// Whether it was in this boot; an unknown boot is none.
    fn is(&self, boot: &str) -> bool {
        !boot.is_empty() && self.boot == boot
    }
}

/// What an earlier run recorded of one file.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct FileRecord {
    pub(crate) size: u64,
    pub(crate) modified: Timestamp,
    pub(crate) written: u64,
    pub(crate) durable: u64,
    /// The number of the file that was written, where it had its own name already.
    pub(crate) target: Option<u64>,
    /// Recorded in the running boot.
    pub(crate) same_boot: bool,
    /// Finished; the number of syncs recorded before.
    closed: Option<u32>,
}

/// What earlier runs of a job left behind.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    epochs: Vec<Epoch>,
    files: HashMap<Token, FileRecord>,
    syncs: u32,
}

impl Memory {
    /// Whether there was an earlier run.
    pub(crate) fn resumed(&self) -> bool {
        !self.epochs.is_empty()
    }

    pub(crate) fn file(&self, token: Token) -> Option<FileRecord> {
        self.files.get(&token).copied()
    }

    /// The epoch in which something changed at `changed` on the target: whether in this boot, and its watermark.
    /// `None`: before the job's first run.
    pub(crate) fn epoch_of(&self, changed: Timestamp, boot: &str) -> Option<(bool, Option<Timestamp>)> {
        let epoch = self.epochs.iter().rev().find(|epoch| epoch.started <= changed)?;
        Some((epoch.is(boot), epoch.durable_before))
    }

    /// Whether all runs were in this boot.
    pub(crate) fn only_boot(&self, boot: &str) -> bool {
        self.epochs.iter().all(|epoch| epoch.is(boot))
    }

    /// Whether a file that looks complete on the target, last changed at `changed`, is really there.
    pub(crate) fn trust_whole(&self, changed: Option<Timestamp>, boot: &str) -> bool {
        let Some(changed) = changed else {
            return self.only_boot(boot);
        };
        match self.epoch_of(changed, boot) {
            None | Some((true, _)) => true,
            Some((false, watermark)) => watermark.is_some_and(|before| changed < before),
        }
    }

    fn apply(&mut self, record: Record, boot: &str) {
        let same_boot = self.epochs.last().is_some_and(|epoch| epoch.is(boot));
        match record {
            Record::Begin { boot, started, .. } => {
                self.epochs.push(Epoch {
                    boot,
                    started,
                    durable_before: None,
                });
            }
            Record::File {
                token,
                size,
                modified,
                durable,
                target,
            } => {
                let record = FileRecord {
                    size,
                    modified,
                    written: durable,
                    durable,
                    target,
                    same_boot,
                    closed: None,
                };
                self.files.insert(token, record);
            }
            Record::Written { token, upto } => {
                if let Some(file) = self.files.get_mut(&token) {
                    file.written = file.written.max(upto);
                    file.same_boot = same_boot;
                }
            }
            Record::Durable { before, files } => {
                if let Some(epoch) = self.epochs.last_mut() {
                    epoch.durable_before = Some(before);
                }
                // The sync after the one that may have been under way when a file was finished covers it.
                self.syncs += 1;
                let syncs = self.syncs;
                self.files
                    .retain(|_, file| file.closed.is_none_or(|closed| closed + 2 > syncs));
                for (token, upto) in files {
                    if let Some(file) = self.files.get_mut(&token) {
                        file.durable = file.durable.max(upto);
                    }
                }
            }
            Record::Closed { token } => {
                // Kept until it is durable: a power cut may undo its name, not what was durable of its data.
                let syncs = self.syncs;
                if let Some(file) = self.files.get_mut(&token) {
                    file.closed = Some(syncs);
                }
            }
        }
    }
}

/// An open journal.
#[derive(Debug)]
pub(crate) struct Journal {
    folder: PathBuf,
    boot: String,
    file: Mutex<File>,
    memory: Memory,
    id: String,
}

impl Journal {
    /// Opens or creates the journal of a job and begins an epoch.
    ///
    /// # Errors
    /// The folder cannot be made, the file not read or written, or (`WouldBlock`) the job is running already.
    pub(crate) fn open(spec: &JournalSpec, now: Timestamp) -> io::Result<Self> {
        let folder = spec.state_dir.join(spec.key.id());
        fs::create_dir_all(&folder)?;
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .append(true)
            .open(folder.join(FILE_NAME))?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let (memory, valid) = read(&bytes, &spec.boot_id);
        if valid < bytes.len() {
            file.set_len(valid as u64)?;
        }
        let journal = Self {
            folder,
            boot: spec.boot_id.clone(),
            file: Mutex::new(file),
            memory,
            id: spec.key.id(),
        };
        journal.append(&Record::Begin {
            version: VERSION,
            boot: journal.boot.clone(),
            started: now,
        })?;
        journal.sync()?;
        Ok(journal)
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn boot(&self) -> &str {
        &self.boot
    }

    /// Begins a file, of which `durable` bytes are there and durable already.
    pub(crate) fn file_begun(
        &self,
        token: Token,
        size: u64,
        modified: Timestamp,
        durable: u64,
        target: Option<u64>,
    ) -> io::Result<()> {
        self.append(&Record::File {
            token,
            size,
            modified,
            durable,
            target,
        })
    }

    pub(crate) fn written(&self, token: Token, upto: u64) -> io::Result<()> {
        self.append(&Record::Written { token, upto })
    }

    pub(crate) fn closed(&self, token: Token) -> io::Result<()> {
        self.append(&Record::Closed { token })
    }

    /// Records that everything older than `before` is durable, and makes the record itself so.
    pub(crate) fn durable(&self, before: Timestamp, files: Vec<(Token, u64)>) -> io::Result<()> {
        self.append(&Record::Durable { before, files })?;
        self.sync()
    }

    fn sync(&self) -> io::Result<()> {
        // The lock is not held over the sync: appends go on meanwhile.
        let file = lock(&self.file).try_clone()?;
        file.sync_data()
    }

    /// The job is finished: removes its folder.
    pub(crate) fn finish(&self) -> io::Result<()> {
        fs::remove_dir_all(&self.folder)
    }

    fn append(&self, record: &Record) -> io::Result<()> {
        let json = serde_json::to_vec(record)?;
        let mut framed = Vec::with_capacity(8 + json.len());
        framed.extend_from_slice(&(json.len() as u32).to_le_bytes());
        framed.extend_from_slice(&crc32fast::hash(&json).to_le_bytes());
        framed.extend_from_slice(&json);
        lock(&self.file).write_all(&framed)
    }
}

/// Replays all valid records; the second value is where they end.
fn read(bytes: &[u8], boot: &str) -> (Memory, usize) {
    let mut memory = Memory::default();
    let mut at = 0;
    while let Some((record, next)) = next_record(bytes, at) {
        if let Record::Begin { version, .. } = &record
            && *version != VERSION
        {
            return (Memory::default(), 0);
        }
        memory.apply(record, boot);
        at = next;
    }
    (memory, at)
}

fn next_record(bytes: &[u8], at: usize) -> Option<(Record, usize)> {
    let head = bytes.get(at..at + 8)?;
    let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    let sum = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    if length > RECORD_MAX {
        return None;
    }
    let end = at + 8 + length as usize;
    let json = bytes.get(at + 8..end)?;
    if crc32fast::hash(json) != sum {
        return None;
    }
    Some((serde_json::from_slice(json).ok()?, end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spec(dir: &Path, boot: &str) -> JournalSpec {
        JournalSpec {
            state_dir: dir.to_path_buf(),
            boot_id: boot.to_owned(),
            key: JobKey::new(&["/a".into()], "/b"),
        }
    }

    #[test]
    fn the_same_boot_trusts_the_written_another_only_the_durable() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(&spec(dir.path(), "one"), Timestamp(100)).unwrap();
        journal.file_begun(7, 1000, Timestamp(5), 0, None).unwrap();
        journal.written(7, 600).unwrap();
        journal.durable(Timestamp(150), vec![(7, 400)]).unwrap();
        drop(journal);
        assert!(unfinished(dir.path(), &JobKey::new(&["/a".into()], "/b")));
        let again = Journal::open(&spec(dir.path(), "one"), Timestamp(200)).unwrap();
        let file = again.memory().file(7).unwrap();
        assert_eq!((file.written, file.durable, file.same_boot), (600, 400, true));
        assert!(again.memory().trust_whole(Some(Timestamp(180)), "one"));
        drop(again);
        let other = Journal::open(&spec(dir.path(), "two"), Timestamp(300)).unwrap();
        assert!(!other.memory().file(7).unwrap().same_boot);
        assert!(
            other.memory().trust_whole(Some(Timestamp(90)), "two"),
            "older than the job"
        );
        assert!(
            other.memory().trust_whole(Some(Timestamp(140)), "two"),
            "before the watermark"
        );
        assert!(
            !other.memory().trust_whole(Some(Timestamp(160)), "two"),
            "after the watermark"
        );
        assert!(
            !other.memory().trust_whole(Some(Timestamp(250)), "two"),
            "second run had no watermark"
        );
        other.finish().unwrap();
        assert!(!unfinished(dir.path(), &JobKey::new(&["/a".into()], "/b")));
    }

    #[test]
    fn a_running_job_is_locked() {
        let dir = tempfile::tempdir().unwrap();
        let first = Journal::open(&spec(dir.path(), "one"), Timestamp(1)).unwrap();
        let second = Journal::open(&spec(dir.path(), "one"), Timestamp(2)).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::WouldBlock);
        drop(first);
    }

    proptest! {
        #[test]
        fn damage_never_panics_and_keeps_what_precedes_it(cut in 0usize..400, flip in 0usize..400) {
            let dir = tempfile::tempdir().unwrap();
            let journal = Journal::open(&spec(dir.path(), "one"), Timestamp(1)).unwrap();
            for upto in 1..5u64 {
                journal.file_begun(upto, 10, Timestamp(1), 0, None).unwrap();
                journal.written(upto, upto).unwrap();
            }
            let path = journal.folder().join(FILE_NAME);
            drop(journal);
            let mut bytes = fs::read(&path).unwrap();
            bytes.truncate(cut.max(8));
            if let Some(byte) = bytes.get_mut(flip) { *byte ^= 0x10; }
            let (memory, valid) = read(&bytes, "one");
            prop_assert!(valid <= bytes.len());
            prop_assert!(memory.files.len() <= 4);
        }
    }
}
