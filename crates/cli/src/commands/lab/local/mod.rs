//! `ropeway lab dirty`, `lab vista` and `lab nas`: labs for this machine's own devices.

mod boost;
mod dirty;
mod nas;
mod nas_worker;
mod vista;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ropeway_lab::local::LocalError;
use ropeway_lab::report::{Document, FILE, Outcome};
use ropeway_live::{Part, PartHandle};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::args::LocalCommand;
use crate::failure::{Failure, code};
use crate::live::{self, RunPart};
use crate::ui::messages::print_line;

/// Runs the command and returns its exit code.
///
/// # Errors
/// The lab cannot run here, or was interrupted.
pub(super) fn run(command: &LocalCommand) -> Result<u8, Failure> {
    match command {
        LocalCommand::Dirty(args) if args.check => dirty::check(args),
        LocalCommand::Dirty(args) => dirty::run(args),
        LocalCommand::DirtyWorker { task } => dirty::work(task),
        LocalCommand::Vista(args) => vista::run(args),
        LocalCommand::Nas(args) => nas::run(args),
        LocalCommand::NasWorker(args) => nas_worker::run(args),
        LocalCommand::Boost(args) => boost::run(args),
        LocalCommand::BoostWorker { task } => boost::work(task),
    }
}

/// Handles SIGINT, SIGTERM and SIGHUP during its life; a second signal ends the lab at once.
struct Stopper {
    runtime: Option<Runtime>,
    stop: Arc<AtomicBool>,
    /// What other processes see.
    part: Arc<RunPart>,
    _registered: PartHandle,
    _live: live::Told,
}

impl Stopper {
    /// Starts handling the signals. It starts threads, so work that needs a single thread must come
    /// first.
    fn begin(lab: &str) -> Result<Self, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let runtime = super::run::catch_signals(&stop)?;
        let live = live::start("lab");
        let part = RunPart::new("lab", lab);
        Ok(Self {
            runtime: Some(runtime),
            stop,
            _registered: live.add(Arc::clone(&part) as Arc<dyn Part>),
            part,
            _live: live,
        })
    }

    /// Prints a note, for people or programs, and shows it to other processes.
    fn say(&self, text: &str, json: bool) {
        self.part.step(text);
        say(text, json);
    }
}

impl Drop for Stopper {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            super::run::stop_signals(runtime);
        }
    }
}

/// Returns the absolute path, for processes that run in other folders.
fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    let failed = |error: std::io::Error| {
        Failure::of_end(
            format!("cannot use {}: {error}", path.display()),
            &error,
            code::TARGET,
        )
        .hint("check the spelling")
    };
    std::path::absolute(path).map_err(failed)
}

/// Returns the path of this program.
fn program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| {
        Failure::usage(format!("cannot find this program: {error}")).hint("run it by its path")
    })
}

/// Prints a note, for people or programs.
fn say(text: &str, json: bool) {
    if json {
        print_line(&json!({ "type": "note", "message": text }).to_string());
    } else {
        print_line(text);
    }
}

/// Prints the result of a lab, for people or programs; returns the exit code.
fn conclude(document: &Document, out: &Path, json: bool) -> u8 {
    let report = out.join(FILE);
    let runs = document.cells.iter().flat_map(|cell| &cell.runs);
    let failed = runs.filter(|run| run.outcome != Outcome::Done).count();
    if json {
        let line = json!({
            "type": "lab",
            "version": document.version,
            "lab": document.lab,
            "complete": document.complete,
            "cells": document.cells.len(),
            "failed_runs": failed,
            "score": document.score.as_ref().map(|score| score.value),
            "report": report,
        });
        print_line(&line.to_string());
    } else {
        if let Some(score) = &document.score {
            print_line(&format!("score {:.3}: {}", score.value, score.described));
            for part in &score.parts {
                print_line(&format!("  {:36} {:.3}", part.name, part.value));
            }
            for (name, value) in &score.published {
                print_line(&format!("  published: {name:25} {value:.3}"));
            }
        }
        let how = if document.complete {
            "complete"
        } else {
            "not complete"
        };
        print_line(&format!("{}: {how}; report: {}", document.lab, report.display()));
    }
    if failed > 0 || !document.complete {
        code::SOME_FAILED
    } else {
        code::DONE
    }
}

fn failure(error: &LocalError) -> Failure {
    match error {
        LocalError::Link(error) => super::failure(error),
        LocalError::Server(_) => Failure::new(code::NETWORK, error.to_string()).hint(error.hint()),
        LocalError::NoRoom { .. } | LocalError::File(_) | LocalError::Report(_) => {
            Failure::new(code::TARGET, error.to_string()).hint(error.hint())
        }
        LocalError::InMemory { .. } => Failure::usage(error.to_string()).hint(error.hint()),
        LocalError::Io { source, .. } => {
            Failure::of_end(error.to_string(), source, code::TARGET).hint(error.hint())
        }
        LocalError::Interrupted => Failure::new(code::INTERRUPTED, error.to_string()).hint(error.hint()),
    }
}
