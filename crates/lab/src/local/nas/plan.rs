//! The steps of the sweep, their order and their estimated times. Pure.

use std::time::Duration;

use crate::link::{LinkSpec, Rate, TcpSpec, payload_on_wire};
use crate::report::{Cell, CellKey, Outcome, Run};
use crate::scenario::{ONCE_ABOVE, Server};

/// Passes over a file: the first four of iozone.
pub const OPERATIONS: [&str; 4] = ["write", "rewrite", "read", "reread"];
/// Bytes in flight when records are pipelined; enough for any link of a LAN.
const FLIGHT_BYTES: u64 = 8 << 20;
/// Least number of records in flight when they are pipelined (a guess).
const DEPTH_MIN: u64 = 4;
/// Largest number of records in flight.
const DEPTH_MAX: u64 = 64;
/// Time of the server and of a round trip for each record that waits (a guess).
const TURN: Duration = Duration::from_micros(700);
/// Time limit of a worker as a multiple of its step's estimate (a guess).
const LIMIT_TIMES: f64 = 10.0;
/// Addition to that limit, for the time that does not depend on bytes.
const LIMIT_MORE: Duration = Duration::from_secs(60);

/// Four passes over one file, each by its own worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The server.
    pub server: Server,
    /// Size of the file in bytes.
    pub size: u64,
    /// Size of a request in bytes.
    pub record: u64,
    /// Number of requests in flight.
    pub depth: u32,
}

/// Returns all steps: each size and record size, one record at a time and pipelined, with each server
/// in turn. Records larger than the file are left out.
pub fn steps(servers: &[Server], sizes: &[u64], records: &[u64]) -> Vec<Step> {
    let mut steps = Vec::new();
    for &size in sizes {
        for &record in records.iter().filter(|record| **record <= size) {
            let pipelined = (FLIGHT_BYTES / record.max(1)).clamp(DEPTH_MIN, DEPTH_MAX) as u32;
            for depth in [1, pipelined] {
                steps.extend(servers.iter().map(|&server| Step {
                    server,
                    size,
                    record,
                    depth,
                }));
            }
        }
    }
    steps
}

/// Returns the specification of a LAN with this rate in both directions.
pub(in crate::local) fn lan(rate: Rate, rtt: Duration) -> LinkSpec {
    LinkSpec {
        tcp: TcpSpec {
            // Every kernel has it, and the systems of the published figures resemble it.
            congestion: "reno".parse().ok(),
            ..TcpSpec::default()
        },
        ..LinkSpec::new(rtt, Some(rate))
    }
}

/// Formats a size as `64KiB`, or `1500B` where no binary unit fits.
pub fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 30 && bytes.is_multiple_of(1 << 30) => format!("{}GiB", bytes >> 30),
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{}MiB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{}KiB", bytes >> 10),
        _ => format!("{bytes}B"),
    }
}

impl Step {
    /// Name of the mode: `one at a time` or `pipelined`.
    pub fn mode(&self) -> &'static str {
        if self.depth == 1 {
            "one at a time"
        } else {
            "pipelined"
        }
    }

    /// Returns a name for people.
    pub fn name(&self) -> String {
        format!(
            "{} {} in {}, {}",
            self.server.name(),
            size(self.size),
            size(self.record),
            self.mode()
        )
    }

    /// Returns the key of the cell of one of [`OPERATIONS`]. The tables have a row for each record size.
    pub fn key(&self, operation: &str) -> CellKey {
        let direction = match operation.ends_with("read") {
            true => "read",
            false => "write",
        };
        let (record, work) = (size(self.record), size(self.size));
        CellKey::new([&record, &work, direction, "ropeway", self.server.name()])
            .with_variant(&format!("{operation} {}", self.mode()))
    }

    /// Returns the cell of one of [`OPERATIONS`], without runs.
    pub(super) fn cell(&self, operation: &str, rate: Rate) -> Cell {
        Cell {
            key: self.key(operation),
            payload_bytes: self.size,
            files: 1,
            line_seconds: Some(self.line(rate).as_secs_f64()),
            ..Cell::default()
        }
    }

    /// Returns the time of one pass on the line alone.
    pub fn line(&self, rate: Rate) -> Duration {
        rate.time_of(payload_on_wire(self.size, 1500))
    }

    /// Returns the expected number of runs.
    pub fn runs(&self, rate: Rate, runs: u32) -> u32 {
        if self.estimate(rate) > ONCE_ABOVE { 1 } else { runs }
    }

    /// Whether one more run is wanted after those of its passes. After a failure or a long first run
    /// there is no other.
    pub fn is_wanted(&self, passes: &[&[Run]], rate: Rate, runs: u32) -> bool {
        let mut all = passes.iter().copied().flatten();
        let has_failed = all.any(|run| run.outcome != Outcome::Done);
        let firsts = passes.iter().filter_map(|runs| runs.first());
        let first: f64 = firsts.map(|run| run.whole_seconds).sum();
        let wanted = if first > ONCE_ABOVE.as_secs_f64() {
            1
        } else {
            self.runs(rate, runs)
        };
        let had = passes.iter().map(|runs| runs.len()).max().unwrap_or(0);
        !has_failed && had < wanted as usize
    }

    /// Returns the estimated time of all passes.
    pub fn estimate(&self, rate: Rate) -> Duration {
        let turns = (self.size / self.record.max(1)) as u32 / self.depth.max(1);
        (self.line(rate) + TURN.saturating_mul(turns)) * OPERATIONS.len() as u32 + Duration::from_secs(1)
    }

    /// Returns the time limit of a worker.
    pub fn limit(&self, rate: Rate) -> Duration {
        self.estimate(rate).mul_f64(LIMIT_TIMES) + LIMIT_MORE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GBIT: Rate = Rate(1_000_000_000);

    #[test]
    fn the_published_sweep_takes_half_an_hour_and_three_of_it_less_than_two() {
        let sizes = [64, 128, 256, 512, 1024].map(|size| size * MIB);
        let records = [64, 128, 256, 512, 1024].map(|size| size << 10);
        let all = steps(&[Server::Ropeway, Server::Smbd], &sizes, &records);
        assert_eq!(all.len(), 100);
        let total: Duration = all.iter().map(|step| step.estimate(GBIT)).sum();
        assert!((900..2700).contains(&total.as_secs()), "{total:?}");
        let three: Duration = all
            .iter()
            .map(|step| step.estimate(GBIT) * step.runs(GBIT, 3))
            .sum();
        assert!((4000..6000).contains(&three.as_secs()), "{three:?}");
        assert!(
            all.iter()
                .all(|step| step.depth == 1 || u64::from(step.depth) * step.record >= 4 * MIB)
        );
    }

    #[test]
    fn records_that_do_not_fit_are_left_out_and_names_are_short() {
        let all = steps(&[Server::Ropeway], &[MIB], &[64 << 10, 2 * MIB]);
        assert_eq!(all.len(), 2);
        let turns = steps(&[Server::Smbd, Server::Ropeway], &[MIB], &[64 << 10]);
        let servers: Vec<Server> = turns.iter().map(|step| step.server).collect();
        assert_eq!(servers, [Server::Smbd, Server::Ropeway].repeat(2));
        assert_eq!(all[1].name(), "ropeway 1MiB in 64KiB, pipelined");
        assert_eq!(all[0].key("reread").direction, "read");
        assert_eq!(all[0].key("rewrite").direction, "write");
        assert_eq!((size(5), size(3 << 30)), ("5B".to_owned(), "3GiB".to_owned()));
    }

    #[test]
    fn what_takes_long_runs_once_and_what_failed_no_more() {
        let step = |size: u64| steps(&[Server::Ropeway], &[size], &[64 << 10])[0];
        let run = |seconds, outcome| Run::of(String::new(), outcome, seconds);
        let wanted = |step: Step, passes: &[&[Run]]| step.is_wanted(passes, GBIT, 3);
        let (short, long) = (step(64 * MIB), step(1024 * MIB));
        assert_eq!((short.runs(GBIT, 3), long.runs(GBIT, 3)), (3, 1));
        assert!(wanted(short, &[&[], &[]]) && wanted(long, &[&[], &[]]));
        let (done, slow) = (run(1.0, Outcome::Done), run(40.0, Outcome::Done));
        let failed = run(1.0, Outcome::Failed("why".to_owned()));
        let two = [done.clone(), done.clone()];
        assert!(wanted(short, &[&two, &two[..1]]));
        assert!(!wanted(long, &[&two[..1], &two[..1]]));
        assert!(!wanted(short, &[&[done.clone(), done.clone(), done.clone()]]));
        let slow = [slow];
        assert!(!wanted(short, &[&slow, &slow]), "all passes together");
        assert!(!wanted(short, &[&[done], &[failed]]));
    }
}
