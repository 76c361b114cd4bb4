//! The `test` step: builds all test programs at once, runs several side by side, and sums what they say.
//!
//! Each program's whole output is kept in `target/ci/tests`; a line per program is printed, and the output of what failed.
//! A test that lacks something (root, a file system, a program) returns early after printing a line that begins with
//! `skipped:`; those lines are listed at the end.
//!
//! A test that fails beside others is run again alone. If it passes [`REPEATS`] times it is *unsteady*: the summary names
//! it, and more than [`UNSTEADY_MAX`] of them fail the step. The machine may be busy; a fault that shows once in many runs
//! is a fault all the same, and its output is printed.

mod program;
mod report;
mod run;

use std::time::Duration;

use anyhow::{Result, bail};

use self::program::Program;
use self::run::Ran;
use crate::ci::Outcome;
use crate::process::run as run_command;
use crate::tools;
use crate::workspace::Workspace;

/// How often a test that failed beside others must pass alone.
const REPEATS: u32 = 3;
/// Tests that may be unsteady in one run of the step.
const UNSTEADY_MAX: usize = 2;
/// Tests and programs whose time is printed.
const SLOWEST: usize = 20;

/// What selects packages and features, for each call of cargo that builds tests: with others it would build all anew. On
/// are the features that need nothing but what is installed.
pub(crate) fn selection() -> Vec<String> {
    let mut features = vec!["ropeway-smb-server/fuzzing"];
    if tools::kerberos_links() {
        features.push("ropeway-cli/kerberos");
    }
    vec![
        "--workspace".to_owned(),
        "--features".to_owned(),
        features.join(","),
    ]
}

/// Runs all tests to their end, whatever fails; calls `built` once nothing is left to compile.
///
/// # Errors
/// If a test fails or does not compile.
pub(crate) fn run(workspace: &Workspace, built: &dyn Fn() -> Result<()>) -> Result<Outcome> {
    let begun = std::time::Instant::now();
    let programs = program::build(workspace)?;
    println!(
        "built {} programs in {:.0} s",
        programs.len(),
        begun.elapsed().as_secs_f64()
    );
    run_command(workspace.cargo(["test", "--doc", "--quiet"]).args(selection()))?;
    built()?;
    let ran = run::all(workspace, programs)?;
    print_slowest(&ran);
    let unsteady = judge(&ran)?;
    let mut left_out: Vec<String> = ran.iter().flat_map(|one| one.report.skipped.clone()).collect();
    left_out.extend(tools::missing_kerberos());
    left_out.extend(unsteady.iter().map(|name| format!("unsteady: {name}")));
    Ok(Outcome {
        note: note(&ran, unsteady.len()),
        skipped: false,
        left_out,
    })
}

/// Runs what failed again, alone, if it is little; gives the names of the unsteady ones.
fn judge(ran: &[Ran]) -> Result<Vec<String>> {
    let failed: Vec<(&Program, &str)> = ran
        .iter()
        .flat_map(|one| {
            one.report
                .failures
                .iter()
                .map(|failure| (&one.program, failure.test.as_str()))
        })
        .collect();
    let mut unsteady = Vec::new();
    let mut broken: Vec<String> = ran
        .iter()
        .filter(|one| one.ended_early())
        .map(|one| format!("{} ended early", one.program.name))
        .collect();
    let are_few = failed.len() <= UNSTEADY_MAX;
    for (program, test) in failed {
        let name = format!("{} {test}", program.name);
        let passes = are_few && {
            println!("again, alone: {name}");
            (0..REPEATS).all(|_| run::one_test(program, test))
        };
        if passes { &mut unsteady } else { &mut broken }.push(name);
    }
    if !broken.is_empty() {
        bail!(
            "tests failed ({}): {}",
            note(ran, unsteady.len()),
            broken.join(", ")
        );
    }
    Ok(unsteady)
}

fn note(ran: &[Ran], unsteady: usize) -> String {
    let sum = |part: fn(&report::Report) -> u64| ran.iter().map(|one| part(&one.report)).sum::<u64>();
    format!(
        "{} passed, {} failed ({unsteady} unsteady), {} ignored, {} skipped themselves",
        sum(|report| report.passed),
        sum(|report| report.failed),
        sum(|report| report.ignored),
        ran.iter().map(|one| one.report.skipped.len()).sum::<usize>(),
    )
}

fn print_slowest(ran: &[Ran]) {
    let mut tests: Vec<(Duration, &str, &str)> = ran
        .iter()
        .flat_map(|one| {
            let name = one.program.name.as_str();
            one.report
                .times
                .iter()
                .map(move |(test, took)| (*took, name, test.as_str()))
        })
        .collect();
    tests.sort_by(|one, other| other.cmp(one));
    println!("\nslowest {SLOWEST} tests:");
    for (took, program, test) in tests.iter().take(SLOWEST) {
        println!("  {:>6.1} s  {program} {test}", took.as_secs_f64());
    }
}
