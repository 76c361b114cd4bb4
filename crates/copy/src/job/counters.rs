//! Counters of a running job, and what follows from them: rate, estimate, limit.
//!
//! Many tasks add to the counters without a lock. A derived value is computed only when somebody
//! asks for progress.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_plan::EtaEstimator;
use ropeway_vfs::decorate::limit::RateLimit;
use ropeway_vfs::event::{Counters, Event, Limit};
use tokio::time::Instant;

/// Time over which the shown rate is averaged.
const RATE_WINDOW: Duration = Duration::from_secs(5);
/// Samples kept for the rate: a bound. Progress is asked for far less often.
const RATE_SAMPLES_MAX: usize = 256;

/// Bytes of one file on their way to [`Live::bytes_landed`].
///
/// A large file, whose parts a later run can trust, counts as it grows. A small one counts when it
/// is complete: only then can a checkpoint save sending it again. Dropping this without
/// [`commit`](Self::commit) subtracts what was added.
pub(crate) struct Landing<'a> {
    live: &'a Live,
    early: bool,
    bytes: AtomicU64,
}

impl<'a> Landing<'a> {
    pub(crate) fn new(live: &'a Live, early: bool) -> Self {
        Self {
            live,
            early,
            bytes: AtomicU64::new(0),
        }
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.early {
            self.live.bytes_landed.fetch_add(bytes, Ordering::AcqRel);
        }
    }

    /// Subtracts what was added so far.
    pub(crate) fn reset(&self) {
        let bytes = self.bytes.swap(0, Ordering::Relaxed);
        if self.early {
            self.live.bytes_landed.fetch_sub(bytes, Ordering::AcqRel);
        }
    }

    /// Keeps what was added: the file is complete.
    pub(crate) fn commit(self) {
        let bytes = self.bytes.swap(0, Ordering::Relaxed);
        if !self.early {
            self.live.bytes_landed.fetch_add(bytes, Ordering::AcqRel);
        }
    }
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        self.reset();
    }
}

/// Time spent waiting, in microseconds. It shows what limits the job.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    pub(crate) source: AtomicU64,
    pub(crate) target: AtomicU64,
    pub(crate) small_files: AtomicU64,
}

/// Counters that many tasks add to.
#[derive(Debug)]
pub(crate) struct Live {
    start: Instant,
    pub(crate) walked_files: AtomicU64,
    pub(crate) walked_bytes: AtomicU64,
    /// Entries and folders that any walk listed.
    pub(crate) listed: AtomicU64,
    pub(crate) walk_final: AtomicBool,
    pub(crate) counted_files: AtomicU64,
    pub(crate) counted_bytes: AtomicU64,
    pub(crate) count_final: AtomicBool,
    pub(crate) files_done: AtomicU64,
    pub(crate) files_skipped: AtomicU64,
    pub(crate) files_failed: AtomicU64,
    pub(crate) directories: AtomicU64,
    pub(crate) bytes_done: AtomicU64,
    pub(crate) bytes_skipped: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_sent: AtomicU64,
    /// Logical bytes on the target, including those of unfinished files.
    pub(crate) bytes_landed: AtomicU64,
    pub(crate) bytes_durable: AtomicU64,
    pub(crate) files_durable: AtomicU64,
    /// Bytes of unfinished files that are on the device and wait for a checkpoint to count as
    /// durable.
    pub(crate) bytes_settled: AtomicU64,
    pub(crate) deleted: AtomicU64,
    pub(crate) retries: AtomicU64,
    /// Blocks and small files moved, each counted on both sides.
    pub(crate) operations: AtomicU64,
    pub(crate) bytes_resumed: AtomicU64,
    /// Bytes of changed files that were copied from the old ones instead of being sent.
    pub(crate) bytes_reused: AtomicU64,
    /// Bytes of old and new files that were cut, hashed or asked about at their ends. They move
    /// nothing, but show that a job does not hang.
    pub(crate) bytes_compared: AtomicU64,
    pub(crate) waits: Waits,
    /// Whether the estimate follows what is durable. Otherwise it follows what was written.
    pub(crate) follow_durable: bool,
    derived: Mutex<Derived>,
}

#[derive(Debug)]
struct Derived {
    eta: EtaEstimator,
    /// Bytes that the estimate last learned.
    progressed: u64,
    /// Time, bytes, files.
    samples: VecDeque<(Duration, u64, u64)>,
    waits_before: (u64, u64, u64),
    limit: Option<Limit>,
}

impl Live {
    pub(crate) fn new(follow_durable: bool) -> Self {
        let zero = AtomicU64::default;
        Self {
            start: Instant::now(),
            walked_files: zero(),
            walked_bytes: zero(),
            listed: zero(),
            walk_final: AtomicBool::new(false),
            counted_files: zero(),
            counted_bytes: zero(),
            count_final: AtomicBool::new(false),
            files_done: zero(),
            files_skipped: zero(),
            files_failed: zero(),
            directories: zero(),
            bytes_done: zero(),
            bytes_skipped: zero(),
            bytes_read: zero(),
            bytes_sent: zero(),
            bytes_landed: zero(),
            bytes_durable: zero(),
            files_durable: zero(),
            bytes_settled: zero(),
            deleted: zero(),
            retries: zero(),
            operations: zero(),
            bytes_resumed: zero(),
            bytes_reused: zero(),
            bytes_compared: zero(),
            waits: Waits::default(),
            follow_durable,
            derived: Mutex::new(Derived {
                eta: EtaEstimator::new(),
                progressed: 0,
                samples: VecDeque::new(),
                waits_before: (0, 0, 0),
                limit: None,
            }),
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    pub(crate) fn counters(&self) -> Counters {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let walk_final = self.walk_final.load(Ordering::Acquire);
        let (files_total, bytes_total) = if walk_final {
            (get(&self.walked_files), get(&self.walked_bytes))
        } else {
            (
                get(&self.walked_files).max(get(&self.counted_files)),
                get(&self.walked_bytes).max(get(&self.counted_bytes)),
            )
        };
        Counters {
            files_total,
            bytes_total,
            totals_final: walk_final || self.count_final.load(Ordering::Acquire),
            files_done: get(&self.files_done),
            files_skipped: get(&self.files_skipped),
            files_failed: get(&self.files_failed),
            directories: get(&self.directories),
            bytes_done: get(&self.bytes_done),
            bytes_skipped: get(&self.bytes_skipped),
            bytes_read: get(&self.bytes_read),
            bytes_sent: get(&self.bytes_sent),
            bytes_durable: get(&self.bytes_durable),
            deleted: get(&self.deleted),
            retries: get(&self.retries),
            operations: get(&self.operations) + get(&self.directories) + get(&self.deleted),
        }
    }

    /// Returns a progress event. The estimate learns from each call, so call it regularly. It
    /// learns nothing from pauses of `limit`.
    pub(crate) fn progress(&self, limit: &RateLimit) -> Event {
        let now = self.elapsed();
        let counters = self.counters();
        let landed = self.bytes_landed.load(Ordering::Relaxed);
        let (bytes, files) = if self.follow_durable {
            // Durable bytes grow in steps, one for each checkpoint. Settled bytes grow between
            // them.
            let bytes = counters.bytes_durable + self.bytes_settled.load(Ordering::Relaxed);
            (bytes, self.files_durable.load(Ordering::Relaxed))
        } else {
            (landed, counters.files_done)
        };
        // Skipped files take hardly any time, so they would distort the estimate.
        let (bytes, files) = (
            bytes.saturating_sub(counters.bytes_skipped),
            files.saturating_sub(counters.files_skipped),
        );
        let mut derived = self.derived.lock();
        // The bytes of a finished file leave `bytes_settled` before they count as durable. Progress
        // never goes back.
        let bytes = bytes.max(derived.progressed);
        derived.progressed = bytes;
        let active = now.saturating_sub(limit.paused_for());
        derived.eta.observe(active, bytes, files);
        let left_bytes = counters
            .bytes_total
            .saturating_sub(counters.bytes_skipped + bytes);
        let left_files = counters
            .files_total
            .saturating_sub(counters.files_skipped + files);
        let eta = if counters.totals_final {
            derived.eta.estimate(left_bytes, left_files)
        } else {
            None
        };
        let (rate, files_rate) = derived.rates(now, bytes, files);
        let percent = percent(&counters, left_bytes, left_files);
        Event::Progress {
            seconds: now.as_secs_f64(),
            counters,
            rate,
            files_rate,
            percent,
            eta,
            limit: derived.limit(&self.waits),
            paused: limit.is_paused(),
            connection_lost: None,
        }
    }

    /// Returns what limited the job for most of its time.
    pub(crate) fn limit_overall(&self) -> Option<Limit> {
        largest(self.waits.get())
    }
}

impl Waits {
    fn get(&self) -> (u64, u64, u64) {
        (
            self.source.load(Ordering::Relaxed),
            self.target.load(Ordering::Relaxed),
            self.small_files.load(Ordering::Relaxed),
        )
    }
}

/// Adds a span of time to one of the [`Waits`].
pub(crate) fn add_wait(counter: &AtomicU64, span: Duration) {
    counter.fetch_add(
        u64::try_from(span.as_micros()).unwrap_or(u64::MAX),
        Ordering::Relaxed,
    );
}

fn largest((source, target, small): (u64, u64, u64)) -> Option<Limit> {
    let most = source.max(target).max(small);
    match most {
        0 => None,
        most if most == target => Some(Limit::Destination),
        most if most == source => Some(Limit::Source),
        _ => Some(Limit::SmallFiles),
    }
}

/// Returns the percentage that is done, by bytes, or by files if all of them are empty. It is 100
/// only at the end.
fn percent(counters: &Counters, left_bytes: u64, left_files: u64) -> Option<f64> {
    if !counters.totals_final {
        return None;
    }
    let (left, total) = match counters.bytes_total {
        0 => (left_files, counters.files_total),
        total => (left_bytes, total),
    };
    let done = total.saturating_sub(left);
    (total > 0).then(|| done as f64 / total as f64 * 100.0)
}

impl Derived {
    /// Returns the bytes and files a second of the last seconds.
    fn rates(&mut self, now: Duration, bytes: u64, files: u64) -> (f64, f64) {
        self.samples.push_back((now, bytes, files));
        while self.samples.len() > 2
            && (self.samples.len() > RATE_SAMPLES_MAX
                || self
                    .samples
                    .get(1)
                    .is_some_and(|(at, ..)| now.saturating_sub(*at) >= RATE_WINDOW))
        {
            self.samples.pop_front();
        }
        match self.samples.front() {
            Some((at, bytes_before, files_before)) if now > *at => {
                let seconds = (now - *at).as_secs_f64();
                let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
                (rate(bytes, *bytes_before), rate(files, *files_before))
            }
            _ => (0.0, 0.0),
        }
    }

    fn limit(&mut self, waits: &Waits) -> Option<Limit> {
        let now = waits.get();
        let before = std::mem::replace(&mut self.waits_before, now);
        let recent = largest((now.0 - before.0, now.1 - before.1, now.2 - before.2));
        if recent.is_some() {
            self.limit = recent;
        }
        self.limit
    }
}
