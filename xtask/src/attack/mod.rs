//! `cargo xtask attack`: attacks the promises of "When it is safe" in the README.
//!
//! It has two parts. The *cases* are tests of the real binary (`crates/cli/tests/local/attack`); each failed on
//! an earlier version. The *fuzzer* derives a tree, a command line and a series of kills and disturbances
//! from a seed, lets the job finish, and judges the result by its own model:
//!
//! * every file with a final name is one whole version of that file, at any moment;
//! * nothing outside is touched, a move loses nothing, and backups exist;
//! * everything that the last run reported as done survives a power cut right after it;
//! * no temporary name remains, and a second run does nothing.
//!
//! It needs root, for volumes and its own mount namespace.
//!
//! `attack server` and `attack client` attack the two ends of SMB: see [`storm`].

mod judge;
mod plan;
mod rivals;
mod round;
mod run;
mod snapshot;
mod storm;
mod testbed;
mod tree;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum as _;

use self::plan::Plan;
use self::round::{Seen, Usual};
use self::testbed::{Host, Kind};
use crate::process::{catch_interrupts, check_interrupt, find_program, is_root};
use crate::step::Outcome;
use crate::workspace::Workspace;

/// Set in the process that has its own mount namespace.
const INSIDE: &str = "ROPEWAY_ATTACK_INSIDE";
/// Seeds that once found a fault (docs/testing.md). CI always runs them, with all test beds, since
/// the meaning of a seed depends on them.
const KEPT_SEEDS: &[u64] = &[
    120, 154, 188, 193, 259, 312, 327, 466, 576, 1002, 1007, 1036, 1198, 1259, 1344, 10011, 20137, 20189,
    20812, 21407, 20347, 20664, 21525, 21846, 21479, 30771, 31307, 31345, 31578, 31632,
];
/// Further rounds of the CI step, from seed 1 on.
const QUICK_ROUNDS: u64 = 60;
/// Time after which the CI step starts no further round.
const QUICK_LIMIT: Duration = Duration::from_secs(150);
/// Repeats of a failed round of the CI step. Each must pass, since kills strike by the clock.
const QUICK_REPEATS: u32 = 2;

/// Options of `attack`.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    side: Option<storm::Side>,
    /// Rounds of the fuzzer
    #[arg(long, default_value_t = 200)]
    rounds: u64,
    /// First seed; the others follow it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Test beds, separated by commas [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    on: Vec<Kind>,
    /// Another binary than the release build, e.g. an older one
    #[arg(long)]
    program: Option<PathBuf>,
    /// Continue after a failure, and list the seeds that failed
    #[arg(long)]
    keep_going: bool,
    /// Skip the cases
    #[arg(long)]
    no_cases: bool,
    /// Only run some cases with ropeway, rsync and rclone, and print the table
    #[arg(long)]
    rivals: bool,
}

/// Runs cases and fuzzer.
///
/// # Errors
/// The first broken promise, with its seed.
pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    ensure!(is_root(), "needs root: volumes and mounts");
    let is_inside = std::env::var_os(INSIDE).is_some();
    match &arguments.side {
        Some(side) if is_inside => return storm::run(workspace, side),
        None if is_inside && arguments.rivals => {
            let ropeway = program(workspace, arguments).canonicalize()?;
            let table = rivals::table(&ropeway, &workspace.target().join("interop/bin/rclone"))?;
            println!("\n{table}");
            return Ok(());
        }
        None if is_inside => {
            return fuzz(workspace, arguments).map(|report| println!("{}", report.describe()));
        }
        Some(_) => {}
        None => {
            if arguments.program.is_none() {
                crate::step::build(workspace)?;
            }
            if !arguments.no_cases && !arguments.rivals {
                cases(workspace, arguments)?;
            }
        }
    }
    inside(std::env::args_os().skip(1))
}

/// Runs this program with these arguments in its own mount namespace, so that nothing stays
/// mounted.
fn inside(arguments: impl IntoIterator<Item = OsString>) -> Result<()> {
    let unshare = find_program("unshare").context("unshare is missing (util-linux)")?;
    let status = Command::new(unshare)
        .args(["--mount", "--propagation", "private"])
        .arg(std::env::current_exe()?)
        .args(arguments)
        .env(INSIDE, "1")
        .status()?;
    ensure!(status.success(), "the attack failed; the reason is above");
    Ok(())
}

/// Makes a short run as a step of `ci`; the cases are part of its tests.
///
/// # Errors
/// As [`run()`].
pub(crate) fn step(workspace: &Workspace) -> Result<Outcome> {
    if !is_root() {
        return Ok(Outcome::skipped("needs root"));
    }
    crate::step::build(workspace)?;
    inside(["attack-quick".into()])?;
    Ok(Outcome::passed("figures above"))
}

/// Runs the kept seeds and some more, in the mount namespace that [`step`] created.
///
/// # Errors
/// The first broken promise, with its seed.
pub(crate) fn quick(workspace: &Workspace) -> Result<()> {
    ensure!(
        std::env::var_os(INSIDE).is_some(),
        "run `cargo xtask attack` instead"
    );
    let mut session = Session::new(workspace.ropeway(), &[])?;
    let end = Instant::now() + QUICK_LIMIT;
    let seeds = KEPT_SEEDS.iter().copied().chain(1..=QUICK_ROUNDS);
    for seed in seeds.take_while(|_| Instant::now() < end) {
        let Err(error) = session.round(seed) else { continue };
        println!("FAILED {}\n{error:#}\n", error.root_cause());
        for _ in 0..QUICK_REPEATS {
            session.round(seed).context("it failed before, too")?;
        }
        println!("seed {seed} passed {QUICK_REPEATS} times after that");
    }
    println!("{}", session.report.describe());
    storm::quick(workspace)
}

fn cases(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let mut command = workspace.cargo(["test", "-p", "ropeway-cli", "--test", "local", "attack::"]);
    command.env("ROPEWAY_PROGRAM", program(workspace, arguments));
    crate::process::run(&mut command)
}

fn program(workspace: &Workspace, arguments: &Arguments) -> PathBuf {
    arguments.program.clone().unwrap_or_else(|| workspace.ropeway())
}

fn fuzz(workspace: &Workspace, arguments: &Arguments) -> Result<Report> {
    catch_interrupts()?;
    let mut session = Session::new(program(workspace, arguments), &arguments.on)?;
    let mut failed = Vec::new();
    for seed in arguments.seed..arguments.seed + arguments.rounds {
        check_interrupt()?;
        if let Err(error) = session.round(seed) {
            if !arguments.keep_going {
                return Err(error);
            }
            println!("FAILED {}\n{error:#}\n", error.root_cause());
            failed.push(seed);
        }
        if (seed - arguments.seed) % 50 == 49 {
            println!("{}", session.report.describe());
        }
    }
    if !failed.is_empty() {
        println!("{}", session.report.describe());
        bail!(
            "{} of {} rounds failed: {failed:?}",
            failed.len(),
            arguments.rounds
        );
    }
    Ok(session.report)
}

struct Session {
    host: Host,
    program: PathBuf,
    on: Vec<Kind>,
    usual: BTreeMap<Kind, Usual>,
    report: Report,
}

impl Session {
    /// Prepares rounds on some kinds of test beds, or on all if none is given.
    fn new(program: PathBuf, on: &[Kind]) -> Result<Self> {
        ensure!(program.is_file(), "{} is missing", program.display());
        Ok(Self {
            host: Host::new()?,
            program: program.canonicalize()?,
            on: if on.is_empty() { Kind::value_variants() } else { on }.to_vec(),
            usual: BTreeMap::new(),
            report: Report::default(),
        })
    }

    fn round(&mut self, seed: u64) -> Result<()> {
        let plan = Plan::of(seed, &self.on);
        let usual = self.usual.entry(plan.testbed).or_default();
        let seen = round::play(&mut self.host, &plan, &self.program, usual);
        let words = plan.command.words().join(" ");
        let seen = seen.with_context(|| {
            let legs: Vec<String> = plan.legs.iter().map(plan::Leg::describe).collect();
            format!("seed {seed} on {:?}: {words} [{}]", plan.testbed, legs.join("; "))
        })?;
        self.report.add(plan.testbed, &seen);
        Ok(())
    }
}

/// Figures of all rounds.
#[derive(Debug, Default)]
pub(crate) struct Report {
    rounds: BTreeMap<Kind, u64>,
    kills: u64,
    power_cuts: u64,
    in_flight: Vec<u64>,
}

impl Report {
    fn add(&mut self, kind: Kind, seen: &Seen) {
        *self.rounds.entry(kind).or_default() += 1;
        self.kills += seen.kills;
        self.power_cuts += seen.power_cuts;
        self.in_flight.extend(&seen.in_flight);
    }

    fn describe(&self) -> String {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let mut sorted = self.in_flight.clone();
        sorted.sort_unstable();
        let at = |part: usize| sorted.get(sorted.len() * part / 100).copied().map_or(0.0, mib);
        let busy = sorted.iter().filter(|bytes| **bytes > 0).count();
        let rounds: Vec<String> = self
            .rounds
            .iter()
            .map(|(kind, count)| format!("{kind:?} {count}"))
            .collect();
        format!(
            "{} rounds without a failure ({}), {} kills, {} power cuts; in flight at {} timed kills: {busy} above 0, median \
             {:.1}, 90th percentile {:.1}, most {:.1} MiB",
            self.rounds.values().sum::<u64>(),
            rounds.join(", "),
            self.kills,
            self.power_cuts,
            sorted.len(),
            at(50),
            at(90),
            sorted.last().copied().map_or(0.0, mib),
        )
    }
}
