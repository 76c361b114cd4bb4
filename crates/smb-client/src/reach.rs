//! Whether the server of a link can be reached.
//!
//! ```text
//!              wanted and silent for SILENCE
//!   Answers ──────────────────────────────────▶ Lost
//!           ◀──────────────────────────────────
//!              a byte of a login or a session, or a refused login
//! ```
//! Something is *wanted* while a connection owes a reply, or while a lost connection is being
//! re-established. Bytes count from the moment at which they arrive, not when a message is complete.
//! A connection sends an ECHO after half of [`SILENCE`], so a server that takes long for a request
//! is not taken for lost. While much is being sent, the silence may last as long as the line needs
//! for that, at its rate so far.
//!
//! It makes no difference whether the network reports an error: where a line is cut, packets
//! vanish.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Silence after which a server is lost. A guess: longer than TCP takes to repair the loss of a few
/// packets (retransmissions after 0.2, 0.6 and 1.4 s), short enough for a person who waits.
pub(crate) const SILENCE: Duration = Duration::from_secs(2);
/// The rate of a line that is not known yet, or seems slower, in bytes per second: 1 Mbit/s. A guess.
const RATE_MIN: u64 = 125_000;

/// The rule. Pure.
#[derive(Debug, Default)]
struct Silence {
    /// Number of reasons to expect something, and since when there is any.
    wanted: usize,
    since: Duration,
    /// Since when nothing has come, once the server is lost.
    lost_since: Option<Duration>,
}

impl Silence {
    fn want(&mut self, now: Duration) {
        if self.wanted == 0 {
            self.since = now;
        }
        self.wanted += 1;
    }

    fn unwant(&mut self) {
        self.wanted -= 1;
    }

    /// Returns how long the server has been silent, if it is lost. `heard`: when the last byte came.
    /// `slack`: what the silence may last longer.
    fn lost_for(&mut self, now: Duration, heard: Duration, slack: Duration) -> Option<Duration> {
        if self.lost_since.is_some_and(|since| heard > since) {
            self.lost_since = None;
        }
        let since = self.since.max(heard);
        if self.wanted > 0 && now.saturating_sub(since) >= SILENCE + slack {
            self.lost_since.get_or_insert(since);
        }
        self.lost_since.map(|since| now.saturating_sub(since))
    }
}

/// The state of a link, shared by its connections.
#[derive(Debug)]
pub(crate) struct Reach {
    start: Instant,
    silence: Mutex<Silence>,
    heard_us: AtomicU64,
    /// Bytes of WRITEs without a reply, and the highest rate of a connection.
    sending: AtomicU64,
    rate: AtomicU64,
}

/// A reason to expect something from the server, until it is dropped.
#[derive(Debug)]
pub(crate) struct Wanted(Arc<Reach>);

/// Bytes on their way to the server, until it is dropped.
#[derive(Debug)]
pub(crate) struct Sending(Arc<Reach>, u64);

impl Default for Reach {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            silence: Mutex::default(),
            heard_us: AtomicU64::new(0),
            sending: AtomicU64::new(0),
            rate: AtomicU64::new(0),
        }
    }
}

impl Reach {
    /// Begins to expect something.
    pub(crate) fn want(self: &Arc<Self>) -> Wanted {
        self.silence.lock().want(self.start.elapsed());
        Wanted(Arc::clone(self))
    }

    /// Notes bytes on their way, over a connection of this rate (0: not known).
    pub(crate) fn send(self: &Arc<Self>, bytes: u64, rate: u64) -> Sending {
        self.sending.fetch_add(bytes, Ordering::Relaxed);
        self.rate.fetch_max(rate, Ordering::Relaxed);
        Sending(Arc::clone(self), bytes)
    }

    /// Notes a sign of the server.
    pub(crate) fn heard(&self) {
        let now = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.heard_us.store(now, Ordering::Release);
    }

    /// Returns how long the server has been silent, if it is lost.
    pub(crate) fn lost_for(&self) -> Option<Duration> {
        let sending = self.sending.load(Ordering::Relaxed);
        let rate = self.rate.load(Ordering::Relaxed).max(RATE_MIN);
        let slack = Duration::from_millis(sending.saturating_mul(1000) / rate);
        let mut silence = self.silence.lock();
        let heard = Duration::from_micros(self.heard_us.load(Ordering::Acquire));
        silence.lost_for(self.start.elapsed(), heard, slack)
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.silence.lock().unwant();
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.sending.fetch_sub(self.1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Duration = Duration::ZERO;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_server_of_which_nothing_is_wanted_is_not_lost() {
        let mut silence = Silence::default();
        assert_eq!(silence.lost_for(at(99_000), NONE, NONE), None);
        silence.want(at(99_000));
        assert_eq!(silence.lost_for(at(100_999), NONE, NONE), None);
        silence.unwant();
        assert_eq!(silence.lost_for(at(200_000), NONE, NONE), None);
        silence.want(at(200_000));
        assert_eq!(silence.lost_for(at(201_999), NONE, NONE), None);
        assert_eq!(silence.lost_for(at(202_000), NONE, NONE), Some(at(2000)));
    }

    #[test]
    fn a_slow_line_that_delivers_is_not_lost() {
        let mut silence = Silence::default();
        silence.want(NONE);
        for now in (0..60_000).step_by(100) {
            // A byte every 1.9 seconds.
            let heard = at(now / 1900 * 1900);
            assert_eq!(silence.lost_for(at(now), heard, NONE), None, "{now}");
        }
        // The line needs so long for what is being sent.
        let heard = at(60_000);
        assert_eq!(silence.lost_for(at(64_999), heard, at(3000)), None);
        assert_eq!(silence.lost_for(at(65_000), heard, at(3000)), Some(at(5000)));
    }

    #[test]
    fn a_lost_server_stays_lost_until_it_is_heard() {
        let mut silence = Silence::default();
        silence.want(at(1000));
        assert_eq!(silence.lost_for(at(3000), NONE, NONE), Some(at(2000)));
        // The connection is given up, another one is tried.
        silence.unwant();
        silence.want(at(9000));
        assert_eq!(silence.lost_for(at(9000), NONE, NONE), Some(at(8000)));
        assert_eq!(silence.lost_for(at(9500), at(9400), NONE), None);
        assert_eq!(silence.lost_for(at(11_400), at(9400), NONE), Some(at(2000)));
    }

    #[test]
    fn what_is_on_its_way_counts_until_it_is_answered() {
        let reach = Arc::new(Reach::default());
        let (first, second) = (reach.send(1000, 0), reach.send(500, 10_000_000));
        assert_eq!(reach.sending.load(Ordering::Relaxed), 1500);
        assert_eq!(reach.rate.load(Ordering::Relaxed), 10_000_000);
        drop((first, second));
        assert_eq!(reach.sending.load(Ordering::Relaxed), 0);
    }
}
