//! `ropeway lab dirty`.

use ropeway_lab::local::dirty::check::{self, Checked};
use ropeway_lab::local::dirty::{self, Findings, Options};
use ropeway_lab::report::FILE;
use serde_json::json;

use super::{Stopper, absolute};
use crate::args::LabDirtyArgs;
use crate::failure::{Failure, code};
use crate::ui::messages::{print_line, print_stderr};

/// Width of the column of names.
const NAME_WIDTH: usize = 34;
/// Bytes that `--check` writes to each device.
const CHECK_BYTES: u64 = 512 << 20;

/// Runs the lab and returns its exit code.
///
/// # Errors
/// The folder is not writable, has too little space, or the lab was interrupted.
pub(super) fn run(args: &LabDirtyArgs) -> Result<u8, Failure> {
    let stopper = Stopper::begin("dirty")?;
    let options = Options {
        dir: args.dir.clone(),
        bytes: args.bytes,
        limit: args.limit,
        warm_up: args.warm_up,
        out: args.out.clone(),
    };
    let notify = |text: &str| {
        if !args.json {
            print_stderr(text);
        }
    };
    let (document, findings) =
        dirty::run(&options, &stopper.stop, &notify).map_err(|error| super::failure(&error))?;
    let ended = if document.complete {
        code::DONE
    } else {
        code::SOME_FAILED
    };
    if args.json {
        print_line(&line(args, &findings, document.complete).to_string());
        return Ok(ended);
    }
    for (name, value) in dirty::lines(&findings) {
        print_line(&format!("{name:NAME_WIDTH$}  {value}"));
    }
    for warning in &document.warnings {
        print_line(&format!("warning: {}", warning.text));
    }
    print_line(&format!("report: {}", args.out.join(FILE).display()));
    Ok(ended)
}

/// Compares `ropeway dirty` with the truth and returns the exit code.
///
/// # Errors
/// A device cannot be made, or the check was interrupted.
pub(super) fn check(args: &LabDirtyArgs) -> Result<u8, Failure> {
    let options = check::Options {
        program: super::program()?,
        dir: absolute(&args.dir)?,
        bytes: args.bytes.unwrap_or(CHECK_BYTES),
        rate: args.rate,
        limit: args.limit,
        out: absolute(&args.out)?,
    };
    let stopper = Stopper::begin("dirty")?;
    let notify = |text: &str| {
        if !args.json {
            print_stderr(text);
        }
    };
    let (_, all) = check::run(&options, &stopper.stop, &notify).map_err(|error| super::failure(&error))?;
    for checked in &all {
        if args.json {
            print_line(&check_line(checked).to_string());
            continue;
        }
        for (name, value) in check::lines(checked) {
            print_line(&format!("{name:NAME_WIDTH$}  {value}"));
        }
        print_line("");
    }
    let is_within = all.iter().all(Checked::is_within);
    if !args.json {
        let verdict = if is_within { "within" } else { "NOT within" };
        print_line(&format!(
            "{verdict} {} % (backlogs) and {} % (times to drain); report: {}",
            check::BACKLOG_PERCENT,
            check::DRAIN_PERCENT,
            options.out.join(FILE).display()
        ));
    }
    Ok(if is_within { code::DONE } else { code::DIFFERS })
}

fn check_line(checked: &Checked) -> serde_json::Value {
    json!({
        "type": "lab_dirty_check",
        "version": 1,
        "device": checked.name,
        "what": checked.what,
        "within": checked.is_within(),
        "figures": checked.figures,
    })
}

/// Serves the modelled device for the lab.
///
/// # Errors
/// It cannot be mounted.
pub(super) fn work(task: &str) -> Result<u8, Failure> {
    check::stick::work(task).map_err(|error| {
        Failure::new(code::TARGET, error.to_string())
            .hint("do not run this command yourself; `lab dirty --check` starts it")
    })?;
    Ok(code::DONE)
}

fn line(args: &LabDirtyArgs, findings: &Findings, complete: bool) -> serde_json::Value {
    json!({
        "type": "lab_dirty",
        "version": 1,
        "complete": complete,
        "report": args.out.join(FILE),
        "findings": findings,
    })
}
