//! `cargo xtask bench fleet`: one job over workers on lines of their own.
//!
//! Each worker has a network namespace with a line of 100 Mbit/s each way (veth, tc-tbf(8)) to the namespace of
//! the server. The source is a local folder that all of them see. Beside it runs fpsync of the same source to an
//! rsync daemon: it starts its rsyncs in the same namespaces, by a program `ssh` that only enters one. With `--nats`
//! tasks are also handed out by a server of NATS, beside the server of the data. With `--dcp` dcp copies the same files.

mod dcp;

use std::fmt::Write as _;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ropeway_lab::report::Median;
use ropeway_peers::{Instance, Nats, Remote, RopewayServe, Rsyncd, procfs};
use tempfile::TempDir;

use super::make_file;
use super::tables::{self, machine_line};
use crate::process::{check_interrupt, find_program, is_root, kill_group, run as run_command, tail, wait};
use crate::workspace::Workspace;

const USER: &str = "ann";
const PASSWORD: &str = "only-for-this-benchmark";
/// Name of the share, or module, and of the copy in it.
const SHARE: &str = "data";
const COPY: &str = "copy";
/// The line of each worker.
const MBIT: u64 = 100;
/// Address of the server; those of the lines follow (RFC 2544 reserves the range for measurements).
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 255, 1);
/// Bytes of a file of the tree.
const FILE_BYTES: usize = 1 << 20;
/// Files of a folder.
const FOLDER_FILES: u32 = 50;
/// A run is ended after this many times the time that its data needs.
const TIMES_MAX: u64 = 4;

/// Options of `bench fleet`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Files of 1 MiB, 50 in each folder
    #[arg(long, default_value_t = 1_600)]
    files: u32,
    /// Numbers of workers for the files
    #[arg(long, value_delimiter = ',', default_value = "1,8")]
    workers: Vec<u8>,
    /// Size of the large file; 0 leaves it out
    #[arg(long, default_value_t = 20, value_name = "GB")]
    large: u64,
    /// Numbers of workers for the large file
    #[arg(long, value_delimiter = ',', default_value = "1,4")]
    large_workers: Vec<u8>,
    /// Rounds with the files; the large file is copied once
    #[arg(long, default_value_t = 3)]
    runs: u32,
    /// Measure with NATS too; nats-server must be in PATH
    #[arg(long)]
    nats: bool,
    /// Measure dcp of mpifileutils too, over mounts of the share; dcp and mpirun must be in PATH
    #[arg(long)]
    dcp: bool,
    /// Folder for source and target: a file system with room for both
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Measure this build of ropeway, with --nats one with the feature `nats`
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Do not touch docs/benchmarks.md
    #[arg(long)]
    no_write: bool,
}

/// What copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    Fleet,
    FleetNats,
    Fpsync,
    Dcp,
}

impl Tool {
    fn title(self) -> &'static str {
        match self {
            Self::Fleet => "ropeway fleet, `ropeway serve`",
            Self::FleetNats => "ropeway fleet with NATS, `ropeway serve`",
            Self::Fpsync => "fpsync, rsync daemon",
            Self::Dcp => "dcp, `ropeway mount`, `ropeway serve`",
        }
    }
}

/// What was measured.
struct Row {
    tool: Tool,
    work: &'static str,
    workers: u8,
    seconds: Vec<f64>,
}

/// Namespaces with lines between them; removed when dropped.
struct Lines {
    prefix: String,
    workers: u8,
}

impl Lines {
    fn new(workers: u8) -> Result<Self> {
        let prefix = format!("rwf{}", std::process::id() % 100_000);
        let lines = Self { prefix, workers };
        let far = lines.far();
        lines.ip(&["netns", "add", &far])?;
        lines.in_far(&["link", "set", "lo", "up"])?;
        lines.in_far(&["addr", "add", &format!("{SERVER}/32"), "dev", "lo"])?;
        for number in 0..workers {
            lines.add(number)?;
        }
        Ok(lines)
    }

    fn far(&self) -> String {
        format!("{}f", self.prefix)
    }

    fn near(&self, number: u8) -> String {
        format!("{}w{number}", self.prefix)
    }

    fn add(&self, number: u8) -> Result<()> {
        let (far, near) = (self.far(), self.near(number));
        let (at_far, at_near) = (format!("f{number}"), "line");
        self.ip(&["netns", "add", &near])?;
        self.ip(&[
            "-n", &near, "link", "add", at_near, "type", "veth", "peer", "name", &at_far, "netns", &far,
        ])?;
        for (namespace, device, last) in [(&far, at_far.as_str(), 1), (&near, at_near, 2)] {
            let address = format!("198.18.{number}.{last}/24");
            self.ip(&["-n", namespace, "addr", "add", &address, "dev", device])?;
            self.ip(&["-n", namespace, "link", "set", device, "up"])?;
            let rate = format!("{MBIT}mbit");
            let mut limit = Command::new("ip");
            limit.args(["netns", "exec", namespace, "tc", "qdisc", "add", "dev", device]);
            limit.args(["root", "tbf", "rate", &rate, "burst", "64kb", "latency", "20ms"]);
            run_command(&mut limit)?;
        }
        self.ip(&["-n", &near, "link", "set", "lo", "up"])?;
        let gateway = format!("198.18.{number}.1");
        self.ip(&["-n", &near, "route", "add", "default", "via", &gateway])
    }

    fn ip(&self, arguments: &[&str]) -> Result<()> {
        run_command(Command::new("ip").args(arguments))
    }

    fn in_far(&self, arguments: &[&str]) -> Result<()> {
        self.ip(&[&["-n", &self.far()], arguments].concat())
    }

    /// Returns a command that runs another one in the namespace of a worker.
    fn inside(&self, number: u8, command: &Command) -> Command {
        let mut wrapper = Command::new("ip");
        wrapper.args(["netns", "exec", &self.near(number)]);
        crate::process::wrapped(wrapper, command)
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let near = (0..self.workers).map(|number| self.near(number));
        for name in near.chain([self.far()]) {
            let _ = Command::new("ip")
                .args(["netns", "del", &name])
                .stderr(Stdio::null())
                .status();
        }
    }
}

/// The lines with the servers, and the folders.
struct Ground {
    ropeway: PathBuf,
    serve: Instance,
    rsyncd: Instance,
    nats: Option<Instance>,
    place: TempDir,
    lines: Lines,
}

/// Measures and writes the section.
///
/// # Errors
/// This is not root, a program is missing, a copy is wrong, ropeway fails, or an interrupt came.
pub(super) fn run(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    ensure!(is_root(), "network namespaces need root");
    let all = arguments.workers.iter().chain(&arguments.large_workers);
    let most = all.copied().max().unwrap_or(0);
    let least = arguments.workers.iter().chain(&arguments.large_workers).min();
    ensure!(
        arguments.files > 0 && arguments.runs > 0 && least.is_some_and(|least| *least > 0) && most <= 64,
        "--files and --runs must be at least 1, and workers 1 to 64"
    );
    let features: &[&str] = if arguments.nats {
        &["ropeway-cli/nats"]
    } else {
        &[]
    };
    let ropeway = crate::step::shipped_with(workspace, arguments.binary.as_deref(), features)?;
    let ground = Ground::new(ropeway, (most, arguments.nats), arguments.folder.as_deref())?;
    let queues = match arguments.nats {
        true => vec![Tool::Fleet, Tool::FleetNats],
        false => vec![Tool::Fleet],
    };
    let rivals = [Some(Tool::Fpsync), arguments.dcp.then_some(Tool::Dcp)];
    let all: Vec<Tool> = (queues.iter().copied())
        .chain(rivals.into_iter().flatten())
        .collect();
    let mut rows = Vec::new();
    make_tree(&ground.folder("files"), arguments.files)?;
    let bytes = u64::from(arguments.files) * FILE_BYTES as u64;
    for round in 0..arguments.runs {
        for workers in &arguments.workers {
            let mut tools = all.clone();
            tools.rotate_left(round as usize % all.len());
            for tool in tools {
                let seconds = ground.measure(tool, "files", (*workers, bytes))?;
                note(&mut rows, (tool, "files", *workers), seconds);
            }
        }
        println!("round {} of {} is done", round + 1, arguments.runs);
    }
    if arguments.large > 0 {
        let bytes = arguments.large * 1_000_000_000;
        make_file(&ground.folder("large").join("large"), bytes)?;
        for workers in &arguments.large_workers {
            // fpsync gives a file to one rsync.
            for tool in all.iter().filter(|tool| **tool != Tool::Fpsync) {
                let seconds = ground.measure(*tool, "large", (*workers, bytes))?;
                note(&mut rows, (*tool, "large", *workers), seconds);
            }
        }
    }
    let text = section(&rows, arguments);
    println!("\n{text}");
    if arguments.no_write || arguments.binary.is_some() {
        println!("docs/benchmarks.md is not changed: --no-write or --binary was given");
        return Ok(());
    }
    tables::write(workspace, "bench fleet", &text)
}

fn note(rows: &mut Vec<Row>, (tool, work, workers): (Tool, &'static str, u8), seconds: f64) {
    println!("  {:32} {work:6} {workers} workers: {seconds:.1} s", tool.title());
    let is_same = |row: &&mut Row| (row.tool, row.work, row.workers) == (tool, work, workers);
    match rows.iter_mut().find(is_same) {
        Some(row) => row.seconds.push(seconds),
        None => rows.push(Row {
            tool,
            work,
            workers,
            seconds: vec![seconds],
        }),
    }
}

/// Makes files of random bytes.
fn make_tree(root: &Path, files: u32) -> Result<()> {
    let mut content = vec![0; FILE_BYTES];
    for number in 0..files {
        let folder = root.join(format!("d{:04}", number / FOLDER_FILES));
        fs::create_dir_all(&folder)?;
        fastrand::Rng::with_seed(u64::from(number)).fill(&mut content);
        fs::write(folder.join(format!("file{number}")), &content)?;
    }
    Ok(())
}

impl Ground {
    fn new(ropeway: PathBuf, (workers, nats): (u8, bool), below: Option<&Path>) -> Result<Self> {
        let place = tempfile::Builder::new()
            .prefix("ropeway-bench-fleet-")
            .tempdir_in(below.unwrap_or(&std::env::temp_dir()))?;
        for name in ["files", "large", "served", "home", "bin"] {
            fs::create_dir(place.path().join(name))?;
        }
        let served = place.path().join("served");
        let lines = Lines::new(workers)?;
        let far = || Some((netns(&lines.far()), IpAddr::V4(SERVER)));
        let serve = RopewayServe::new(&ropeway)
            .user(USER, PASSWORD)
            .share(SHARE, &served)
            .in_namespace(far())
            .start()?;
        let rsyncd = Rsyncd::new().module(SHARE, &served).in_namespace(far()).start()?;
        let nats = nats
            .then(|| Nats::new().in_namespace(far()).below(place.path()).start())
            .transpose()?;
        // fpsync calls `ssh OPTIONS WORKER COMMAND`.
        write_program(
            &place.path().join("bin/ssh"),
            "#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\nworker=$1\nshift\nexec ip netns exec \"$worker\" /bin/sh -c \"$*\"\n",
        )?;
        Ok(Self {
            ropeway,
            serve,
            rsyncd,
            nats,
            place,
            lines,
        })
    }

    /// Returns the share as clients reach it.
    fn remote<'a>(&self, home: &'a Path) -> Remote<'a> {
        Remote {
            address: self.serve.address(),
            user: USER,
            password: PASSWORD,
            scratch: home,
        }
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Copies, compares, and removes the copy. Returns the seconds of the copy.
    fn measure(&self, tool: Tool, work: &'static str, (workers, bytes): (u8, u64)) -> Result<f64> {
        check_interrupt()?;
        // What the one before did not flush is not this one's work.
        rustix::fs::sync();
        let source = self.folder(work);
        let floor = bytes * 8 / (MBIT * 1_000_000) / u64::from(workers);
        let limit = Duration::from_secs(TIMES_MAX * floor + 60);
        let seconds = match tool {
            Tool::Fleet => self.fleet(&source, None, (workers, limit))?,
            Tool::FleetNats => self.fleet(&source, self.nats.as_ref(), (workers, limit))?,
            Tool::Fpsync => self.fpsync(&source, workers, limit)?,
            Tool::Dcp => self.dcp(&source, workers, limit)?,
        };
        let served = self.folder("served");
        let mut compare = Command::new("diff");
        compare.arg("-rq").arg(&source).arg(served.join(COPY));
        run_command(&mut compare).context("the copy differs")?;
        for entry in fs::read_dir(&served)? {
            fs::remove_dir_all(entry?.path())?;
        }
        Ok(seconds)
    }

    fn fleet(&self, source: &Path, nats: Option<&Instance>, (workers, limit): (u8, Duration)) -> Result<f64> {
        let home = self.folder("home");
        let target = self.remote(&home).url(&format!("{SHARE}/{COPY}"));
        let command = |arguments: &[&str]| {
            let mut command = procfs::clean(&self.ropeway, &home);
            command
                .env("ROPEWAY_PASSWORD", PASSWORD)
                .env("ROPEWAY_FLEET", "unfinished");
            command.arg("fleet").args(arguments);
            command
        };
        let mut submit = command(&["submit"]);
        submit.arg(source).arg(&target);
        submit.args(nats.map(|nats| format!("--queue=nats://{}", nats.address())));
        let begun = Instant::now();
        let submitted = self.start(0, &submit, "submit")?;
        self.finish(vec![submitted], limit)?;
        let work = command(&["work", &target]);
        let mut started = Running(Vec::new());
        for number in 0..workers {
            started
                .0
                .push(self.start(number, &work, &format!("worker{number}"))?);
        }
        self.finish(std::mem::take(&mut started.0), limit)?;
        Ok(begun.elapsed().as_secs_f64())
    }

    fn fpsync(&self, source: &Path, workers: u8, limit: Duration) -> Result<f64> {
        let home = self.folder("home");
        let program = find_program("fpsync").context("fpsync is missing (Debian's fpart)")?;
        let mut command = procfs::clean(&program, &home);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.folder("bin").display()));
        let names: Vec<String> = (0..workers).map(|number| self.lines.near(number)).collect();
        command.args(["-n", &workers.to_string(), "-w", &names.join(" ")]);
        command.arg("-d").arg(self.folder("home/shared"));
        command.arg("-t").arg(self.folder("home/temporary"));
        // A folder for each of its jobs.
        command.args(["-f", &FOLDER_FILES.to_string()]);
        fs::create_dir_all(self.folder("home/shared"))?;
        fs::create_dir_all(self.folder("home/temporary"))?;
        fs::create_dir_all(self.folder("served").join(COPY))?;
        let address = self.rsyncd.address();
        command.arg(source);
        command.arg(format!(
            "rsync://{}:{}/{SHARE}/{COPY}/",
            address.ip(),
            address.port()
        ));
        let begun = Instant::now();
        let started = self.spawn(command, "fpsync")?;
        self.finish(vec![started], limit)?;
        Ok(begun.elapsed().as_secs_f64())
    }

    fn start(&self, number: u8, command: &Command, log: &str) -> Result<(Child, PathBuf)> {
        self.spawn(self.lines.inside(number, command), log)
    }

    fn spawn(&self, mut command: Command, log: &str) -> Result<(Child, PathBuf)> {
        let log = self.folder(&format!("log.{log}"));
        let out = fs::File::create(&log)?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        command.process_group(0);
        Ok((command.spawn()?, log))
    }

    fn finish(&self, started: Vec<(Child, PathBuf)>, limit: Duration) -> Result<()> {
        let mut running = Running(started);
        while let Some((child, log)) = running.0.last_mut() {
            let Some(status) = wait(child, limit)? else {
                bail!("not done after {} s: {}", limit.as_secs(), tail(log, 10));
            };
            ensure!(status.success(), "it failed: {}", tail(log, 10));
            running.0.pop();
        }
        Ok(())
    }
}

/// Processes with groups of their own, which are killed when it is dropped.
struct Running(Vec<(Child, PathBuf)>);

impl Drop for Running {
    fn drop(&mut self) {
        for (child, _) in &mut self.0 {
            let _ = kill_group(child);
        }
    }
}

fn write_program(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

fn netns(name: &str) -> PathBuf {
    Path::new("/run/netns").join(name)
}

fn section(rows: &[Row], arguments: &Arguments) -> String {
    let mut text = format!(
        "## A fleet: workers on lines of their own\n\n{}",
        machine_line("cargo xtask bench fleet")
    );
    let _ = write!(
        text,
        "\nEach worker is held to {MBIT} Mbit/s each way, to one server; source, target and all processes are on this machine. *files*: {} files of 1 MiB, \
         {FOLDER_FILES} in each folder; *large*: one file of {} GB. Seconds from the start of `submit` (fpsync, dcp: of that) until the last worker \
         has ended (dcp: until its mounts have written everything), median (min-max) of interleaved runs (the large file is copied once); each copy was compared with `diff -r`. *Line*: what the bytes alone need at that rate. *Speed*: \
         times that of the fewest workers.\n\n\
         | | work | workers | s | line s | speed |\n|---|---|--:|--:|--:|--:|\n",
        arguments.files, arguments.large
    );
    for row in rows {
        let first = rows
            .iter()
            .find(|first| (first.tool, first.work) == (row.tool, row.work));
        let middle = |row: &Row| Median::of(row.seconds.clone()).map(|median| median.value);
        let speed = first.and_then(|first| Some(middle(first)? / middle(row)?));
        let bytes = match row.work {
            "large" => arguments.large * 1_000_000_000,
            _ => u64::from(arguments.files) * FILE_BYTES as u64,
        };
        let line = bytes as f64 * 8.0 / (MBIT as f64 * 1e6) / f64::from(row.workers);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {line:.1} | {:.2} x |",
            row.tool.title(),
            row.work,
            row.workers,
            tables::spread(Median::of(row.seconds.clone()), 1),
            speed.unwrap_or(1.0)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_speed_is_that_of_the_same_tool_and_work() {
        let mut rows = Vec::new();
        for (tool, work, workers, seconds) in [
            (Tool::Fleet, "files", 1, 140.0),
            (Tool::Fleet, "files", 8, 20.0),
            (Tool::Fpsync, "files", 8, 25.0),
        ] {
            note(&mut rows, (tool, work, workers), seconds);
        }
        let arguments = Arguments {
            files: 1_600,
            workers: vec![1, 8],
            large: 20,
            large_workers: vec![],
            runs: 1,
            nats: false,
            dcp: false,
            folder: None,
            binary: None,
            no_write: true,
        };
        let text = section(&rows, &arguments);
        let last: Vec<&str> = text.lines().rev().take(2).collect();
        assert_eq!(
            last[1],
            "| ropeway fleet, `ropeway serve` | files | 8 | 20.0 | 16.8 | 7.00 x |"
        );
        assert_eq!(
            last[0],
            "| fpsync, rsync daemon | files | 8 | 25.0 | 16.8 | 1.00 x |"
        );
    }
}
