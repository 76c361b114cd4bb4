//! Runs several test programs at a time, the longest first.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::program::Program;
use super::report::Report;
use crate::process::{side_by_side, tail};
use crate::workspace::Workspace;

/// Number of programs that run at a time. They mostly wait for disks, clocks and other programs.
const AT_ONCE: usize = 2;

/// Programs that run first, since they take longest.
const LONG: &[&str] = &[
    "cli attack",
    "cli client_suites",
    "cli share_trees",
    "cli share_big",
    "cli serve_interop",
    "cli power",
    "cache predict",
    "cli resume",
    "smb-server hard",
    "cli bench",
    "cli serve_hard",
    "smb-client tree",
    "smb-proto client",
    "cli top",
    "smb-client store_round_trips",
    "cli share_faults",
    "cli mount_boost_devices",
    "cli mount_suites",
    "cli line",
];

/// Programs that check times on an emulated line, so that they run alone.
const ALONE: &[&str] = &["lab link", "cli lab_run", "cli lab_local"];

/// Result of a program.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) program: Program,
    pub(super) report: Report,
    status: ExitStatus,
    took: Duration,
    log: PathBuf,
}

impl Ran {
    /// Whether it ended without a complete result.
    pub(super) fn ended_early(&self) -> bool {
        !self.report.is_complete || (!self.status.success() && self.report.failures.is_empty())
    }

    fn print(&self) {
        let Report { passed, failed, .. } = self.report;
        let verdict = if self.status.success() { "ok" } else { "FAILED" };
        println!(
            "  {verdict:6} {:>6.1} s {passed:>5} passed {failed:>3} failed  {}",
            self.took.as_secs_f64(),
            self.program.name
        );
        self.report.print_failures();
        if self.ended_early() {
            println!("{}", tail(&self.log, 40));
        }
    }
}

/// Runs all programs.
///
/// # Errors
/// A program cannot be started.
pub(super) fn all(workspace: &Workspace, mut programs: Vec<Program>) -> Result<Vec<Ran>> {
    let logs = workspace.target().join("ci/tests");
    fs::create_dir_all(&logs)?;
    let rank = |program: &Program| {
        LONG.iter()
            .position(|name| *name == program.name)
            .unwrap_or(LONG.len())
    };
    programs.sort_by_key(rank);
    let (alone, beside): (Vec<Program>, Vec<Program>) = programs
        .into_iter()
        .partition(|program| ALONE.contains(&program.name.as_str()));
    let work = |program| run(program, &logs).inspect(Ran::print);
    let mut ran = side_by_side(beside, AT_ONCE, work)?;
    ran.extend(side_by_side(alone, 1, work)?);
    Ok(ran)
}

fn run(program: Program, logs: &Path) -> Result<Ran> {
    let log = logs.join(format!("{}.log", program.name.replace(' ', "-")));
    let output = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let begun = Instant::now();
    let mut command = command(&program);
    if !program.tests.is_empty() {
        command.arg("--exact").args(&program.tests);
    }
    let status = command
        .stderr(output.try_clone()?)
        .stdout(output)
        .status()
        .with_context(|| format!("cannot start {}", program.path.display()))?;
    let text = fs::read(&log)?;
    Ok(Ran {
        report: Report::of(&String::from_utf8_lossy(&text)),
        program,
        status,
        took: begun.elapsed(),
        log,
    })
}

/// Whether a test passes when nothing else runs.
pub(super) fn one_test(program: &Program, test: &str) -> bool {
    let mut command = command(program);
    command
        .args(["--exact", test])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn command(program: &Program) -> Command {
    let mut command = Command::new(&program.path);
    // A stable libtest reports times only with this variable and these flags.
    command.env("RUSTC_BOOTSTRAP", "1");
    command.args(["--show-output", "-Z", "unstable-options", "--report-time"]);
    command.current_dir(&program.folder).stdin(Stdio::null());
    command
}
