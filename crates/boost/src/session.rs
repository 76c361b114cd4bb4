//! A cache folder in use: keeps its status current and says when the device fails.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ropeway_cache::predict::Superfetch;
use ropeway_cache::{BLOCK_BYTES, Opened};

use crate::boost::{Boost, BoostOptions, Sequential};
use crate::folder::{self, LEARNED, OpenFolder, STATUS, replace};
use crate::pins::{self, PinProgress, Pins, Shown};
use crate::status::{Status, unix_time};
use crate::store::BoostStore;

/// Time between two states of the status file.
const INTERVAL: Duration = Duration::from_secs(1);
/// Share of the cache that pinned files may take, as a divisor.
const PINNED_PART: u64 = 2;

/// Time between two states of what was learned. A guess: losing ten minutes costs little, and the
/// file may have some 10 MB.
const LEARNED_INTERVAL: Duration = Duration::from_secs(600);
/// Bytes of the files and paths in what was learned, at most: 65,536 files with long paths.
const FILES_BYTES_MAX: u64 = 64 << 20;

/// How a cache folder is used.
#[derive(Clone, Copy, Debug, Default)]
pub struct SessionOptions {
    /// Whether files that are read in sequence are kept.
    pub sequential: Sequential,
    /// For how long a source that is lost is replaced by what is known of it.
    pub offline_reads: Option<Duration>,
    /// Whether what will probably be read next is prefetched.
    pub is_predicting: bool,
}

/// Says a line to whoever runs the session.
pub type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// A cache folder in use.
pub struct Session {
    boost: Boost,
    shown: Shown,
    status: Arc<Mutex<Status>>,
    is_done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    size: u64,
}

impl Session {
    /// Takes a folder into use. `used_by` says what the cache is used for; `say` hears of a device that
    /// fails, and of a source that is lost.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(folder: OpenFolder, how: SessionOptions, used_by: &str, say: Say) -> std::io::Result<Self> {
        note_opening(&folder, &say);
        let blocks = predicted_blocks(&folder);
        let predict_blocks = how.is_predicting.then_some(blocks);
        let options = BoostOptions {
            sequential: how.sequential,
            offline_reads: how.offline_reads,
            predict_blocks,
            learned: predict_blocks.and_then(|blocks| learned(&folder, blocks)),
            device_rate: folder.figures.sequential_read_bytes_per_s,
            line_bytes_per_s: None,
            settle: None,
        };
        let status = Status {
            used_by: used_by.to_owned(),
            pid: std::process::id(),
            started: unix_time(),
            size_bytes: folder.size,
            device_bytes_per_s: options.device_rate,
            ..Status::default()
        };
        let boost = Boost::new(folder.cache, options)?;
        let reporter = Reporter {
            boost: boost.clone(),
            shown: Shown::default(),
            status: Arc::new(Mutex::new(status)),
            // A process in the background leaves its folder.
            path: std::path::absolute(&folder.path)?.join(STATUS),
            saved: Instant::now(),
            say,
            last: Instant::now(),
            was_on: true,
        };
        let is_done = Arc::new(AtomicBool::new(false));
        let session = Self {
            boost,
            shown: Arc::clone(&reporter.shown),
            status: Arc::clone(&reporter.status),
            is_done: Arc::clone(&is_done),
            thread: None,
            size: folder.size,
        };
        let thread = std::thread::Builder::new().name("boost-status".into());
        let thread = thread.spawn(move || reporter.run(&is_done))?;
        Ok(Self {
            thread: Some(thread),
            ..session
        })
    }

    /// Returns the cache, for [`BoostStore::new`].
    pub fn boost(&self) -> &Boost {
        &self.boost
    }

    /// Begins to fetch files ahead of need.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn pin(&self, store: Arc<BoostStore>, mut pins: Pins) -> std::io::Result<()> {
        pins.bytes_max = pins.bytes_max.min(self.size / PINNED_PART);
        pins::start(store, pins, Arc::clone(&self.shown))
    }

    /// Returns the figures of the last second, to be asked again at any time.
    pub fn status(&self) -> Arc<dyn Fn() -> Status + Send + Sync> {
        let status = Arc::clone(&self.status);
        Arc::new(move || status.lock().clone())
    }

    /// Ends the session: writes everything to the device, waiting for a few seconds at most.
    pub fn close(mut self) {
        self.boost.close();
        self.is_done.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The status is on the device that may hang: not waited for longer than the cache was.
            let deadline = Instant::now() + INTERVAL;
            while !thread.is_finished() && Instant::now() < deadline {
                std::thread::park_timeout(Duration::from_millis(5));
            }
        }
    }
}

/// Returns the blocks of a folder's cache, for predictions.
pub(crate) fn predicted_blocks(folder: &OpenFolder) -> usize {
    let blocks = usize::try_from(folder.size / BLOCK_BYTES as u64).unwrap_or(usize::MAX);
    blocks.clamp(1, 1 << 31)
}

/// Returns what was learned in a folder whose cache has so many blocks.
pub(crate) fn learned(folder: &OpenFolder, blocks: usize) -> Option<Vec<u8>> {
    let bytes_max = FILES_BYTES_MAX + Superfetch::memory_max(blocks) as u64;
    folder::learned(&folder.path, bytes_max)
}

/// Says what was found in the folder, if it is not what was left there.
fn note_opening(folder: &OpenFolder, say: &Say) {
    let path = folder.path.display();
    match (folder.opened, folder.is_key_new) {
        (_, true) => say(&format!(
            "{path}: the cache's key was lost; the cache starts empty"
        )),
        (Opened::KeyChanged, _) => say(&format!("{path}: the cache has another key; it starts empty")),
        (Opened::Damaged, _) => say(&format!("{path}: the cache was damaged; it starts empty")),
        (Opened::New | Opened::Warm, _) => {}
    }
}

struct Reporter {
    boost: Boost,
    shown: Shown,
    status: Arc<Mutex<Status>>,
    path: PathBuf,
    saved: Instant,
    say: Say,
    last: Instant,
    was_on: bool,
}

impl Reporter {
    fn run(mut self, is_done: &AtomicBool) {
        loop {
            let is_last = is_done.load(Ordering::Acquire);
            let status = self.update();
            if let Ok(text) = serde_json::to_vec(&status)
                && let Err(error) = replace(&self.path, &text)
            {
                tracing::debug!(%error, "the cache's status cannot be written");
            }
            if is_last || self.saved.elapsed() >= LEARNED_INTERVAL {
                self.saved = Instant::now();
                self.save_learned();
            }
            if is_last {
                return;
            }
            std::thread::park_timeout(INTERVAL);
        }
    }

    fn save_learned(&self) {
        if let Some(bytes) = self.boost.learned()
            && let Err(error) = replace(&self.path.with_file_name(LEARNED), &bytes)
        {
            tracing::debug!(%error, "what was learned cannot be saved");
        }
    }

    fn update(&mut self) -> Status {
        let is_on = self.boost.is_on();
        if is_on != self.was_on {
            let place = self.path.parent().unwrap_or(&self.path).display();
            (self.say)(&match is_on {
                true => format!("{place}: the cache is in use again"),
                false => format!("{place}: the cache's device failed or hangs; going on without the cache"),
            });
            self.was_on = is_on;
        }
        for line in self.boost.news() {
            (self.say)(&line);
        }
        let pinned: PinProgress = *self.shown.lock();
        let (stats, bailed) = (self.boost.stats(), self.boost.sequential_bailed());
        let seconds = self.last.elapsed().as_secs_f64();
        self.last = Instant::now();
        let mut status = self.status.lock();
        let before = status.clone();
        status.fill(&stats, bailed, &before, seconds);
        status.is_on = is_on;
        status.off_because = match is_on {
            true => String::new(),
            false => "the device failed or stalled".to_owned(),
        };
        status.source_bytes_per_s = self.boost.source_rate();
        status.pinned = pinned;
        status.predict = self.boost.predicted();
        self.boost.fill_offline(&mut status);
        status.clone()
    }
}
