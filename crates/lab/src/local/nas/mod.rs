//! `ropeway lab nas`: file sizes x record sizes through the network, as the published sweep had it.
//!
//! ```text
//!   plan    cells in their order, what they will take, names     pure
//!   this    a link of two namespaces, servers at its far end; a worker at the near end for each size and record
//!   report  the document: cells, throughput against record size, disk bytes/s against time     pure
//! ```
//!
//! The worker is this program again (`lab nas-worker`): one connection, no cache of its own, four passes over one file.

pub mod plan;
mod report;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::dirty::kernel::device_moved;
use super::{LocalError, free_bytes};
use crate::link::{Rate, Side};
use crate::report::{Document, FILE, Warning, save, write_all};
use crate::run::machine::now;
use crate::run::measure::{self, Bounds, End, measure};
use crate::run::process::{self, clean};
use crate::run::server::{PASSWORD, Place, Served, TARGET, USER, Way};
use crate::run::tools::Tools;
use crate::scenario::{Client, Pair, Server};
use plan::{Step, steps};

/// Room for what is not counted (a guess).
const MARGIN_BYTES: u64 = 64 << 20;
/// Points of the disk's curve.
const DISK_POINTS: u32 = 600;
/// Most often that the disk is looked at.
const DISK_LOOK: Duration = Duration::from_secs(1);
/// The file that is written and read.
const NAME: &str = "swept";

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program `ropeway`.
    pub program: PathBuf,
    /// Where the server's files lie.
    pub dir: PathBuf,
    /// File sizes.
    pub sizes: Vec<u64>,
    /// Record sizes.
    pub records: Vec<u64>,
    /// Servers.
    pub servers: Vec<Server>,
    /// Of the link, both ways.
    pub rate: Rate,
    /// Of the link.
    pub rtt: Duration,
    /// No packets: a relay on the loopback.
    pub relay: bool,
    /// No worker begins later.
    pub budget: Duration,
    /// Folder of the report; made if need be.
    pub out: PathBuf,
}

/// Runs all of it; gives the document, which is in the folder too, as it is after each size and record. `told` gets lines
/// for people. `stop` ends it in order.
///
/// # Errors
/// There is no room, the link or no server can be made, or it was stopped. That a worker fails is a result.
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
    let folder = tempfile::Builder::new()
        .prefix("ropeway-lab-")
        .tempdir_in(&options.dir)
        .map_err(LocalError::io(what()))?;
    let pairs: Vec<Pair> = options
        .servers
        .iter()
        .map(|&server| Pair {
            client: Client::Ropeway,
            server,
        })
        .collect();
    let tools = Tools::find(&pairs, &options.program, &folder.path().join("tools"));
    let steps = steps(&options.servers, &options.sizes, &options.records);
    let expected: Duration = steps.iter().map(|step| step.estimate(options.rate)).sum();
    told(&format!(
        "{} cells; about {} min, at most {}",
        steps.len() * plan::OPERATIONS.len(),
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
    let result = lab.servers(&pairs, &tools, &steps, folder.path());
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
    /// Whether all was done.
    fn servers(
        &mut self,
        pairs: &[Pair],
        tools: &Tools,
        steps: &[Step],
        folder: &Path,
    ) -> Result<bool, LocalError> {
        for (what, why) in &tools.missing {
            (self.told)(&format!("left out: {what}: {why}"));
        }
        let spec = plan::link(self.options.rate, self.options.rtt);
        super::prove(&mut self.document, &spec, self.stop)?;
        let mut all = true;
        let mut served_any = false;
        for pair in tools.available(pairs) {
            let server = pair.server;
            let scratch = folder.join(server.name());
            let (source, target) = (scratch.join("source"), scratch.join("to"));
            for path in [&source, &target] {
                fs::create_dir_all(path).map_err(LocalError::io("make a folder"))?;
            }
            // A link each, so that nothing is left of the other server's connections.
            let way = Way::start(&spec, self.options.relay)?;
            let place = Place {
                source: &source,
                target: &target,
                scratch: &scratch.join("own"),
            };
            let served = match Served::start(server, tools, &way, place) {
                Ok(served) => served,
                Err(why) => {
                    (self.told)(&format!("left out: {}: {why}", server.name()));
                    self.document.skipped.insert(server.name().to_owned(), why);
                    continue;
                }
            };
            served_any = true;
            for step in steps.iter().filter(|step| step.server == server) {
                if self.stop.load(Ordering::Acquire) {
                    return Err(LocalError::Interrupted);
                }
                if self.begun.elapsed() + step.estimate(self.options.rate) > self.options.budget {
                    let text = format!("its time was over before {}", step.name());
                    (self.told)(&format!("! {text}"));
                    self.document.warnings.push(Warning { cell: None, text });
                    all = false;
                    break;
                }
                self.step(step, &way, &served, &scratch)?;
            }
            drop(served);
        }
        if served_any {
            Ok(all)
        } else {
            Err(LocalError::Server(
                "is not there: no server could be started".to_owned(),
            ))
        }
    }

    fn step(&mut self, step: &Step, way: &Way, served: &Served, scratch: &Path) -> Result<(), LocalError> {
        let home = scratch.join("worker");
        fs::create_dir_all(&home).map_err(LocalError::io("make a folder"))?;
        let mut command = clean(&self.options.program, &home);
        command.args(["lab", "nas-worker", "--server"]);
        command.arg(served.address().to_string());
        command.args(["--user", USER, "--share", TARGET, "--file", NAME]);
        for (flag, value) in [
            ("--size", step.size),
            ("--record", step.record),
            ("--depth", u64::from(step.depth)),
        ] {
            command.arg(flag).arg(value.to_string());
        }
        command.arg("--evict").arg(scratch.join("to").join(NAME));
        command.env("ROPEWAY_PASSWORD", PASSWORD);
        let output = home.join("out");
        let stopped = || self.stop.load(Ordering::Acquire);
        let bounds = Bounds {
            limit: step.limit(self.options.rate),
            stop: &stopped,
        };
        let started = now();
        let (begun, disk) = (self.begun, &mut self.disk);
        let measured = measure(
            command,
            &output,
            bounds,
            |command| way.spawn(Side::Near, command),
            &mut |_| disk.look(begun.elapsed()),
        )
        .map_err(LocalError::io("run the worker"))?;
        if measured.end == End::Stopped {
            return Err(LocalError::Interrupted);
        }
        let text = measure::read(&output);
        let seconds = |operation: &str| {
            let lines = text
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok());
            lines
                .filter(|line| line["operation"] == operation)
                .find_map(|line| line["seconds"].as_f64())
        };
        let why = match measured.end {
            End::TimedOut => "it took too long".to_owned(),
            _ => measure::last_words(&output),
        };
        let found: Vec<_> = plan::OPERATIONS
            .into_iter()
            .map(|operation| (operation, seconds(operation)))
            .collect();
        (self.told)(&report::line(step, &found));
        report::add(&mut self.document, step, &found, &started, &why, self.options);
        // What a failed worker left.
        _ = fs::remove_file(scratch.join("to").join(NAME));
        self.save()
    }

    fn save(&mut self) -> Result<(), LocalError> {
        self.document.updated = now();
        report::curves(&mut self.document, self.options, &self.disk.points);
        Ok(save(&self.document, &self.options.out.join(FILE))?)
    }
}

/// What the disk below a folder moves, over time.
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
