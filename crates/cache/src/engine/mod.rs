//! The cache as its users see it.
//!
//! All methods take `&self`. One mutex guards what is in memory and is never held over I/O; a second
//! one makes background work exclusive. Readers do their own I/O and their own cryptography, so as
//! many run at once as there are callers.
//!
//! Background work (writing, cleaning, checkpoints, probing a failed device) belongs to the caller:
//! [`Cache::work`] does what is due, and [`Writer`](crate::Writer) is a thread that calls it. So the simulator runs
//! everything in one thread by seed, and a program that has no thread to spare calls it when idle.
//!
//! Nothing waits for the writer: at most two segments are in memory, and what does not fit is not
//! taken in. All data is clean, so this costs a later hit and nothing else.

mod clean;
mod health;
mod read;
mod recover;
mod replay;
mod saving;
mod state;
mod work;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use quick_cache::Weighter;
use ropeway_block::{BlockMut, Pool};

pub use health::Clock;
use health::Guarded;
use read::Located;
use state::State;

use crate::device::Device;
use crate::error::Error;
use crate::index::Place;
use crate::key::{FileKey, Key};
use crate::log::record::{BLOCK_MAX, HEADER_BYTES, Kind, RecordHeader};
use crate::mutations::{self, Mutation};
use crate::seal::{SEAL_BYTES, Sealer};
use crate::stats::Stats;

/// Largest block in bytes.
pub const BLOCK_BYTES: usize = BLOCK_MAX;

/// Reads from the device at once; further lookups miss.
const READS_MAX: usize = 128;

/// Bytes written with one call.
const WRITE_BYTES: usize = 1 << 20;

/// How a cache is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Most bytes of a segment of a new cache: a multiple of 4096, from 128 KiB to 64 MiB. 8 MiB. A
    /// small cache gets smaller ones.
    pub segment_bytes: u32,
    /// Bytes of blocks kept in memory in front of the device; 0 for none. 64 MiB.
    pub memory_bytes: u64,
    /// Seed of the policy's random choices.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            segment_bytes: 8 << 20,
            memory_bytes: 64 << 20,
            seed: 0,
        }
    }
}

/// What was found at opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// A blank device, now an empty cache.
    New,
    /// A cache with its blocks.
    Warm,
    /// A cache of another key: now empty, its blocks cannot be read by anyone without that key.
    KeyChanged,
    /// A cache that was damaged or cut short: now empty.
    Damaged,
}

/// What a caller knows of a block it brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// A block that was read on its own.
    Random,
    /// A block of a sequential stream, which its source delivers as fast: it is not taken in, unless
    /// its file is pinned.
    Sequential,
    /// A block that nobody asked for yet: a prediction brought it.
    Predicted,
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<Key, Arc<[u8]>> for ByBytes {
    fn weight(&self, _: &Key, bytes: &Arc<[u8]>) -> u64 {
        bytes.len() as u64 + 1
    }
}

/// What the cache and its writer share.
struct Inner {
    device: Guarded,
    sealer: Sealer,
    /// Of the superblock; it does not change while the cache is open.
    salt: [u8; 32],
    state: Mutex<State>,
    writer: Mutex<BlockMut>,
    read_buffers: Pool,
    memory: Option<quick_cache::sync::Cache<Key, Arc<[u8]>, ByBytes>>,
    /// Raised by [`Cache::forget`], so that a read that began before does not fill the memory.
    forgets: AtomicU64,
}

/// A cache of blocks on one device.
#[derive(Clone)]
pub struct Cache {
    inner: Arc<Inner>,
}

impl Cache {
    /// Opens the cache on a device, or makes one on a blank device. A device with other content is
    /// refused and not changed. Another key than the one it was made with empties the cache.
    ///
    /// # Panics
    /// If the configuration is out of its bounds.
    pub fn open(
        device: Box<dyn Device>,
        key: &[u8; 32],
        config: &Config,
        clock: Clock,
    ) -> Result<(Self, Opened), Error> {
        let is_sound = config.segment_bytes.is_multiple_of(4096)
            && (128 << 10..=64 << 20).contains(&config.segment_bytes);
        assert!(is_sound, "segments of {} bytes", config.segment_bytes);
        let device = Guarded::new(device, clock);
        let (state, opened) = recover::open(&device, key, config)?;
        let sealer = Sealer::new(key, &state.superblock.salt, state.superblock.epoch);
        let items = usize::try_from(config.memory_bytes / BLOCK_MAX as u64).unwrap_or(usize::MAX);
        let memory = (config.memory_bytes > 0)
            .then(|| quick_cache::sync::Cache::with_weighter(items.max(16), config.memory_bytes, ByBytes));
        let write_buffer = Pool::new(WRITE_BYTES, 1)
            .try_get()
            .expect("the pool has one slot");
        let inner = Inner {
            device,
            sealer,
            salt: state.superblock.salt,
            state: Mutex::new(state),
            writer: Mutex::new(write_buffer),
            read_buffers: Pool::new(read::BUFFER_BYTES, READS_MAX),
            memory,
            forgets: AtomicU64::new(0),
        };
        Ok((
            Self {
                inner: Arc::new(inner),
            },
            opened,
        ))
    }

    /// Returns a block, if the cache has it.
    pub fn lookup(&self, key: &Key) -> Option<Arc<[u8]>> {
        let inner = &*self.inner;
        let is_on = inner.device.is_on();
        let now = inner.device.now();
        let tag = inner.sealer.tag(key);
        let forgets = inner.forgets.load(Ordering::Acquire);
        let in_memory = inner.memory.as_ref().and_then(|memory| memory.get(key));
        let located = {
            let mut state = inner.state.lock();
            let place = state.index.access(tag);
            if let Some(bytes) = in_memory {
                state.stats.memory_hits += 1;
                state.stats.served(now, bytes.len());
                return Some(bytes);
            }
            let place = place.filter(|_| is_on);
            let Some(located) = place.and_then(|place| inner.locate(&mut state, place)) else {
                state.stats.missed(now);
                return None;
            };
            located
        };
        let found = inner.read_block(key, tag, located);
        let mut state = inner.state.lock();
        let Some(bytes) = &found else {
            state.stats.missed(now);
            return None;
        };
        state.stats.device_hits += 1;
        state.stats.served(now, bytes.len());
        // A file that was forgotten while its block was read does not get into the memory.
        if let Some(memory) = &inner.memory
            && inner.forgets.load(Ordering::Acquire) == forgets
        {
            memory.insert(*key, Arc::clone(bytes));
        }
        found
    }

    /// Whether a block is probably in the cache. Does no I/O and counts nothing.
    pub fn contains(&self, key: &Key) -> bool {
        let inner = &*self.inner;
        let in_memory = || {
            let memory = inner.memory.as_ref();
            memory.is_some_and(|memory| memory.peek(key).is_some())
        };
        let tag = inner.sealer.tag(key);
        in_memory() || (inner.device.is_on() && inner.state.lock().index.find(tag).is_some())
    }

    /// Returns a block as [`lookup`](Self::lookup) does, for whoever prepares its use: nothing is
    /// counted, and no use is learned.
    pub fn peek(&self, key: &Key) -> Option<Arc<[u8]>> {
        let inner = &*self.inner;
        if let Some(bytes) = inner.memory.as_ref().and_then(|memory| memory.peek(key)) {
            return Some(bytes);
        }
        if !inner.device.is_on() {
            return None;
        }
        let tag = inner.sealer.tag(key);
        let located = {
            let mut state = inner.state.lock();
            let slot = state.index.find(tag)?;
            let place = state.index.place(slot);
            inner.locate(&mut state, place)?
        };
        inner.read_block(key, tag, located)
    }

    /// Returns how likely a block is to be used again, if it is on the device: its decayed uses, and one
    /// for a pending prediction.
    pub fn likelihood(&self, key: &Key) -> Option<f32> {
        let tag = self.inner.sealer.tag(key);
        let state = self.inner.state.lock();
        let slot = state.index.find(tag)?;
        Some(state.index.policy().likelihood(slot).exp2())
    }

    /// Takes in a block. Returns whether it was taken: not while the cache is off, and not while the
    /// writer is behind. Blocks with one key have one content; a caller that cannot promise that
    /// forgets the file in between.
    ///
    /// # Panics
    /// If the block has more than [`BLOCK_BYTES`].
    pub fn insert(&self, key: &Key, bytes: &[u8], hint: Hint) -> bool {
        let inner = &*self.inner;
        let tag = inner.sealer.tag(key);
        if hint == Hint::Sequential {
            let mut state = inner.state.lock();
            if !state.pinned.contains(&((tag >> 32) as u32)) {
                state.stats.sequential_bypassed += 1;
                return false;
            }
        }
        let forgets = inner.forgets.load(Ordering::Acquire);
        if !inner.device.is_on() {
            inner.state.lock().stats.dropped += 1;
            return false;
        }
        let (header, body) = inner.sealer.seal(key, bytes);
        let mut state = inner.state.lock();
        let state = &mut *state;
        let len = usize::from(header.sectors()) * crate::log::SECTOR;
        if len > state.record_max() || inner.forgets.load(Ordering::Acquire) != forgets {
            state.stats.dropped += 1;
            return false;
        }
        let newcomer = state.index.policy().newcomer(tag, hint == Hint::Predicted);
        if !state.is_pinned(tag) && !state.admits(newcomer) {
            state.stats.dropped += 1;
            return false;
        }
        // One segment stays for the records that cleaning moves.
        let Some(sector) = state.append(header, &body, 1) else {
            state.stats.dropped += 1;
            return false;
        };
        state.stats.bytes_inserted += bytes.len() as u64;
        state.stats.bytes_stored += len as u64;
        let sectors = header.sectors();
        state.add(tag, Place { sector, sectors }, hint == Hint::Predicted);
        if let Some(memory) = &inner.memory {
            memory.insert(*key, Arc::from(bytes));
        }
        true
    }

    /// Notes that a block, if it is there, will probably be used soon: it is not evicted for a while.
    pub fn expect(&self, key: &Key) {
        let tag = self.inner.sealer.tag(key);
        self.inner.state.lock().index.expect(tag);
    }

    /// Removes all blocks of a file, in all versions. When it returns `Ok` they stay removed, also
    /// after a power cut. After an error they are gone for now, but may be back after a restart: give the
    /// file another lease epoch.
    pub fn forget(&self, file: &FileKey) -> Result<(), Error> {
        let inner = &*self.inner;
        let mut writer = inner.writer.lock();
        inner.forgets.fetch_add(1, Ordering::AcqRel);
        let forgotten = inner.forget(&mut writer, file);
        // Last: what was inserted before the counter rose is in the memory by now, since inserting
        // and removing hold the same lock.
        if let Some(memory) = &inner.memory
            && !mutations::is(Mutation::ForgetSparesMemory)
        {
            memory.retain(|key, _| key.file != *file);
        }
        forgotten
    }

    /// Keeps the blocks of a file until it is unpinned. Pins are not kept over a restart.
    pub fn pin(&self, file: &FileKey, is_pinned: bool) {
        let file_tag = self.inner.sealer.file_tag(file);
        let mut state = self.inner.state.lock();
        if is_pinned {
            state.pinned.insert(file_tag);
        } else {
            state.pinned.remove(&file_tag);
        }
    }

    /// Does background work that is due: call it often. Returns whether the cache is on. An error
    /// has turned the cache off; later calls probe the device and turn it on again.
    pub fn work(&self) -> Result<bool, Error> {
        self.inner.work(&mut self.inner.writer.lock())
    }

    /// Writes everything to the device, with a checkpoint, so that the next opening is quick.
    pub fn flush(&self) -> Result<(), Error> {
        let inner = &*self.inner;
        let mut writer = inner.writer.lock();
        if inner.device.off_for().is_some() {
            return Err(Error::Off);
        }
        inner.write_out(&mut writer, 1)?;
        inner.checkpoint(&mut writer)
    }

    /// Whether the cache is in use: it is off for a while after an error or a stall.
    pub fn is_on(&self) -> bool {
        self.inner.device.is_on()
    }

    /// Returns the counters.
    pub fn stats(&self) -> Stats {
        let state = self.inner.state.lock();
        let mut stats = state.stats.clone();
        stats.blocks = state.index.len() as u64;
        stats.index_bytes = state.index.memory_bytes() as u64;
        stats.turned_off = self.inner.device.turned_off();
        stats
    }
}

impl Inner {
    /// Opens a record; removes it from the index if it is damaged.
    fn read_block(&self, key: &Key, tag: u64, located: Located) -> Option<Arc<[u8]>> {
        let (place, seq) = (located.place, located.seq);
        // An error has turned the cache off. The block may be intact, so it stays in the index.
        let mut record = self.read(located).ok()?;
        let bytes = record.bytes();
        let opened = RecordHeader::parse(bytes, &self.salt)
            .filter(|header| header.tag == tag && header.kind == Kind::Block && header.segment_seq == seq)
            .filter(|header| header.stored_len as usize >= SEAL_BYTES)
            .and_then(|header| {
                let body = HEADER_BYTES..HEADER_BYTES + header.stored_len as usize;
                self.sealer.open(key, &header, bytes.get_mut(body)?)
            });
        if opened.is_none() {
            let mut state = self.state.lock();
            // It may have moved while it was read; then it is a miss only.
            if let Some(slot) = state
                .index
                .find(tag)
                .filter(|slot| state.index.place(*slot) == place)
            {
                state.remove(slot);
                state.stats.damaged += 1;
            }
        }
        opened
    }
}
