//! Journals in memory. After a power cut, what was not synced is lost, torn or complete.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use ropeway_copy::{JournalFile, JournalStore};
use ropeway_vfs::{ErrorKind, Op};

use super::world::{FaultKind, Side, World};

#[derive(Clone, Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    /// Bytes of it that are durable.
    durable: usize,
    name_is_durable: bool,
}

#[derive(Default)]
struct State {
    journals: BTreeMap<String, Kept>,
    open: HashSet<String>,
}

/// The journals of one simulated machine.
#[derive(Clone)]
pub struct MemoryJournals {
    world: Arc<World>,
    state: Arc<Mutex<State>>,
}

impl MemoryJournals {
    pub fn new(world: &Arc<World>) -> Self {
        Self {
            world: Arc::clone(world),
            state: Arc::default(),
        }
    }

    /// Returns a copy of the journals at this moment. None of them is open.
    pub fn snapshot(&self) -> Self {
        let state = State {
            journals: self.state.lock().unwrap().journals.clone(),
            open: HashSet::new(),
        };
        Self {
            world: Arc::clone(&self.world),
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Cuts the power: keeps what a power cut at this moment could leave.
    pub fn cut(&self, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut state = self.state.lock().unwrap();
        state.journals.retain(|_, kept| {
            let length = kept.bytes.len();
            let stays = match random.u8(..3) {
                0 => kept.durable,
                1 => length,
                _ => random.usize(kept.durable.min(length)..=length),
            };
            kept.bytes.truncate(stays);
            // A last block may have been allocated and not written.
            if stays > kept.durable && random.bool() {
                let from = random.usize(kept.durable..stays);
                kept.bytes[from..].fill(0);
            }
            kept.durable = kept.bytes.len();
            let survives = kept.name_is_durable || random.bool();
            kept.name_is_durable = true;
            survives
        });
    }

    /// Removes all journals, as a user might.
    pub fn clear(&self) {
        self.state.lock().unwrap().journals.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.state.lock().unwrap().journals.is_empty()
    }
}

impl fmt::Debug for MemoryJournals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryJournals")
    }
}

impl JournalStore for MemoryJournals {
    fn identity(&self) -> String {
        "memory".to_owned()
    }

    fn describe(&self) -> String {
        "memory".to_owned()
    }

    fn has_journal(&self, job: &str) -> bool {
        self.state.lock().unwrap().journals.contains_key(job)
    }

    fn open(&self, job: &str) -> io::Result<Box<dyn JournalFile>> {
        let mut state = self.state.lock().unwrap();
        if !state.open.insert(job.to_owned()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.journals.entry(job.to_owned()).or_default();
        Ok(Box::new(Opened {
            of: self.clone(),
            job: job.to_owned(),
        }))
    }
}

#[derive(Debug)]
struct Opened {
    of: MemoryJournals,
    job: String,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.of.state.lock().unwrap().open.remove(&self.job);
    }
}

impl Opened {
    fn with<T>(&self, change: impl FnOnce(&mut Kept) -> T) -> io::Result<T> {
        let mut state = self.of.state.lock().unwrap();
        let kept = state.journals.get_mut(&self.job);
        kept.map(change).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Carries out one operation. The process may die before and after it.
    fn operation(&self, op: Op, bytes: &[u8], change: impl FnOnce(&mut Kept, &[u8])) -> io::Result<()> {
        let dead = || Err(io::Error::other("the process is dead"));
        if !self.of.world.step_now() {
            return dead();
        }
        self.of.world.note(|| format!("journal {op:?} {}", bytes.len()));
        match self.of.world.fault(Side::Journal, op, None) {
            None => self.with(|kept| change(kept, bytes))?,
            Some(FaultKind::TornAppend) => {
                self.with(|kept| change(kept, &bytes[..bytes.len() / 2]))?;
                return Err(io::Error::from_raw_os_error(28));
            }
            Some(FaultKind::LostAnswer(_)) => {
                self.with(|kept| change(kept, bytes))?;
                return Err(io::Error::from_raw_os_error(5));
            }
            Some(FaultKind::Error(ErrorKind::NoSpace)) => return Err(io::Error::from_raw_os_error(28)),
            Some(_) => return Err(io::Error::from_raw_os_error(5)),
        }
        match self.of.world.step_now() {
            true => Ok(()),
            false => dead(),
        }
    }
}

impl JournalFile for Opened {
    fn folder(&self) -> Option<&Path> {
        None
    }

    fn read(&self) -> io::Result<Vec<u8>> {
        self.with(|kept| kept.bytes.clone())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.with(|kept| {
            kept.bytes.truncate(length as usize);
            kept.durable = kept.durable.min(length as usize);
        })
    }

    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.operation(Op::Write, bytes, |kept, bytes| {
            kept.bytes.extend_from_slice(bytes)
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.operation(Op::Sync, &[], |kept, _| kept.durable = kept.bytes.len())
    }

    fn sync_name(&self) -> io::Result<()> {
        self.with(|kept| kept.name_is_durable = true)
    }

    fn spoil(&self) -> io::Result<()> {
        self.operation(Op::Write, &[], |kept, _| {
            kept.bytes.resize(kept.bytes.len().max(8), 0);
            kept.bytes[..8].fill(0xff);
            kept.durable = kept.bytes.len();
        })
    }

    fn is_lost(&self) -> bool {
        false
    }

    fn forget_lost(&self) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self) -> io::Result<()> {
        if !self.of.world.step_now() {
            return Err(io::Error::other("the process is dead"));
        }
        self.of.state.lock().unwrap().journals.remove(&self.job);
        Ok(())
    }
}
