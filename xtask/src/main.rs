//! Project tasks, run as `cargo xtask TASK`.
//!
//! * `ci`: every check of the project, in order, with a table at the end;
//! * `layers`: which crate may use what, checked;
//! * `bench`: ropeway beside other tools;
//! * `conformance`: smbtorture against `ropeway serve`;
//! * `killtest`: kill -9 at random moments, then resume;
//! * `probe-reads`: the other process of `bench responsiveness`.
//!
//! Nothing here is part of the product. What is checked or measured is the binary, run as a user runs it; of the
//! product's crates only the lab's link is used, to put the binary and its peers at the ends of it.

mod bench;
mod ci;
mod compare;
mod conformance;
mod fuzz;
mod interop;
mod killtest;
mod layers;
mod probe;
mod process;
mod rng;
mod served;
mod size;
mod tests_step;
mod tools;
mod worksets;
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
    /// Check which crate uses what, and print the table
    Layers,
    /// Measure ropeway beside other tools
    #[command(subcommand)]
    Bench(bench::Task),
    /// Run smbtorture's suites against `ropeway serve`, and keep what passes
    Conformance(conformance::Arguments),
    /// Kill a copy at random moments, resume it, compare
    Killtest(killtest::Arguments),
    /// Read random 4 KiB blocks of a file and print the latencies as one JSON line
    ProbeReads(probe::Arguments),
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
        Task::Layers => layers::run(&Workspace::find()?),
        Task::Bench(task) => bench::run(&Workspace::find()?, &task),
        Task::Conformance(arguments) => conformance::run(&Workspace::find()?, &arguments),
        Task::Killtest(arguments) => killtest::run(&Workspace::find()?, &arguments),
        Task::ProbeReads(arguments) => probe::run(&arguments),
    }
}
