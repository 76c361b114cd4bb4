//! The journal of a job: what a later run needs to go on where this one stopped.
//!
//! One file in the job's folder, records appended as they happen. A record is
//! `length: u32 | CRC-32: u32 | JSON`, little-endian; reading ends at the first record that is torn or does not
//! match its sum, so a kill in the middle of an append loses that record only. Records:
//!
//! * `Begin`: a run started: boot id and wall-clock time, the nonce of all temporary names, and what the job copies.
//!   Each run is an *epoch*.
//! * `Place`: temporary names are made in a folder that users see.
//! * `File`: the transfer of a file larger than one batch began (token, version of its source, identity of its target).
//! * `Folder`: a folder was made under a temporary name.
//! * `Written`: every byte of that file below an offset was handed to the target.
//! * `Durable`: at the moment `before` (wall clock, taken before the sync) everything was durable, and of the open
//!   files the bytes below the given offsets.
//! * `Closed`: a file is finished, or a folder has its own name.
//! * `Lost`: a flush failed. The kernel reports that once, so only this record tells later runs.
//! * `Links`: names of files with several names are made or removed, which changes the change time of data that the run did
//!   not write.
//! * `ClockStepped`: the wall clock was set back, so change times tell nothing.
//!
//! What follows from the records is in [`Memory`]. A journal that cannot be read stands for a run of which nothing is
//! known: nothing on the target is trusted then.
//!
//! The folder is locked (flock) while a job runs; it is removed when the job is finished.

mod begin;
mod list;
mod memory;
mod store;

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ropeway_plan::{Nonce, Version};
use ropeway_vfs::{Metadata, RelPath, Timestamp};
use serde::{Deserialize, Serialize};

pub(crate) use self::begin::begin;
pub use self::list::{UnfinishedJob, forget_job, unfinished_jobs};
pub(crate) use self::memory::{Made, Memory};
pub use self::store::{JournalFile, JournalFolder, JournalStore};
use crate::context::lock;
use crate::environment::{Environment, WallClock};

/// Format version; a journal of another one is not read.
const VERSION: u32 = 2;
/// Longest record; a longer length field means damage.
const RECORD_MAX: u32 = 1 << 20;
/// Bytes of all the sources that a journal names, far below [`RECORD_MAX`]: they are for people.
const NAMED_MAX: usize = 64 << 10;

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
    /// The journals of all jobs.
    pub store: Arc<dyn JournalStore>,
    /// The job.
    pub key: JobKey,
    /// Its sources, as people know them.
    pub sources: Vec<String>,
    /// Its target, as people know it.
    pub target: String,
}

/// Whether a folder of journals holds one of an unfinished job with this key.
pub fn unfinished(state_dir: &Path, key: &JobKey) -> bool {
    store::holds_journal(&state_dir.join(key.id()))
}

/// Identity of a file within a job: a hash of root and path.
pub(crate) type Token = u64;

/// The start of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Begin {
    version: u32,
    boot: String,
    started: Timestamp,
    nonce: u64,
    /// Final names are given only to what is durable.
    names_durable: bool,
    sources: Vec<String>,
    target: String,
}

#[derive(Debug, Serialize, Deserialize)]
// Externally tagged: an internal tag goes through a buffer that cannot hold 128-bit times.
#[serde(rename_all = "snake_case")]
enum Record {
    Begin(Begin),
    Place {
        /// The path on the target, in bytes.
        dir: Vec<u8>,
    },
    File {
        token: Token,
        source: Version,
        durable: u64,
        target: Option<Made>,
    },
    Folder {
        token: Token,
        made: Made,
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
    Lost {},
    ClockStepped {},
    Links {},
}

/// An open journal.
#[derive(Debug)]
pub(crate) struct Journal {
    id: String,
    store: Arc<dyn JournalStore>,
    boot: String,
    file: Box<dyn JournalFile>,
    /// Appends come one after the other.
    appending: Mutex<()>,
    memory: Memory,
    nonce: Nonce,
    clock: WallClock,
    /// The last `Begin`.
    begin: Begin,
    /// The step of the clock is recorded.
    stepped: AtomicBool,
    /// That names of files change is recorded.
    has_links: AtomicBool,
}

impl Journal {
    /// Opens or creates the journal of a job and begins an epoch. `names_durable`: whether this run gives final names
    /// only to what is durable.
    ///
    /// # Errors
    /// The folder cannot be made, the file not read or written, or (`WouldBlock`) the job is running already.
    pub(crate) fn open(
        spec: &JournalSpec,
        environment: &Environment,
        names_durable: bool,
    ) -> io::Result<Self> {
        let boot = environment.boot_id.clone();
        let file = spec.store.open(&spec.key.id())?;
        let bytes = file.read()?;
        let (memory, valid) = read(&bytes, &boot);
        let is_unknown = (valid == 0 && !bytes.is_empty()) || file.is_lost();
        if valid < bytes.len() {
            file.truncate(valid as u64)?;
        }
        let nonce = match memory.nonce.or_else(|| nonce_of_spoiled(&bytes)) {
            Some(nonce) => nonce,
            None => Nonce(environment.random.next()?),
        };
        let begin = Begin {
            version: VERSION,
            boot: boot.clone(),
            started: environment.clock.now(),
            nonce: nonce.0,
            names_durable,
            sources: named(&spec.sources),
            target: spec.target.clone(),
        };
        let mut journal = Self {
            id: spec.key.id(),
            store: Arc::clone(&spec.store),
            boot,
            file,
            appending: Mutex::default(),
            memory,
            nonce,
            clock: environment.clock.clone(),
            begin,
            stepped: AtomicBool::new(false),
            has_links: AtomicBool::new(false),
        };
        if is_unknown {
            for record in [Record::Begin(Begin::unknown(nonce)), Record::Lost {}] {
                journal.append(&record)?;
                journal.memory.apply(record, &journal.boot);
            }
        }
        journal.memory.begin(journal.begin.started);
        journal.append(&Record::Begin(journal.begin.clone()))?;
        journal.sync()?;
        // A journal that a power cut takes away would be no reason for doubt.
        journal.file.sync_name()?;
        journal.file.forget_lost()?;
        Ok(journal)
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The random part of the job's temporary names.
    pub(crate) fn nonce(&self) -> Nonce {
        self.nonce
    }

    /// The job's id: [`JobKey::id`].
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The store that holds this journal and those of other jobs.
    pub(crate) fn store(&self) -> &Arc<dyn JournalStore> {
        &self.store
    }

    /// Folder for other files of the job, if it has one.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.file.folder()
    }

    /// Whether the time of a file may be that of a write of this job, and not one that the job gave it when it was whole. Blocks
    /// are written in any order: what has its whole length may lack some of them.
    pub(crate) fn may_be_unfinished(&self, found: &Metadata, grain_ns: u64) -> bool {
        self.memory.may_be_unfinished(found, grain_ns)
    }

    /// Whether an earlier run ended in another boot, or in one that is not known.
    pub(crate) fn outlived_a_boot(&self) -> bool {
        self.memory.has_other_boot(&self.boot)
    }

    /// As [`Memory::trusts`], for the running boot.
    pub(crate) fn trusts(&self, changed: Option<Timestamp>, unseen: bool) -> bool {
        self.memory.trusts(changed, unseen, &self.boot)
    }

    /// As [`trusts`](Self::trusts), without the page cache: whether it is on the device. A write-back that failed after
    /// the run that wrote it was killed may have been told to somebody else.
    pub(crate) fn trusts_device(&self, changed: Option<Timestamp>, unseen: bool) -> bool {
        self.memory.trusts(changed, unseen, "")
    }

    /// Records that temporary names are made in `dir`.
    pub(crate) fn place(&self, dir: &RelPath) -> io::Result<()> {
        let dir = dir.as_bytes().to_vec();
        self.append(&Record::Place { dir })
    }

    /// The folders in which this job has made temporary names, in all its runs; each once. Read from the file, since
    /// they may be many.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub(crate) fn places(&self) -> io::Result<Vec<RelPath>> {
        Ok(places(&self.file.read()?))
    }

    /// Begins a file, of which `durable` bytes are there and durable already.
    pub(crate) fn file_begun(
        &self,
        token: Token,
        source: Version,
        durable: u64,
        target: Option<Made>,
    ) -> io::Result<()> {
        self.append(&Record::File {
            token,
            source,
            durable,
            target,
        })
    }

    /// A folder was made under its temporary name.
    pub(crate) fn folder_made(&self, token: Token, made: Made) -> io::Result<()> {
        self.append(&Record::Folder { token, made })
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

    /// Records that a flush failed: what was not durable before is lost, for this and every later run.
    ///
    /// # Errors
    /// It cannot be recorded, and the journal cannot be made useless either.
    pub(crate) fn lost(&self) -> io::Result<()> {
        self.memory.lose();
        let told = self.append(&Record::Lost {}).and_then(|()| self.sync());
        told.or_else(|_| self.file.spoil())
    }

    /// Begins an epoch anew, behind a loss that this run learned of: it has written nothing yet.
    pub(crate) fn begin_again(&self) -> io::Result<()> {
        let mut begin = self.begin.clone();
        begin.started = self.clock.now();
        self.append(&Record::Begin(begin))?;
        self.sync()
    }

    /// Records, once, that the wall clock was set back.
    pub(crate) fn clock_stepped(&self) -> io::Result<()> {
        if self.stepped.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.append(&Record::ClockStepped {})?;
        self.sync()
    }

    /// Records, once, that this run meets files with several names. A name that goes gives the file a new change time, and
    /// another name of it then looks like something that this run wrote.
    pub(crate) fn links(&self) -> io::Result<()> {
        if self.has_links.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.memory.relink();
        self.append(&Record::Links {})?;
        self.sync()
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    /// The job is finished: removes its journal.
    pub(crate) fn finish(&self) -> io::Result<()> {
        self.file.remove()
    }

    fn append(&self, record: &Record) -> io::Result<()> {
        let json = serde_json::to_vec(record)?;
        let mut framed = Vec::with_capacity(8 + json.len());
        framed.extend_from_slice(&(json.len() as u32).to_le_bytes());
        framed.extend_from_slice(&crc32fast::hash(&json).to_le_bytes());
        framed.extend_from_slice(&json);
        let _one_at_a_time = lock(&self.appending);
        self.file.append(&framed)
    }
}

impl Begin {
    /// Of a run of which nothing is known.
    fn unknown(nonce: Nonce) -> Self {
        Self {
            version: VERSION,
            boot: String::new(),
            started: Timestamp(0),
            nonce: nonce.0,
            names_durable: false,
            sources: Vec::new(),
            target: String::new(),
        }
    }
}

/// As many sources as may be named; a last one that is none tells that there are more.
fn named(sources: &[String]) -> Vec<String> {
    let mut bytes = 0;
    let fits = |source: &&String| {
        bytes += source.len();
        bytes <= NAMED_MAX
    };
    let mut named: Vec<String> = sources.iter().take_while(fits).cloned().collect();
    if named.len() < sources.len() {
        named.push(format!("... {} more", sources.len() - named.len()));
    }
    named
}

/// Replays all valid records; the second value is where they end.
fn read(bytes: &[u8], boot: &str) -> (Memory, usize) {
    let mut memory = Memory::default();
    let mut at = 0;
    while let Some((record, next)) = next_record(bytes, at) {
        // What stands before the first run, or was written by another version, is not understood.
        let is_known = match &record {
            Record::Begin(begin) => begin.version == VERSION,
            _ => at > 0,
        };
        if !is_known {
            return (Memory::default(), 0);
        }
        memory.apply(record, boot);
        at = next;
    }
    (memory, at)
}

/// The nonce that stands behind the spoiled head of a journal's first record: names of it may be on the target.
fn nonce_of_spoiled(bytes: &[u8]) -> Option<Nonce> {
    let mut values = serde_json::Deserializer::from_slice(bytes.get(8..)?).into_iter();
    match values.next()?.ok()? {
        Record::Begin(begin) if begin.version == VERSION => Some(Nonce(begin.nonce)),
        _ => None,
    }
}

/// The places that records name, each once, in order.
fn places(bytes: &[u8]) -> Vec<RelPath> {
    let (mut places, mut at) = (BTreeSet::new(), 0);
    while let Some((record, next)) = next_record(bytes, at) {
        if let Record::Place { dir } = record {
            places.extend(RelPath::parse(&dir));
        }
        at = next;
    }
    places.into_iter().collect()
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
#[path = "journal/tests.rs"]
mod tests;
