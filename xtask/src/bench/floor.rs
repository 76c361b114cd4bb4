//! The floor: bare TCP with the same bytes on the same link, in the same session between the rounds: four round trips
//! to set up, then the bytes over 1, 4 and 16 connections; the best of them counts.

use std::time::Duration;

use anyhow::{Context, Result};
use ropeway_lab::link::{Flow, Link, floor, line_time};
use serde::{Deserialize, Serialize};

use super::record::Record;
use super::remote_client::Direction;
use super::report::{SPREAD_MAX, Stats, cell};
use crate::process::check_interrupt;

/// How many connections are tried.
const CONNECTIONS: [usize; 3] = [1, 4, 16];
/// Works that are longer on the line than this have the floor measured once a call, and by all numbers of connections
/// only in the first.
const LONG: Duration = Duration::from_secs(10);

/// One measurement.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct FloorSample {
    /// Which way the bytes went.
    pub(super) direction: Direction,
    /// Over how many connections.
    pub(super) connections: usize,
    /// From the first SYN to the last confirmation.
    pub(super) seconds: f64,
}

/// All measurements one way.
#[derive(Clone, Debug)]
pub(super) struct Floor {
    seconds: [Vec<f64>; 3],
}

impl Floor {
    /// Those of a row.
    pub(super) fn of(samples: &[FloorSample], direction: Direction) -> Self {
        let of = |connections| {
            let those = samples
                .iter()
                .filter(|sample| (sample.direction, sample.connections) == (direction, connections));
            those.map(|sample| sample.seconds).collect()
        };
        Self {
            seconds: CONNECTIONS.map(of),
        }
    }

    fn stats(&self) -> impl Iterator<Item = (usize, Stats)> {
        let all = CONNECTIONS.into_iter().zip(&self.seconds);
        all.filter_map(|(connections, values)| Some((connections, Stats::of(values)?)))
    }

    fn least(&self) -> Option<(usize, Stats)> {
        self.stats()
            .min_by(|(_, a), (_, b)| a.median.total_cmp(&b.median))
    }

    /// The least median.
    pub(super) fn best(&self) -> Option<f64> {
        self.least().map(|(_, stats)| stats.median)
    }

    /// Each number of connections.
    pub(super) fn describe(&self) -> String {
        let each: Vec<String> = CONNECTIONS
            .iter()
            .zip(&self.seconds)
            .map(|(connections, values)| format!("{connections}: {}", cell(values, 2)))
            .collect();
        each.join(", ")
    }

    /// The spread of the best, if it is much.
    pub(super) fn noisy(&self) -> Option<f64> {
        let (_, stats) = self.least()?;
        (stats.spread() > SPREAD_MAX).then(|| stats.spread())
    }
}

/// The time of these bytes on the line alone.
pub(super) fn on_the_line(link: &Link, bytes: u64) -> Duration {
    line_time(bytes, link.spec().up, link.spec().mtu).unwrap_or_default()
}

/// Which numbers of connections are measured: before the first round of a call, or before another.
fn wanted(long: bool, first: bool, known: &Floor) -> Vec<usize> {
    match (long, first, known.least()) {
        (false, ..) | (true, true, None) => CONNECTIONS.to_vec(),
        (true, true, Some((best, _))) => vec![best],
        (true, false, _) => Vec::new(),
    }
}

/// Measures both ways as far as this round asks for it.
///
/// # Errors
/// If a connection fails, or on an interrupt.
pub(super) fn measure(link: &Link, record: &mut Record, first: bool) -> Result<()> {
    let bytes = record.content.bytes;
    let long = on_the_line(link, bytes) > LONG;
    for direction in Direction::ALL {
        let flow = match direction {
            Direction::Read => Flow::Down,
            Direction::Write => Flow::Up,
        };
        for connections in wanted(long, first, &Floor::of(&record.floors, direction)) {
            check_interrupt()?;
            let time = floor(link, bytes, connections, flow).context("cannot measure bare TCP")?;
            let seconds = time.as_secs_f64();
            println!(
                "  {:12} {:5} {seconds:8.2} s",
                format!("TCP x {connections}"),
                direction.name()
            );
            record.floors.push(FloorSample {
                direction,
                connections,
                seconds,
            });
        }
    }
    Ok(())
}

/// Measurements that a row needs in a call of so many rounds.
pub(super) fn count(line: Duration, known: bool, rounds: usize) -> usize {
    let all = Direction::ALL.len() * CONNECTIONS.len();
    match (line > LONG, known) {
        (false, _) => rounds * all,
        (true, false) => all,
        (true, true) => Direction::ALL.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(pairs: &[(usize, f64)]) -> Floor {
        let samples: Vec<FloorSample> = pairs
            .iter()
            .map(|&(connections, seconds)| FloorSample {
                direction: Direction::Read,
                connections,
                seconds,
            })
            .collect();
        assert!(Floor::of(&samples, Direction::Write).best().is_none());
        Floor::of(&samples, Direction::Read)
    }

    #[test]
    fn the_floor_is_the_best_median() {
        let floor = known(&[(1, 3.0), (1, 2.0), (4, 2.4), (16, 9.0)]);
        assert_eq!(floor.best(), Some(2.4));
        assert_eq!(floor.describe(), "1: 2.50 (2.00-3.00), 4: 2.40, 16: 9.00");
        assert_eq!(floor.noisy(), None);
        assert!(known(&[(1, 2.0), (1, 3.0)]).noisy().is_some());
    }

    #[test]
    fn long_floors_are_measured_whole_once_and_the_best_once_a_call() {
        let (none, some) = (known(&[]), known(&[(1, 3.0), (4, 2.0)]));
        assert_eq!(wanted(false, false, &some), CONNECTIONS);
        assert_eq!(wanted(true, true, &none), CONNECTIONS);
        assert_eq!(wanted(true, true, &some), [4]);
        assert!(wanted(true, false, &none).is_empty());
        let (short, long) = (Duration::from_secs(1), Duration::from_secs(11));
        assert_eq!(
            (count(short, true, 3), count(long, false, 3), count(long, true, 3)),
            (18, 6, 2)
        );
    }
}
