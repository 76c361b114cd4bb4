//! `cargo xtask conformance`: smbtorture's suites for SMB 2 and 3 against `ropeway serve`.
//!
//! A private server on the loopback interface serves one folder in memory, another one for each
//! suite. After the suite it must still run, must not have panicked, and must answer our client.
//! Otherwise the fault is reported, and the command fails at its end.
//!
//! `xtask/conformance/results.tsv` keeps the passed tests. The step `conformance` of `ci` runs the quick
//! suites and fails if a test that is kept as passed does not pass.

mod needs;
mod report;
mod results;
mod samba;
mod smb1;
mod torture;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ropeway_lab::run::empty;
use ropeway_peers::{Instance, RopewayServe, Share, Smbd};

use self::needs::Needs;
use self::results::{Results, Row, Sum};
use self::samba::{Program, Samba};
use self::torture::{Run, Torture, bounded};
use crate::process::catch_interrupts;
use crate::step::{self, Outcome as StepOutcome};
use crate::tools;
use crate::workspace::Workspace;

/// Suites of `ci`: they take seconds and cover what clients use most.
const QUICK: &[&str] = &[
    "connect",
    "read",
    "rw",
    "create",
    "dir",
    "compound",
    "compound_find",
    "lock",
    "setinfo",
    "getinfo",
    "mkdir",
    "rename",
    "tcon",
    "credits",
    "deny",
    "fileid",
    "ioctl",
    "durable-open",
    "durable-v2-open",
];
/// Time limit of a suite in `ci`.
const QUICK_LIMIT: Duration = Duration::from_secs(45);
/// Default time limit of a suite. Most take seconds; `lease` and `oplock` take two to four minutes,
/// since they wait 35 s for each break that no client acknowledges.
const LIMIT_SECONDS: u64 = 300;
/// Time limit of the server for a listing. A guess; it takes milliseconds.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// Login and share of the private server.
const USER: &str = "torture";
/// See [`USER`].
const PASSWORD: &str = "T0rture-by-night";
/// See [`USER`].
const SHARE: &str = "share";

/// Options of `conformance`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only these suites (`lock` or `smb2.lock`) [default: all]
    #[arg(value_name = "SUITE")]
    suites: Vec<String>,
    /// End a suite that takes longer
    #[arg(long, value_name = "SECONDS", default_value_t = LIMIT_SECONDS)]
    limit: u64,
    /// Change neither docs/conformance.md nor the kept results
    #[arg(long)]
    no_write: bool,
    /// Run smbtorture of this version of Samba; 4.25 is unpacked from Debian's unstable suite
    #[arg(long, value_name = "VERSION", value_enum, default_value_t)]
    samba: Samba,
    /// Run the suites for SMB 1 instead, against `serve --smb1` and smbd [takes about half an hour]
    #[arg(long, conflicts_with = "samba")]
    smb1: bool,
    /// Test this build [default: a release build]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// Runs the chosen suites and writes the results.
///
/// # Errors
/// smbtorture is not available, the server crashed or hung, or too few tests pass.
pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    catch_interrupts()?;
    if arguments.smb1 {
        return smb1::run(workspace, arguments);
    }
    let samba = arguments.samba;
    let all = samba.suites();
    let chosen = chosen(&all, &arguments.suites)?;
    let binary = step::ropeway(workspace, arguments.binary.as_deref())?;
    let kept_path = samba.kept_path(workspace);
    let kept = Results::read(&kept_path)?;
    let limit = Duration::from_secs(arguments.limit);
    let program = samba.smbtorture(workspace)?;
    let mut server = TestServer::new(workspace, &binary, program.clone(), limit, Kind::Serve)?;
    let begun = Instant::now();
    let mut results = Results::default();
    for suite in &chosen {
        let ran = server.suite(&format!("smb2.{suite}"))?;
        results.rows.extend(ran.rows);
    }
    let peak = server.peak_kib;
    let faults = server.end();
    print!("{}", report::summary(&results, &kept, &samba.peers()));
    println!(
        "{} suites in {:.0} s; the server's memory reached {} MiB",
        chosen.len(),
        begun.elapsed().as_secs_f64(),
        peak / 1024
    );
    let merged = results.over(&kept, &all);
    if !arguments.no_write {
        fs::write(&kept_path, merged.text())
            .with_context(|| format!("cannot write {}", kept_path.display()))?;
        report::write(
            workspace,
            samba,
            &merged,
            &report::environment(&program.version()?),
        )?;
    }
    ensure!(
        faults.is_empty(),
        "THE SERVER CRASHED OR HUNG:\n  {}\n(outputs of the suites: {})",
        faults.join("\n  "),
        workspace.short(&logs(workspace)).display()
    );
    let pass = Sum::of(&results.rows).pass;
    ensure!(
        chosen.len() < all.len() || pass >= samba.pass_min(),
        "{pass} tests pass, at least {} must",
        samba.pass_min()
    );
    Ok(())
}

/// Runs the quick suites as a step of `ci`. Tests that are kept as passed must pass.
///
/// # Errors
/// The server crashed or hung, or a kept test does not pass.
pub(crate) fn step(workspace: &Workspace) -> Result<StepOutcome> {
    if let Err(missing) = tools::require("smbtorture") {
        return Ok(StepOutcome::skipped(format!("{missing:#}")));
    }
    step::build(workspace)?;
    quick(workspace, &workspace.ropeway())
}

fn quick(workspace: &Workspace, binary: &Path) -> Result<StepOutcome> {
    let samba = Samba::default();
    let kept = Results::read(&samba.kept_path(workspace))?;
    let program = samba.smbtorture(workspace)?;
    let mut server = TestServer::new(workspace, binary, program, QUICK_LIMIT, Kind::Serve)?;
    let mut results = Results::default();
    for suite in QUICK {
        let suite = format!("smb2.{suite}");
        let ran = server.suite(&suite)?;
        let mut first = Results { rows: ran.rows };
        if !first.lost(&kept).is_empty() {
            println!(
                "  a test that passed before failed; the suite runs again, since a busy machine misses deadlines of some tests"
            );
            first = better(first, server.suite(&suite)?.rows);
        }
        results.rows.extend(first.rows);
    }
    let faults = server.end();
    ensure!(
        faults.is_empty(),
        "the server crashed or hung: {}",
        faults.join("; ")
    );
    let lost: Vec<&str> = results.lost(&kept).iter().map(|row| row.test.as_str()).collect();
    ensure!(
        lost.is_empty(),
        "tests that passed before fail: {}; `cargo xtask conformance SUITE` runs one suite",
        lost.join(", ")
    );
    let won = results.won(&kept).len();
    let more = match won {
        0 => String::new(),
        won => format!("; {won} of them are not kept as passed yet"),
    };
    Ok(StepOutcome::passed(format!(
        "{} of {} tests of {} suites pass{more}",
        Sum::of(&results.rows).pass,
        results.rows.len(),
        QUICK.len()
    )))
}

/// Returns the better outcome of each test from two runs of a suite.
fn better(mut first: Results, second: Vec<Row>) -> Results {
    for row in second {
        match first.rows.iter_mut().find(|old| old.test == row.test) {
            Some(old) => old.outcome = old.outcome.min(row.outcome),
            None => first.rows.push(row),
        }
    }
    first
}

/// Returns the chosen suites, in the order of the list and without `smb2.`.
fn chosen(all: &[String], wanted: &[String]) -> Result<Vec<String>> {
    let short = |name: &str| name.strip_prefix("smb2.").unwrap_or(name).to_owned();
    let wanted: Vec<String> = wanted.iter().map(|name| short(name)).collect();
    let all: Vec<String> = all.iter().map(|name| short(name)).collect();
    for name in &wanted {
        ensure!(
            all.contains(name),
            "no suite is called `{name}`; there are {}",
            all.join(", ")
        );
    }
    Ok(all
        .into_iter()
        .filter(|name| wanted.is_empty() || wanted.contains(name))
        .collect())
}

fn logs(workspace: &Workspace) -> PathBuf {
    workspace.target().join("conformance")
}

/// What is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `ropeway serve`, by SMB 2 and 3.
    Serve,
    /// `ropeway serve --smb1`, by SMB 1.
    ServeSmb1,
    /// smbd with SMB 1, by SMB 1.
    SmbdSmb1,
}

/// The server under test, and the program that tests it.
#[derive(Debug)]
struct TestServer {
    kind: Kind,
    smbtorture: Program,
    binary: PathBuf,
    logs: PathBuf,
    limit: Duration,
    server: Option<Instance>,
    /// Bytes of the server's log that were checked.
    log_seen: usize,
    /// Faults of the server's process.
    faults: Vec<String>,
    /// Peak memory of a server.
    peak_kib: u64,
    /// Dropped after the server.
    folder: tempfile::TempDir,
}

impl TestServer {
    fn new(
        workspace: &Workspace,
        binary: &Path,
        smbtorture: Program,
        limit: Duration,
        kind: Kind,
    ) -> Result<Self> {
        let logs = logs(workspace);
        fs::create_dir_all(&logs).with_context(|| format!("cannot make {}", logs.display()))?;
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() {
            memory.to_owned()
        } else {
            std::env::temp_dir()
        };
        let folder = tempfile::Builder::new()
            .prefix("ropeway-conformance-")
            .tempdir_in(parent)?;
        for name in ["share", "scratch"] {
            fs::create_dir(folder.path().join(name))?;
        }
        let server = Self {
            kind,
            smbtorture,
            binary: binary.to_owned(),
            logs: logs.canonicalize()?,
            limit,
            server: None,
            log_seen: 0,
            faults: Vec::new(),
            peak_kib: 0,
            folder,
        };
        Ok(server)
    }

    fn start(&mut self, needs: &Needs) -> Result<()> {
        let scratch = self.folder.path().join("scratch");
        let share = self.folder.path().join("share");
        if let Some(snapshot) = needs.snapshot {
            for folder in [share.clone(), scratch.join("snapshots").join(snapshot)] {
                let below = folder.join("subdir");
                fs::create_dir_all(&below)?;
                let file = folder.join(needs::FILE);
                fs::write(&file, [1; 4096])?;
                // What twrp.listdir looks for, and nothing else.
                _ = fs::hard_link(&file, below.join("hardlink"));
            }
        }
        let snapshots = format!(
            "{SHARE}={}:snapshots={}",
            share.display(),
            scratch.join("snapshots").display()
        );
        let serve = || {
            let serve = RopewayServe::new(&self.binary)
                .user(USER, PASSWORD)
                .flags(needs.flags)
                .below(&scratch)
                .log_to(&scratch.join("server.log"));
            match (needs.snapshot, needs.available) {
                (Some(_), _) => serve.flags(&[&snapshots]),
                (None, Some(more)) => {
                    let named = |name: &str, option: &str| format!("{name}={}{option}", share.display());
                    let option = |name: &str| if name.starts_with("ca") { ":ca" } else { "" };
                    let more = more.iter().map(|name| named(name, option(name)));
                    let all: Vec<_> = std::iter::once(named(SHARE, ":ca")).chain(more).collect();
                    serve.flags(&all.iter().map(String::as_str).collect::<Vec<_>>())
                }
                (None, None) => serve.share(SHARE, &share),
            }
        };
        let smbd = || {
            Smbd::builder()
                .smb1()
                .user(USER, PASSWORD)
                .share(Share::new(SHARE, &share))
        };
        self.server = Some(match self.kind {
            Kind::Serve => serve().start()?,
            Kind::ServeSmb1 => serve().flags(&["--smb1"]).start()?,
            Kind::SmbdSmb1 => smbd().below(&scratch).start()?.into(),
        });
        Ok(())
    }

    /// Runs a suite, checks the server, and empties the folder.
    fn suite(&mut self, suite: &str) -> Result<Run> {
        // Some suites send wrong passwords, after which `serve` answers logins slowly.
        self.server = None;
        let needs = Needs::of(suite);
        self.start(&needs)?;
        if needs.file {
            fs::write(self.folder.path().join("share").join(needs::FILE), [1; 65_536])?;
        }
        let server = self.server.as_ref().context("there is no server")?;
        let torture = Torture {
            program: &self.smbtorture,
            logs: &self.logs,
            folder: &self.folder.path().join("share"),
            limit: self.limit.max(Duration::from_secs(needs.seconds)),
            smb1: self.kind != Kind::Serve,
            options: needs.options,
        };
        let run = torture.run(suite, server)?;
        let sum = Sum::of(&run.rows);
        println!(
            "  {suite:28} {:3} passed {:3} failed {:3} incomplete {:3} skipped {:6.1} s{}",
            sum.pass,
            sum.fail,
            sum.broken,
            sum.skip,
            run.took.as_secs_f64(),
            if run.cut { "  ended at the limit" } else { "" }
        );
        if let Some(fault) = self.fault()? {
            println!("  !!! THE SERVER {fault}");
            self.faults.push(format!("{suite}: the server {fault}"));
        }
        empty(&self.folder.path().join("share")).context("cannot empty the share")?;
        Ok(run)
    }

    /// Returns the fault of the server's process, if there is one.
    fn fault(&mut self) -> Result<Option<String>> {
        let Some(server) = self.server.as_mut() else {
            return Ok(None);
        };
        self.peak_kib = self.peak_kib.max(server.peak_bytes() / 1024);
        let log = server.log();
        let fresh = log.get(self.log_seen..).unwrap_or_default();
        let panic = fresh
            .lines()
            .find(|line| line.contains("panicked at"))
            .map(str::to_owned);
        self.log_seen = log.len();
        fs::write(self.logs.join("server.log"), &log)?;
        if let Some(how) = server.ended() {
            return Ok(Some(format!("ended ({how}) {}", panic.unwrap_or_default())));
        }
        if let Some(panic) = panic {
            return Ok(Some(format!("panicked: {panic}")));
        }
        let mut list = Command::new(&self.binary);
        let output = fs::File::create(self.folder.path().join("scratch/ls.log"))?;
        list.arg("ls")
            .arg(format!("smb://{USER}@{}/{SHARE}", server.address()))
            .env("ROPEWAY_PASSWORD", PASSWORD)
            .stdin(std::process::Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        Ok(match bounded(&mut list, ANSWER_MAX)? {
            None => Some(format!(
                "does not answer: `ropeway ls` took more than {} s",
                ANSWER_MAX.as_secs()
            )),
            Some(status) if !status.success() => Some(format!(
                "gives wrong answers: `ropeway ls` ended with {status}: {}",
                crate::process::tail(&self.folder.path().join("scratch/ls.log"), 3)
            )),
            Some(_) => None,
        })
    }

    /// Stops the server and returns its faults.
    fn end(mut self) -> Vec<String> {
        if let Some(server) = self.server.take()
            && let Err(error) = server.stop()
        {
            self.faults.push(format!("at the end: {error}"));
        }
        self.faults
    }
}

#[cfg(test)]
mod tests {
    use super::results::Outcome;
    use super::*;

    #[test]
    fn suites_are_chosen_by_either_name() {
        let all = Samba::default().suites();
        assert!(all.len() > 50 && QUICK.iter().all(|name| all.contains(&format!("smb2.{name}"))));
        let wanted = ["smb2.lock", "read"].map(str::to_owned);
        assert_eq!(
            chosen(&all, &wanted).unwrap(),
            ["lock", "read"].map(str::to_owned).as_slice()
        );
        assert_eq!(chosen(&all, &[]).unwrap().len(), all.len());
        assert!(chosen(&all, &["lcok".to_owned()]).is_err());
    }

    #[test]
    fn the_better_of_two_runs_counts() {
        let row = |test, outcome| Row::new("a", test, outcome);
        let first = Results {
            rows: vec![row("1", Outcome::Fail), row("2", Outcome::Pass)],
        };
        let both = better(
            first,
            vec![row("1", Outcome::Pass), row("2", Outcome::Incomplete)],
        );
        assert!(both.rows.iter().all(|row| row.outcome == Outcome::Pass));
    }
}
