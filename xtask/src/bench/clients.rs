//! `cargo xtask bench clients`: many clients of one server at once, and idle ones.
//!
//! `ropeway serve` and smbd serve the same folder in memory and take turns. The clients are the
//! example `many_clients` of the crate smb-client: connections with logins of their own, in one
//! process, on the same machine. Three tables go to `docs/benchmarks.md`: small files opened, read
//! and closed by 16 clients; a big file read by 16 clients; memory of the server while clients are
//! idle.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ropeway_lab::report::Median;
use ropeway_peers::{Instance, RopewayServe, Share, Smbd, procfs};
use serde::Deserialize;
use tempfile::TempDir;

use super::tables::{self, machine_line};
use crate::process::check_interrupt;
use crate::workspace::Workspace;

const USER: &str = "ann";
const PASSWORD: &str = "only-for-this-benchmark";
/// Files in the folder `files`, and bytes of each.
const FILES: usize = 1000;
const FILE_BYTES: usize = 16 << 10;
/// Clients that work at once.
const CLIENTS: usize = 16;
/// Files that each opens, and MiB that each reads.
const FILES_EACH: usize = 2000;
const MIB_EACH: usize = 256;
/// Idle clients.
const IDLE: usize = 1000;
/// Time after the last login until memory is read: buffers of an idle connection are freed after
/// 5 s.
const IDLE_PAUSE: Duration = Duration::from_secs(12);
/// What our server may use for its idle clients.
const IDLE_MIB_MAX: f64 = 64.0;

/// Options of `bench clients`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Counted rounds; one more goes first and is not counted, unless this is 1
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// A twentieth of the work, one round: shows that it works, not how fast
    #[arg(long)]
    quick: bool,
    /// Measure this build of ropeway, and do not touch docs/benchmarks.md
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// What the example prints.
#[derive(Clone, Debug, Deserialize)]
struct Outcome {
    seconds: f64,
    operations: f64,
    bytes: f64,
    open_p50_us: f64,
    open_p99_us: f64,
}

/// One run: its outcome, and the server's processor seconds meanwhile.
struct Run {
    outcome: Outcome,
    server_seconds: f64,
}

/// A server under test.
struct Server {
    name: &'static str,
    address: String,
    instance: Running,
}

enum Running {
    Ropeway(Box<Instance>),
    Samba(Box<Smbd>),
}

impl Server {
    fn pids(&self) -> Vec<u32> {
        match &self.instance {
            Running::Ropeway(instance) => instance.pids(),
            Running::Samba(smbd) => smbd.pids(),
        }
    }

    fn memory_mib(&self) -> f64 {
        let bytes: u64 = self.pids().into_iter().map(procfs::memory_bytes).sum();
        bytes as f64 / f64::from(1 << 20)
    }

    /// Returns the processor time of all processes that live, with that of children that ended.
    fn cpu_seconds(&self) -> f64 {
        let pids = self.pids();
        let own = procfs::processes().filter(|process| pids.contains(&process.id));
        procfs::ticks(own.map(|process| process.ticks).sum()).as_secs_f64()
    }
}

struct Bench {
    example: PathBuf,
    /// Counted rounds, with one more in front unless there is only one.
    rounds: std::ops::RangeInclusive<u32>,
    /// What the works are divided by.
    part: usize,
    servers: Vec<Server>,
    _place: TempDir,
}

/// Measures the tables and writes the section.
///
/// # Errors
/// A program is missing or fails, there is no room in memory, or an interrupt came.
pub(super) fn run(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    ensure!(arguments.runs > 0, "--runs must be at least 1");
    let runs = if arguments.quick { 1 } else { arguments.runs };
    let place = tempfile::Builder::new()
        .prefix("ropeway-bench-clients-")
        .tempdir_in("/dev/shm")
        .context("there is no /dev/shm to measure in")?;
    let program = crate::step::shipped(workspace, arguments.binary.as_deref())?;
    let bench = Bench {
        example: crate::step::example(workspace, "many_clients")?,
        rounds: u32::from(runs == 1)..=runs,
        part: if arguments.quick { 20 } else { 1 },
        servers: servers(&program, place.path())?,
        _place: place,
    };
    let text = bench.section()?;
    println!("\n{text}");
    if arguments.quick || arguments.binary.is_some() {
        println!("docs/benchmarks.md is not changed: it was a trial, or --binary was given");
        return Ok(());
    }
    tables::write(workspace, "bench clients", &text)
}

/// Makes the shared folder and starts both servers.
fn servers(program: &Path, place: &Path) -> Result<Vec<Server>> {
    let data = place.join("data");
    fs::create_dir_all(data.join("files"))?;
    let mut content = vec![0; FILE_BYTES];
    for number in 0..FILES {
        fastrand::Rng::with_seed(number as u64).fill(&mut content);
        fs::write(data.join(format!("files/{number}")), &content)?;
    }
    let mut big = vec![0; MIB_EACH << 20];
    fastrand::Rng::with_seed(1).fill(&mut big);
    fs::write(data.join("big"), big)?;
    let serve = RopewayServe::new(program)
        .user(USER, PASSWORD)
        .share("data", &data)
        .start()?;
    let smbd = Smbd::builder()
        .user(USER, PASSWORD)
        .share(Share::new("data", &data))
        .start()?;
    Ok(vec![
        Server {
            name: "ropeway serve",
            address: serve.address().to_string(),
            instance: Running::Ropeway(Box::new(serve)),
        },
        Server {
            name: "smbd",
            address: format!("127.0.0.1:{}", smbd.port()),
            instance: Running::Samba(Box::new(smbd)),
        },
    ])
}

impl Bench {
    fn clients(&self, server: &Server, work: &str, clients: usize, count: usize) -> Command {
        let mut command = Command::new(&self.example);
        command.env("ROPEWAY_PASSWORD", PASSWORD);
        command.args([&server.address, USER, "data", work]);
        command.args([clients.to_string(), count.to_string()]);
        command
    }

    fn work(&self, server: &Server, work: &str, count: usize) -> Result<Run> {
        check_interrupt()?;
        let before = server.cpu_seconds();
        let output = self.clients(server, work, CLIENTS, count).output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "{}: {work} failed: {errors}",
            server.name
        );
        let outcome = serde_json::from_slice(&output.stdout).context("the clients print no result")?;
        Ok(Run {
            outcome,
            server_seconds: server.cpu_seconds() - before,
        })
    }

    /// Returns the counted runs of each server.
    fn rounds(&self, work: &str, count: usize) -> Result<Vec<Vec<Run>>> {
        let mut runs: Vec<Vec<Run>> = self.servers.iter().map(|_| Vec::new()).collect();
        for round in self.rounds.clone() {
            for (server, runs) in self.servers.iter().zip(&mut runs) {
                let run = self.work(server, work, (count / self.part).max(1))?;
                if round > 0 {
                    runs.push(run);
                }
            }
        }
        Ok(runs)
    }

    fn section(&self) -> Result<String> {
        let mut text = format!(
            "## Many clients of one server at once\n\n{}",
            machine_line("cargo xtask bench clients")
        );
        let _ = write!(
            text,
            "\n`ropeway serve` and smbd serve the same folder in memory and take turns; the clients are connections of one process on the same \
             machine (`crates/smb-client/examples/many_clients.rs`), each with a login of its own, signed. Median (min-max) of interleaved runs.\n\n\
             {CLIENTS} clients, each of which opens, reads and closes {FILES_EACH} files of 16 KiB, one after another:\n\n\
             | server | files/s | open, p50 ms | open, p99 ms | server s |\n|---|--:|--:|--:|--:|\n"
        );
        for (server, runs) in self.servers.iter().zip(self.rounds("files", FILES_EACH)?) {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} |",
                server.name,
                figure(&runs, 0, |run| run.outcome.operations / run.outcome.seconds),
                figure(&runs, 2, |run| run.outcome.open_p50_us / 1e3),
                figure(&runs, 2, |run| run.outcome.open_p99_us / 1e3),
                figure(&runs, 2, |run| run.server_seconds)
            );
        }
        let _ = write!(
            text,
            "\n{CLIENTS} clients, each of which reads the same file of {MIB_EACH} MiB, four reads of 1 MiB in flight:\n\n\
             | server | MB/s, all clients | server s |\n|---|--:|--:|\n"
        );
        for (server, runs) in self.servers.iter().zip(self.rounds("bulk", MIB_EACH)?) {
            let _ = writeln!(
                text,
                "| {} | {} | {} |",
                server.name,
                figure(&runs, 0, |run| run.outcome.bytes / run.outcome.seconds / 1e6),
                figure(&runs, 2, |run| run.server_seconds)
            );
        }
        self.idle(&mut text)?;
        Ok(text)
    }

    /// Measures memory with idle clients, one server after the other.
    fn idle(&self, text: &mut String) -> Result<()> {
        let count = (IDLE / self.part).max(1);
        let _ = write!(
            text,
            "\n{count} clients that have logged in, have a file open, and are idle for 12 s; pages that processes share count once. \
             To reach: {IDLE_MIB_MAX:.0} MiB.\n\n\
             | server | MiB before | MiB with the clients | KiB a client |\n|---|--:|--:|--:|\n"
        );
        for server in &self.servers {
            check_interrupt()?;
            let before = server.memory_mib();
            let mut command = self.clients(server, "idle", count, 0);
            let mut clients = Idle(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
            let mut line = String::new();
            let out = clients.0.stdout.take().context("the clients have no output")?;
            BufReader::new(out).read_line(&mut line)?;
            ensure!(
                line.starts_with("ready"),
                "the clients could not log in to {}",
                server.name
            );
            std::thread::sleep(IDLE_PAUSE);
            let with = server.memory_mib();
            let _ = writeln!(
                text,
                "| {} | {before:.1} | {with:.1} | {:.0} |",
                server.name,
                (with - before) * 1024.0 / count as f64
            );
        }
        Ok(())
    }
}

/// Idle clients, which end when this is dropped.
struct Idle(Child);

impl Drop for Idle {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        _ = self.0.wait();
    }
}

fn figure(runs: &[Run], decimals: usize, of: impl Fn(&Run) -> f64) -> String {
    tables::spread(Median::of(runs.iter().map(of).collect()), decimals)
}
