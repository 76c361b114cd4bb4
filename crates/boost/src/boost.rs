//! The cache and all that works for it, shared by the stores on it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use ropeway_cache::{Cache, Hint, Key, Stats, Writer};
use ropeway_vfs::pages::KernelPages;
use ropeway_vfs::store::{Store, Versioning};

use crate::ahead::PredictStatus;
use crate::ahead::{Ahead, worker};
use crate::fetches::Fetches;
use crate::files::FileState;
use crate::hogs::{self, BringStatus, Hogs};
use crate::lookups::Lookups;
use crate::offline::OfflineFigures;
use crate::rates::Meter;
use crate::status::Status;

/// Files that wait to be forgotten, at most; others are not cached until the end of the session.
const FORGETS_MAX: usize = 1024;
/// Longest time that the end of a session waits for the device. A guess.
const CLOSE_MAX: Duration = Duration::from_secs(5);
/// Time without demand after which pinned files are fetched.
const IDLE: Duration = Duration::from_millis(100);

/// Whether files that are read in sequence are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sequential {
    /// Where the source delivers them slower than the device.
    #[default]
    Auto,
    /// All.
    Always,
    /// None but pinned ones.
    Never,
}

/// How a cache is used.
#[derive(Clone, Debug, Default)]
pub struct BoostOptions {
    /// Whether files that are read in sequence are kept.
    pub sequential: Sequential,
    /// Bytes per second that the device reads in sequence, if known.
    pub device_rate: Option<f64>,
    /// For how long a source that is lost is replaced by what is known of it; `None`: not at all.
    pub offline_reads: Option<Duration>,
    /// How many blocks the cache has room for, to predict what will be read next; `None`: nothing is
    /// prefetched.
    pub predict_blocks: Option<usize>,
    /// Bytes per second that the source's line carries, if known: prefetching may use a fifth of it.
    pub line_bytes_per_s: Option<f64>,
    /// What an earlier session learned.
    pub learned: Option<Vec<u8>>,
    /// Replaces the source's [`settle`](ropeway_vfs::store::Versioning::settle) where it is known
    /// better.
    pub settle: Option<Duration>,
}

/// A cache in use. Clones are the same.
#[derive(Clone)]
pub struct Boost {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) cache: Cache,
    pub(crate) fetches: Fetches,
    pub(crate) meter: Mutex<Meter>,
    pub(crate) offline: OfflineFigures,
    pub(crate) share_uses: ShareUses,
    /// `None` if nothing is prefetched.
    pub(crate) ahead: Option<Ahead>,
    pub(crate) hogs: Hogs,
    options: BoostOptions,
    lookups: Lookups,
    writer: Mutex<Option<Writer>>,
    start: Instant,
    last_demand_micros: AtomicU64,
    bailed: AtomicU64,
    forgets: Mutex<VecDeque<Arc<FileState>>>,
    forget_arrived: Condvar,
    is_closed: AtomicBool,
    gate: Mutex<()>,
    closed: Condvar,
}

impl Boost {
    /// Takes a cache into use: starts its writer and the threads for lookups.
    pub fn new(cache: Cache, mut options: BoostOptions) -> std::io::Result<Self> {
        let learned = options.learned.take();
        let ahead = options
            .predict_blocks
            .map(|blocks| Ahead::new(&cache, blocks, learned.as_deref(), options.line_bytes_per_s));
        let writer = Writer::start(cache.clone())?;
        let shared = Arc::new(Shared {
            fetches: Fetches::default(),
            meter: Mutex::default(),
            offline: OfflineFigures::default(),
            share_uses: ShareUses::default(),
            ahead,
            hogs: Hogs::default(),
            options,
            lookups: Lookups::start(&cache)?,
            writer: Mutex::new(Some(writer)),
            start: Instant::now(),
            last_demand_micros: AtomicU64::new(0),
            bailed: AtomicU64::new(0),
            forgets: Mutex::default(),
            forget_arrived: Condvar::new(),
            is_closed: AtomicBool::new(false),
            gate: Mutex::new(()),
            closed: Condvar::new(),
            cache,
        });
        let weak = Arc::downgrade(&shared);
        let thread = std::thread::Builder::new().name("boost-forget".into());
        thread.spawn(move || forget_all(&weak))?;
        if shared.ahead.is_some() {
            worker::start(&shared)?;
        }
        Ok(Self { shared })
    }

    /// Returns the counters of the cache.
    pub fn stats(&self) -> Stats {
        self.shared.cache.stats()
    }

    /// Whether the cache is in use: it is off for a while after an error or a stall of its device.
    pub fn is_on(&self) -> bool {
        self.shared.cache.is_on()
    }

    /// Returns the reads in sequence that passed the cache by.
    pub fn sequential_bailed(&self) -> u64 {
        self.shared.bailed.load(Ordering::Relaxed)
    }

    /// Returns bytes per second at which the source delivers files in sequence, if known.
    pub fn source_rate(&self) -> Option<f64> {
        self.shared.meter.lock().rate()
    }

    /// Returns the figures of prefetching.
    pub fn predicted(&self) -> PredictStatus {
        self.shared
            .ahead
            .as_ref()
            .map_or_else(PredictStatus::default, |ahead| {
                let mut status = ahead.status();
                status.bringing = BringStatus {
                    bytes_used: status.bringing.bytes_used,
                    bytes_lost: status.bringing.bytes_lost,
                    ..self.shared.hogs.status()
                };
                status
            })
    }

    /// Watches memory from now on: what it throws out of the kernel's memory of a mount of this cache is
    /// brought back by `pages`, when the pressure is over and nobody waits. `share`: that of the mounted
    /// store. Does nothing without predictions.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn bring_back(&self, share: [u8; 16], pages: Arc<dyn KernelPages>) -> std::io::Result<()> {
        hogs::start(&self.shared, share, pages)
    }

    /// Returns what was learned, to be saved, if anything was since the last call.
    pub fn learned(&self) -> Option<Vec<u8>> {
        self.shared.ahead.as_ref().and_then(Ahead::save)
    }

    /// Takes what happened to the sources and was not said yet.
    pub(crate) fn news(&self) -> Vec<String> {
        std::mem::take(&mut *self.shared.offline.news.lock())
    }

    /// Adds the figures of the time in which a source was lost.
    pub(crate) fn fill_offline(&self, status: &mut Status) {
        let (offline, now) = (&self.shared.offline, self.shared.now());
        let since = offline.present.lock().iter().map(|(_, since)| *since).min();
        status.is_offline = since.is_some();
        status.offline_seconds = since.map_or(0.0, |since| now.saturating_sub(since).as_secs_f64());
        status.outages = offline.outages.load(Ordering::Relaxed);
        status.offline_reads = offline.reads.load(Ordering::Relaxed);
        status.offline_answers = offline.answers.load(Ordering::Relaxed);
    }

    /// Writes everything to the device, for at most five seconds. Later reads pass the cache by,
    /// and what could not be written is missed later.
    pub fn close(&self) {
        {
            let _gate = self.shared.gate.lock();
            self.shared.is_closed.store(true, Ordering::Release);
        }
        self.shared.closed.notify_all();
        self.shared.forget_arrived.notify_all();
        if let Some(ahead) = &self.shared.ahead {
            ahead.wake();
        }
        let Some(writer) = self.shared.writer.lock().take() else {
            return;
        };
        let (done, ended) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("boost-close".into());
        let closing = thread.spawn(move || {
            drop(writer);
            // Nobody listens any more if it took too long.
            let _ = done.send(());
        });
        if closing.is_ok() {
            let _ = ended.recv_timeout(CLOSE_MAX);
        }
    }
}

/// The shares that stores use.
#[derive(Default)]
pub(crate) struct ShareUses(Mutex<HashMap<[u8; 16], Weak<ShareUse>>>);

/// The use of a share by stores.
#[derive(Default)]
pub(crate) struct ShareUse {
    is_shared: AtomicBool,
}

impl ShareUses {
    /// Begins the use of a share.
    pub(crate) fn begin(&self, share: [u8; 16]) -> Arc<ShareUse> {
        let mut uses = self.0.lock();
        uses.retain(|_, known| known.strong_count() > 0);
        if let Some(known) = uses.get(&share).and_then(Weak::upgrade) {
            known.is_shared.store(true, Ordering::Release);
            return known;
        }
        let new = Arc::<ShareUse>::default();
        uses.insert(share, Arc::downgrade(&new));
        new
    }
}

impl ShareUse {
    /// Whether a second store has used it. Then none of them knows all that was kept.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Acquire)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::Release);
        self.forget_arrived.notify_all();
    }
}

impl Shared {
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Returns how the versions of a source are told apart.
    pub(crate) fn versioning(&self, source: &dyn Store) -> Option<Versioning> {
        let mut versioning = source.versioning()?;
        versioning.settle = self.options.settle.unwrap_or(versioning.settle);
        Some(versioning)
    }

    /// Returns for how long a lost source is replaced by what is known of it.
    pub(crate) fn offline_reads(&self) -> Option<Duration> {
        self.options.offline_reads
    }

    /// Returns bytes per second that the device reads in sequence, if known.
    pub(crate) fn device_rate(&self) -> Option<f64> {
        self.options.device_rate
    }

    /// Returns bytes per second at which the source delivers files in sequence, if known.
    pub(crate) fn source_rate(&self) -> Option<f64> {
        self.meter.lock().rate()
    }

    /// Looks blocks up without waiting for a device that hangs.
    pub(crate) fn find(&self, keys: &[Key]) -> Vec<Option<Arc<[u8]>>> {
        self.lookups.find(keys)
    }

    /// Whether the cache can be asked now.
    pub(crate) fn is_on(&self) -> bool {
        !self.is_closed.load(Ordering::Acquire) && self.cache.is_on()
    }

    /// Whether a long sequence of reads passes the cache by.
    pub(crate) fn passes_by(&self, file: &FileState) -> bool {
        if file.is_pinned.load(Ordering::Acquire) {
            return false;
        }
        match self.options.sequential {
            Sequential::Always => false,
            Sequential::Never => true,
            Sequential::Auto => match (self.meter.lock().rate(), self.options.device_rate) {
                (Some(source), Some(device)) => source >= device,
                _ => false,
            },
        }
    }

    /// Counts a read that passed the cache by.
    pub(crate) fn bailed(&self) {
        self.bailed.fetch_add(1, Ordering::Relaxed);
    }

    /// Keeps a block; returns whether it was taken.
    pub(crate) fn keep(&self, key: &Key, bytes: &[u8], hint: Hint) -> bool {
        self.cache.insert(key, bytes, hint)
    }

    /// Notes bytes that the source delivered to a program, asked for at `since`.
    pub(crate) fn delivered(&self, bytes: u64, since: Duration) {
        if let Some(ahead) = &self.ahead {
            let now = self.now();
            ahead.demanded(bytes, now.saturating_sub(since), now);
        }
    }

    /// Notes that a program waits for the source.
    pub(crate) fn demanded(&self) {
        let now = u64::try_from(self.now().as_micros()).unwrap_or(u64::MAX);
        self.last_demand_micros.store(now, Ordering::Relaxed);
    }

    /// Whether no program has waited for the source for a while.
    pub(crate) fn is_idle(&self) -> bool {
        self.idle_for() >= IDLE
    }

    /// Returns for how long no program has waited for the source.
    pub(crate) fn idle_for(&self) -> Duration {
        let last = Duration::from_micros(self.last_demand_micros.load(Ordering::Relaxed));
        self.now().saturating_sub(last)
    }

    /// Whether the session ends.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Waits for this time, or until the session ends.
    pub(crate) fn wait(&self, time: Duration) {
        let mut gate = self.gate.lock();
        if !self.is_closed() {
            self.closed.wait_for(&mut gate, time);
        }
    }

    /// Forgets all blocks of a barred file in the background, and then admits it again.
    pub(crate) fn forget(&self, file: &Arc<FileState>) {
        let mut forgets = self.forgets.lock();
        if forgets.len() < FORGETS_MAX {
            forgets.push_back(Arc::clone(file));
            self.forget_arrived.notify_one();
        }
    }

    fn next_forget(&self) -> Option<Arc<FileState>> {
        let mut forgets = self.forgets.lock();
        if forgets.is_empty() {
            self.forget_arrived.wait_for(&mut forgets, Duration::from_secs(1));
        }
        forgets.pop_front()
    }
}

/// Carries out what [`Shared::forget`] asks for, until the cache is closed.
fn forget_all(shared: &Weak<Shared>) {
    while let Some(shared) = shared.upgrade() {
        if shared.is_closed() {
            return;
        }
        let Some(file) = shared.next_forget() else {
            continue;
        };
        match shared.cache.forget(&file.key) {
            Ok(()) => file.coherence.lock().bar(false),
            // It stays barred: its old blocks may come back.
            Err(error) => tracing::debug!(%error, "a file could not be forgotten"),
        }
    }
}
