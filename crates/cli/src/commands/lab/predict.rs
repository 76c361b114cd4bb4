//! `ropeway lab predict`.

use ropeway_lab::predict::{self, Options, PredictError, Report, Run};
use serde_json::{Value, json};

use crate::args::LabPredictArgs;
use crate::failure::{Failure, code};
use crate::ui::messages::print_line;

/// Replays the trace and returns the exit code.
///
/// # Errors
/// The trace cannot be read.
pub(super) fn run(args: &LabPredictArgs) -> Result<u8, Failure> {
    let options = Options {
        cache: args.cache,
        block_bytes: args.block,
        delays: args.delay.clone(),
        seed: args.seed,
    };
    let report = predict::run(&args.trace, &options).map_err(|error| failure(&error))?;
    if args.json {
        for run in &report.runs {
            print_line(&line(args, &report, run).to_string());
        }
    } else {
        for line in predict::lines(&report) {
            print_line(&line);
        }
    }
    Ok(code::DONE)
}

/// Returns the object of one delay: the trace and the figures of our predictions, and below
/// `methods` those of all.
fn line(args: &LabPredictArgs, report: &Report, run: &Run) -> Value {
    let mut line = json!({
        "type": "lab_predict",
        "version": predict::VERSION,
        "trace": args.trace.display().to_string(),
    });
    for part in [json!(report), json!(run)] {
        if let (Value::Object(line), Value::Object(part)) = (&mut line, part) {
            line.extend(part);
        }
    }
    line
}

fn failure(error: &PredictError) -> Failure {
    let failure = match error {
        PredictError::Read { source, .. } => Failure::of_end(error.to_string(), source, code::SOURCE),
        PredictError::Name(_) => Failure::usage(error.to_string()),
        PredictError::Packed { .. } | PredictError::Content { .. } => {
            Failure::new(code::SOURCE, error.to_string())
        }
    };
    failure.hint(error.hint())
}
