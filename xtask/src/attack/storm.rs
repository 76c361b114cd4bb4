//! `cargo xtask attack server` and `attack client`: hostile requests and hostile replies.
//!
//! The *cases* are tests: `crates/smb-server/tests/hard` (a raw client against our server) and
//! `crates/smb-client/tests/played` (a scripted server against our client). The *storm*
//! (`crates/smb-server/tests/storm`) creates sessions by seed and knows their keys. It changes
//! requests or replies before they are signed, compressed and sealed, so that they reach the code
//! behind signature and encryption. Its files are on a small volume in memory, since a hostile
//! client may ask for any size.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::process::{capture, run as run_command};
use crate::tests;
use crate::workspace::Workspace;

/// Which end is attacked.
#[derive(Clone, Debug, clap::Subcommand)]
pub(crate) enum Side {
    /// Attack `ropeway serve`'s server with hostile requests: the cases, then a storm of frames by seed
    Server(Arguments),
    /// Attack the SMB client with hostile replies: the cases, then a storm of frames by seed
    Client(Arguments),
}

/// Options of both attacks.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Seed of all sessions
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Frames that must reach the code behind signature and encryption
    #[arg(long, default_value_t = 200_000)]
    frames: u64,
    /// First session, to play one again (with `--frames 1` and `--threads 1`, only that one)
    #[arg(long, default_value_t = 0)]
    session: u64,
    /// Sessions at the same time, at most 8
    #[arg(long, default_value_t = 2)]
    threads: u64,
    /// Begin no further session after this number of seconds
    #[arg(long)]
    seconds: Option<u64>,
    /// Leave out the cases
    #[arg(long)]
    no_cases: bool,
}

/// Bytes of the volume that a storm works on.
const VOLUME: &str = "size=256m";
/// Frames of each storm in the CI step, from seed 1 on, and the seconds it may take on a slow machine.
const QUICK: (u64, u64) = (100_000, 50);

/// Tests of one test program, by their modules. No other program has its name.
struct Cases {
    test: &'static str,
    /// The modules to run; empty for all.
    only: &'static [&'static str],
}

const SERVER_CASES: &[Cases] = &[Cases {
    test: "hard",
    only: &[],
}];

const CLIENT_CASES: &[Cases] = &[
    Cases {
        test: "smb_client_tests",
        only: &["played"],
    },
    Cases {
        test: "client",
        only: &["hostile", "downgrade"],
    },
];

impl Cases {
    /// Returns the command that builds and runs the test program with these arguments.
    fn command(&self, workspace: &Workspace, arguments: &[&str]) -> Command {
        let mut command = workspace.cargo(["test"]);
        command.args(tests::selection());
        command.args(["--test", self.test, "--"]).args(arguments);
        command
    }

    /// Returns the modules to run: by default those with a test that is not ignored.
    fn groups(&self, workspace: &Workspace) -> Result<BTreeSet<String>> {
        if !self.only.is_empty() {
            return Ok(self.only.iter().map(ToString::to_string).collect());
        }
        let list = |arguments: &[&str]| capture(&mut self.command(workspace, arguments));
        let (all, ignored) = (list(&["--list"])?, list(&["--list", "--ignored"])?);
        let ignored: BTreeSet<&str> = ignored.lines().collect();
        Ok(all
            .lines()
            .filter(|line| line.ends_with(": test") && !ignored.contains(line))
            .filter_map(|line| Some(line.split_once("::")?.0.to_owned()))
            .collect())
    }
}

impl Side {
    fn name(&self) -> &'static str {
        match self {
            Self::Server(_) => "server",
            Self::Client(_) => "client",
        }
    }

    fn arguments(&self) -> &Arguments {
        match self {
            Self::Server(arguments) | Self::Client(arguments) => arguments,
        }
    }
}

/// Runs cases and storm of one end, inside its own mount namespace.
///
/// # Errors
/// The first failed case, or the fault that the storm found, with its seed.
pub(super) fn run(workspace: &Workspace, side: &Side) -> Result<()> {
    let mut table = Vec::new();
    if !side.arguments().no_cases {
        let cases = match side {
            Side::Server(_) => SERVER_CASES,
            Side::Client(_) => CLIENT_CASES,
        };
        for cases in cases {
            for group in cases.groups(workspace)? {
                table.push(one_group(workspace, cases, &group)?);
            }
        }
    }
    let begun = Instant::now();
    storm(workspace, side)?;
    println!("\n{:32} {:>7} {:>9}  result", "group", "number", "seconds");
    for (name, number, seconds) in table {
        println!("{name:32} {number:>7} {seconds:>9.1}  passed");
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!("{:32} {:>7} {seconds:>9.1}  passed, frames above", "storm", "");
    Ok(())
}

/// Runs both storms for a short time; their cases are part of the tests.
///
/// # Errors
/// The fault that a storm found, with its seed.
pub(super) fn quick(workspace: &Workspace) -> Result<()> {
    let arguments = Arguments {
        seed: 1,
        frames: QUICK.0,
        session: 0,
        threads: 2,
        seconds: Some(QUICK.1),
        no_cases: true,
    };
    storm(workspace, &Side::Server(arguments.clone()))?;
    let threads = 6;
    storm(workspace, &Side::Client(Arguments { threads, ..arguments }))
}

fn one_group(workspace: &Workspace, cases: &Cases, group: &str) -> Result<(String, u64, f64)> {
    let begun = Instant::now();
    let prefix = format!("{group}::");
    let mut command = cases.command(workspace, &[&prefix]);
    let text = capture(&mut command).with_context(|| format!("cases {} {group}", cases.test))?;
    let number = text
        .lines()
        .find_map(|line| {
            line.strip_prefix("test result: ok. ")?
                .split(' ')
                .next()?
                .parse()
                .ok()
        })
        .unwrap_or(0);
    ensure!(number > 0, "there are no cases in {} {group}", cases.test);
    let name = format!("{} {group}", cases.test);
    println!("{name}: {number} passed");
    Ok((name, number, begun.elapsed().as_secs_f64()))
}

fn storm(workspace: &Workspace, side: &Side) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("ropeway-storm-").tempdir()?;
    let mut mount = Command::new("mount");
    mount
        .args(["-t", "tmpfs", "-o", VOLUME, "tmpfs"])
        .arg(folder.path());
    run_command(&mut mount)?;
    let outcome = play(workspace, side, folder.path());
    run_command(Command::new("umount").arg(folder.path()))?;
    outcome
}

fn play(workspace: &Workspace, side: &Side, folder: &Path) -> Result<()> {
    let arguments = side.arguments();
    let seconds = arguments.seconds.unwrap_or(u64::MAX);
    let mut command = workspace.cargo(["test"]);
    command.args(tests::selection()).args(["--test", "storm", "--"]);
    command.arg(side.name()).arg("--folder").arg(folder);
    for (option, value) in [
        ("--seed", arguments.seed),
        ("--frames", arguments.frames),
        ("--session", arguments.session),
        ("--threads", arguments.threads),
        ("--seconds", seconds),
    ] {
        command.args([option, &value.to_string()]);
    }
    run_command(&mut command).context("the storm found a fault; its seed and session are above")
}
