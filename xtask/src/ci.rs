//! `cargo xtask ci`: runs every check in order and times it. The first failure ends the command.
//!
//! Tools are installed while checks run that need none, and release builds start while tests run.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::ahead::Ahead;
use crate::process::run as run_command;
use crate::step::{Outcome, build, build_command};
use crate::workspace::Workspace;
use crate::{attack, conformance, fuzz, layers, package, size, tests, tools};

/// Options of `ci`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Run only these steps (repeat or separate by commas)
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    only: Vec<String>,
    /// Leave these steps out
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    skip: Vec<String>,
    /// List the steps
    #[arg(long)]
    list: bool,
}

struct Step {
    name: &'static str,
    about: &'static str,
    order: Order,
    run: fn(&Run<'_>) -> Result<Outcome>,
}

/// When a step runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// At the same time as the steps that follow, since it waits for the network or a disk.
    Parallel,
    /// As soon as the step before it has ended.
    Next,
    /// After the steps in parallel, since it uses the programs that `tools` installs.
    AfterParallel,
}

/// State that the steps share.
struct Run<'a> {
    workspace: &'a Workspace,
    chosen: &'a [&'static Step],
    ahead: Ahead,
    /// The bare systems for packages, made beside the builds: they wait for the network.
    bare: Ahead,
}

impl Run<'_> {
    /// Begins the release builds of later steps.
    fn build_ahead(&self) -> Result<()> {
        let is_chosen = |names: &[&str]| self.chosen.iter().any(|step| names.contains(&step.name));
        let mut builds = Vec::new();
        if is_chosen(&["build", "attack", "conformance", "demo", "package"]) {
            builds.push(("build", build_command(self.workspace)));
        }
        if is_chosen(&["simulate"]) {
            builds.push(("simulate", simulator(self.workspace)));
        }
        if is_chosen(&["fuzz"])
            && let Some(command) = fuzz::build_command(self.workspace)?
        {
            builds.push(("fuzz", command));
        }
        self.ahead.start(self.workspace, builds);
        if is_chosen(&["package"]) {
            package::bare::make_ahead(self.workspace, &self.bare);
        }
        Ok(())
    }
}

/// All steps in order: those that fail quickly come first.
const STEPS: &[Step] = &[
    Step {
        name: "tools",
        about: "programs that the checks use, installed where allowed",
        order: Order::Parallel,
        run: |run| tools::run(run.workspace),
    },
    Step {
        name: "fmt",
        about: "cargo fmt --check",
        order: Order::Next,
        run: |run| format(run.workspace),
    },
    Step {
        name: "layers",
        about: "which crate uses what",
        order: Order::Next,
        run: |run| layers::step(run.workspace),
    },
    Step {
        name: "size",
        about: "length of files",
        order: Order::Next,
        run: |run| size::run(run.workspace),
    },
    Step {
        name: "clippy",
        about: "lints, warnings and functions above 70 lines denied",
        order: Order::Next,
        run: |run| clippy(run.workspace),
    },
    Step {
        name: "test",
        about: "all tests, with the feature kerberos, several programs at once",
        order: Order::AfterParallel,
        run: |run| tests::run(run.workspace, &|| run.build_ahead()),
    },
    Step {
        name: "simulate",
        about: "20,000 simulated copy jobs and 500 fleets by seed, and broken rules that the simulators must find",
        order: Order::Next,
        run: |run| {
            run.ahead.wait("simulate");
            simulate(run.workspace)
        },
    },
    Step {
        name: "docs",
        about: "cargo doc, warnings denied",
        order: Order::AfterParallel,
        run: |run| docs(run.workspace),
    },
    Step {
        name: "build",
        about: "release build of the binary",
        order: Order::AfterParallel,
        run: build_step,
    },
    Step {
        name: "attack",
        about: "the release binary: kills, changes and power cuts by seed; storms of SMB frames on both ends",
        order: Order::AfterParallel,
        run: |run| attack::step(run.workspace),
    },
    Step {
        name: "conformance",
        about: "the release binary: quick suites of smbtorture against `ropeway serve`",
        order: Order::AfterParallel,
        run: |run| conformance::step(run.workspace),
    },
    Step {
        name: "demo",
        about: "the release binary: `ropeway demo` in an empty folder",
        order: Order::AfterParallel,
        run: |run| demo(run.workspace),
    },
    Step {
        name: "package",
        about: "Debian package of the release binary; installed, used and removed on bare systems",
        order: Order::AfterParallel,
        run: |run| {
            run.bare.wait_all();
            package::ci_step(run.workspace)
        },
    },
    Step {
        name: "fuzz",
        about: "builds the fuzz targets and runs each for a few seconds",
        order: Order::AfterParallel,
        run: |run| {
            run.ahead.wait("fuzz");
            fuzz::run(run.workspace)
        },
    },
];

/// Runs the chosen steps.
///
/// # Errors
/// A step is unknown, or the first step that fails.
pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let steps = choose(&arguments.only, &arguments.skip)?;
    if arguments.list {
        for step in steps {
            println!("{:11} {}", step.name, step.about);
        }
        return Ok(());
    }
    let start = Instant::now();
    let mut done = Vec::new();
    let run = Run {
        workspace,
        chosen: &steps,
        ahead: Ahead::default(),
        bare: Ahead::default(),
    };
    let failed = in_order(&run, &mut done);
    print_table(&done);
    if let Some(name) = failed {
        bail!("ci failed at step `{name}`; repeat it with `cargo xtask ci --only {name}`");
    }
    println!("ci passed in {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Result and time of a step.
type Done = (&'static Step, Result<Outcome>, Duration);

/// Runs the steps. Returns the name of the step that failed.
fn in_order(run: &Run<'_>, done: &mut Vec<Done>) -> Option<&'static str> {
    let one = |step: &'static Step| -> Done {
        let begun = Instant::now();
        let outcome = (step.run)(run);
        (step, outcome, begun.elapsed())
    };
    thread::scope(|scope| {
        let mut parallel = Vec::new();
        let count = run.chosen.len();
        for (index, step) in run.chosen.iter().enumerate() {
            if step.order == Order::AfterParallel {
                for handle in parallel.drain(..) {
                    let handle: thread::ScopedJoinHandle<'_, Done> = handle;
                    take(handle.join().ok()?, done)?;
                }
            }
            println!("\n══ {}/{count} {}: {}", index + 1, step.name, step.about);
            if step.order == Order::Parallel {
                parallel.push(scope.spawn(move || one(step)));
            } else {
                take(one(step), done)?;
            }
        }
        for handle in parallel {
            take(handle.join().ok()?, done)?;
        }
        Some(())
    })
    .map_or_else(
        || Some(done.last().map_or("tools", |(step, ..)| step.name)),
        |()| None,
    )
}

/// Prints and keeps the result of a step; `None` if it failed.
fn take(one: Done, done: &mut Vec<Done>) -> Option<()> {
    let verdict = match &one.1 {
        Ok(outcome) => {
            println!("── {}: {}", one.0.name, outcome.note);
            Some(())
        }
        Err(error) => {
            println!("── {}: FAILED: {error:#}", one.0.name);
            None
        }
    };
    done.push(one);
    verdict
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

fn print_table(done: &[Done]) {
    println!("\n══ summary");
    for (step, outcome, took) in done {
        let (verdict, note, left_out): (_, &str, &[String]) = match outcome {
            Ok(outcome) if outcome.skipped => ("skipped", &outcome.note, &outcome.left_out),
            Ok(outcome) => ("ok", &outcome.note, &outcome.left_out),
            Err(_) => ("FAILED", "", &[]),
        };
        println!(
            "  {:11} {verdict:8} {:>7.1} s  {note}",
            step.name,
            took.as_secs_f64()
        );
        for line in left_out {
            println!("  {:33}left out: {line}", "");
        }
    }
}

fn format(workspace: &Workspace) -> Result<Outcome> {
    run_command(&mut workspace.cargo(["fmt", "--all", "--", "--check"]))?;
    Ok(Outcome::passed("formatted"))
}

fn clippy(workspace: &Workspace) -> Result<Outcome> {
    // All tests with every feature: linting them needs no library. Then what is built by default, and what is
    // built without SMB 1 and Kerberos, whose tests say so.
    let all = "--features=ropeway-cli/kerberos,ropeway-cli/otel,ropeway-cli/nats,ropeway-smb-server/fuzzing";
    let selections: [&[&str]; 3] = [
        &["--workspace", "--all-targets", all],
        &["--workspace", "--lib", "--bins"],
        &[
            "-p",
            "ropeway-smb-gss",
            "-p",
            "ropeway-smb-client",
            "-p",
            "ropeway-cli",
            // Turns on the features of other crates that the first two have, so that these are checked once.
            "-p",
            "xtask",
            "--no-default-features",
            "--all-targets",
        ],
    ];
    for selection in selections {
        let mut command = workspace.cargo(["clippy"]);
        command.args(selection);
        run_command(command.args(["--", "-D", "warnings", "-D", "clippy::too_many_lines"]))?;
    }
    Ok(Outcome::passed("no warning"))
}

fn docs(workspace: &Workspace) -> Result<Outcome> {
    let mut command = workspace.cargo(["doc", "--workspace", "--no-deps"]);
    run_command(command.env("RUSTDOCFLAGS", "-D warnings"))?;
    Ok(Outcome::passed("no warning"))
}

fn build_step(run: &Run<'_>) -> Result<Outcome> {
    run.ahead.wait("build");
    let outcome = build(run.workspace)?;
    // The tests have the feature. The product is built without it, and must say so at once.
    let place = tempfile::tempdir()?;
    let said = Command::new(run.workspace.ropeway())
        .args(["ls", "--auth", "kerberos", "smb://ann@localhost:9/data"])
        .env("XDG_STATE_HOME", place.path())
        .env("XDG_CONFIG_HOME", place.path())
        .output()?;
    ensure!(
        said.status.code() == Some(1)
            && String::from_utf8_lossy(&said.stderr).contains("built without Kerberos"),
        "a program without Kerberos does not say so: {said:?}"
    );
    Ok(outcome)
}

/// Seeds of fleets: less than a minute.
const FLEETS: &str = "500";

/// The same with a broken rule: the rarest is found by one of a thousand.
const FLEETS_BROKEN: &str = "3000";

/// Runs simulated copy jobs, a cache that crashes, and fleets. None may break a promise, and each
/// simulator must find each rule that is broken on purpose.
fn simulate(workspace: &Workspace) -> Result<Outcome> {
    run_command(&mut simulator(workspace))?;
    let program = workspace.target().join("release/examples/simulate");
    run_command(Command::new(&program).args(["--seeds", "20000"]))?;
    run_command(Command::new(&program).args(["--mutation", "all", "--seeds", "1000"]))?;
    let crash = workspace.target().join("release/examples/crash");
    run_command(Command::new(&crash).args(["--seeds", "5000"]))?;
    run_command(Command::new(&crash).args(["--mutation", "all", "--seeds", "1000"]))?;
    let fleets = workspace.target().join("release/examples/fleets");
    run_command(Command::new(&fleets).args(["--seeds", FLEETS]))?;
    run_command(Command::new(&fleets).args(["--mutation", "all", "--seeds", FLEETS_BROKEN]))?;
    Ok(Outcome::passed(
        "20,000 seeds of copies, 5,000 of the cache, 500 of fleets; the broken rules found",
    ))
}

/// Returns the command that builds the simulator. For the whole workspace, so that its libraries are
/// those of the release binary.
fn simulator(workspace: &Workspace) -> Command {
    workspace.cargo([
        "build",
        "--release",
        "--workspace",
        "--features=ropeway-copy/mutations,ropeway-cache/mutations,ropeway-fleet/mutations",
        "--example",
        "simulate",
        "--example",
        "crash",
        "--example",
        "fleets",
    ])
}

/// Runs the demo as a new user does: in an empty folder, without configuration and state.
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
mod own_tests {
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
