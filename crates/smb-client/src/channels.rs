//! Whether a further connection would carry more, and which of several takes a request. Pure: time is an argument.
//!
//! ```text
//! Watch   the line is in use and its governor steady: measure, then open one more
//! Trial   measure again; a tenth more keeps it and tries another, else it is closed and that was it
//! ```
//! More connections are no cure where one fills the line, and under loss-based congestion control they may even do
//! harm, so each has to prove itself. On a short line nothing is tried.

use std::time::Duration;

/// Below this round trip one connection's window cannot be the limit: 64 KiB in 2 ms is 32 MB/s, and windows are larger.
const ROUND_TRIP_MIN: Duration = Duration::from_millis(2);
/// A measurement lasts as long, and as many round trips. Guesses: TCP's growth shows within them.
const MEASURE_MIN: Duration = Duration::from_secs(2);
const MEASURE_ROUND_TRIPS: u32 = 20;

/// A connection counts as this part of the fastest one's rate at least: what is slow now gets work, and a chance to show
/// that it is faster. A guess.
const SLOWEST: u64 = 4;

/// Connections to begin with on a long line. BBR bears several: they start faster and share evenly. Over 622 Mbit/s and 75 ms
/// eight took 2.4 s for 100 MB where four took 2.5, but 15.8 and 16.3 s (read, written) for 1 GB where four took 15.7 and
/// 15.6. Where losses tell a sender of congestion, as with cubic, each of several is cut by the losses of all (100 MB in 2.6
/// to 2.7 s with two, 2.8 with one, 2.6 to 3.4 with eight; at 155 Mbit/s and 32 ms eight took 6 % longer than one).
pub(crate) fn at_start(congestion: &str) -> u16 {
    match congestion.starts_with("bbr") {
        false => 2,
        true => 4,
    }
}

/// What a connection has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    /// Bytes under way, and one for each request.
    pub(crate) bytes: u64,
    /// Bytes each second, 0 if not known yet.
    pub(crate) rate: u64,
}

/// The connection that would be done with `bytes` more before all others. They do not share a line evenly: with as many bytes
/// under way on each, the slowest would be at work, alone, when all others have nothing to do any more.
pub(crate) fn soonest(connections: impl Iterator<Item = Work> + Clone, bytes: u64) -> Option<usize> {
    let fastest = connections.clone().map(|work| work.rate).max()?.max(1);
    let seconds = |work: Work| {
        let rate = match work.rate {
            0 => fastest,
            rate => rate.max(fastest / SLOWEST),
        };
        (work.bytes + bytes) as f64 / rate as f64
    };
    let all = connections.map(seconds).enumerate();
    all.min_by(|(_, one), (_, other)| one.total_cmp(other))
        .map(|(at, _)| at)
}

/// How things are now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) channels: usize,
    /// Bytes delivered by all connections.
    pub(crate) delivered: u64,
    pub(crate) round_trip: Duration,
    /// The governors are steady and all depth is in use.
    pub(crate) is_full: bool,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    Open,
    CloseNewest,
}

/// The policy.
#[derive(Debug)]
pub(crate) struct Channels {
    channels_max: usize,
    measure: Option<(Duration, u64)>,
    /// Bytes each second before the newest connection.
    rate_before: Option<u64>,
    is_settled: bool,
}

impl Channels {
    pub(crate) fn new(channels_max: usize) -> Self {
        Self {
            channels_max,
            measure: None,
            rate_before: None,
            is_settled: channels_max < 2,
        }
    }

    /// No more connections: the server has none to give.
    pub(crate) fn settle(&mut self) {
        self.is_settled = true;
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled
    }

    pub(crate) fn advise(&mut self, now: Duration, load: Load) -> Option<Advice> {
        if self.is_settled || load.round_trip < ROUND_TRIP_MIN {
            return None;
        }
        if !load.is_full {
            self.measure = None;
            return None;
        }
        let (since, delivered) = *self.measure.get_or_insert((now, load.delivered));
        let took = now.saturating_sub(since);
        if took < MEASURE_MIN.max(load.round_trip * MEASURE_ROUND_TRIPS) {
            return None;
        }
        self.measure = None;
        let rate = (load.delivered.saturating_sub(delivered) as f64 / took.as_secs_f64()) as u64;
        match self.rate_before.replace(rate) {
            Some(before) if rate < before + before / 10 => {
                self.is_settled = true;
                (load.channels > 1).then_some(Advice::CloseNewest)
            }
            _ if load.channels >= self.channels_max => {
                self.is_settled = true;
                None
            }
            _ => Some(Advice::Open),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connections that carry `each`, on a line that carries `line`, bytes a second.
    fn run(each: u64, line: u64, channels_max: usize, round_trip: Duration) -> usize {
        let mut policy = Channels::new(channels_max);
        let (mut channels, mut delivered) = (1, 0);
        for step in 0..3000_u64 {
            delivered += (each * channels as u64).min(line) / 100;
            let load = Load {
                channels,
                delivered,
                round_trip,
                is_full: true,
            };
            match policy.advise(Duration::from_millis(10 * step), load) {
                Some(Advice::Open) => channels += 1,
                Some(Advice::CloseNewest) => channels -= 1,
                None => {}
            }
        }
        channels
    }

    #[test]
    fn connections_are_opened_while_they_help() {
        let round_trip = Duration::from_millis(75);
        assert_eq!(run(10, 1000, 8, round_trip), 8);
        assert_eq!(run(1_000_000, 3_000_000, 8, round_trip), 3);
        assert_eq!(run(1_000_000, 1_000_000, 8, round_trip), 1);
        assert_eq!(run(1_000_000, 9_000_000, 1, round_trip), 1);
        assert_eq!(run(1_000_000, 9_000_000, 8, Duration::from_micros(100)), 1);
    }

    fn work(bytes: u64, rate: u64) -> Work {
        Work { bytes, rate }
    }

    #[test]
    fn a_start_suits_the_line() {
        assert_eq!((at_start("bbr"), at_start("bbr3")), (4, 4));
        assert_eq!((at_start("cubic"), at_start("reno")), (2, 2));
        // A system that does not say.
        assert_eq!(at_start(""), 2);
    }

    #[test]
    fn what_is_done_first_takes_the_request() {
        let pick = |all: &[Work]| soonest(all.iter().copied(), 10);
        assert_eq!(pick(&[]), None);
        // Nothing is known: the least to do, the first of equals.
        assert_eq!(pick(&[work(5, 0), work(3, 0), work(3, 0)]), Some(1));
        // 3 s against 1.5 s.
        assert_eq!(pick(&[work(20, 10), work(50, 40)]), Some(1));
        // Who has shown nothing yet is taken for as fast as the fastest, and who is slow gets something now and then.
        assert_eq!(pick(&[work(50, 40), work(40, 0)]), Some(1));
        assert_eq!(pick(&[work(20, 40), work(0, 1)]), Some(0));
        assert_eq!(pick(&[work(40, 40), work(0, 1)]), Some(1));
    }

    #[test]
    fn a_pause_starts_the_measurement_over() {
        let mut policy = Channels::new(4);
        let load = |is_full| Load {
            channels: 1,
            delivered: 0,
            round_trip: Duration::from_millis(50),
            is_full,
        };
        assert_eq!(policy.advise(Duration::ZERO, load(true)), None);
        assert_eq!(policy.advise(Duration::from_secs(1), load(false)), None);
        assert_eq!(policy.advise(Duration::from_secs(3), load(true)), None);
        assert_eq!(
            policy.advise(Duration::from_secs(6), load(true)),
            Some(Advice::Open)
        );
    }
}
