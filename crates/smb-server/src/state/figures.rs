//! What requests are counted in: by session and kind, with their times.
//!
//! Each session has counters of its own, so that connections do not compete for them. What a session
//! did is added to that of earlier ones when it ends. A request costs two readings of the clock and
//! five additions. Those that are being executed are counted too, so that a session that replaces
//! another can wait for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ropeway_smb_wire::header::Command;

/// Names of the kinds, by the index of [`Kind`].
pub(crate) const KINDS: [&str; 11] = [
    "read", "write", "open", "close", "list", "query", "change", "flush", "lock", "control", "other",
];

/// Buckets of times: up to 2^n microseconds; the last one has everything slower than 16 s.
pub(crate) const BUCKETS: usize = 25;

/// Time between two looks whether the requests of a replaced session are done. A guess: short against
/// a login.
const POLL: Duration = Duration::from_millis(1);

/// A kind of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Open,
    Close,
    List,
    Query,
    Change,
    Flush,
    Lock,
    Control,
    Other,
}

impl Kind {
    fn of(command: Command) -> Self {
        match command {
            Command::Read => Self::Read,
            Command::Write => Self::Write,
            Command::Create => Self::Open,
            Command::Close => Self::Close,
            Command::QueryDirectory => Self::List,
            Command::QueryInfo => Self::Query,
            Command::SetInfo => Self::Change,
            Command::Flush => Self::Flush,
            Command::Lock => Self::Lock,
            Command::Ioctl => Self::Control,
            _ => Self::Other,
        }
    }
}

/// What the requests of a session are counted in.
#[derive(Debug)]
pub(crate) struct SessionFigures {
    counts: [AtomicU64; KINDS.len()],
    nanos: [AtomicU64; KINDS.len()],
    buckets: [AtomicU64; BUCKETS],
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    /// Requests that are being executed.
    executing: AtomicU64,
    /// Set when the session ends, or another replaces it. No request begins after that.
    is_ended: AtomicBool,
}

impl Default for SessionFigures {
    fn default() -> Self {
        let zeros = || AtomicU64::new(0);
        Self {
            counts: std::array::from_fn(|_| zeros()),
            nanos: std::array::from_fn(|_| zeros()),
            buckets: std::array::from_fn(|_| zeros()),
            bytes_read: zeros(),
            bytes_written: zeros(),
            executing: zeros(),
            is_ended: AtomicBool::new(false),
        }
    }
}

impl SessionFigures {
    /// Returns the figures of a session that is gone: its requests do not begin.
    pub(crate) fn of_ended() -> Self {
        let figures = Self::default();
        figures.end();
        figures
    }

    /// Lets no further request begin.
    pub(crate) fn end(&self) {
        // Sequentially consistent, as the counter is: either a request sees this, or it is seen by
        // whoever waits.
        self.is_ended.store(true, Ordering::SeqCst);
    }

    /// Whether the session has ended, or another has replaced it.
    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::SeqCst)
    }

    /// Waits until the requests that had begun are done, `limit` at most.
    pub(crate) fn wait_for_requests(&self, limit: Duration) {
        let begin = Instant::now();
        while self.executing.load(Ordering::SeqCst) > 0 && begin.elapsed() < limit {
            thread::sleep(POLL);
        }
    }

    /// Counts bytes that the client read.
    pub(crate) fn read(&self, bytes: u64) {
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes that the client wrote.
    pub(crate) fn written(&self, bytes: u64) {
        self.bytes_written.fetch_add(bytes, Ordering::Relaxed);
    }

    fn done(&self, kind: Kind, span: Duration) {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        self.counts[kind as usize].fetch_add(1, Ordering::Relaxed);
        self.nanos[kind as usize].fetch_add(nanos, Ordering::Relaxed);
        self.buckets[bucket(nanos)].fetch_add(1, Ordering::Relaxed);
    }

    /// Adds what other figures have.
    pub(crate) fn add(&self, other: &Self) {
        let all = |figures: &Self, at: &mut dyn FnMut(usize, &AtomicU64)| {
            let arrays = figures
                .counts
                .iter()
                .chain(&figures.nanos)
                .chain(&figures.buckets);
            let bytes = [&figures.bytes_read, &figures.bytes_written];
            for (index, counter) in arrays.chain(bytes).enumerate() {
                at(index, counter);
            }
        };
        let mut values = Vec::new();
        all(other, &mut |_, counter| {
            values.push(counter.load(Ordering::Relaxed))
        });
        all(self, &mut |index, counter| {
            counter.fetch_add(values[index], Ordering::Relaxed);
        });
    }

    /// Returns number and seconds of the requests of each kind, in the order of [`KINDS`].
    pub(crate) fn kinds(&self) -> [(u64, f64); KINDS.len()] {
        std::array::from_fn(|kind| {
            let nanos = self.nanos[kind].load(Ordering::Relaxed);
            (self.counts[kind].load(Ordering::Relaxed), nanos as f64 / 1e9)
        })
    }

    /// Returns the number of requests by their time.
    pub(crate) fn buckets(&self) -> [u64; BUCKETS] {
        std::array::from_fn(|at| self.buckets[at].load(Ordering::Relaxed))
    }

    /// Returns the bytes read and written.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (get(&self.bytes_read), get(&self.bytes_written))
    }
}

fn bucket(nanos: u64) -> usize {
    let micros = nanos.div_ceil(1000).max(1);
    // The power of two that is not below it.
    let power = u64::BITS - (micros - 1).leading_zeros();
    (power as usize).min(BUCKETS - 1)
}

/// Times one request.
pub(crate) struct Timer {
    kind: Kind,
    begin: Instant,
    figures: Arc<SessionFigures>,
}

impl Timer {
    /// Begins with the execution of a request.
    pub(crate) fn begin(command: Command, figures: Arc<SessionFigures>) -> Self {
        figures.executing.fetch_add(1, Ordering::SeqCst);
        Self {
            kind: Kind::of(command),
            begin: Instant::now(),
            figures,
        }
    }

    /// Returns what the request is counted in.
    pub(crate) fn figures(&self) -> &Arc<SessionFigures> {
        &self.figures
    }

    /// Counts the request, which is done.
    pub(crate) fn end(self) {
        self.figures.done(self.kind, self.begin.elapsed());
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.figures.executing.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_buckets() {
        let cases = [
            (0, 0),
            (1000, 0),
            (1001, 1),
            (2000, 1),
            (2001, 2),
            (4000, 2),
            (1_000_000, 10),
            (1_024_000, 10),
            (1_024_001, 11),
            (u64::MAX, BUCKETS - 1),
        ];
        for (nanos, expected) in cases {
            assert_eq!(bucket(nanos), expected, "{nanos}");
        }
    }

    #[test]
    fn the_past_is_the_sum_of_ended_sessions() {
        let past = SessionFigures::default();
        for _ in 0..2 {
            let session = SessionFigures::default();
            session.read(10);
            session.written(1);
            session.done(Kind::of(Command::Read), Duration::from_micros(3));
            session.done(Kind::of(Command::Echo), Duration::from_secs(3600));
            past.add(&session);
        }
        assert_eq!(past.bytes(), (20, 2));
        assert_eq!(past.kinds()[0].0, 2);
        assert_eq!(past.kinds()[KINDS.len() - 1], (2, 7200.0));
        assert_eq!((past.buckets()[2], past.buckets()[BUCKETS - 1]), (2, 2));
    }
}
