//! Project tasks, run as `cargo xtask TASK`.
//!
//! * `ci`: runs every check of the project, and prints a table at the end;
//! * `layers`: checks which crate uses which;
//! * `bench`: compares ropeway with other tools;
//! * `conformance`: runs smbtorture against `ropeway serve`;
//! * `package`: makes the files that users install;
//! * `attack`: attacks the promises of the README, by known cases and by seed.
//!
//! Nothing here is part of the product. Checks run the binary as a user does, and the laboratory
//! (`ropeway_lab`) measures it.

mod ahead;
mod attack;
mod bench;
mod ci;
mod conformance;
mod fuzz;
mod interop;
mod layers;
mod package;
mod process;
mod size;
mod step;
mod suites;
mod tests;
mod tools;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::workspace::Workspace;

/// Project tasks of Ropeway.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run every check, in order; stops at the first that fails
    Ci(ci::Arguments),
    /// Check which crate uses which, and print the table
    Layers(layers::Arguments),
    /// Compare ropeway with other tools
    #[command(subcommand)]
    Bench(bench::Task),
    /// Make the files that users install: a Debian package, an archive, a container file
    Package(package::Arguments),
    /// Run smbtorture's suites against `ropeway serve`, and keep the results
    Conformance(conformance::Arguments),
    /// Attack the promises of a copy: known cases, then kills and changes by seed, judged by a
    /// model
    Attack(attack::Arguments),
    /// The quick part of `attack`, in the mount namespace that `ci` made for it
    #[command(hide = true)]
    AttackQuick,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments.task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<()> {
    match task {
        Task::Ci(arguments) => ci::run(&Workspace::find()?, &arguments),
        Task::Layers(arguments) => layers::run(&Workspace::find()?, &arguments),
        Task::Package(arguments) => package::run(&Workspace::find()?, &arguments),
        Task::Bench(task) => bench::run(&Workspace::find()?, &task),
        Task::Conformance(arguments) => conformance::run(&Workspace::find()?, &arguments),
        Task::Attack(arguments) => attack::run(&Workspace::find()?, &arguments),
        Task::AttackQuick => attack::quick(&Workspace::find()?),
    }
}
