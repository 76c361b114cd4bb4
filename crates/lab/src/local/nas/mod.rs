//! `ropeway lab nas`: file sizes x record sizes over the network, as in the published sweep.
//!
//! ```text
//!   plan    cells in their order, estimates, names     pure
//!   this    a link of two namespaces for each server at its far end; at the near end a worker for each pass
//!   report  the document: cells, throughput against record size, disk bytes/s against time     pure
//! ```
//!
//! The worker is this program again (`lab nas-worker`): one connection, no cache, one pass over one
//! file. So processor time and memory of each pass are known. Each round covers all sizes and records,
//! and the servers take turns: if time runs out, only repeats are missing.

pub mod plan;
mod report;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ropeway_peers::procfs::clean;
use serde_json::Value;

use super::dirty::kernel::device_moved;
use super::{LocalError, free_bytes};
use crate::link::{LinkSpec, Rate, Side};
use crate::report::{Document, FILE, Outcome, Run, Warning, save, write_all};
use crate::run::cleanup::private_folder;
use crate::run::machine::now;
use crate::run::measure::{self, Bounds, End, Measured, measure};
use crate::run::monitor::{RunMonitor, Used};
use crate::run::plan::turn;
use crate::run::process;
use crate::run::server::{PASSWORD, Place, Served, TARGET, USER, Way};
use crate::run::tools::Tools;
use crate::scenario::{Client, Pair, Server};
use plan::{OPERATIONS, Step, steps};

/// Room that is kept free, in bytes (a guess).
const MARGIN_BYTES: u64 = 64 << 20;
/// Number of points of the disk's curve.
const DISK_POINTS: u32 = 600;
/// Least interval between samples of the disk.
const DISK_LOOK: Duration = Duration::from_secs(1);
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

/// Runs the lab and returns the document, which is also written after each size and record. `told`
/// gets lines for people. Setting `stop` ends the lab in order.
///
/// # Errors
/// There is no room, the link or every server fails to start, or the lab was stopped. A worker that
/// fails is a result.
pub fn run(options: &Options, stop: &AtomicBool, told: &dyn Fn(&str)) -> Result<Document, LocalError> {
    process::adopt();
    let what = || format!("use the folder {}", options.dir.display());
    let biggest = options.sizes.iter().max().copied().unwrap_or(0);
    let needed = biggest + biggest / 8 + MARGIN_BYTES;
    let free = free_bytes(&options.dir).map_err(LocalError::io(what()))?;
    if free < needed {
        return Err(LocalError::NoRoom {
            path: options.dir.clone(),
            free,
            needed,
        });
    }
    let out = &options.out;
    super::make_out(out)?;
    let folder = private_folder(&options.dir).map_err(LocalError::io(what()))?;
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
    told(&format!(
        "{} cells, {} runs each; about {} min, at most {}",
        steps.len() * OPERATIONS.len(),
        options.runs,
        expected.as_secs() / 60 + 1,
        options.budget.as_secs().div_ceil(60)
    ));
    let mut lab = Lab {
        document: report::begun(options, &tools, &now()),
        disk: Disk::open(&options.dir, options.budget),
        begun: Instant::now(),
        options,
        stop,
        told,
    };
    let result = lab
        .stands(&pairs, &tools, folder.path())
        .and_then(|stands| lab.rounds(&stands));
    drop(folder);
    lab.document.complete = matches!(result, Ok(true));
    lab.save()?;
    write_all(&lab.document, out)?;
    result.map(|_| lab.document)
}

struct Lab<'a> {
    document: Document,
    disk: Disk,
    begun: Instant,
    options: &'a Options,
    stop: &'a AtomicBool,
    told: &'a dyn Fn(&str),
}

impl Lab<'_> {
    /// Proves the link and starts the servers.
    fn stands(&mut self, pairs: &[Pair], tools: &Tools, folder: &Path) -> Result<Vec<Stand>, LocalError> {
        for (what, why) in &tools.missing {
            (self.told)(&format!("left out: {what}: {why}"));
        }
        let spec = plan::link(self.options.rate, self.options.rtt);
        super::prove(&mut self.document, &spec, self.stop)?;
        let mut stands: Vec<Stand> = Vec::new();
        for pair in tools.available(pairs) {
            let server = pair.server;
            if stands.iter().any(|stand| stand.server == server) {
                continue;
            }
            match Stand::open(server, tools, &spec, self.options.relay, folder) {
                Ok(stand) => stands.push(stand),
                Err(LocalError::Server(why)) => {
                    (self.told)(&format!("left out: {}: {why}", server.name()));
                    self.document.skipped.insert(server.name().to_owned(), why);
                }
                Err(error) => return Err(error),
            }
        }
        if stands.is_empty() {
            return Err(LocalError::Server(
                "is not there: no server could be started".to_owned(),
            ));
        }
        Ok(stands)
    }

    /// Makes all rounds. Returns false if time ran out.
    fn rounds(&mut self, stands: &[Stand]) -> Result<bool, LocalError> {
        let options = self.options;
        let servers: Vec<Server> = stands.iter().map(|stand| stand.server).collect();
        for round in 0..options.runs {
            let turned = turn(&servers, round as usize);
            for step in steps(&turned, &options.sizes, &options.records) {
                let Some(stand) = stands.iter().find(|stand| stand.server == step.server) else {
                    continue;
                };
                if self.stop.load(Ordering::Acquire) {
                    return Err(LocalError::Interrupted);
                }
                if !self.is_wanted(&step) {
                    continue;
                }
                if self.begun.elapsed() + step.estimate(options.rate) > options.budget {
                    let text = format!("its time was over in round {}, before {}", round + 1, step.name());
                    (self.told)(&format!("! {text}"));
                    self.document.warnings.push(Warning { cell: None, text });
                    return Ok(false);
                }
                self.step(&step, stand, round + 1)?;
            }
        }
        Ok(true)
    }

    fn is_wanted(&self, step: &Step) -> bool {
        let passes = OPERATIONS.map(|operation| report::runs(&self.document, &step.key(operation)));
        step.is_wanted(&passes, self.options.rate, self.options.runs)
    }

    /// Makes all passes over one file, which is removed afterwards.
    fn step(&mut self, step: &Step, stand: &Stand, number: u32) -> Result<(), LocalError> {
        let swept = stand.scratch.join("to").join(NAME);
        let mut found = Vec::new();
        let mut failed: Option<&str> = None;
        for operation in OPERATIONS {
            let run = match failed {
                None => self.pass(step, operation, stand, &swept)?,
                Some(earlier) => Run::failed(now(), format!("it needs what {earlier} should have left")),
            };
            if run.outcome != Outcome::Done && failed.is_none() {
                failed = Some(operation);
            }
            found.push((operation, run.transfer_seconds));
            report::add(&mut self.document, step, operation, run, self.options);
        }
        (self.told)(&report::line(step, number, &found));
        _ = fs::remove_file(&swept);
        // Not between passes: saving would write back the dirty pages of the server.
        self.save()
    }

    /// Makes one pass by a worker. A failure is a result.
    fn pass(&mut self, step: &Step, operation: &str, stand: &Stand, swept: &Path) -> Result<Run, LocalError> {
        let home = stand.scratch.join("worker");
        fs::create_dir_all(&home).map_err(LocalError::io("make a folder"))?;
        let output = home.join("out");
        let command = self.command(step, operation, stand, &home, swept);
        let stopped = || self.stop.load(Ordering::Acquire);
        let bounds = Bounds {
            limit: step.limit(self.options.rate),
            stop: &stopped,
        };
        let started = now();
        let mut monitor = RunMonitor::begin(&stand.served);
        let (begun, disk) = (self.begun, &mut self.disk);
        let measured = measure(
            command,
            &output,
            bounds,
            |command| stand.way.spawn(Side::Near, command),
            &mut |at| {
                disk.look(begun.elapsed());
                monitor.look(at);
            },
        )
        .map_err(LocalError::io("run the worker"))?;
        if measured.end == End::Stopped {
            return Err(LocalError::Interrupted);
        }
        Ok(judged(&measured, monitor.end(), &output, started))
    }

    fn command(&self, step: &Step, operation: &str, stand: &Stand, home: &Path, swept: &Path) -> Command {
        let mut command = clean(&self.options.program, home);
        command.args(["lab", "nas-worker", "--server"]);
        command.arg(stand.served.address().to_string());
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

    fn save(&mut self) -> Result<(), LocalError> {
        self.document.updated = now();
        report::curves(&mut self.document, self.options, &self.disk.points);
        Ok(save(&self.document, &self.options.out.join(FILE))?)
    }
}

/// Returns the run of a worker from its end and its output.
fn judged(measured: &Measured, used: Used, output: &Path, started: String) -> Run {
    let text = measure::read(output);
    let mut lines = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let seconds = lines.find_map(|line| line["seconds"].as_f64());
    let outcome = match (measured.end, seconds) {
        (End::Exited(status), Some(_)) if status.success() => Outcome::Done,
        (End::Exited(status), _) => Outcome::Failed(format!("{status}: {}", measure::last_words(output))),
        (End::TimedOut | End::Stopped, _) => {
            Outcome::TimedOut(format!("ended after {:.0} s", measured.whole.as_secs_f64()))
        }
    };
    let is_done = outcome == Outcome::Done;
    Run {
        transfer_seconds: seconds.filter(|_| is_done),
        ..used.run(started, measured, outcome)
    }
}

/// A server with its link and folders.
struct Stand {
    // Dropped before its link.
    served: Served,
    way: Way,
    server: Server,
    scratch: PathBuf,
}

impl Stand {
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
        let way = Way::start(spec, relay)?;
        let place = Place {
            source: &source,
            target: &target,
            scratch: &scratch.join("own"),
            protection: None,
        };
        let served = Served::start(server, tools, &way, place).map_err(LocalError::Server)?;
        Ok(Self {
            served,
            way,
            server,
            scratch,
        })
    }
}

/// Bytes that the disk below a folder moves, over time.
struct Disk {
    numbers: Option<(u32, u32)>,
    every: Duration,
    last: Option<(Duration, [u64; 2])>,
    /// Seconds, bytes a second read and written.
    points: Vec<[f64; 3]>,
}

impl Disk {
    fn open(dir: &Path, budget: Duration) -> Self {
        let device = |metadata: fs::Metadata| {
            let number = metadata.dev();
            (rustix::fs::major(number), rustix::fs::minor(number))
        };
        let numbers: io::Result<_> = fs::metadata(dir).map(device);
        Self {
            numbers: numbers.ok(),
            every: DISK_LOOK.max(budget / DISK_POINTS),
            last: None,
            points: Vec::new(),
        }
    }

    fn look(&mut self, at: Duration) {
        if self.last.is_some_and(|(last, _)| at < last + self.every) {
            return;
        }
        let Some(now) = self.numbers.and_then(|(major, minor)| device_moved(major, minor)) else {
            return;
        };
        if let Some((last, before)) = self.last {
            let span = (at - last).as_secs_f64();
            let rate = |index: usize| (now[index].saturating_sub(before[index]) as f64 / span).round();
            self.points.push([at.as_secs_f64(), rate(0), rate(1)]);
        }
        self.last = Some((at, now));
    }
}
