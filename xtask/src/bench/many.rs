//! `cargo xtask bench many`: a tree of very many small files over an emulated line, copied for the first time
//! and again when nothing has changed, up and down.
//!
//! Rounds are interleaved: each tool makes its four runs, then the next one. What a first copy made is compared
//! with `diff -r`, outside the measured time. All folders are in memory, and both ends and the link share the
//! processors of this machine.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ropeway_lab::link::{Link, LinkSpec, Rate, Side};
use ropeway_lab::report::Median;
use ropeway_peers::{
    Instance, Remote, RopewayServe, Rsyncd, Share, Smbd, procfs, smbclient_get, smbclient_put,
};
use tempfile::TempDir;

use super::tables::{self, machine_line};
use crate::process::{check_interrupt, find_program, is_root, tail, wait_and_look};
use crate::workspace::Workspace;

const USER: &str = "ann";
const PASSWORD: &str = "only-for-this-benchmark";
/// Name of the share, or module, of all servers, and of the copy in it.
const SHARE: &str = "data";
const COPY: &str = "copy";
/// The line.
const RTT: Duration = Duration::from_millis(75);
const RATE: Rate = Rate(622_000_000);
/// Largest buffer of a socket in bytes: more than the line holds.
const BUFFER: u64 = 64 << 20;
/// Files of a folder.
const FOLDER_FILES: u32 = 1000;
/// Files have 0 to this many bytes.
const SIZE_MAX: usize = 49;

/// Options of `bench many`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Number of files, 1,000 in each folder
    #[arg(long, default_value_t = 100_000)]
    files: u32,
    /// Rounds; all are counted
    #[arg(long, default_value_t = 3)]
    runs: u32,
    /// Tools to compare: ropeway, ropeway-smbd, rsync, rclone, smbclient
    #[arg(
        long,
        value_delimiter = ',',
        value_enum,
        default_value = "ropeway,rsync,ropeway-smbd,rclone,smbclient"
    )]
    clients: Vec<Tool>,
    /// Seconds after which a run is ended; the tool is left out from there
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    limit: u64,
    /// Measure this build of ropeway
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Do not touch docs/benchmarks.md
    #[arg(long)]
    no_write: bool,
    /// A fiftieth of the files, one round: shows that it works, not how fast
    #[arg(long)]
    quick: bool,
}

/// A client with its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Tool {
    Ropeway,
    RopewaySmbd,
    Rsync,
    Rclone,
    Smbclient,
}

impl Tool {
    fn title(self) -> &'static str {
        match self {
            Self::Ropeway => "ropeway, `ropeway serve`",
            Self::RopewaySmbd => "ropeway, smbd",
            Self::Rsync => "rsync -a, rsync daemon",
            Self::Rclone => "rclone (32 transfers), smbd",
            Self::Smbclient => "smbclient, smbd",
        }
    }

    fn steps(self) -> &'static [Step] {
        match self {
            // It has no command that leaves out what is there.
            Self::Smbclient => &[Step::Up, Step::Down],
            _ => &[Step::Up, Step::UpAgain, Step::Down, Step::DownAgain],
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Up,
    UpAgain,
    Down,
    DownAgain,
}

const STEPS: [Step; 4] = [Step::Up, Step::UpAgain, Step::Down, Step::DownAgain];

impl Step {
    fn is_up(self) -> bool {
        matches!(self, Self::Up | Self::UpAgain)
    }

    fn is_first(self) -> bool {
        matches!(self, Self::Up | Self::Down)
    }
}

/// What was measured of a tool.
#[derive(Default)]
struct Row {
    /// Seconds of each step.
    seconds: [Vec<f64>; 4],
    /// Most memory that the client had, in MiB.
    peak_mib: f64,
    /// The step that took too long, or (`true`) failed.
    ended: Option<(Step, bool)>,
}

/// The link with its servers, and the folders.
struct Ground {
    servers: Servers,
    link: Link,
    ropeway: PathBuf,
    limit: Duration,
    place: TempDir,
}

/// The servers at the far end. All serve the same folder.
struct Servers {
    ropeway: Instance,
    smbd: Instance,
    rsyncd: Instance,
}

/// Measures and writes the section.
///
/// # Errors
/// This is not root, a program is missing, a copy is wrong, ropeway fails, or an interrupt came.
pub(super) fn run(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    ensure!(is_root(), "servers at the far end of a line need root");
    let (files, runs) = match arguments.quick {
        true => (arguments.files / 50, 1),
        false => (arguments.files, arguments.runs),
    };
    ensure!(files > 0 && runs > 0, "--files and --runs must be at least 1");
    let ropeway = crate::step::shipped(workspace, arguments.binary.as_deref())?;
    let ground = Ground::new(ropeway, Duration::from_secs(arguments.limit))?;
    check_room(ground.place.path(), files)?;
    println!("making {files} files");
    make_tree(&ground.folder("source"), files)?;
    let mut rows: Vec<(Tool, Row)> = Vec::new();
    rows.extend(arguments.clients.iter().map(|tool| (*tool, Row::default())));
    for round in 0..runs {
        let count = rows.len().max(1);
        for turn in 0..count {
            let (tool, row) = &mut rows[(turn + round as usize) % count];
            if row.ended.is_none() {
                ground.round(*tool, row)?;
            }
        }
    }
    let text = section(&rows, files, arguments.limit);
    println!("\n{text}");
    if arguments.quick || arguments.no_write || arguments.binary.is_some() {
        println!("docs/benchmarks.md is not changed: it was a trial, or --binary was given");
        return Ok(());
    }
    tables::write(workspace, &format!("bench many {files}"), &text)
}

/// Checks that a file system in memory may have as many files as three trees have: a tmpfs has a bound.
fn check_room(folder: &Path, files: u32) -> Result<()> {
    let free = rustix::fs::statvfs(folder)?.f_favail;
    let needed = 3 * (u64::from(files) + u64::from(files.div_ceil(FOLDER_FILES))) + 1000;
    ensure!(
        free >= needed,
        "/dev/shm may have {free} more files and folders, and {needed} are needed: \
         `mount -o remount,nr_inodes={} /dev/shm`",
        needed.next_multiple_of(1_000_000) * 2
    );
    Ok(())
}

/// Makes files of 0 to 49 bytes, 1,000 in each folder.
fn make_tree(root: &Path, files: u32) -> Result<()> {
    let mut content = [0; SIZE_MAX];
    for number in 0..files {
        let folder = root.join(format!("d{:04}", number / FOLDER_FILES));
        if number % FOLDER_FILES == 0 {
            fs::create_dir_all(&folder)?;
        }
        let mut random = fastrand::Rng::with_seed(u64::from(number));
        random.fill(&mut content);
        let size = random.usize(..=SIZE_MAX);
        fs::write(folder.join(format!("file{number}.txt")), &content[..size])?;
    }
    Ok(())
}

impl Ground {
    fn new(ropeway: PathBuf, limit: Duration) -> Result<Self> {
        let place = tempfile::Builder::new()
            .prefix("ropeway-bench-many-")
            .tempdir_in("/dev/shm")
            .context("there is no /dev/shm to measure in")?;
        let mut spec = LinkSpec::new(RTT, Some(RATE));
        spec.tcp.buffer_max_bytes = Some(BUFFER);
        let link = Link::start(spec)?;
        let served = place.path().join("served");
        for name in ["source", "served", "home"] {
            fs::create_dir(place.path().join(name))?;
        }
        let far = || Some((link.far_netns_path(), link.far_addr()));
        let servers = Servers {
            ropeway: RopewayServe::new(&ropeway)
                .user(USER, PASSWORD)
                .share(SHARE, &served)
                .in_namespace(far())
                .start()?,
            smbd: Smbd::builder()
                // As by default, where shares are not only for SMB.
                .durable_handles(false)
                .log_level(0)
                .user(USER, PASSWORD)
                .share(Share::new(SHARE, &served))
                .in_namespace(far())
                .start()?
                .into(),
            rsyncd: Rsyncd::new().module(SHARE, &served).in_namespace(far()).start()?,
        };
        Ok(Self {
            servers,
            link,
            ropeway,
            limit,
            place,
        })
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// All steps of a tool.
    fn round(&self, tool: Tool, row: &mut Row) -> Result<()> {
        for step in tool.steps() {
            check_interrupt()?;
            let measured = self.step(tool, *step, row).and_then(|seconds| {
                if seconds.is_some() && step.is_first() {
                    self.compare(tool, *step)?;
                }
                Ok(seconds)
            });
            let shown = format!("  {:28} {step:?}", tool.title());
            match measured {
                Ok(Some(seconds)) => {
                    println!("{shown}: {seconds:.2} s");
                    row.seconds[*step as usize].push(seconds);
                    continue;
                }
                Ok(None) => {
                    println!("{shown}: ended");
                    row.ended = Some((*step, false));
                }
                Err(error) if matches!(tool, Tool::Ropeway | Tool::RopewaySmbd) => return Err(error),
                Err(error) => {
                    check_interrupt()?;
                    println!("{shown}: {error:#}");
                    row.ended = Some((*step, true));
                }
            }
            break;
        }
        let copies = [self.folder("served").join(COPY), self.folder("back")];
        copies.iter().try_for_each(|copy| remove(copy))
    }

    /// Runs one step. Returns its seconds; `None` if it took too long.
    fn step(&self, tool: Tool, step: Step, row: &mut Row) -> Result<Option<f64>> {
        let mut command = self.command(tool, step)?;
        let log = self.folder("log");
        let out = fs::File::create(&log)?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        command.process_group(0);
        let begun = Instant::now();
        let mut child = self.link.spawn(Side::Near, &mut command)?;
        let status = wait_and_look(&mut child, self.limit, |id| {
            let peak = procfs::peak_bytes(id) as f64 / f64::from(1 << 20);
            row.peak_mib = row.peak_mib.max(peak);
        })?;
        let seconds = begun.elapsed().as_secs_f64();
        let Some(status) = status else {
            return Ok(None);
        };
        ensure!(
            status.success(),
            "{} failed at {step:?}: {}",
            tool.title(),
            tail(&log, 10)
        );
        Ok(Some(seconds))
    }

    fn command(&self, tool: Tool, step: Step) -> Result<Command> {
        let home = self.folder("home");
        let (near, place) = (self.near(step), format!("{SHARE}/{COPY}"));
        let server = match tool {
            Tool::Ropeway => &self.servers.ropeway,
            Tool::Rsync => &self.servers.rsyncd,
            Tool::RopewaySmbd | Tool::Rclone | Tool::Smbclient => &self.servers.smbd,
        };
        let remote = Remote {
            address: server.address(),
            user: USER,
            password: PASSWORD,
            scratch: &home,
        };
        let found = |name: &str| find_program(name).with_context(|| format!("{name} is missing"));
        let ends = |mut command: Command, near: PathBuf, far: String| {
            match step.is_up() {
                true => command.arg(near).arg(far),
                false => command.arg(far).arg(near),
            };
            command
        };
        Ok(match tool {
            Tool::Ropeway | Tool::RopewaySmbd => {
                let mut command = procfs::clean(&self.ropeway, &home);
                command.env("ROPEWAY_PASSWORD", PASSWORD);
                match step.is_first() {
                    true => command.args(["copy", "-T", "--no-progress"]),
                    false => command.args(["mirror", "--yes", "--no-progress"]),
                };
                ends(command, near, remote.url(&place))
            }
            Tool::Rsync => {
                let mut command = remote.rsync(&found("rsync")?);
                command.arg("-a");
                if !step.is_first() {
                    command.arg("--delete");
                }
                ends(command, near.join(""), remote.rsync_url(&format!("{place}/")))
            }
            Tool::Rclone => {
                let mut command = remote.rclone(&found("rclone")?)?;
                command.args(["sync", "--transfers", "32", "--checkers", "32"]);
                ends(command, near, format!(":smb:{place}"))
            }
            Tool::Smbclient => {
                let mut command = remote.smbclient(&found("smbclient")?, SHARE)?;
                command.arg("-c").arg(match step.is_up() {
                    true => smbclient_put(&near, COPY),
                    false => {
                        fs::create_dir_all(&near)?;
                        smbclient_get(COPY, &near)
                    }
                });
                command
            }
        })
    }

    /// Returns the near end of a step.
    fn near(&self, step: Step) -> PathBuf {
        match step.is_up() {
            true => self.folder("source"),
            false => self.folder("back"),
        }
    }

    /// Compares what a first copy made with the source.
    fn compare(&self, tool: Tool, step: Step) -> Result<()> {
        let copy = match step.is_up() {
            true => self.folder("served").join(COPY),
            false => self.near(step),
        };
        let output = Command::new("diff")
            .arg("-rq")
            .args([self.folder("source"), copy])
            .output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let first = said.lines().next().unwrap_or_default();
            bail!("{} copied wrongly at {step:?}: {first}", tool.title());
        }
        Ok(())
    }
}

/// Removes a copy. A server whose client was ended may write for a moment.
fn remove(copy: &Path) -> Result<()> {
    for _ in 0..20 {
        match fs::remove_dir_all(copy) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            _ => std::thread::sleep(Duration::from_millis(100)),
        }
    }
    bail!("{} cannot be removed", copy.display())
}

fn section(rows: &[(Tool, Row)], files: u32, limit: u64) -> String {
    let mut text = format!(
        "## Very many small files over a WAN: {files}\n\n{}",
        machine_line("cargo xtask bench many")
    );
    let _ = write!(
        text,
        "\n{files} files of 0 to {SIZE_MAX} bytes, {FOLDER_FILES} in each folder, over {} Mbit/s and {} ms; all folders in memory, both ends and the link \
         on this machine. Seconds of the whole command, median (min-max) of interleaved runs; each copy was compared with `diff -r`. *Again*: nothing has \
         changed (`mirror`, `rsync --delete`, `rclone sync`). *Peak*: the most memory of the client's first process.\n\n\
         | client, server | up | again | down | again | peak MiB |\n|---|--:|--:|--:|--:|--:|\n",
        RATE.0 / 1_000_000,
        RTT.as_millis()
    );
    for (tool, row) in rows {
        let cell = |step: Step| match row.ended {
            Some((ended, false)) if ended == step => format!("> {limit}"),
            Some((ended, true)) if ended == step => "failed".to_owned(),
            _ => tables::spread(Median::of(row.seconds[step as usize].clone()), 1),
        };
        let _ = writeln!(
            text,
            "| {} | {} | {:.0} |",
            tool.title(),
            STEPS.map(cell).join(" | "),
            row.peak_mib
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_names_what_was_ended_and_what_is_missing() {
        let rsync = Row {
            seconds: [vec![8.0, 7.0, 9.0], vec![11.0], vec![], vec![]],
            peak_mib: 12.4,
            ended: Some((Step::Down, false)),
        };
        let text = section(&[(Tool::Rsync, rsync)], 2000, 300);
        let row = text.lines().last().unwrap();
        assert_eq!(
            row,
            "| rsync -a, rsync daemon | 8.0 (7.0-9.0) | 11.0 | > 300 | - | 12 |"
        );
    }

    #[test]
    fn a_tree_has_its_files_in_folders_of_a_thousand() {
        let folder = tempfile::tempdir().unwrap();
        make_tree(folder.path(), 1_001).unwrap();
        assert_eq!(fs::read_dir(folder.path().join("d0000")).unwrap().count(), 1000);
        assert_eq!(fs::read_dir(folder.path().join("d0001")).unwrap().count(), 1);
    }
}
