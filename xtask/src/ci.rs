//! `cargo xtask ci`: every check in order, each timed; the first failure ends it with its name.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::process::run as run_command;
use crate::workspace::Workspace;
use crate::{attack, conformance, fuzz, layers, size, tests_step, tools};

/// Options of `ci`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Run only these steps (repeat or separate by commas)
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    only: Vec<String>,
    /// Leave these steps out
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    skip: Vec<String>,
    /// List the steps and stop
    #[arg(long)]
    list: bool,
}

/// What a step that did not fail has to say.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// One line for the table.
    pub(crate) note: String,
    /// Whether nothing was checked at all.
    pub(crate) skipped: bool,
    /// What was left out inside the step, and why.
    pub(crate) left_out: Vec<String>,
}

impl Outcome {
    /// All checked.
    pub(crate) fn passed(note: impl Into<String>) -> Self {
        Self {
            note: note.into(),
            ..Self::default()
        }
    }

    /// Nothing to check, for this reason.
    pub(crate) fn skipped(reason: impl Into<String>) -> Self {
        Self {
            note: reason.into(),
            skipped: true,
            ..Self::default()
        }
    }
}

struct Step {
    name: &'static str,
    about: &'static str,
    run: fn(&Workspace) -> Result<Outcome>,
}

/// All steps in order: what is quick to fail comes first.
const STEPS: &[Step] = &[
    Step {
        name: "tools",
        about: "programs that the checks use, installed where allowed",
        run: tools::run,
    },
    Step {
        name: "fmt",
        about: "cargo fmt --check",
        run: format,
    },
    Step {
        name: "layers",
        about: "which crate uses what",
        run: layers::step,
    },
    Step {
        name: "size",
        about: "length of files",
        run: size::run,
    },
    Step {
        name: "clippy",
        about: "lints, warnings and functions above 70 lines denied",
        run: clippy,
    },
    Step {
        name: "test",
        about: "cargo test --workspace, and the feature kerberos",
        run: tests_step::run,
    },
    Step {
        name: "docs",
        about: "cargo doc, warnings denied",
        run: docs,
    },
    Step {
        name: "build",
        about: "release build of the binary",
        run: build,
    },
    Step {
        name: "attack",
        about: "the release binary: kills, changes and power cuts by seed; storms of SMB frames on both ends",
        run: attack::step,
    },
    Step {
        name: "conformance",
        about: "the release binary: quick suites of smbtorture against `ropeway serve`",
        run: conformance::step,
    },
    Step {
        name: "demo",
        about: "the release binary: `ropeway demo` in an empty folder",
        run: demo,
    },
    Step {
        name: "fuzz",
        about: "builds the fuzz targets and runs each for a few seconds",
        run: fuzz::run,
    },
];

/// Runs the chosen steps.
///
/// # Errors
/// If a step is unknown, or the first failure.
pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let steps = choose(&arguments.only, &arguments.skip)?;
    if arguments.list {
        for step in steps {
            println!("{:11} {}", step.name, step.about);
        }
        return Ok(());
    }
    let start = Instant::now();
    let mut done: Vec<(&Step, Outcome, Duration)> = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        println!("\n══ {}/{} {}: {}", index + 1, steps.len(), step.name, step.about);
        let begun = Instant::now();
        match (step.run)(workspace) {
            Ok(outcome) => {
                println!("── {}: {}", step.name, outcome.note);
                done.push((step, outcome, begun.elapsed()));
            }
            Err(error) => {
                println!("── {}: FAILED: {error:#}", step.name);
                print_table(&done);
                println!(
                    "  {:11} FAILED   {:>7.1} s",
                    step.name,
                    begun.elapsed().as_secs_f64()
                );
                bail!(
                    "ci failed at step `{0}`; repeat it with `cargo xtask ci --only {0}`",
                    step.name
                );
            }
        }
    }
    print_table(&done);
    println!("ci passed in {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn choose(only: &[String], skip: &[String]) -> Result<Vec<&'static Step>> {
    for name in only.iter().chain(skip) {
        ensure!(
            STEPS.iter().any(|step| step.name == name),
            "no step is called `{name}`; `cargo xtask ci --list` lists them"
        );
    }
    let steps: Vec<_> = STEPS
        .iter()
        .filter(|step| only.is_empty() || only.iter().any(|name| name == step.name))
        .filter(|step| !skip.iter().any(|name| name == step.name))
        .collect();
    ensure!(!steps.is_empty(), "no step is left to run");
    Ok(steps)
}

fn print_table(done: &[(&Step, Outcome, Duration)]) {
    println!("\n══ summary");
    for (step, outcome, took) in done {
        let verdict = if outcome.skipped { "skipped" } else { "ok" };
        println!(
            "  {:11} {verdict:8} {:>7.1} s  {}",
            step.name,
            took.as_secs_f64(),
            outcome.note
        );
        for line in &outcome.left_out {
            println!("  {:33}left out: {line}", "");
        }
    }
}

fn format(workspace: &Workspace) -> Result<Outcome> {
    run_command(&mut workspace.cargo(["fmt", "--all", "--", "--check"]))?;
    Ok(Outcome::passed("formatted"))
}

fn clippy(workspace: &Workspace) -> Result<Outcome> {
    let lints = ["-D", "warnings", "-D", "clippy::too_many_lines"];
    let mut command = workspace.cargo(["clippy", "--workspace", "--all-targets", "--"]);
    run_command(command.args(lints))?;
    // What is off by default is linted too; that takes no library.
    let kerberos = [
        "clippy",
        "-p",
        "ropeway-smb",
        "-p",
        "ropeway-cli",
        "--features",
        "kerberos,ropeway-smb/fuzzing",
    ];
    let mut command = workspace.cargo(kerberos.into_iter().chain(["--all-targets", "--"]));
    run_command(command.args(lints))?;
    Ok(Outcome::passed("no warning"))
}

fn docs(workspace: &Workspace) -> Result<Outcome> {
    let mut command = workspace.cargo(["doc", "--workspace", "--no-deps"]);
    run_command(command.env("RUSTDOCFLAGS", "-D warnings"))?;
    Ok(Outcome::passed("no warning"))
}

/// Builds the release binary.
///
/// # Errors
/// If it does not build.
pub(crate) fn build(workspace: &Workspace) -> Result<Outcome> {
    run_command(&mut workspace.cargo(["build", "--release", "--bin", "ropeway"]))?;
    ensure!(
        workspace.ropeway().is_file(),
        "the build left no {}",
        workspace.short(&workspace.ropeway()).display()
    );
    Ok(Outcome::passed("target/release/ropeway"))
}

/// Runs the demo as a new user does: in an empty folder, without a configuration or a state of its own.
fn demo(workspace: &Workspace) -> Result<Outcome> {
    build(workspace)?;
    let folder = tempfile::Builder::new().prefix("ropeway-ci-demo-").tempdir()?;
    let work = folder.path().join("work");
    std::fs::create_dir(&work)?;
    let mut command = Command::new(workspace.ropeway());
    command.arg("demo").current_dir(&work);
    command.env("XDG_STATE_HOME", folder.path().join("state"));
    command.env("XDG_CONFIG_HOME", folder.path().join("config"));
    run_command(&mut command)?;
    Ok(Outcome::passed("exit 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(only: &[&str], skip: &[&str]) -> Result<Vec<&'static str>> {
        let own = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        let steps = choose(&own(only), &own(skip))?;
        Ok(steps.iter().map(|step| step.name).collect())
    }

    #[test]
    fn steps_are_chosen_in_their_order() {
        assert_eq!(names(&["test", "fmt"], &[]).unwrap(), ["fmt", "test"]);
        assert!(!names(&[], &["fuzz"]).unwrap().contains(&"fuzz"));
        assert_eq!(names(&[], &[]).unwrap().len(), STEPS.len());
    }

    #[test]
    fn bad_choices_are_told() {
        assert!(names(&["tset"], &[]).unwrap_err().to_string().contains("`tset`"));
        assert!(names(&["fmt"], &["fmt"]).is_err());
    }
}
