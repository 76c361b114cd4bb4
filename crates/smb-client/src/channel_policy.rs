//! Decides when to open or close connections, and which connection takes a request. Pure: time is
//! an argument.
//!
//! ```text
//! Watch   the line is in use and its governor steady: measure, then open one more
//! Trial   measure again: a gain of a tenth keeps it and opens another; else close it and settle
//! ```
//! More connections do not help where one fills the line, and under loss-based congestion control
//! they may even do harm, so each has to prove itself. On a short line none is tried.

use std::time::Duration;

/// Below this round trip the window of one connection cannot be the limit: 64 KiB in 2 ms is 32
/// MB/s, and windows are larger.
const ROUND_TRIP_MIN: Duration = Duration::from_millis(2);
/// A measurement lasts this long and this many round trips. Guesses: TCP's growth shows within
/// them.
const MEASURE_MIN: Duration = Duration::from_secs(2);
const MEASURE_ROUND_TRIPS: u32 = 20;

/// A connection is assumed to have at least one part in this many of the fastest one's rate. So a
/// connection that is slow now still gets requests, and can show that it has become faster. A
/// guess.
const RATE_FLOOR_DIVISOR: u64 = 4;

/// How much more than the others the first connection counts as having in flight when data is to be
/// sent: more than its share of 24 to 32 MiB, the window of a long line, is with three others.
/// Requests without data use the first connection. Behind 3 MiB of data, some of which was lost as
/// TCP started, a FLUSH took 1.1 s; then the memory for unflushed data was full, and the line idle.
const FIRST_HANDICAP: u64 = 16 << 20;

/// Returns the number of connections to start with on a long line. BBR profits from several: they
/// start faster and share evenly. Over 622 Mbit/s and 75 ms eight took 2.4 s for 100 MB where four
/// took 2.5, but 15.8 and 16.3 s (read, written) for 1 GB where four took 15.7 and 15.6. Under
/// loss-based congestion control, such as cubic, each connection backs off at the losses of all
/// (100 MB in 2.6 to 2.7 s with two, 2.8 with one, 2.6 to 3.4 with eight; at 155 Mbit/s and 32 ms
/// eight took 6 % longer than one).
pub(crate) fn initial_channels(congestion: &str) -> u16 {
    match congestion.starts_with("bbr") {
        false => 2,
        true => 4,
    }
}

/// The outstanding work of a connection, and its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backlog {
    /// Bytes in flight, plus one for each request.
    pub(crate) bytes: u64,
    /// Rate in bytes a second, 0 if not known yet.
    pub(crate) rate: u64,
}

/// Returns the index of the connection that would finish `bytes` more before all others.
/// Connections do not share a line evenly: with equal bytes in flight on each, the slowest would
/// still be working, alone, when all others are idle.
pub(crate) fn earliest_done(connections: impl Iterator<Item = Backlog> + Clone, bytes: u64) -> Option<usize> {
    let fastest = connections.clone().map(|backlog| backlog.rate).max()?.max(1);
    let seconds = |backlog: Backlog| {
        let rate = match backlog.rate {
            0 => fastest,
            rate => rate.max(fastest / RATE_FLOOR_DIVISOR),
        };
        (backlog.bytes + bytes) as f64 / rate as f64
    };
    let all = connections.map(seconds).enumerate();
    all.min_by(|(_, one), (_, other)| one.total_cmp(other))
        .map(|(at, _)| at)
}

/// Returns the index of the connection that takes data to send. The first one leaves it to the others,
/// unless they have much more in flight: a request without data would wait behind it.
pub(crate) fn earliest_sent(connections: impl Iterator<Item = Backlog> + Clone, bytes: u64) -> Option<usize> {
    let handicapped = connections.enumerate().map(|(at, mut backlog)| {
        if at == 0 {
            backlog.bytes += FIRST_HANDICAP;
        }
        backlog
    });
    earliest_done(handicapped, bytes)
}

/// A sample of the load on a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadSample {
    pub(crate) channels: usize,
    /// Bytes delivered so far by all connections.
    pub(crate) delivered: u64,
    pub(crate) round_trip: Duration,
    /// Whether all governors are steady and all windows are in use.
    pub(crate) is_full: bool,
}

/// What the policy advises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    /// Open this many more.
    Open(usize),
    /// Close this many of the newest.
    Close(usize),
}

/// The policy of one session: when to open and close connections.
#[derive(Debug)]
pub(crate) struct ChannelPolicy {
    channels_max: usize,
    measure: Option<(Duration, u64)>,
    /// Rate in bytes a second before the newest connection was opened.
    rate_before: Option<u64>,
    is_settled: bool,
}

impl ChannelPolicy {
    pub(crate) fn new(channels_max: usize) -> Self {
        Self {
            channels_max,
            measure: None,
            rate_before: None,
            is_settled: channels_max < 2,
        }
    }

    /// Stops opening connections: the server has refused one.
    pub(crate) fn settle(&mut self) {
        self.is_settled = true;
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled
    }

    pub(crate) fn advise(&mut self, now: Duration, load: LoadSample) -> Option<Advice> {
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
                (load.channels > 1).then_some(Advice::Close(1))
            }
            _ if load.channels >= self.channels_max => {
                self.is_settled = true;
                None
            }
            _ => Some(Advice::Open(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the final number of connections, where each carries up to `each` bytes a second and
    /// the line `line`.
    fn run(each: u64, line: u64, channels_max: usize, round_trip: Duration) -> usize {
        let mut policy = ChannelPolicy::new(channels_max);
        let (mut channels, mut delivered) = (1, 0);
        for step in 0..3000_u64 {
            delivered += (each * channels as u64).min(line) / 100;
            let load = LoadSample {
                channels,
                delivered,
                round_trip,
                is_full: true,
            };
            match policy.advise(Duration::from_millis(10 * step), load) {
                Some(Advice::Open(more)) => channels += more,
                Some(Advice::Close(fewer)) => channels -= fewer,
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

    fn backlog(bytes: u64, rate: u64) -> Backlog {
        Backlog { bytes, rate }
    }

    #[test]
    fn initial_channels_suit_the_congestion_control() {
        assert_eq!((initial_channels("bbr"), initial_channels("bbr3")), (4, 4));
        assert_eq!((initial_channels("cubic"), initial_channels("reno")), (2, 2));
        // The system does not name its congestion control.
        assert_eq!(initial_channels(""), 2);
    }

    #[test]
    fn the_connection_that_finishes_first_takes_the_request() {
        let pick = |all: &[Backlog]| earliest_done(all.iter().copied(), 10);
        assert_eq!(pick(&[]), None);
        // No rate is known: the least backlog wins, the first of equals.
        assert_eq!(pick(&[backlog(5, 0), backlog(3, 0), backlog(3, 0)]), Some(1));
        // 3 s against 1.5 s.
        assert_eq!(pick(&[backlog(20, 10), backlog(50, 40)]), Some(1));
        // An unmeasured connection counts as fast as the fastest, and a slow one gets a request now
        // and then.
        assert_eq!(pick(&[backlog(50, 40), backlog(40, 0)]), Some(1));
        assert_eq!(pick(&[backlog(20, 40), backlog(0, 1)]), Some(0));
        assert_eq!(pick(&[backlog(40, 40), backlog(0, 1)]), Some(1));
    }

    /// The window of a long line when it starts, and later.
    #[test]
    fn a_stream_of_writes_leaves_the_first_connection_to_other_requests() {
        for (rate, window) in [(0, 24), (18_000_000, 32)] {
            let mut connections = [backlog(0, rate); 4];
            for _ in 0..window {
                let picked = earliest_sent(connections.iter().copied(), 1 << 20).unwrap();
                connections[picked].bytes += (1 << 20) + 1;
            }
            assert_eq!(connections[0].bytes, 0, "{connections:?}");
        }
        // Alone it takes everything; with one other it helps a full one.
        assert_eq!(earliest_sent([backlog(0, 0)].into_iter(), 1), Some(0));
        let two = [backlog(0, 0), backlog(17 << 20, 0)];
        assert_eq!(earliest_sent(two.into_iter(), 1), Some(0));
    }

    #[test]
    fn a_pause_starts_the_measurement_over() {
        let mut policy = ChannelPolicy::new(4);
        let load = |is_full| LoadSample {
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
            Some(Advice::Open(1))
        );
    }
}
