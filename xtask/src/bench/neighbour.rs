//! `cargo xtask bench neighbour`: how long another client of a NAS waits while a copy reads from it.
//!
//! smbd serves a disk over a line of 1 Gbit/s, at the far end of the emulated link. One client reads 4 KiB at
//! random places of a file; beside it a big file is copied from the share into memory. Neither is in the page
//! cache before a run. The disk is a model ([`MountedDisk`]) with the times of a hard disk; its content is in
//! memory.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ropeway_lab::link::{Link, LinkSpec, Rate, Side};
use ropeway_lab::local::disk::{DiskTimes, MountedDisk};
use ropeway_lab::local::reader::{percentile_ms, waits};
use ropeway_lab::local::volume::drop_caches;
use ropeway_lab::report::Median;
use ropeway_peers::{Remote, Share, Smbd, procfs};
use serde::Deserialize;
use tempfile::TempDir;

use super::make_file;
use super::tables::{self, machine_line};
use crate::process::{check_interrupt, find_program, is_root, tail, wait};
use crate::workspace::Workspace;

const USER: &str = "ann";
const PASSWORD: &str = "only-for-this-benchmark";
const SHARE: &str = "data";
/// The line.
const RTT: Duration = Duration::from_micros(300);
const RATE: Rate = Rate(1_000_000_000);
/// Bytes that wait for the line at most. With no more than the line holds, TCP's start overruns it, and a lost
/// reply to the other client costs it half a second: that would measure the line and not the disk.
const QUEUE: u64 = 4 << 20;
/// The disk.
const DISK: DiskTimes = DiskTimes {
    bytes_per_s: 100e6,
    seek: (Duration::from_millis(4), Duration::from_millis(12)),
};
const MIB: usize = 1 << 20;
/// Sizes of the files, in MiB: the one that is copied, and the one of the other client.
const COPIED_MIB: usize = 256;
const READ_MIB: usize = 256;
/// Longest time of a copy.
const LIMIT: Duration = Duration::from_secs(120);
/// Time for which the other client reads alone.
const ALONE: Duration = Duration::from_secs(5);

/// Options of `bench neighbour`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Rounds; all are counted
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// Copies beside the other client: ropeway, gentle (ropeway with --gentle), rclone, smbclient
    #[arg(
        long,
        value_delimiter = ',',
        value_enum,
        default_value = "ropeway,rclone,smbclient"
    )]
    clients: Vec<Tool>,
    /// An eighth of the data, one round: shows that it works, not how long anyone waits
    #[arg(long)]
    quick: bool,
    /// Measure this build of ropeway, and do not touch docs/benchmarks.md
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// What runs beside the other client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Tool {
    /// Nothing.
    #[value(skip)]
    Nothing,
    Ropeway,
    Gentle,
    Rclone,
    Smbclient,
}

impl Tool {
    fn title(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Ropeway => "ropeway",
            Self::Gentle => "ropeway --gentle",
            Self::Rclone => "rclone",
            Self::Smbclient => "smbclient",
        }
    }
}

/// What the other client prints.
#[derive(Debug, Deserialize)]
struct Reads {
    /// Pause after each read, in microseconds.
    pause_us: u64,
    /// Time of each read, in microseconds.
    times_us: Vec<u64>,
}

/// How long the other client waited, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Waits {
    p50: f64,
    p99: f64,
    max: f64,
}

impl Waits {
    /// Returns those of some reads; `None` without any.
    fn of(reads: &Reads) -> Option<Self> {
        let pause = Duration::from_micros(reads.pause_us);
        let times = reads.times_us.iter().map(|time| Duration::from_micros(*time));
        let times: Vec<Duration> = times.flat_map(|time| waits(time, pause)).collect();
        let of = |percent| percentile_ms(times.clone(), percent);
        Some(Self {
            p50: of(50)?,
            p99: of(99)?,
            max: of(100)?,
        })
    }
}

/// One run.
struct Run {
    waits: Waits,
    /// Seconds of the copy.
    seconds: f64,
}

/// The NAS, the line to it, and the programs.
struct Ground {
    // These end in this order: the file system is in use until smbd has ended.
    smbd: Smbd,
    link: Link,
    _disk: MountedDisk,
    place: TempDir,
    ropeway: PathBuf,
    example: PathBuf,
    copied_mib: usize,
}

/// Measures and writes the section.
///
/// # Errors
/// This is not root, a program is missing or fails, or an interrupt came.
pub(super) fn run(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    ensure!(
        is_root(),
        "a file system of its own and servers at the far end of a line need root"
    );
    ensure!(arguments.runs > 0, "--runs must be at least 1");
    let runs = if arguments.quick { 1 } else { arguments.runs };
    let ropeway = crate::step::shipped(workspace, arguments.binary.as_deref())?;
    let example = crate::step::example(workspace, "neighbour")?;
    let part = if arguments.quick { 8 } else { 1 };
    let ground = Ground::new(ropeway, example, COPIED_MIB / part)?;
    let mut rows: Vec<(Tool, Vec<Run>)> = vec![(Tool::Nothing, Vec::new())];
    rows.extend(arguments.clients.iter().map(|tool| (*tool, Vec::new())));
    for round in 0..runs as usize {
        let count = rows.len();
        for turn in 0..count {
            check_interrupt()?;
            let (tool, runs) = &mut rows[(turn + round) % count];
            let run = ground.run(*tool).with_context(|| tool.title())?;
            println!(
                "  {:18} p50 {:6.1} ms, p99 {:6.1}, slowest {:6.1}; copy {:.2} s",
                tool.title(),
                run.waits.p50,
                run.waits.p99,
                run.waits.max,
                run.seconds
            );
            runs.push(run);
        }
    }
    let text = section(&rows, ground.copied_mib);
    println!("\n{text}");
    if arguments.quick || arguments.binary.is_some() {
        println!("docs/benchmarks.md is not changed: it was a trial, or --binary was given");
        return Ok(());
    }
    tables::write(workspace, "bench neighbour", &text)
}

impl Ground {
    fn new(ropeway: PathBuf, example: PathBuf, copied_mib: usize) -> Result<Self> {
        let place = tempfile::Builder::new()
            .prefix("ropeway-bench-neighbour-")
            .tempdir_in("/dev/shm")
            .context("there is no /dev/shm to copy to")?;
        fs::create_dir(place.path().join("home"))?;
        let content = place.path().join("content");
        fs::create_dir_all(content.join("folder"))?;
        make_file(&content.join("folder/copied"), (copied_mib * MIB) as u64)?;
        make_file(&content.join("read"), (READ_MIB * MIB) as u64)?;
        let served = place.path().join("disk");
        fs::create_dir(&served)?;
        let disk = MountedDisk::start(&content, &served, DISK).context("the disk cannot be mounted")?;
        let mut spec = LinkSpec::new(RTT, Some(RATE));
        spec.queue = Some(QUEUE);
        let link = Link::start(spec)?;
        let smbd = Smbd::builder()
            .durable_handles(false)
            .log_level(0)
            .user(USER, PASSWORD)
            .share(Share::new(SHARE, &served))
            .in_namespace(Some((link.far_netns_path(), link.far_addr())))
            .start()?;
        Ok(Self {
            smbd,
            link,
            _disk: disk,
            place,
            ropeway,
            example,
            copied_mib,
        })
    }

    /// Runs a copy beside the other client.
    fn run(&self, tool: Tool) -> Result<Run> {
        let target = self.place.path().join("copy");
        drop_caches()?;
        let neighbour = Neighbour::start(self)?;
        let begun = Instant::now();
        match self.command(tool, &target)? {
            Some(command) => self.copy(command)?,
            None => std::thread::sleep(ALONE),
        }
        let seconds = begun.elapsed().as_secs_f64();
        let waits = neighbour.finish()?;
        if tool != Tool::Nothing {
            let made = target.join("copied");
            let size = fs::metadata(&made).map_or(0, |made| made.len());
            ensure!(
                size == (self.copied_mib * MIB) as u64,
                "the copy has {size} bytes"
            );
            fs::remove_dir_all(&target)?;
        }
        Ok(Run { waits, seconds })
    }

    fn copy(&self, mut command: Command) -> Result<()> {
        let log = self.place.path().join("log");
        let out = fs::File::create(&log)?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        command.process_group(0);
        let mut child = self.link.spawn(Side::Near, &mut command)?;
        let status = wait(&mut child, LIMIT)?;
        let status = status.with_context(|| format!("not done after {} s", LIMIT.as_secs()))?;
        ensure!(status.success(), "it failed: {}", tail(&log, 10));
        Ok(())
    }

    fn address(&self) -> std::net::SocketAddr {
        (self.link.far_addr(), self.smbd.port()).into()
    }

    fn command(&self, tool: Tool, target: &Path) -> Result<Option<Command>> {
        let home = self.place.path().join("home");
        let remote = Remote {
            address: self.address(),
            user: USER,
            password: PASSWORD,
            scratch: &home,
        };
        let found = |name: &str| find_program(name).with_context(|| format!("{name} is missing"));
        Ok(Some(match tool {
            Tool::Nothing => return Ok(None),
            Tool::Ropeway | Tool::Gentle => {
                let mut command = procfs::clean(&self.ropeway, &home);
                command.env("ROPEWAY_PASSWORD", PASSWORD);
                command.args(["copy", "-T", "--no-progress"]);
                if tool == Tool::Gentle {
                    command.arg("--gentle");
                }
                command.arg(remote.url(&format!("{SHARE}/folder"))).arg(target);
                command
            }
            Tool::Rclone => {
                let mut command = remote.rclone(&found("rclone")?)?;
                command
                    .arg("copy")
                    .arg(format!(":smb:{SHARE}/folder"))
                    .arg(target);
                command
            }
            Tool::Smbclient => {
                fs::create_dir_all(target)?;
                let mut command = remote.smbclient(&found("smbclient")?, SHARE)?;
                command
                    .arg("-c")
                    .arg(ropeway_peers::smbclient_get("folder", target));
                command
            }
        }))
    }
}

/// The other client.
struct Neighbour {
    child: Child,
    stdin: Option<ChildStdin>,
    out: BufReader<ChildStdout>,
}

impl Neighbour {
    /// Starts it and waits until it reads.
    fn start(ground: &Ground) -> Result<Self> {
        let mut command = Command::new(&ground.example);
        command.env("ROPEWAY_PASSWORD", PASSWORD);
        command.args([&ground.address().to_string(), USER, SHARE, "read"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = ground.link.spawn(Side::Near, &mut command)?;
        let stdin = child.stdin.take();
        let out = child.stdout.take().context("it has no output")?;
        let mut neighbour = Self {
            child,
            stdin,
            out: BufReader::new(out),
        };
        let mut line = String::new();
        neighbour.out.read_line(&mut line)?;
        ensure!(line.starts_with("ready"), "the other client cannot open its file");
        Ok(neighbour)
    }

    fn finish(mut self) -> Result<Waits> {
        drop(self.stdin.take());
        let mut text = String::new();
        self.out.read_to_string(&mut text)?;
        let reads = serde_json::from_str(&text).context("the other client prints no result")?;
        Waits::of(&reads).context("the other client has read nothing")
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        drop(self.stdin.take());
        _ = self.child.wait();
    }
}

fn section(rows: &[(Tool, Vec<Run>)], copied_mib: usize) -> String {
    let mut text = format!(
        "## Another client of a NAS while a file is copied from it\n\n{}",
        machine_line("cargo xtask bench neighbour")
    );
    let _ = write!(
        text,
        "\nsmbd serves a disk of {} MB/s, {} to {} ms a seek, over {} Mbit/s and {} ms. The other client reads 4 KiB at random places, one read each 5 ms; a read that \
         stalls counts as all reads that would have waited for it. Beside it a file of {copied_mib} MiB is copied from the share. The disk is a \
         model, which does one thing at a time. Median (min-max) of interleaved runs.\n\n\
         | beside | p50 ms | p99 ms | slowest ms | copy s |\n|---|--:|--:|--:|--:|\n",
        DISK.bytes_per_s / 1e6,
        DISK.seek.0.as_millis(),
        DISK.seek.1.as_millis(),
        RATE.0 / 1_000_000,
        RTT.as_secs_f64() * 1e3
    );
    for (tool, runs) in rows {
        let figure = |of: fn(&Run) -> f64, decimals| {
            tables::spread(Median::of(runs.iter().map(of).collect()), decimals)
        };
        let seconds = match tool {
            Tool::Nothing => "-".to_owned(),
            _ => figure(|run| run.seconds, 2),
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {seconds} |",
            tool.title(),
            figure(|run| run.waits.p50, 1),
            figure(|run| run.waits.p99, 1),
            figure(|run| run.waits.max, 1)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_counts_as_all_reads_that_waited() {
        let reads = |text| serde_json::from_str(text).unwrap();
        let stalled = Waits::of(&reads(r#"{"pause_us":5000,"times_us":[1000,1000,20000]}"#)).unwrap();
        // 1, 1, 5, 10, 15, 20.
        assert_eq!((stalled.p50, stalled.max), (5.0, 20.0));
        assert_eq!(Waits::of(&reads(r#"{"pause_us":5000,"times_us":[]}"#)), None);
    }

    #[test]
    fn a_row_without_a_copy_has_no_seconds() {
        let waits = Waits {
            p50: 1.5,
            p99: 2.0,
            max: 30.0,
        };
        let run = || Run { waits, seconds: 8.0 };
        let text = section(
            &[(Tool::Nothing, vec![run()]), (Tool::Gentle, vec![run(), run()])],
            768,
        );
        let rows: Vec<&str> = text.lines().rev().take(2).collect();
        assert_eq!(rows[1], "| nothing | 1.5 | 2.0 | 30.0 | - |");
        assert_eq!(
            rows[0],
            "| ropeway --gentle | 1.5 (1.5-1.5) | 2.0 (2.0-2.0) | 30.0 (30.0-30.0) | 8.00 (8.00-8.00) |"
        );
    }
}
