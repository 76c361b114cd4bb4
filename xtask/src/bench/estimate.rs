//! How long a run will take, before it is made: what was measured before, else a model fitted to single runs over the
//! links of the table (it is right to a half or so; it only serves to plan).

use std::time::Duration;

use super::floor;
use super::record::{Cell, Pace, Program, Record};
use super::remote_client::{Client, Direction};
use super::report::Stats;
use crate::worksets::Content;

/// Between two runs: emptying folders, comparing, waiting for the server. A guess.
const BETWEEN_S: f64 = 0.6;
/// Making and comparing files in memory.
const BYTES_PER_S: f64 = 400e6;
/// Round trips in which bare TCP has set up and its window has grown.
const START_ROUND_TRIPS: f64 = 10.0;
/// Round trips of smbclient for a file, one after the other.
const SMBCLIENT_ROUND_TRIPS: f64 = 4.4;
/// What rclone moves in a round trip, and its round trips for a file that it reads or writes.
const RCLONE_BYTES: f64 = 560e3;
/// See [`RCLONE_BYTES`].
const RCLONE_ROUND_TRIPS: [f64; 2] = [5.5, 19.0];

/// The way that a row's work goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    /// Round trip.
    pub(super) rtt: Duration,
    /// Time of the bytes on the line.
    pub(super) line: Duration,
}

impl Way {
    /// Bare TCP, roughly.
    pub(super) fn floor(self) -> f64 {
        self.line.as_secs_f64() + START_ROUND_TRIPS * self.rtt.as_secs_f64()
    }

    /// One run of a tool.
    fn run(self, client: Client, direction: Direction, content: Content) -> f64 {
        let (rtt, files) = (self.rtt.as_secs_f64(), content.files as f64);
        let rclone = |transfers: f64| {
            let per_file = RCLONE_ROUND_TRIPS[usize::from(direction == Direction::Write)];
            let round_trips = content.bytes as f64 / RCLONE_BYTES + files * per_file;
            self.line.as_secs_f64() + rtt * round_trips / transfers.min(files.max(1.0))
        };
        match client {
            Client::Ropeway | Client::Rsync => self.floor() * 1.03 + 5.0 * rtt,
            Client::Smbclient => self.floor() + files * SMBCLIENT_ROUND_TRIPS * rtt,
            Client::Rclone4 => rclone(4.0),
            Client::Rclone32 => rclone(32.0),
        }
    }
}

/// Seconds that a row still takes; 0 if there is nothing to do.
pub(super) fn row(
    record: Option<&Record>,
    clients: &[Client],
    content: Content,
    way: Way,
    has_floor: bool,
    pace: &Pace,
) -> f64 {
    let (mut seconds, mut rounds) = (0.0, 0);
    for &client in clients {
        for direction in Direction::ALL {
            let new = Cell::new(client, direction, Program::default());
            let cell = record.and_then(|record| record.cell(client, direction));
            let cell = cell.unwrap_or(&new);
            let known = Stats::of(&cell.values(|sample| sample.seconds));
            let run = known.map_or_else(|| way.run(client, direction, content), |stats| stats.median);
            let run = run.min(pace.limit.as_secs_f64());
            let runs = pace.runs_left(cell, run);
            seconds += runs as f64 * (run + BETWEEN_S + content.bytes as f64 / BYTES_PER_S);
            rounds = rounds.max(runs);
        }
    }
    if rounds == 0 {
        return 0.0;
    }
    if has_floor {
        let known = record.is_some_and(|record| !record.floors.is_empty());
        seconds += floor::count(way.line, known, rounds) as f64 * way.floor();
    }
    seconds + content.bytes as f64 / BYTES_PER_S
}

/// A span for people.
pub(super) fn shown(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds:02} s"),
        (hours, minutes, _) => format!("{hours} h {minutes:02} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The model against what was measured once, by half.
    #[test]
    fn the_model_is_near_the_first_measurements() {
        let way = |rtt_ms, line| Way {
            rtt: Duration::from_millis(rtt_ms),
            line: Duration::from_secs_f64(line),
        };
        let (far, near, fast) = (way(75, 13.7), way(32, 54.8), way(32, 1.33));
        let office = Content {
            files: 300,
            bytes: 1_000_000_000,
        };
        let small = Content {
            files: 3000,
            bytes: 97_500_000,
        };
        for (way, client, content, measured) in [
            (far, Client::Smbclient, office, [111.0, 88.0]),
            (far, Client::Rclone32, office, [18.4, 24.5]),
            (far, Client::Rsync, office, [15.1, 15.1]),
            (near, Client::Smbclient, office, [99.0, 93.0]),
            (near, Client::Rclone32, office, [60.0, 61.0]),
            (fast, Client::Rclone32, small, [16.6, 56.7]),
            (fast, Client::Rsync, small, [1.95, 1.95]),
        ] {
            for (direction, measured) in Direction::ALL.into_iter().zip(measured) {
                let factor = way.run(client, direction, content) / measured;
                assert!(
                    (0.66..1.5).contains(&factor),
                    "{client:?} {direction:?}: {factor}"
                );
            }
        }
        assert!(fast.run(Client::Smbclient, Direction::Read, small) > 300.0);
    }

    #[test]
    fn a_row_without_anything_to_do_takes_no_time() {
        let pace = Pace {
            runs: 2,
            warm_up: false,
            limit: Duration::from_secs(1),
        };
        let way = Way {
            rtt: Duration::ZERO,
            line: Duration::from_secs(5),
        };
        let content = Content::default();
        assert_eq!(row(None, &[], content, way, true, &pace), 0.0);
        // Two runs each way, ended after a second; 12 floors of 5 s.
        let seconds = row(None, &[Client::Rsync], content, way, true, &pace);
        assert!(
            (seconds - (4.0 * (1.0 + BETWEEN_S) + 60.0)).abs() < 1e-9,
            "{seconds}"
        );
    }

    #[test]
    fn spans_are_readable() {
        assert_eq!(
            [5.4, 65.0, 3700.0].map(shown),
            ["5 s", "1 min 05 s", "1 h 01 min"]
        );
    }
}
