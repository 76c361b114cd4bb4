//! Decides how many connections a line with losses gets. Pure: time is an argument.
//!
//! ```text
//! Watch    the line is in use and loses segments: measure, then open all that there may be, or three times
//!          as many more if data wait in a queue of the line
//! Opening  wait until they are open
//! Starting wait until TCP has started on them
//! Trial    measure again, up to three times: a gain of a quarter keeps them and doubles them, if there may be
//!          more; else close them and settle
//! ```
//! Loss-based congestion control takes each lost segment for a full line, so one connection is left
//! with `1.22 x segment / (round trip x √loss)` (Mathis et al., "The macroscopic behavior of the TCP
//! congestion avoidance algorithm", 1997), and several with several times that. Where the losses come
//! from a queue that other traffic shares, more connections bring nothing, and the trial ends.

use std::time::Duration;

use ropeway_tcp::{Info, LOSSY};

use crate::channel_policy::Advice;
use crate::line::losses;
use crate::window::SEGMENT;

/// A measurement lasts this many round trips, and this long at least. Guesses: half a dozen
/// sawteeth of a connection that loses 1 %.
const MEASURE_ROUND_TRIPS: u32 = 10;
const MEASURE_MIN: Duration = Duration::from_millis(500);
/// Measurements without a gain after which connections are closed. One may fall into a moment in which many wait
/// for a segment that was lost twice, and a few connections too many cost far less than a few too few.
const TRIALS: u32 = 3;
/// Longest time to open connections: TCP, NEGOTIATE and two or three SESSION_SETUP, with some of
/// them lost.
const OPENING_ROUND_TRIPS: u32 = 30;
/// A first segment that is lost is sent again after 1 s ([RFC 6298] 2.1).
const OPENING_MIN: Duration = Duration::from_secs(3);
/// Time in which TCP on new connections reaches its rate: from 10 segments to the 16 of 1 % takes
/// one round trip, to the 50 of 0.1 % three.
const STARTING_ROUND_TRIPS: u32 = 4;
/// Segments sent again in a measurement from which on the losses count, so that one does not.
const AGAIN_MIN: u64 = 3;
/// The first time this many times as many are added if data wait in a queue: then it may be full because of
/// other traffic. If none do, only losses limit, and all connections are opened.
const FIRST_TIMES: usize = 3;
/// A connection under losses carries at most this many times what the formula says. CUBIC was seen to carry
/// 2.5 times as much at 100 ms and 1 %. Right after its start a connection may carry more for a while, and
/// what is compared with that looks like no gain.
const FORMULA_TIMES: f64 = 3.0;
/// Gain by which more connections prove themselves. A guess: on a line without another limit, twice as many
/// bring twice the rate.
const GAIN: f64 = 1.25;
/// Losses have to show this long after the start: as TCP starts, it overruns the queue once.
const IGNORED_ROUND_TRIPS: u32 = 6;

/// A sample of the load on a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LossSample {
    pub(crate) channels: usize,
    pub(crate) round_trip: Duration,
    /// What TCP has counted so far.
    pub(crate) line: Info,
    /// Bytes that were moved so far while others waited in a queue of the line.
    pub(crate) queued_bytes: u64,
    /// Whether this end sends with BBR.
    pub(crate) is_bbr: bool,
    /// Whether more data waits to be moved.
    pub(crate) is_busy: bool,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Duration,
    line: Info,
    queued_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Watch(Option<Mark>),
    Opening { since: Duration, target: usize },
    Starting { since: Duration },
    Trial(Option<Mark>),
    Settled,
}

/// The policy of one session under losses.
#[derive(Debug)]
pub(crate) struct LossPolicy {
    channels_max: usize,
    phase: Phase,
    /// Since when the line is in use.
    used_since: Option<Duration>,
    /// Rate before the newest connections, in bytes a second, and the number of the others.
    before: (f64, usize),
    /// Measurements since then that showed no gain.
    without_gain: u32,
}

impl LossPolicy {
    pub(crate) fn new(channels_max: usize) -> Self {
        Self {
            channels_max,
            phase: match channels_max {
                0 | 1 => Phase::Settled,
                _ => Phase::Watch(None),
            },
            used_since: None,
            before: (0.0, 0),
            without_gain: 0,
        }
    }

    /// Opens no more: the server has refused one. A trial of others goes on.
    pub(crate) fn settle(&mut self) {
        self.channels_max = 0;
        if matches!(self.phase, Phase::Watch(_)) {
            self.phase = Phase::Settled;
        }
    }

    pub(crate) fn is_settled(&self) -> bool {
        matches!(self.phase, Phase::Settled)
    }

    /// Whether it has opened nothing yet.
    pub(crate) fn is_watching(&self) -> bool {
        matches!(self.phase, Phase::Watch(_))
    }

    pub(crate) fn advise(&mut self, now: Duration, load: LossSample) -> Option<Advice> {
        let trips = |count: u32| load.round_trip * count;
        match self.phase {
            Phase::Settled => None,
            Phase::Opening { since, target } => {
                if load.channels >= target
                    || now.saturating_sub(since) >= trips(OPENING_ROUND_TRIPS).max(OPENING_MIN)
                {
                    self.phase = Phase::Starting { since: now };
                }
                None
            }
            Phase::Starting { since } => {
                if now.saturating_sub(since) >= trips(STARTING_ROUND_TRIPS) {
                    self.phase = Phase::Trial(None);
                }
                None
            }
            Phase::Watch(mark) | Phase::Trial(mark) => self.measure(now, load, mark),
        }
    }

    fn measure(&mut self, now: Duration, load: LossSample, mark: Option<Mark>) -> Option<Advice> {
        let is_trial = matches!(self.phase, Phase::Trial(_));
        let set = |mark| {
            if is_trial {
                Phase::Trial(mark)
            } else {
                Phase::Watch(mark)
            }
        };
        if !load.is_busy {
            self.used_since = None;
            self.phase = set(None);
            return None;
        }
        let used_since = *self.used_since.get_or_insert(now);
        let fresh = Mark {
            at: now,
            line: load.line,
            queued_bytes: load.queued_bytes,
        };
        let Some(mark) = mark else {
            let is_early = now.saturating_sub(used_since) < load.round_trip * IGNORED_ROUND_TRIPS;
            if is_trial || !is_early {
                self.phase = set(Some(fresh));
            }
            return None;
        };
        let took = now.saturating_sub(mark.at);
        if took < MEASURE_MIN.max(load.round_trip * MEASURE_ROUND_TRIPS) {
            return None;
        }
        let line = load.line.since(mark.line);
        let rate = line.moved_bytes as f64 / took.as_secs_f64();
        if is_trial {
            let (before, had) = self.before;
            if rate < before * GAIN {
                self.without_gain += 1;
                if self.without_gain < TRIALS {
                    self.phase = Phase::Trial(Some(fresh));
                    return None;
                }
                self.phase = Phase::Settled;
                let more = load.channels.saturating_sub(had.max(1));
                return (more > 0).then_some(Advice::Close(more));
            }
        } else if !may_be_losing(line, load.is_bbr) {
            self.phase = Phase::Watch(Some(fresh));
            return None;
        } else if losses(line).0 < AGAIN_MIN {
            // A slow connection loses a segment a second: too few to tell, so the measurement goes on.
            return None;
        }
        let wanted = match is_trial {
            true => load.channels,
            false if 2 * load.queued_bytes.saturating_sub(mark.queued_bytes) >= line.moved_bytes => {
                load.channels * FIRST_TIMES
            }
            false => self.channels_max,
        };
        let more = wanted.min(self.channels_max.saturating_sub(load.channels));
        if more == 0 {
            self.phase = Phase::Settled;
            return None;
        }
        let most = load.channels as f64 * loss_limited(line, load.round_trip);
        self.before = (rate.min(most), load.channels);
        self.without_gain = 0;
        self.phase = Phase::Opening {
            since: now,
            target: load.channels + more,
        };
        Some(Advice::Open(more))
    }
}

/// Returns the most bytes a second that losses leave to a connection; infinite without losses.
fn loss_limited(line: Info, round_trip: Duration) -> f64 {
    let (lost, all) = losses(line);
    let losses = lost as f64 / all.max(1) as f64;
    FORMULA_TIMES * 1.22 * SEGMENT / (round_trip.as_secs_f64() * losses.sqrt())
}

/// Whether a line has lost segments that a loss-based congestion control takes for a full line, if there are enough
/// of them to tell. The other end does not say how it sends.
fn may_be_losing(line: Info, is_bbr: bool) -> bool {
    let (lost, all) = losses(line);
    let is_seen = lost > 0 && lost as f64 >= LOSSY * all as f64;
    is_seen && !(is_bbr && line.sent >= line.received)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(100);

    /// Returns the load of a session that has more to move and does not send with BBR.
    fn busy(channels: usize, line: Info) -> LossSample {
        LossSample {
            channels,
            round_trip: ROUND_TRIP,
            line,
            queued_bytes: 0,
            is_bbr: false,
            is_busy: true,
        }
    }

    /// A line on which each connection carries up to `each` bytes a second, all of them `line`, and
    /// that loses one of `loss` segments.
    struct Simulated {
        each: u64,
        line: u64,
        loss: u64,
        is_bbr: bool,
        is_read: bool,
    }

    impl Simulated {
        /// Returns the final number of connections and the time of the last change.
        fn run(&self, channels_max: usize) -> (usize, Duration) {
            let mut policy = LossPolicy::new(channels_max);
            let (mut channels, mut delivered, mut segments) = (2, 0, 0);
            let mut changed = Duration::ZERO;
            for step in 0..600 {
                let now = Duration::from_millis(100 * step);
                let bytes = (self.each * channels as u64).min(self.line) / 10;
                delivered += bytes;
                segments += bytes / 1448;
                let lost = segments.checked_div(self.loss).unwrap_or(0);
                let line = match self.is_read {
                    false => Info {
                        moved_bytes: delivered,
                        sent: segments,
                        sent_again: lost,
                        ..Info::default()
                    },
                    true => Info {
                        moved_bytes: delivered,
                        received: segments,
                        out_of_order: lost,
                        ..Info::default()
                    },
                };
                let load = LossSample {
                    is_bbr: self.is_bbr,
                    ..busy(channels, line)
                };
                match policy.advise(now, load) {
                    Some(Advice::Open(more)) => channels += more,
                    Some(Advice::Close(fewer)) => channels -= fewer,
                    None => continue,
                }
                changed = now;
            }
            (channels, changed)
        }
    }

    const CUBIC: Simulated = Simulated {
        each: 450_000,
        line: 125_000_000,
        loss: 100,
        is_bbr: false,
        is_read: false,
    };

    #[test]
    fn all_connections_are_opened_at_once_and_kept_if_they_add_to_the_rate() {
        let (channels, after) = CUBIC.run(16);
        assert_eq!(channels, 16);
        assert!(after < Duration::from_secs(2), "{after:?}");
        let read = Simulated {
            is_read: true,
            ..CUBIC
        };
        assert_eq!(read.run(16).0, 16);
    }

    #[test]
    fn a_full_line_gets_no_more() {
        let full = Simulated {
            line: 900_000,
            ..CUBIC
        };
        assert_eq!(full.run(16).0, 2);
        let soon = Simulated {
            line: 2_000_000,
            ..CUBIC
        };
        assert_eq!(soon.run(16).0, 16, "4.4 fill the line, 2 do not");
    }

    /// Seen at 0.1 %: a copy with one or two lost segments a second kept its two connections to the end.
    #[test]
    fn losses_that_are_too_few_in_one_measurement_count_in_several() {
        let rare = Simulated {
            each: 600_000,
            loss: 1_100,
            ..CUBIC
        };
        let (channels, after) = rare.run(16);
        assert_eq!(channels, 16);
        assert!(after < Duration::from_secs(6), "{after:?}");
        let rarer = Simulated { loss: 5_000, ..rare };
        assert_eq!(rarer.run(16).0, 2, "0.02 % are no lossy line");
    }

    /// A single second in which little moves, as after a segment that was lost twice, left two connections for the
    /// rest of a copy.
    #[test]
    fn one_second_without_a_gain_closes_no_connections() {
        for (stands_still, kept) in [(1, true), (2, true), (20, false)] {
            let mut policy = LossPolicy::new(16);
            let (mut channels, mut moved, mut opened) = (2, 0, None);
            for step in 0..200 {
                let waits = opened.is_some_and(|opened| step < opened + 5 + 10 * stands_still);
                moved += if waits { 10_000 } else { 14_480 * channels };
                let segments = moved / 1_448;
                let line = Info {
                    moved_bytes: moved,
                    sent: segments,
                    sent_again: segments / 50,
                    ..Info::default()
                };
                let load = busy(channels as usize, line);
                match policy.advise(Duration::from_millis(100 * step), load) {
                    Some(Advice::Open(more)) => {
                        channels += more as u64;
                        opened = Some(step);
                    }
                    Some(Advice::Close(fewer)) => channels -= fewer as u64,
                    None => {}
                }
            }
            assert_eq!(channels == 16, kept, "{stands_still} s: {channels}");
        }
    }

    #[test]
    fn bbr_and_whole_lines_keep_what_they_have() {
        let bbr = Simulated {
            is_bbr: true,
            ..CUBIC
        };
        assert_eq!(bbr.run(16).0, 2);
        let whole = Simulated { loss: 0, ..CUBIC };
        assert_eq!(whole.run(16).0, 2);
        assert_eq!(CUBIC.run(2).0, 2);
    }

    #[test]
    fn losses_of_the_start_do_not_count() {
        let mut policy = LossPolicy::new(16);
        for step in 0..100 {
            let line = Info {
                moved_bytes: 145_000 * step,
                sent: 100 * (step + 1),
                sent_again: 50,
                ..Info::default()
            };
            let advice = policy.advise(Duration::from_millis(100 * step), busy(2, line));
            assert_eq!(advice, None, "{step}");
        }
    }

    #[test]
    fn where_data_wait_in_a_queue_connections_are_added_with_care() {
        let mut policy = LossPolicy::new(16);
        let advice = (0..40).find_map(|step| {
            let line = Info {
                moved_bytes: 100_000 * step,
                sent: 70 * step,
                sent_again: step,
                ..Info::default()
            };
            let load = LossSample {
                queued_bytes: 70_000 * step,
                ..busy(2, line)
            };
            policy.advise(Duration::from_millis(100 * step), load)
        });
        assert_eq!(advice, Some(Advice::Open(6)));
    }

    #[test]
    fn a_pause_starts_the_measurement_over() {
        let mut policy = LossPolicy::new(4);
        let mut at = |seconds: u64, is_busy| {
            let line = Info {
                moved_bytes: 1_000_000 * seconds,
                sent: 1000 * seconds,
                sent_again: 10 * seconds,
                ..Info::default()
            };
            let load = LossSample {
                is_busy,
                ..busy(1, line)
            };
            policy.advise(Duration::from_secs(seconds), load)
        };
        assert_eq!(at(0, true), None);
        assert_eq!(at(1, true), None);
        assert_eq!(at(2, false), None);
        assert_eq!(at(4, true), None);
        assert_eq!(at(5, true), None);
        assert_eq!(at(6, true), Some(Advice::Open(3)));
    }
}
