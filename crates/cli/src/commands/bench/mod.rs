//! `ropeway bench`: throughput by file size and record size, and the reasons to doubt it.

mod place;
mod print;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ropeway_lab::bench::cell::{Mode, Pattern};
use ropeway_lab::bench::compare::compare;
use ropeway_lab::bench::grid::Grid;
use ropeway_lab::bench::io::{Cold, PassError};
use ropeway_lab::bench::result::{self, Report, Settings};
use ropeway_lab::bench::run::{BenchError, Ended, Options, run as run_bench};
use ropeway_lab::bench::{page, table};
use ropeway_lab::report::FileError;
use ropeway_lab::run::{available_memory, timestamp};
use ropeway_vfs::CacheMode;
use serde_json::json;

use super::lab::{catch_signals, stop_signals};
use crate::args::BenchArgs;
use crate::failure::{Failure, code};
use crate::job;
use crate::servers::Servers;
use crate::trace_file::TraceWriter;
use crate::ui::messages::{self, print_line};
use place::Opened;
use print::Printer;

/// Files of the operations on names.
const FILES: u64 = 1000;
/// The same with `--quick`.
const FILES_QUICK: u64 = 200;
/// Budget in seconds.
const BUDGET_S: u64 = 15 * 60;
/// The same with `--quick`.
const BUDGET_QUICK_S: u64 = 60;
/// Rounds: three make a median with a spread.
const RUNS: u32 = 3;
/// The same with `--quick`.
const RUNS_QUICK: u32 = 2;
/// Part of the available memory that may be in flight, as a divisor (a guess), and its bounds.
const FLIGHT_PART: u64 = 4;
const FLIGHT_BYTES: std::ops::RangeInclusive<u64> = 16 << 20..=1 << 30;

/// Runs the command and returns its exit code.
///
/// # Errors
/// The target is no folder, has no room or fails, or a report cannot be read or written.
pub(crate) fn run(args: &BenchArgs) -> Result<u8, Failure> {
    args.check()?;
    if args.compare {
        return compared(&args.paths[0], &args.paths[1], args.how.json);
    }
    let options = options(args)?;
    let servers = Servers::new(&args.share)?.with_channels_at_start();
    let runtime = job::runtime()?;
    let trace = args.how.trace.as_deref().map(open_trace).transpose()?;
    let observer = trace.as_ref().map(TraceWriter::observer);
    let opened = place::open(args, &servers, &runtime, observer);
    let result = opened.and_then(|opened| measured(args, &options, opened));
    job::shut_down(runtime, &servers);
    let exit_code = result?;
    if let Some(trace) = trace {
        trace.finish().map_err(|error| {
            Failure::new(code::SOME_FAILED, format!("the trace is incomplete: {error}"))
                .hint("the measurement itself ended as reported above")
        })?;
    }
    Ok(exit_code)
}

fn open_trace(path: &Path) -> Result<TraceWriter, Failure> {
    TraceWriter::create(path, "bench").map_err(|error| {
        Failure::usage(format!("cannot write the trace {}: {error}", path.display()))
            .hint("give a file in a folder that exists and is writable")
    })
}

/// Makes the run and prints its results.
fn measured(args: &BenchArgs, options: &Options, opened: Opened) -> Result<u8, Failure> {
    let Opened {
        mut ground,
        target,
        conditions,
    } = opened;
    let new = Report::new(target, conditions, settings(options), timestamp());
    let printer = Printer::new(args.how.json);
    printer.begin(&new);
    let stop = Arc::new(AtomicBool::new(false));
    let signals = catch_signals(&stop)?;
    let result = run_bench(&mut *ground, new, options, &stop, &|event| printer.event(event));
    printer.clear();
    // The folder of the run is gone before the process may end.
    drop(ground);
    stop_signals(signals);
    let (report, ended) = result.map_err(|error| failure(&error))?;
    if ended == Ended::Planned {
        printer.planned(&report);
        return Ok(code::DONE);
    }
    let files = match &options.out {
        Some(out) => page::write(&report, out)
            .map_err(|error| {
                Failure::new(code::TARGET, error.to_string())
                    .hint("bench.json was written; check the folder and its free space")
            })?
            .files
            .len(),
        None => 0,
    };
    if !args.how.json {
        messages::print(&table::table(&report, print::has_colors()));
    }
    printer.end(&report, ended, options.out.as_deref(), files);
    Ok(match ended {
        Ended::Stopped => code::INTERRUPTED,
        Ended::Done | Ended::Budget | Ended::Planned => code::DONE,
    })
}

/// Returns the options of the run for the flags.
fn options(args: &BenchArgs) -> Result<Options, Failure> {
    let (what, how, quick) = (&args.what, &args.how, args.quick);
    let default = if quick { Grid::quick() } else { Grid::whole() };
    let or = |given: &Option<crate::args::SizeList>, default: Vec<u64>| {
        given.as_ref().map_or(default, |list| list.0.clone())
    };
    let modes = match how.cache {
        CacheMode::Leave => vec![Mode::Uncached],
        CacheMode::Direct => vec![Mode::Direct],
        CacheMode::Auto | CacheMode::Keep if what.modes.is_empty() => default.modes,
        CacheMode::Auto | CacheMode::Keep => what.modes.clone(),
    };
    let given =
        |given: &[Pattern], default: Vec<Pattern>| if given.is_empty() { default } else { given.to_vec() };
    let grid = Grid {
        sizes: or(&what.sizes, default.sizes),
        records: or(&what.records, default.records),
        patterns: given(&what.patterns, default.patterns),
        modes,
        depths: if what.depth.is_empty() {
            default.depths
        } else {
            what.depth.clone()
        },
    };
    let cold = match how.cache {
        CacheMode::Keep => Cold::Keep,
        _ if how.drop_caches => Cold::DropAll,
        _ => Cold::DropFile,
    };
    if how.drop_caches && !rustix::process::geteuid().is_root() {
        return Err(Failure::new(code::PERMISSION, "--drop-caches needs root")
            .hint("leave it out: the pages of the measured files are dropped anyway"));
    }
    let or_seconds =
        |quick_s: u64, whole_s: u64| std::time::Duration::from_secs(if quick { quick_s } else { whole_s });
    let absolute = |path: &std::path::PathBuf| {
        std::path::absolute(path).map_err(|error| {
            Failure::new(code::TARGET, format!("cannot use {}: {error}", path.display()))
                .hint("check the spelling")
        })
    };
    Ok(Options {
        grid,
        sizes_asked: what.sizes.is_some(),
        runs: how.runs.unwrap_or(if quick { RUNS_QUICK } else { RUNS }),
        budget: how.budget.unwrap_or(or_seconds(BUDGET_QUICK_S, BUDGET_S)),
        pass: how.pass_time,
        files: what.files.unwrap_or(if quick { FILES_QUICK } else { FILES }),
        seed: how.seed,
        cold,
        flight_max: (available_memory() / FLIGHT_PART).clamp(*FLIGHT_BYTES.start(), *FLIGHT_BYTES.end()),
        out: how.report.as_ref().map(absolute).transpose()?,
        estimate: args.estimate,
    })
}

fn settings(options: &Options) -> Settings {
    let grid = options.grid.clone();
    Settings {
        sizes: grid.sizes,
        records: grid.records,
        patterns: grid.patterns,
        modes: grid.modes,
        depths: grid.depths,
        runs: options.runs,
        budget_seconds: options.budget.as_secs_f64(),
        pass_seconds: options.pass.unwrap_or_default().as_secs_f64(),
        files: options.files,
        seed: options.seed,
        keep_cache: options.cold == Cold::Keep,
        drop_caches: options.cold == Cold::DropAll,
        engine: String::new(),
    }
}

fn failure(error: &BenchError) -> Failure {
    let exit_code = match error {
        BenchError::Nothing(_) => code::USAGE,
        BenchError::Pass(PassError::Stopped) => code::INTERRUPTED,
        BenchError::Pass(PassError::Wrong(_)) => code::DIFFERS,
        BenchError::Pass(PassError::Failed { source, .. }) => {
            return Failure::of_end(error.to_string(), source, code::TARGET).hint(error.hint());
        }
        _ => code::TARGET,
    };
    Failure::new(exit_code, error.to_string()).hint(error.hint())
}

/// Compares two reports; returns exit code 7 if a figure is worse beyond the noise.
fn compared(before: &Path, after: &Path, json: bool) -> Result<u8, Failure> {
    let load = |path: &Path| {
        result::load(path).map_err(|error| match &error {
            FileError::Io { source, .. } => Failure::of_end(error.to_string(), source, code::SOURCE)
                .hint("give the bench.json of a run with --report, or its folder"),
            FileError::Strange { .. } => Failure::new(code::SOURCE, error.to_string())
                .hint("give a bench.json from this version of `ropeway bench --report`"),
        })
    };
    let comparison = compare(&load(before)?, &load(after)?);
    if json {
        let line = json!({
            "type": "bench_comparison",
            "version": 1,
            "worse": comparison.is_worse(),
            "comparison": comparison,
        });
        print_line(&line.to_string());
    } else {
        messages::print(&comparison.table());
    }
    Ok(if comparison.is_worse() {
        code::DIFFERS
    } else {
        code::DONE
    })
}
