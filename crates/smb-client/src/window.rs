//! The window of one connection: how many READ and WRITE bytes it keeps in flight. On a long line
//! it is twice the measured bandwidth-delay product plus headroom; on a short one what the server
//! works on at once, and what keeps it busy for a moment more. Pure: time is an argument.
//!
//! ```text
//! Startup   long line    the window doubles each round trip while it limits and the rate grows by a quarter
//!           short line   one request
//! Steady    long line    window = (2 + a) x best rate of the last rounds x shortest round trip + headroom,
//!                        where a is how often segments are sent again; 0 without losses
//!           short line   window = best rate of the last rounds x shortest time of service + headroom
//! Alone     short line   one request at a time until the time of service is measured again
//! ```
//! Headroom is what the connection carries in a moment, and one request at least. So where the
//! server's disk is slow, or has other users and gets slower, few bytes of this client wait at it,
//! and the others wait little behind them. That is the rule of Vegas (Brakmo and Peterson, "TCP
//! Vegas: end to end congestion avoidance on a global Internet", IEEE JSAC 1995), where the
//! difference between window and rate x shortest round trip is held between two bounds. A server
//! that works on many requests at once takes longer for each, and the rate grows with the window:
//! there the headroom lets the window grow round by round.
//!
//! The time of service is the shortest time that a large request with data took lately. After
//! [`SERVICE_KEPT`] it is measured again, with one request that is alone, as BBR drains its queue
//! to see the distance: else a wait behind other users would pass for it. For the same reason the
//! first request on a connection is alone: eight at once took half a second each on a disk that
//! needs 10 ms for one.
//!
//! On a long line the headroom is at least two of the largest requests: a whole file of 4 MiB
//! counts as in flight until its last byte arrives, and the next request has to be on the line by
//! then.
//!
//! A request is answered when all of its bytes have arrived in order. Where segments are lost, what follows
//! them waits until they have arrived again, a round trip later; some of those are lost again. So for the
//! line to stay full, more has to be in flight: a round trip for each time that segments are sent again
//! until none of a round trip's segments is missing (seen at 1 Gbit/s, 100 ms and 1 %: with 2 x
//! bandwidth-delay product connections ran dry and carried 95 MB/s, one that was never dry 106).
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

/// The smallest upper bound of a window, and the window of a client whose depth is fixed, in bytes. A
/// guess: four requests of 1 MiB keep a disk busy.
pub(crate) const WINDOW_MIN: u64 = 4 << 20;
/// The smallest window in bytes: a request of this size does not keep a server from others.
const WINDOW_SMALL: u64 = 64 << 10;
/// A line with this round trip or more is long. Below it a small start costs no noticeable time. A
/// guess: nine doublings of TCP's congestion window take 90 ms.
pub(crate) const FAR_ROUND_TRIP: Duration = Duration::from_millis(10);
/// Initial window on a short line in bytes: suits a server's disk and a processor's cache.
const WINDOW_START: u64 = 8 << 20;
/// Initial window on a long line in bytes: twice what 622 Mbit/s x 75 ms and a queue of the same
/// length hold (11.7 MB). While TCP starts, the excess waits in sockets and does no harm; less
/// leaves connections idle (measured: 2.6 s with 8 MiB, 2.5 s with 24 for 100 MB).
const WINDOW_START_FAR: u64 = 24 << 20;
/// Most headroom for the server's disk in bytes, on top of what the line holds. A guess.
const HEADROOM: u64 = 4 << 20;
/// Headroom as the time that the server needs for it. A guess: a disk turns in 8 ms.
const HEADROOM_SHORT: Duration = Duration::from_millis(20);
/// The same on a long line, where a pause of the server is noticed late.
const HEADROOM_FAR: Duration = Duration::from_millis(20);
/// How long the shortest time of service counts, as in BBR.
const SERVICE_KEPT: Duration = Duration::from_secs(10);
/// Time over which the present rate is measured: some round trips of a long line. A guess.
const PACE_TIME: Duration = Duration::from_millis(500);
/// Longest time in which the time of service is measured. A guess: a disk that starts to turn takes longer,
/// and is measured the next time.
const PROBE_MAX: Duration = Duration::from_secs(1);
/// Number of rounds whose best rate counts, as in BBR.
const ROUNDS: usize = 10;
/// Number of rounds without growth that end the start, as in BBR.
const FLAT_ROUNDS: u32 = 3;
/// Payload of a segment on most lines, in bytes.
pub(crate) const SEGMENT: f64 = 1448.0;
/// Most times that segments are expected to be sent again until all have arrived. A bound for a line that loses
/// more than a few of a hundred, and what is expected where all that is received comes out of order.
const AGAIN_MAX: f64 = 2.5;
/// The window is the limit if rate x round trip reaches this fraction of it: all of it but what one
/// request takes, if nothing else limits. A line that carries less than its window shows less.
const LIMITING: f64 = 0.75;

/// What the line loses by chance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Losses {
    /// Fraction of the segments that this end sent again.
    pub(crate) sent_again: f64,
    /// Fraction of the segments that came out of order, and so waited for others.
    pub(crate) out_of_order: f64,
}

/// The governor's state when a request was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    sent_at: Duration,
    delivered: u64,
    delivered_at: Duration,
    /// The window was not full, so a low rate says nothing about the line.
    idle: bool,
    /// Nothing else was in flight.
    is_alone: bool,
    /// The server flushes before it answers.
    is_flushed: bool,
}

/// The shortest time of service lately.
#[derive(Clone, Copy, Debug)]
struct Service {
    took: Duration,
    at: Duration,
    /// Size of the request in bytes.
    bytes: u64,
    /// Whether it has to be measured again.
    is_old: bool,
}

impl Service {
    fn new(took: Duration, at: Duration, bytes: u64) -> Self {
        let is_old = false;
        Self {
            took,
            at,
            bytes,
            is_old,
        }
    }
}

/// The governor of one connection's window.
#[derive(Debug)]
pub(crate) struct WindowGovernor {
    window: u64,
    window_min: u64,
    window_max: u64,
    headroom: u64,
    in_flight: u64,
    /// Whether the window may become smaller than [`WINDOW_MIN`] for the server's other users.
    gives_way: bool,
    losses: Losses,
    /// Number of rounds until all rates are those of rounds without a FLUSH.
    flushed_rounds: usize,
    /// Size of the largest request of this round and the one before.
    largest: [u64; 2],
    service: Option<Service>,
    /// Since when the time of service is being measured.
    probing_since: Option<Duration>,
    delivered: u64,
    delivered_at: Duration,
    round_trip: Option<Duration>,
    /// Best rate of each of the last rounds, in bytes a second.
    rates: VecDeque<u64>,
    round_ends_at: u64,
    /// Whether the window was full at some time in this round.
    was_full: bool,
    start: Option<Start>,
    pace: Pace,
}

/// The rate of the last moment with something in flight: under losses TCP may start ten times as fast as it
/// goes on.
#[derive(Debug, Default)]
struct Pace {
    since: Duration,
    delivered: u64,
    rate: Option<u64>,
}

#[derive(Debug, Default)]
struct Start {
    best_rate: u64,
    flat_rounds: u32,
}

impl WindowGovernor {
    pub(crate) fn new(window_max: u64, gives_way: bool) -> Self {
        let window_max = window_max.max(WINDOW_MIN);
        Self {
            window: WINDOW_START.min(window_max),
            window_min: if gives_way { WINDOW_SMALL } else { WINDOW_MIN },
            window_max,
            headroom: HEADROOM,
            in_flight: 0,
            gives_way,
            losses: Losses::default(),
            flushed_rounds: 0,
            largest: [0, 0],
            service: None,
            probing_since: None,
            delivered: 0,
            delivered_at: Duration::ZERO,
            round_trip: None,
            rates: VecDeque::from([0]),
            round_ends_at: 0,
            was_full: false,
            start: Some(Start::default()),
            pace: Pace::default(),
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

    /// Returns the number of bytes that may be in flight. On a short line the first request is alone, so that
    /// the time of service is known.
    pub(crate) fn window(&self) -> u64 {
        let is_first = self.gives_way && self.service.is_none();
        match is_first && self.round_trip.is_some() && !self.is_far() {
            true => self.window.min(self.window_min),
            false => self.window,
        }
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

    /// Returns the present rate, in bytes a second: it is lower than the best of the last rounds where the
    /// line changes.
    pub(crate) fn pace(&self) -> u64 {
        self.pace.rate.unwrap_or_else(|| self.rate())
    }

    /// Returns whether a larger window no longer raises the rate.
    pub(crate) fn is_steady(&self) -> bool {
        self.start.is_none()
    }

    /// Accounts for a request with `bytes` of payload that is sent now.
    pub(crate) fn sent(&mut self, now: Duration, bytes: u64) -> Stamp {
        let is_alone = self.in_flight == 0;
        if is_alone {
            self.delivered_at = now;
            (self.pace.since, self.pace.delivered) = (now, self.delivered);
        }
        self.in_flight += bytes;
        self.largest[0] = self.largest[0].max(bytes);
        // Full: one more request of the same size would not fit.
        let idle = self.in_flight + bytes <= self.window;
        self.was_full |= !idle;
        Stamp {
            sent_at: now,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            idle,
            is_alone,
            is_flushed: false,
        }
    }

    /// The same for a request that the server answers after a FLUSH. How long that takes says nothing about
    /// the line, so on a long one it does not make the window smaller.
    pub(crate) fn sent_with_flush(&mut self, now: Duration, bytes: u64) -> Stamp {
        Stamp {
            is_flushed: true,
            ..self.sent(now, bytes)
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

    /// Sets what the line loses by chance.
    pub(crate) fn set_losses(&mut self, losses: Losses) {
        self.losses = losses;
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
        self.served(now, stamp, bytes);
        if stamp.is_flushed {
            self.flushed_rounds = ROUNDS;
        }
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
        let took = now.saturating_sub(self.pace.since);
        if took >= PACE_TIME {
            let rate = (self.delivered - self.pace.delivered) as f64 / took.as_secs_f64();
            self.pace = Pace {
                since: now,
                delivered: self.delivered,
                rate: Some(rate as u64),
            };
        }
        if self.gives_way && !self.is_far() && self.start.take().is_some() {
            self.settle();
        }
        if stamp.delivered >= self.round_ends_at {
            self.end_round();
        }
    }

    /// Notes how long a request took.
    fn served(&mut self, now: Duration, stamp: Stamp, bytes: u64) {
        let took = now.saturating_sub(stamp.sent_at);
        let age = |since: Duration| now.saturating_sub(since);
        let is_small = 2 * bytes < self.largest();
        match &mut self.service {
            // It says nothing about large ones.
            Some(_) if is_small => {}
            Some(known) if known.took < took => {
                known.is_old |= age(known.at) >= SERVICE_KEPT || bytes >= 2 * known.bytes;
                if known.is_old && stamp.is_alone {
                    *known = Service::new(took, now, bytes);
                }
            }
            known => *known = Some(Service::new(took, now, bytes)),
        }
        let largest = self.largest();
        let Some(service) = &mut self.service else { return };
        if let Some(since) = self.probing_since {
            let is_over = age(since) >= PROBE_MAX;
            if is_over {
                // The requests are too small to come one at a time.
                (service.at, service.is_old) = (now, false);
                service.bytes = service.bytes.max(largest);
            }
            if stamp.is_alone || is_over {
                self.probing_since = None;
                self.settle();
            }
        } else if service.is_old && self.gives_way && self.is_steady() && !self.is_far() {
            self.probing_since = Some(now);
            self.window = self.window_min;
        }
    }

    /// Returns the size of the largest request lately.
    fn largest(&self) -> u64 {
        self.largest[0].max(self.largest[1])
    }

    fn end_round(&mut self) {
        self.round_ends_at = self.delivered;
        self.largest = [0, self.largest[0]];
        let was_full = std::mem::take(&mut self.was_full);
        let best = self.rate();
        // A round in which the caller did not fill the window proves neither growth nor a limit, so
        // it does not count.
        if was_full {
            if self.rates.len() == ROUNDS {
                self.rates.pop_front();
            }
            self.rates.push_back(0);
            self.flushed_rounds = self.flushed_rounds.saturating_sub(1);
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
        if self.start.is_some() && self.losses != Losses::default() && self.is_far() {
            let window = self
                .round_trip
                .map_or(0, |round_trip| self.target_far(round_trip));
            self.window = self.window.max(window.min(self.window_max));
        }
    }

    /// Returns how often segments of a round trip are sent again until all of them have arrived.
    fn sent_again(&self, product: f64) -> f64 {
        let (segments, lost) = (product / SEGMENT, self.losses.sent_again);
        // Of n segments n x p^k are missing after k times.
        let again = match lost > 0.0 && segments > 1.0 {
            true => segments.ln() / -lost.min(0.99).ln(),
            false => 0.0,
        };
        // What comes out of order is no rate of loss: one lost segment delays all of a round trip. It says
        // what part of the time something is missing.
        again.max(self.losses.out_of_order * AGAIN_MAX).min(AGAIN_MAX)
    }

    /// Returns the window of a long line.
    fn target_far(&self, round_trip: Duration) -> u64 {
        let in_time = |time: Duration| self.rate() as f64 * time.as_secs_f64();
        let headroom = match self.gives_way {
            true => self.headroom.min(in_time(HEADROOM_FAR) as u64),
            false => self.headroom,
        };
        let product = in_time(round_trip);
        let target = (2.0 + self.sent_again(product)) * product + headroom.max(2 * self.largest()) as f64;
        target as u64
    }

    /// Returns whether the window limits the rate, and not the line.
    fn is_limiting(&self, rate: u64) -> bool {
        self.round_trip
            .is_none_or(|round_trip| rate as f64 * round_trip.as_secs_f64() >= LIMITING * self.window as f64)
    }

    fn settle(&mut self) {
        let Some(round_trip) = self.round_trip else { return };
        if self.probing_since.is_some() {
            return;
        }
        let rate = self.rate() as f64;
        let in_time = |time: Duration| rate * time.as_secs_f64();
        let largest = self.largest();
        let target = match (self.is_far(), self.service) {
            (true, _) if self.flushed_rounds > 0 => self.target_far(round_trip).max(self.window),
            (true, _) => self.target_far(round_trip),
            (false, Some(service)) if self.gives_way => {
                let headroom = self.headroom.min(in_time(HEADROOM_SHORT) as u64);
                (in_time(service.took) + headroom.max(largest) as f64) as u64
            }
            _ => (2.0 * in_time(round_trip) + self.headroom as f64) as u64,
        };
        self.window = target.clamp(self.window_min.min(self.window_max), self.window_max);
    }
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
