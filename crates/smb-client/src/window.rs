//! The window of one connection: how many READ and WRITE bytes it keeps in flight. It is twice the
//! measured bandwidth-delay product, plus headroom for the server's disk. Pure: time is an
//! argument.
//!
//! ```text
//! Startup   the window doubles each round trip while it limits and the rate grows by a quarter
//! Steady    window = 2 x best rate of the last rounds x shortest round trip + headroom
//! ```
//! On a long line the headroom is at least two of the largest requests: a whole file of 4 MiB
//! counts as in flight until its last byte arrives, and the next request has to be on the line by
//! then.
//!
//! The estimate is that of BBR (Cardwell et al., "BBR: congestion-based congestion control", ACM
//! Queue 2016), one level up: TCP decides what is on the line, and the window decides how much the
//! two ends hold ready for it. When only a queue grows, round trips get longer and the rate does
//! not grow, so the window stays. The shortest round trip is kept for the life of a connection: a
//! queue that never drains must not look like distance.
//!
//! While TCP itself is in slow start, the rate grows anyway. A window that grew with it would
//! exceed what the line and its queue hold just when TCP probes hardest, and would cost losses. So
//! the window grows only where it limits the rate.

use std::collections::VecDeque;
use std::time::Duration;

/// The smallest window in bytes. A guess: four requests of 1 MiB keep a disk busy.
pub(crate) const WINDOW_MIN: u64 = 4 << 20;
/// A line with this round trip or more is long. Below it a small start costs no noticeable time. A
/// guess: nine doublings of TCP's congestion window take 90 ms.
pub(crate) const FAR_ROUND_TRIP: Duration = Duration::from_millis(10);
/// Initial window on a short line in bytes: suits a server's disk and a processor's cache.
const WINDOW_START: u64 = 8 << 20;
/// Initial window on a long line in bytes: twice what 622 Mbit/s x 75 ms and a queue of the same
/// length hold (11.7 MB). While TCP starts, the excess waits in sockets and does no harm; less
/// leaves connections idle (measured: 2.6 s with 8 MiB, 2.5 s with 24 for 100 MB).
const WINDOW_START_FAR: u64 = 24 << 20;
/// Headroom for the server's disk in bytes, on top of what the line holds. A guess.
const HEADROOM: u64 = 4 << 20;
/// Number of rounds whose best rate counts, as in BBR.
const ROUNDS: usize = 10;
/// Number of rounds without growth that end the start, as in BBR.
const FLAT_ROUNDS: u32 = 3;
/// The window is the limit if rate x round trip reaches this fraction of it: all of it but what one
/// request takes, if nothing else limits. A line that carries less than its window shows less.
const LIMITING: f64 = 0.75;

/// The governor's state when a request was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    sent_at: Duration,
    delivered: u64,
    delivered_at: Duration,
    /// The window was not full, so a low rate says nothing about the line.
    idle: bool,
}

/// The governor of one connection's window.
#[derive(Debug)]
pub(crate) struct WindowGovernor {
    window: u64,
    window_min: u64,
    window_max: u64,
    headroom: u64,
    in_flight: u64,
    /// Size of the largest request so far.
    largest: u64,
    delivered: u64,
    delivered_at: Duration,
    round_trip: Option<Duration>,
    /// Best rate of each of the last rounds, in bytes a second.
    rates: VecDeque<u64>,
    round_ends_at: u64,
    /// Whether the window was full at some time in this round.
    was_full: bool,
    start: Option<Start>,
}

#[derive(Debug, Default)]
struct Start {
    best_rate: u64,
    flat_rounds: u32,
}

impl WindowGovernor {
    pub(crate) fn new(window_max: u64) -> Self {
        let window_max = window_max.max(WINDOW_MIN);
        Self {
            window: WINDOW_START.min(window_max),
            window_min: WINDOW_MIN,
            window_max,
            headroom: HEADROOM,
            in_flight: 0,
            largest: 0,
            delivered: 0,
            delivered_at: Duration::ZERO,
            round_trip: None,
            rates: VecDeque::from([0]),
            round_ends_at: 0,
            was_full: false,
            start: Some(Start::default()),
        }
    }

    /// Makes this one of several connections that start together and share the window of one. Call
    /// it before anything is sent.
    pub(crate) fn divide(&mut self, connections: u32) {
        let connections = u64::from(connections.max(1));
        if connections > 1 {
            // Connections start together only on a long line.
            self.begin_far();
        }
        self.window /= connections;
        self.window_min /= connections;
        self.headroom /= connections;
    }

    fn begin_far(&mut self) {
        if self.window == WINDOW_START.min(self.window_max) {
            self.window = WINDOW_START_FAR.min(self.window_max);
        }
    }

    /// Returns the number of bytes that may be in flight.
    pub(crate) fn window(&self) -> u64 {
        self.window
    }

    /// Returns the shortest round trip measured.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    /// Returns whether the line is long.
    pub(crate) fn is_far(&self) -> bool {
        self.round_trip.is_some_and(|trip| trip >= FAR_ROUND_TRIP)
    }

    /// Returns the number of bytes delivered since the start.
    pub(crate) fn total(&self) -> u64 {
        self.delivered
    }

    /// Returns the best rate of the last rounds, in bytes a second.
    pub(crate) fn rate(&self) -> u64 {
        self.rates.iter().copied().max().unwrap_or(0)
    }

    /// Returns whether a larger window no longer raises the rate.
    pub(crate) fn is_steady(&self) -> bool {
        self.start.is_none()
    }

    /// Accounts for a request with `bytes` of payload that is sent now.
    pub(crate) fn sent(&mut self, now: Duration, bytes: u64) -> Stamp {
        if self.in_flight == 0 {
            self.delivered_at = now;
        }
        self.in_flight += bytes;
        self.largest = self.largest.max(bytes);
        // Full: one more request of the same size would not fit.
        let idle = self.in_flight + bytes <= self.window;
        self.was_full |= !idle;
        Stamp {
            sent_at: now,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            idle,
        }
    }

    /// Records the duration of a request without payload, which is an upper bound of the round
    /// trip.
    pub(crate) fn answered(&mut self, took: Duration) {
        let took = took.max(Duration::from_micros(1));
        if took >= FAR_ROUND_TRIP && self.delivered == 0 && self.in_flight == 0 {
            self.begin_far();
        }
        self.round_trip = Some(self.round_trip.map_or(took, |best| best.min(took)));
    }

    /// Accounts for a request that was lost or cancelled.
    pub(crate) fn lost(&mut self, bytes: u64) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
    }

    /// Accounts for the reply to a request with `bytes` of payload.
    pub(crate) fn delivered(&mut self, now: Duration, stamp: Stamp, bytes: u64) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.delivered += bytes;
        self.delivered_at = now;
        self.answered(now.saturating_sub(stamp.sent_at));
        let took = now
            .saturating_sub(stamp.delivered_at)
            .max(Duration::from_micros(1));
        let rate = (self.delivered - stamp.delivered) as f64 / took.as_secs_f64();
        // A cast from float saturates.
        let rate = rate as u64;
        if (!stamp.idle || rate > self.rate())
            && let Some(best) = self.rates.back_mut()
        {
            *best = rate.max(*best);
        }
        if stamp.delivered >= self.round_ends_at {
            self.end_round();
        }
    }

    fn end_round(&mut self) {
        self.round_ends_at = self.delivered;
        let was_full = std::mem::take(&mut self.was_full);
        let best = self.rate();
        // A round in which the caller did not fill the window proves neither growth nor a limit, so
        // it does not count.
        if was_full {
            if self.rates.len() == ROUNDS {
                self.rates.pop_front();
            }
            self.rates.push_back(0);
        }
        let is_limiting = self.is_limiting(best);
        match &mut self.start {
            Some(start) if was_full => {
                // BBR's threshold.
                if best >= start.best_rate + start.best_rate / 4 {
                    start.best_rate = best;
                    start.flat_rounds = 0;
                    if is_limiting {
                        self.window = (self.window * 2).min(self.window_max);
                    }
                } else {
                    start.flat_rounds += 1;
                }
                if start.flat_rounds >= FLAT_ROUNDS {
                    self.start = None;
                    self.settle();
                }
            }
            Some(_) => {}
            None => self.settle(),
        }
    }

    /// Returns whether the window limits the rate, and not the line.
    fn is_limiting(&self, rate: u64) -> bool {
        self.round_trip
            .is_none_or(|round_trip| rate as f64 * round_trip.as_secs_f64() >= LIMITING * self.window as f64)
    }

    fn settle(&mut self) {
        let Some(round_trip) = self.round_trip else { return };
        let product = self.rate() as f64 * round_trip.as_secs_f64();
        let headroom = match round_trip >= FAR_ROUND_TRIP {
            true => self.headroom.max(2 * self.largest),
            false => self.headroom,
        };
        let target = (2.0 * product) as u64 + headroom;
        self.window = target.clamp(self.window_min.min(self.window_max), self.window_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a line that carries `rate` bytes a second with a round trip of `delay`, and a
    /// sender that always has more to send.
    fn run(governor: &mut WindowGovernor, rate: f64, delay: Duration, block: u64, seconds: u64) -> Duration {
        let (mut now, mut free_at) = (Duration::ZERO, Duration::ZERO);
        let mut under_way: VecDeque<(Duration, Stamp)> = VecDeque::new();
        let mut longest = Duration::ZERO;
        while now < Duration::from_secs(seconds) {
            while governor.in_flight + block <= governor.window() {
                let stamp = governor.sent(now, block);
                free_at = free_at.max(now) + Duration::from_secs_f64(block as f64 / rate);
                under_way.push_back((free_at + delay, stamp));
            }
            let (at, stamp) = under_way.pop_front().unwrap();
            now = at;
            longest = longest.max(now - stamp.sent_at);
            governor.delivered(now, stamp, block);
        }
        longest
    }

    #[test]
    fn a_long_line_is_filled() {
        for (rate, delay_ms) in [(77.75e6, 75), (19.4e6, 32), (125e6, 200), (1e9, 1)] {
            let mut governor = WindowGovernor::new(64 << 20);
            governor.answered(Duration::from_millis(delay_ms));
            run(&mut governor, rate, Duration::from_millis(delay_ms), 1 << 20, 20);
            let product = rate * delay_ms as f64 / 1000.0;
            assert!(governor.is_steady());
            assert!(
                governor.rate() as f64 > 0.95 * rate,
                "{} of {rate}",
                governor.rate()
            );
            assert!(
                governor.window() as f64 >= 1.5 * product,
                "{} for {product}",
                governor.window()
            );
            assert!(
                governor.window() as f64 <= 2.5 * product + 5e6,
                "{} for {product}",
                governor.window()
            );
        }
    }

    /// Each request carries a whole file.
    #[test]
    fn a_long_line_is_filled_with_large_requests() {
        let (rate, delay) = (19.4e6, Duration::from_millis(32));
        let mut governor = WindowGovernor::new(64 << 20);
        governor.answered(delay);
        run(&mut governor, rate, delay, 4 << 20, 60);
        assert!(governor.is_steady());
        let carried = governor.delivered as f64 / 60.0;
        assert!(carried > 0.97 * rate, "{carried} of {rate}");
        assert!(governor.window() < 12 << 20, "{}", governor.window());
    }

    #[test]
    fn the_start_takes_few_rounds() {
        // 125 MB/s x 200 ms needs 25 MB: two doublings of 8 MiB.
        let mut governor = WindowGovernor::new(64 << 20);
        governor.answered(Duration::from_millis(200));
        run(&mut governor, 125e6, Duration::from_millis(200), 1 << 20, 1);
        assert!(governor.window() >= 25_000_000, "{}", governor.window());
    }

    #[test]
    fn slow_start_does_not_grow_the_window() {
        // TCP's own start on 622 Mbit/s x 75 ms: the rate doubles each round trip until it is the
        // line's.
        let (mut governor, delay) = (WindowGovernor::new(64 << 20), Duration::from_millis(75));
        governor.answered(delay);
        let (mut now, mut rate) = (Duration::ZERO, 200e3);
        while rate < 73e6 {
            let sent: Vec<_> = (0..8).map(|_| governor.sent(now, 1 << 20)).collect();
            for stamp in sent {
                now += Duration::from_secs_f64((1 << 20) as f64 / rate);
                governor.delivered(now.max(stamp.sent_at + delay), stamp, 1 << 20);
            }
            rate = (rate * 2.0).min(73e6);
            assert_eq!(governor.window(), WINDOW_START_FAR);
        }
    }

    #[test]
    fn connections_that_start_together_share_a_window() {
        let mut governor = WindowGovernor::new(64 << 20);
        governor.divide(4);
        assert_eq!(governor.window(), WINDOW_START_FAR / 4);
        governor.answered(Duration::from_millis(75));
        run(&mut governor, 73e6 / 4.0, Duration::from_millis(75), 1 << 18, 20);
        let total = 4 * governor.window();
        assert!((10_000_000..18_000_000).contains(&total), "{total}");
    }

    #[test]
    fn a_slow_disk_does_not_grow_the_window() {
        let mut governor = WindowGovernor::new(64 << 20);
        governor.answered(Duration::from_millis(1));
        let longest = run(&mut governor, 10e6, Duration::from_millis(1), 1 << 20, 60);
        assert!(governor.window() <= 5 << 20, "{}", governor.window());
        assert!(longest < Duration::from_secs(7), "{longest:?}");
    }

    #[test]
    fn an_idle_caller_does_not_change_the_window() {
        let mut governor = WindowGovernor::new(64 << 20);
        let before = governor.window();
        for step in 0..1000 {
            let now = Duration::from_millis(100 * step);
            let stamp = governor.sent(now, 4096);
            governor.delivered(now + Duration::from_millis(50), stamp, 4096);
        }
        assert_eq!(governor.window(), before);
        assert!(!governor.is_steady());
    }

    #[test]
    fn the_window_respects_the_callers_limit() {
        let mut governor = WindowGovernor::new(16 << 20);
        governor.answered(Duration::from_millis(500));
        run(&mut governor, 1e9, Duration::from_millis(500), 1 << 20, 10);
        assert!(governor.window() <= 16 << 20);
    }
}
