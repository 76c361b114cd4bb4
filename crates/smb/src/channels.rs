//! Whether a further connection would carry more. Pure: time is an argument.
//!
//! ```text
//! Watch   the line is in use and its governor steady: measure, then open one more
//! Trial   measure again; a tenth more keeps it and tries another, else it is closed and that was it
//! Several that began together: measured as well; where one holds all that is on the line, the others are closed
//! ```
//! More connections are no cure where one fills the line, and under loss-based congestion control they even do
//! harm (each stands still between answers, and starts again), so each has to prove itself, and those that were there
//! for a quick start go. On a short line nothing is tried.

use std::time::Duration;

/// Below this round trip one connection's window cannot be the limit: 64 KiB in 2 ms is 32 MB/s, and windows are larger.
const ROUND_TRIP_MIN: Duration = Duration::from_millis(2);
/// A measurement lasts as long, and as many round trips. Guesses: TCP's growth shows within them.
const MEASURE_MIN: Duration = Duration::from_secs(2);
const MEASURE_ROUND_TRIPS: u32 = 20;

/// As much under way needs no second connection: half of what Linux lets one have by itself (tcp(7), 4 MiB of
/// `tcp_wmem` and 6 MiB of `tcp_rmem`, which hold the kernel's own account too).
const ONE_HOLDS: u64 = 2 << 20;

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
    /// One is enough.
    is_leaving: bool,
    is_settled: bool,
}

impl Channels {
    pub(crate) fn new(channels_max: usize) -> Self {
        Self {
            channels_max,
            measure: None,
            rate_before: None,
            is_leaving: false,
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
        if self.is_leaving {
            self.is_settled = load.channels < 3;
            return (load.channels > 1).then_some(Advice::CloseNewest);
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
        let product = rate as f64 * load.round_trip.as_secs_f64();
        if self.rate_before.is_none() && load.channels > 1 && product <= ONE_HOLDS as f64 {
            self.is_leaving = true;
            return self.advise(now, load);
        }
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
        run_from(1, each, line, channels_max, round_trip)
    }

    fn run_from(begun: usize, each: u64, line: u64, channels_max: usize, round_trip: Duration) -> usize {
        let mut policy = Channels::new(channels_max);
        let (mut channels, mut delivered) = (begun, 0);
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

    #[test]
    fn those_that_began_together_go_where_one_is_enough() {
        let round_trip = Duration::from_millis(32);
        // 155 Mbit/s: 0.6 MB under way; 1,000 Mbit/s: 4 MB.
        assert_eq!(run_from(4, 19_400_000, 19_400_000, 4, round_trip), 1);
        assert_eq!(run_from(2, 19_400_000, 19_400_000, 8, round_trip), 1);
        assert_eq!(run_from(4, 60_000_000, 125_000_000, 4, round_trip), 4);
        assert_eq!(
            run_from(4, 1_000_000_000, 1_000_000_000, 4, Duration::from_micros(100)),
            4
        );
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
