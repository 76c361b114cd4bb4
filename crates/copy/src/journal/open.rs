//! An open journal: appends records, and answers from what earlier runs recorded.
//!
//! Appends are serialised. What must survive a power cut is synced at once; the rest becomes
//! durable with the next such record.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use ropeway_plan::{MadeNode, Nonce, Version};
use ropeway_vfs::{Metadata, RelPath, Timestamp};

use crate::job::environment::{Environment, WallClock};
use crate::journal::memory::Memory;
use crate::journal::record::{Begin, Record, VERSION, next_record, recorded_places};
use crate::journal::store::{JournalFile, JournalStore, holds_journal};
use crate::journal::token::Token;

/// Bytes of all the sources that a journal names, far below the longest record: they are for
/// people.
const NAMED_MAX: usize = 64 << 10;

/// Identity of a job: its sources and its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobKey([u8; 8]);

impl JobKey {
    /// Returns the key of a job that copies `sources` (absolute paths or URLs, in order) to
    /// `target` (the final absolute path or URL).
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

    /// Returns the key as 16 hexadecimal digits.
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
    /// Its sources as the user wrote them.
    pub sources: Vec<String>,
    /// Its target as the user wrote it.
    pub target: String,
}

/// Whether a folder of journals holds one of an unfinished job with this key.
pub fn unfinished(state_dir: &Path, key: &JobKey) -> bool {
    holds_journal(&state_dir.join(key.id()))
}

/// Where the next record is appended.
#[derive(Debug)]
struct End {
    /// Bytes of whole records.
    length: u64,
    /// Whether an append that failed may have left bytes behind them. No record behind those would
    /// be read.
    is_torn: bool,
}

/// An open journal.
#[derive(Debug)]
pub(crate) struct Journal {
    id: String,
    store: Arc<dyn JournalStore>,
    boot: String,
    file: Box<dyn JournalFile>,
    /// Held while a record is appended.
    end: Mutex<End>,
    memory: Memory,
    nonce: Nonce,
    clock: WallClock,
    /// The last `Begin` record.
    begin: Begin,
    /// Whether the step of the clock is recorded.
    stepped: AtomicBool,
    /// Whether it is recorded that names of files change.
    has_links: AtomicBool,
}

impl Journal {
    /// Opens or creates the journal of a job and begins an epoch. `names_durable` is whether this
    /// run gives final names only to what is durable. Nothing that an earlier run changed has a change
    /// time of this epoch: the process of that run has ended, since it held the lock.
    ///
    /// # Errors
    /// The folder cannot be made, the file cannot be read or written, or (`WouldBlock`) the job is
    /// running already.
    pub(crate) async fn open(
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
            started: match memory.resumed() {
                true => environment.clock.next_tick().await,
                false => environment.clock.now(),
            },
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
            end: Mutex::new(End {
                length: valid as u64,
                is_torn: false,
            }),
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
        // A journal that a power cut removes would be no reason for doubt.
        journal.file.sync_name()?;
        journal.file.forget_lost()?;
        Ok(journal)
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the nonce of the job's temporary names.
    pub(crate) fn nonce(&self) -> Nonce {
        self.nonce
    }

    /// Returns the id of the job: [`JobKey::id`].
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the store that holds this journal and those of other jobs.
    pub(crate) fn store(&self) -> &Arc<dyn JournalStore> {
        &self.store
    }

    /// Returns the folder for other files of the job, if it has one.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.file.folder()
    }

    /// Whether the time of a file may be that of a write by this job, and not one that the job gave
    /// the complete file. Blocks are written in any order, so a file with its whole length may lack
    /// some of them.
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

    /// As [`trusts`](Self::trusts), without the page cache: whether it is on the device. The
    /// failure of a write-back after its run was killed may have been reported to somebody else.
    pub(crate) fn trusts_device(&self, changed: Option<Timestamp>, unseen: bool) -> bool {
        self.memory.trusts(changed, unseen, "")
    }

    /// Records that temporary names are made in `dir`.
    pub(crate) fn place(&self, dir: &RelPath) -> io::Result<()> {
        let dir = dir.as_bytes().to_vec();
        self.append(&Record::Place { dir })
    }

    /// Returns the folders in which this job has made temporary names, in all its runs, each once.
    /// They are read from the file, because there may be many.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub(crate) fn places(&self) -> io::Result<Vec<RelPath>> {
        Ok(recorded_places(&self.file.read()?))
    }

    /// Records that a file begins, of which `durable` bytes are there and durable already.
    pub(crate) fn file_begun(
        &self,
        token: Token,
        source: Version,
        durable: u64,
        target: Option<MadeNode>,
    ) -> io::Result<()> {
        self.append(&Record::File {
            token,
            source,
            durable,
            target,
            is_kept: false,
        })
    }

    /// Records that the backup of a file is made, and that `target` takes the place of what it
    /// keeps. Makes the record durable.
    ///
    /// # Errors
    /// It may not be durable. Then nothing may replace the file: the next run would take the
    /// result for another version of the user.
    pub(crate) fn kept(&self, token: Token, source: Version, target: MadeNode) -> io::Result<()> {
        self.append(&Record::File {
            token,
            source,
            durable: 0,
            target: Some(target),
            is_kept: true,
        })?;
        self.sync()
    }

    /// Records that a folder was made under its temporary name.
    pub(crate) fn folder_made(&self, token: Token, made: MadeNode) -> io::Result<()> {
        self.append(&Record::Folder { token, made })
    }

    pub(crate) fn written(&self, token: Token, upto: u64) -> io::Result<()> {
        self.append(&Record::Written { token, upto })
    }

    pub(crate) fn closed(&self, token: Token) -> io::Result<()> {
        self.append(&Record::Closed { token })
    }

    /// Records that everything older than `before` is durable. The record itself is durable after
    /// [`sync`](Self::sync).
    pub(crate) fn durable(&self, before: Timestamp, files: Vec<(Token, u64)>) -> io::Result<()> {
        self.append(&Record::Durable { before, files })
    }

    /// Records that a flush failed: what was not durable before is lost for this and every later
    /// run.
    ///
    /// # Errors
    /// It cannot be recorded, and the journal cannot be spoiled either.
    pub(crate) fn lost(&self) -> io::Result<()> {
        self.memory.lose();
        let told = self.append(&Record::Lost {}).and_then(|()| self.sync());
        told.or_else(|_| self.file.spoil())
    }

    /// Begins a new epoch after a loss that this run learned of. The run has written nothing yet.
    pub(crate) async fn begin_again(&self) -> io::Result<()> {
        let mut begin = self.begin.clone();
        begin.started = self.clock.next_tick().await;
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

    /// Records, once, that this run meets files with several names. Removing a name gives the file
    /// a new change time. Another name of it then looks like something that this run wrote.
    pub(crate) fn links(&self) -> io::Result<()> {
        if self.has_links.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.memory.relink();
        self.append(&Record::Links {})?;
        self.sync()
    }

    /// Makes every record durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    /// Removes the journal of a finished job.
    pub(crate) fn finish(&self) -> io::Result<()> {
        self.file.remove()
    }

    fn append(&self, record: &Record) -> io::Result<()> {
        let json = serde_json::to_vec(record)?;
        let mut framed = Vec::with_capacity(8 + json.len());
        framed.extend_from_slice(&(json.len() as u32).to_le_bytes());
        framed.extend_from_slice(&crc32fast::hash(&json).to_le_bytes());
        framed.extend_from_slice(&json);
        let mut end = self.end.lock();
        if end.is_torn {
            self.file.truncate(end.length)?;
            end.is_torn = false;
        }
        let appended = self.file.append(&framed);
        match &appended {
            Ok(()) => end.length += framed.len() as u64,
            Err(_) => end.is_torn = self.file.truncate(end.length).is_err(),
        }
        appended
    }
}

/// Returns as many sources as may be named. If there are more, a last entry says how many.
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

/// Replays all valid records. Also returns where they end.
fn read(bytes: &[u8], boot: &str) -> (Memory, usize) {
    let mut memory = Memory::default();
    let mut at = 0;
    while let Some((record, next)) = next_record(bytes, at) {
        // Records before the first run, or of another version, are not understood.
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

/// Returns the nonce that stands behind the spoiled head of a journal's first record: temporary
/// names with it may be on the target.
fn nonce_of_spoiled(bytes: &[u8]) -> Option<Nonce> {
    let mut values = serde_json::Deserializer::from_slice(bytes.get(8..)?).into_iter();
    match values.next()?.ok()? {
        Record::Begin(begin) if begin.version == VERSION => Some(Nonce(begin.nonce)),
        _ => None,
    }
}

#[cfg(test)]
#[path = "open_tests.rs"]
mod tests;
