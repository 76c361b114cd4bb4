//! The `test` step: builds all test programs with one call of cargo, runs several at a time, and
//! sums up their results.
//!
//! The whole output of each program is kept in `target/ci/tests`. The step prints a line for each program,
//! and the output of failures. A test that lacks something (root, a file system, a program) prints a line
//! that begins with `skipped:` and returns; the step lists those lines at the end.
//!
//! A failed test runs again alone. If it passes [`REPEATS`] times it is *unsteady*: the summary
//! names it, and more than [`UNSTEADY_MAX`] unsteady tests fail the step. A busy machine may be the
//! cause, or a rare fault, so the output of the failure is printed.

mod program;
mod report;
mod run;

use std::time::Duration;

use anyhow::{Result, bail};

use self::program::Program;
use self::run::Ran;
use crate::process::run as run_command;
use crate::step::Outcome;
use crate::tools;
use crate::workspace::Workspace;

/// Number of times that a failed test must pass alone.
const REPEATS: u32 = 3;
/// Largest number of unsteady tests in one run of the step: some 0.15 % of them, since a machine that is
/// shared with others stands still for seconds now and then.
const UNSTEADY_MAX: usize = 5;
/// Number of slowest tests and programs that are printed.
const SLOWEST: usize = 20;

/// Returns the selection of packages and features for every call of cargo that builds tests; another
/// selection would build everything anew. It has the features whose libraries are installed.
pub(crate) fn selection() -> Vec<String> {
    let mut features = vec!["ropeway-smb-server/fuzzing", "ropeway-cli/nats"];
    if tools::kerberos_links() {
        features.push("ropeway-cli/kerberos");
    }
    vec![
        "--workspace".to_owned(),
        "--features".to_owned(),
        features.join(","),
    ]
}

/// Runs all tests, also after a failure. Calls `built` when everything is compiled.
///
/// # Errors
/// A test fails or does not compile.
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

/// Runs failed tests again, alone, if they are few. Returns the names of the unsteady ones.
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
            println!("runs again, alone: {name}");
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
