//! A near disk in memory that fills, tears writes and loses power.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Process;
use crate::disk::Disk;

#[derive(Clone, Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    /// The first bytes that are on the disk.
    synced: usize,
    is_name_synced: bool,
    /// Ranges that could not be written: they are in memory only, whatever later syncs say.
    lost: Vec<std::ops::Range<usize>>,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<String, Content>,
    /// Removed, and not yet so on the disk.
    removed: Vec<(String, Content)>,
    is_full: bool,
    /// Whether space is kept in reserve, and writes that still fit after it was given up.
    has_reserve: bool,
    spare: usize,
    /// Whether names cannot be synced.
    fails_names: bool,
    /// Whether the next sync of a file fails.
    fails_sync: bool,
    /// Whether a note found neither room nor a reserve.
    has_refused_note: bool,
    random: Option<fastrand::Rng>,
}

/// The disk. Clones are the same; each process has one.
#[derive(Clone, Debug)]
pub(crate) struct SimulatedDisk {
    state: Arc<Mutex<State>>,
    process: Arc<Process>,
}

impl SimulatedDisk {
    pub(crate) fn new(seed: u64, process: Arc<Process>) -> Self {
        let state = State {
            random: Some(fastrand::Rng::with_seed(seed)),
            ..State::default()
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            process,
        }
    }

    /// The same disk for the next process.
    pub(crate) fn for_process(&self, process: Arc<Process>) -> Self {
        Self {
            state: Arc::clone(&self.state),
            process,
        }
    }

    pub(crate) fn set_full(&self, is_full: bool) {
        let mut state = self.state.lock();
        state.is_full = is_full;
        state.spare = 0;
    }

    /// Cannot sync names from now on.
    #[cfg(test)]
    pub(crate) fn fail_names(&self) {
        self.state.lock().fails_names = true;
    }

    /// Fails to write what the next sync of a file asks for, and says so once, as Linux does.
    #[cfg(test)]
    pub(crate) fn fail_next_sync(&self) {
        self.state.lock().fails_sync = true;
    }

    /// Has room for this many more writes, and no reserve.
    #[cfg(test)]
    pub(crate) fn fill_after(&self, writes: usize) {
        let mut state = self.state.lock();
        (state.is_full, state.has_reserve, state.spare) = (true, false, writes);
    }

    /// Whether any file is there.
    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().files.is_empty()
    }

    /// Whether a note found neither room nor a reserve since the last question.
    pub(crate) fn take_refused_note(&self) -> bool {
        std::mem::take(&mut self.state.lock().has_refused_note)
    }

    /// Loses what was not synced, or a part of it.
    pub(crate) fn cut_power(&self) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(random) = &mut state.random else { return };
        for (name, content) in state.removed.drain(..) {
            // The removal may not have reached the disk.
            if random.bool() && content.is_name_synced {
                state.files.entry(name).or_insert(content);
            }
        }
        state
            .files
            .retain(|_, content| content.is_name_synced || random.bool());
        for content in state.files.values_mut() {
            let length = random.usize(content.synced..=content.bytes.len());
            content.bytes.truncate(length);
            for lost in content.lost.drain(..) {
                let end = lost.end.min(content.bytes.len());
                content.bytes[lost.start.min(end)..end].fill(0);
            }
            // The length may be on the disk before the bytes.
            if random.u8(0..3) == 0 {
                let from = random.usize(content.synced..=length);
                content.bytes[from..].fill(0);
            }
            content.synced = length;
            content.is_name_synced = true;
        }
    }

    fn step(&self) -> io::Result<()> {
        self.process.step().0
    }
}

impl State {
    fn is_full_now(&mut self) -> bool {
        let is_full = self.is_full && self.spare == 0;
        self.spare = self.spare.saturating_sub(1);
        is_full
    }
}

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Disk for SimulatedDisk {
    fn create(&self, name: &str) -> io::Result<()> {
        self.step()?;
        let mut state = self.state.lock();
        if state.is_full_now() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let before = state.files.insert(name.to_owned(), Content::default());
        assert!(before.is_none(), "{name} is made twice");
        Ok(())
    }

    fn write(&self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (alive, ends_here) = self.process.step();
        let mut state = self.state.lock();
        let state = &mut *state;
        let part = state
            .random
            .as_mut()
            .map_or(0, |random| random.usize(0..=bytes.len()));
        let there = state.files.get(name).ok_or_else(missing)?;
        assert_eq!(there.bytes.len() as u64, offset, "the journal is appended to");
        let is_full = alive.is_ok() && state.is_full && state.spare == 0;
        if alive.is_ok() {
            state.spare = state.spare.saturating_sub(1);
        }
        let content = state.files.get_mut(name).ok_or_else(missing)?;
        if ends_here || is_full {
            content.bytes.extend_from_slice(&bytes[..part]);
        }
        alive?;
        if is_full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        content.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn read(&self, name: &str, offset: u64, into: &mut [u8]) -> io::Result<()> {
        // Reading changes nothing: it is no place for the end.
        if self.process.is_dead() {
            return Err(super::dead());
        }
        let state = self.state.lock();
        let bytes = &state.files.get(name).ok_or_else(missing)?.bytes;
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let wanted = bytes
            .get(start..)
            .and_then(|bytes| bytes.get(..into.len()))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(wanted);
        Ok(())
    }

    fn truncate(&self, name: &str, length: u64) -> io::Result<()> {
        self.step()?;
        let mut state = self.state.lock();
        let content = state.files.get_mut(name).ok_or_else(missing)?;
        content
            .bytes
            .truncate(usize::try_from(length).unwrap_or(usize::MAX));
        content.synced = content.synced.min(content.bytes.len());
        Ok(())
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        self.step()?;
        let mut state = self.state.lock();
        let is_failing = std::mem::take(&mut state.fails_sync);
        // Then a note may be lost, too.
        state.has_refused_note |= is_failing;
        let content = state.files.get_mut(name).ok_or_else(missing)?;
        let unsynced = content.synced..content.bytes.len();
        content.synced = content.bytes.len();
        if is_failing {
            content.lost.push(unsynced);
            return Err(io::Error::other("the disk fails"));
        }
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        self.step()?;
        let mut state = self.state.lock();
        if state.fails_names {
            return Err(io::Error::other("the folder cannot be synced"));
        }
        state.removed.clear();
        for content in state.files.values_mut() {
            content.is_name_synced = true;
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.step()?;
        let mut state = self.state.lock();
        let content = state.files.remove(name).ok_or_else(missing)?;
        state.removed.push((name.to_owned(), content));
        Ok(())
    }

    fn set_aside(&self, name: &str) -> io::Result<()> {
        self.step()?;
        let mut state = self.state.lock();
        let content = state.files.remove(name).ok_or_else(missing)?;
        state.files.insert(format!("{name}.damaged"), content);
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        self.step()?;
        let state = self.state.lock();
        let files = state.files.iter();
        Ok(files
            .map(|(name, content)| (name.clone(), content.bytes.len() as u64))
            .collect())
    }

    fn reserve(&self) {
        let mut state = self.state.lock();
        // What was removed made room for it.
        if !self.process.is_dead() {
            state.has_reserve = true;
        }
    }

    fn give_up_reserve(&self) -> bool {
        if self.process.is_dead() {
            return false;
        }
        let mut state = self.state.lock();
        let had = std::mem::take(&mut state.has_reserve);
        if had {
            state.spare = 300;
        }
        state.has_refused_note |= !had && state.is_full;
        had
    }
}
