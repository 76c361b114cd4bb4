//! `ropeway lab nas`: file sizes x record sizes over the network, as in the published sweep.
//!
//! ```text
//!   plan    cells in their order, estimates, names                              pure
//!   mod     for each server a link with the server at its far end; at the near end a worker
//!           for each pass
//!   report  the document: cells, throughput against record size, disk bytes/s   pure
//!           against time
//! ```
//!
//! The worker is this program again (`lab nas-worker`): one connection, no cache, one pass over one
//! file. So processor time and memory of each pass are known. Each round covers all sizes and records,
//! and the servers take turns: if time runs out, only repeats are missing.

pub mod plan;
mod report;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use ropeway_peers::procfs::clean;

use super::dirty::kernel::device_moved;
use super::{LocalError, Record, folder_with_room, measured};
use crate::link::{LinkSpec, Rate, Side};
use crate::report::{Document, FILE, Outcome, Run};
use crate::run::curves::Sampler;
use crate::run::machine::now;
use crate::run::measure::json_line;
use crate::run::monitor::RunMonitor;
use crate::run::plan::turn;
use crate::run::process;
use crate::run::record;
use crate::run::server::{Exports, PASSWORD, Route, Served, TARGET, USER};
use crate::run::tools::Tools;
use crate::scenario::{Client, Pair, Server};
use plan::{OPERATIONS, Step, steps};

/// Room that is kept free, in bytes (a guess).
const MARGIN_BYTES: u64 = 64 << 20;
/// Number of points of the disk's curve.
const DISK_POINTS: u32 = 600;
/// Least interval between samples of the disk.
const DISK_INTERVAL: Duration = Duration::from_secs(1);
/// Name of the file that is written and read.
const NAME: &str = "swept";

/// Options of the lab.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program `ropeway`.
    pub program: PathBuf,
    /// Folder of the server's files.
    pub dir: PathBuf,
    /// File sizes in bytes.
    pub sizes: Vec<u64>,
    /// Record sizes in bytes.
    pub records: Vec<u64>,
    /// Servers.
    pub servers: Vec<Server>,
    /// Rate of the link in both directions.
    pub rate: Rate,
    /// Round-trip time of the link.
    pub rtt: Duration,
    /// Runs of each cell; the first is discarded if there are several.
    pub runs: u32,
    /// Whether a relay on the loopback replaces packets.
    pub relay: bool,
    /// Time after which no further file and record size begins.
    pub budget: Duration,
    /// Folder of the report; created if missing.
    pub out: PathBuf,
}

/// Runs the lab and returns the document, which is also written after each size and record.
/// `notify` gets lines for people. Setting `stop` ends the lab in order.
///
/// # Errors
/// There is no room, the link or every server fails to start, or the lab was stopped. A worker that
/// fails is a result.
pub fn run(options: &Options, stop: &AtomicBool, notify: &dyn Fn(&str)) -> Result<Document, LocalError> {
    process::adopt();
    let biggest = options.sizes.iter().max().copied().unwrap_or(0);
    let folder = folder_with_room(&options.dir, biggest + biggest / 8 + MARGIN_BYTES)?;
    super::make_out(&options.out)?;
    let pairs: Vec<Pair> = options
        .servers
        .iter()
        .map(|&server| Pair {
            client: Client::Ropeway,
            server,
        })
        .collect();
    let tools = Tools::find(&pairs, &options.program, None, &folder.path().join("tools"));
    let steps = steps(&options.servers, &options.sizes, &options.records);
    let expected: Duration = steps
        .iter()
        .map(|step| step.estimate(options.rate) * step.runs(options.rate, options.runs))
        .sum();
    notify(&format!(
        "{} cells, {} runs each; about {} min, at most {}",
        steps.len() * OPERATIONS.len(),
        options.runs,
        expected.as_secs() / 60 + 1,
        options.budget.as_secs().div_ceil(60)
    ));
    let mut lab = Lab {
        record: Record {
            document: report::begun(options, &tools),
            path: options.out.join(FILE),
            stop,
            notify,
        },
        disk: Disk::open(&options.dir, options.budget),
        begun: Instant::now(),
        options,
    };
    let result = lab
        .testbeds(&pairs, &tools, folder.path())
        .and_then(|testbeds| lab.rounds(&testbeds));
    drop(folder);
    report::curves(&mut lab.record.document, options, lab.disk.samplers.as_ref());
    lab.record.finish(result, Some(&options.out))
}

struct Lab<'a> {
    record: Record<'a>,
    disk: Disk,
    begun: Instant,
    options: &'a Options,
}

impl Lab<'_> {
    /// Proves the link and starts the servers.
    fn testbeds(&mut self, pairs: &[Pair], tools: &Tools, folder: &Path) -> Result<Vec<Testbed>, LocalError> {
        for (what, why) in &tools.missing {
            self.record.notify(&format!("left out: {what}: {why}"));
        }
        let spec = plan::lan(self.options.rate, self.options.rtt);
        self.record.prove(&spec)?;
        let mut testbeds: Vec<Testbed> = Vec::new();
        for pair in tools.available(pairs) {
            let server = pair.server;
            if testbeds.iter().any(|testbed| testbed.server == server) {
                continue;
            }
            match Testbed::open(server, tools, &spec, self.options.relay, folder) {
                Ok(testbed) => testbeds.push(testbed),
                Err(LocalError::Server(why)) => {
                    let name = server.name();
                    self.record.notify(&format!("left out: {name}: {why}"));
                    self.record.document.skipped.insert(name.to_owned(), why);
                }
                Err(error) => return Err(error),
            }
        }
        if testbeds.is_empty() {
            return Err(LocalError::Server(
                "is not available: no server could be started".to_owned(),
            ));
        }
        Ok(testbeds)
    }

    /// Makes all rounds. Returns false if time ran out.
    fn rounds(&mut self, testbeds: &[Testbed]) -> Result<bool, LocalError> {
        let options = self.options;
        let servers: Vec<Server> = testbeds.iter().map(|testbed| testbed.server).collect();
        for round in 0..options.runs {
            let turned = turn(&servers, round as usize);
            for step in steps(&turned, &options.sizes, &options.records) {
                let Some(testbed) = testbeds.iter().find(|testbed| testbed.server == step.server) else {
                    continue;
                };
                self.record.check_stop()?;
                if !self.is_wanted(&step) {
                    continue;
                }
                if self.begun.elapsed() + step.estimate(options.rate) > options.budget {
                    let text = format!("the budget ended in round {}, before {}", round + 1, step.name());
                    self.record.warn(text);
                    return Ok(false);
                }
                self.step(&step, testbed, round + 1)?;
            }
        }
        Ok(true)
    }

    fn is_wanted(&self, step: &Step) -> bool {
        let passes = OPERATIONS.map(|operation| self.record.document.runs(&step.key(operation)));
        step.is_wanted(&passes, self.options.rate, self.options.runs)
    }

    /// Makes all passes over one file, which is removed afterwards.
    fn step(&mut self, step: &Step, testbed: &Testbed, number: u32) -> Result<(), LocalError> {
        let swept = testbed.scratch.join("to").join(NAME);
        let mut found = Vec::new();
        let mut failed: Option<&str> = None;
        for operation in OPERATIONS {
            let run = match failed {
                None => self.pass(step, operation, testbed, &swept)?,
                Some(earlier) => Run::failed(now(), format!("it needs the file of the failed {earlier}")),
            };
            if run.outcome != Outcome::Done && failed.is_none() {
                failed = Some(operation);
            }
            found.push((operation, run.transfer_seconds));
            let cell = step.cell(operation, self.options.rate);
            let key = cell.key.clone();
            self.record.document.cell_or_add(cell, &[]);
            record::add_run(&mut self.record.document, &key, run);
        }
        self.record.notify(&report::line(step, number, &found));
        _ = fs::remove_file(&swept);
        // Not between passes: saving would write back the dirty pages of the server.
        report::curves(
            &mut self.record.document,
            self.options,
            self.disk.samplers.as_ref(),
        );
        self.record.save()
    }

    /// Makes one pass by a worker. A failure is a result.
    fn pass(
        &mut self,
        step: &Step,
        operation: &str,
        testbed: &Testbed,
        swept: &Path,
    ) -> Result<Run, LocalError> {
        let home = testbed.scratch.join("worker");
        fs::create_dir_all(&home).map_err(LocalError::io("make a folder"))?;
        let output = home.join("out");
        let command = self.command(step, operation, testbed, &home, swept);
        let limit = step.limit(self.options.rate);
        let started = now();
        let mut monitor = RunMonitor::begin(Some(&testbed.served));
        let (begun, disk) = (self.begun, &mut self.disk);
        let spawn = |command: &mut Command| testbed.route.spawn(Side::Near, command);
        let tick = &mut |at| {
            disk.sample(begun.elapsed());
            monitor.look(at);
        };
        let measured = measured(self.record.stop, command, &output, limit, spawn, tick)?;
        let seconds = json_line(&output, "pass").and_then(|line| line["seconds"].as_f64());
        let outcome = measured.outcome(&output, limit, seconds.is_some());
        let is_done = outcome == Outcome::Done;
        Ok(Run {
            transfer_seconds: seconds.filter(|_| is_done),
            ..monitor.end().run(started, &measured, outcome)
        })
    }

    fn command(&self, step: &Step, operation: &str, testbed: &Testbed, home: &Path, swept: &Path) -> Command {
        let mut command = clean(&self.options.program, home);
        command.args(["lab", "nas-worker", "--server"]);
        command.arg(testbed.served.address().to_string());
        command.args(["--user", USER, "--share", TARGET, "--file", NAME]);
        command.args(["--pass", operation]);
        for (flag, value) in [
            ("--size", step.size),
            ("--record", step.record),
            ("--depth", u64::from(step.depth)),
        ] {
            command.arg(flag).arg(value.to_string());
        }
        if operation == "read" {
            command.arg("--evict").arg(swept);
        }
        command.env("ROPEWAY_PASSWORD", PASSWORD);
        command
    }
}

/// A server with its link and folders.
struct Testbed {
    // Dropped before its link.
    served: Served,
    route: Route,
    server: Server,
    scratch: PathBuf,
}

impl Testbed {
    fn open(
        server: Server,
        tools: &Tools,
        spec: &LinkSpec,
        relay: bool,
        folder: &Path,
    ) -> Result<Self, LocalError> {
        let scratch = folder.join(server.name());
        let (source, target) = (scratch.join("source"), scratch.join("to"));
        for path in [&source, &target] {
            fs::create_dir_all(path).map_err(LocalError::io("make a folder"))?;
        }
        // A link each, so that no connection of another server is left on it.
        let route = Route::start(spec, relay)?;
        let exports = Exports {
            source: &source,
            target: &target,
            scratch: &scratch.join("own"),
            protection: None,
            flags: &[],
        };
        let served = Served::start(server, tools, &route, exports).map_err(LocalError::Server)?;
        Ok(Self {
            served,
            route,
            server,
            scratch,
        })
    }
}

/// Bytes that the disk below a folder reads and writes, over time.
struct Disk {
    numbers: Option<(u32, u32)>,
    interval: Duration,
    /// Bytes a second read, and written.
    samplers: Option<[Sampler; 2]>,
}

impl Disk {
    fn open(dir: &Path, budget: Duration) -> Self {
        let device = fs::metadata(dir).ok().map(|metadata| metadata.dev());
        Self {
            numbers: device.map(|number| (rustix::fs::major(number), rustix::fs::minor(number))),
            interval: DISK_INTERVAL.max(budget / DISK_POINTS),
            samplers: None,
        }
    }

    fn sample(&mut self, at: Duration) {
        let moved = || self.numbers.and_then(|(major, minor)| device_moved(major, minor));
        let Some(samplers) = &mut self.samplers else {
            let begin = |moved: [u64; 2]| moved.map(|bytes| Sampler::new(self.interval, at, bytes));
            self.samplers = moved().map(begin);
            return;
        };
        if samplers[0].is_due(at)
            && let Some(moved) = moved()
        {
            for (sampler, bytes) in samplers.iter_mut().zip(moved) {
                sampler.look(at, || bytes);
            }
        }
    }
}
