//! What is swept, in which order, and what it will take. Pure.

use std::time::Duration;

use crate::link::{LinkSpec, Rate, TcpSpec, payload_on_wire};
use crate::report::{CellKey, Outcome, Run};
use crate::scenario::{ONCE_ABOVE, Server};

/// Passes over a file: iozone's first four.
pub const OPERATIONS: [&str; 4] = ["write", "rewrite", "read", "reread"];
/// Bytes under way when records are pipelined; enough for any link of a LAN.
const FLIGHT_BYTES: u64 = 8 << 20;
/// Fewest records under way when they are pipelined (a guess).
const DEPTH_MIN: u64 = 4;
/// Most.
const DEPTH_MAX: u64 = 64;
/// A server and a round trip for each record that waits (a guess).
const TURN: Duration = Duration::from_micros(700);
/// A worker that takes so many times the estimate of its step hangs (a guess).
const LIMIT_TIMES: f64 = 10.0;
/// And so much more, for what does not depend on bytes.
const LIMIT_MORE: Duration = Duration::from_secs(60);

/// Four passes over one file, a worker each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// With whom.
    pub server: Server,
    /// Bytes of the file.
    pub size: u64,
    /// Bytes of a request.
    pub record: u64,
    /// Requests under way.
    pub depth: u32,
}

/// All of them: each size, each record, one at a time and pipelined, with each server in turn. Records above the file's size
/// are left out.
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

/// The link: the same both ways.
pub fn link(rate: Rate, rtt: Duration) -> LinkSpec {
    LinkSpec {
        tcp: TcpSpec {
            // Every kernel has it.
            congestion: "reno".parse().ok(),
            ..TcpSpec::default()
        },
        ..LinkSpec::new(rtt, Some(rate))
    }
}

/// Binary sizes as people write them.
pub fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 30 && bytes.is_multiple_of(1 << 30) => format!("{}GiB", bytes >> 30),
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{}MiB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{}KiB", bytes >> 10),
        _ => format!("{bytes}B"),
    }
}

impl Step {
    /// Whether one record waits for the other.
    pub fn mode(&self) -> &'static str {
        if self.depth == 1 {
            "one at a time"
        } else {
            "pipelined"
        }
    }

    /// For people.
    pub fn name(&self) -> String {
        format!(
            "{} {} in {}, {}",
            self.server.name(),
            size(self.size),
            size(self.record),
            self.mode()
        )
    }

    /// The cell of one of [`OPERATIONS`].
    pub fn key(&self, operation: &str) -> CellKey {
        CellKey {
            // A row of the tables for each record size.
            link: size(self.record),
            work: size(self.size),
            direction: if operation.ends_with("read") {
                "read"
            } else {
                "write"
            }
            .to_owned(),
            client: "ropeway".to_owned(),
            server: self.server.name().to_owned(),
            variant: format!("{operation} {}", self.mode()),
        }
    }

    /// What the line alone takes for one pass.
    pub fn line(&self, rate: Rate) -> Duration {
        rate.time_of(payload_on_wire(self.size, 1500))
    }

    /// How often it will probably run.
    pub fn runs(&self, rate: Rate, runs: u32) -> u32 {
        if self.estimate(rate) > ONCE_ABOVE { 1 } else { runs }
    }

    /// Whether one more run is wanted after those of its passes: none after a failure, none if the first one took long.
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

    /// What all passes will probably take.
    pub fn estimate(&self, rate: Rate) -> Duration {
        let turns = (self.size / self.record.max(1)) as u32 / self.depth.max(1);
        (self.line(rate) + TURN.saturating_mul(turns)) * OPERATIONS.len() as u32 + Duration::from_secs(1)
    }

    /// After so long a worker hangs.
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
        let run = |seconds: f64, outcome: Outcome| Run {
            whole_seconds: seconds,
            outcome,
            ..Run::failed(String::new(), String::new())
        };
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
