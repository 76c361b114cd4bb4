//! `ropeway lab dirty`.

use ropeway_lab::local::dirty::{self, Findings, Options};
use ropeway_lab::report::FILE;
use serde_json::json;

use super::Stopper;
use crate::args::DirtyArgs;
use crate::failure::{Failure, code};
use crate::ui::messages::{print_line, print_stderr};

/// Width of the column of names.
const NAME_WIDTH: usize = 32;

/// Runs the lab and returns its exit code.
///
/// # Errors
/// The folder is not writable, has too little space, or the lab was interrupted.
pub(super) fn run(args: &DirtyArgs) -> Result<u8, Failure> {
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

fn line(args: &DirtyArgs, findings: &Findings, complete: bool) -> serde_json::Value {
    json!({
        "type": "lab_dirty",
        "version": 1,
        "complete": complete,
        "report": args.out.join(FILE),
        "findings": findings,
    })
}
