//! `ropeway trace`: shows the operations of a run, or of other programs.
//!
//! ```text
//!   FILE ────────────────────────┐
//!   record (--run, --pid, …) ────┴─> reader ─> filter ─> view: listing, stacks, plot or perfetto
//! ```
//!
//! Views take one operation at a time and keep a bounded amount, however long the trace is.

mod listing;
mod perfetto;
mod plot;
mod record;
mod stacks;
mod sums;
mod view;

use std::fs::File;
use std::io::{self, BufWriter, Seek as _, Write};
use std::path::Path;

use self::listing::Listing;
use self::perfetto::Perfetto;
use self::plot::Plots;
use self::stacks::Stacks;
use self::sums::Totals;
use self::view::{View, fits};
use crate::args::{FilterArgs, TraceArgs, TraceSource, ViewArgs};
use crate::failure::{Failure, code};
use crate::trace_file::{ReadError, Summary, TraceReader};
use crate::ui::messages::print_stderr;

/// Runs the command and returns its exit code.
///
/// # Errors
/// The file cannot be read or is not a trace, or nothing can be recorded.
pub(crate) fn run(args: &TraceArgs) -> Result<u8, Failure> {
    args.check()?;
    match args.source()? {
        TraceSource::File(path) => {
            let file = File::open(path).map_err(|error| failure(path, error.into()))?;
            show_file(args, &args.view, path, file)?;
            Ok(code::DONE)
        }
        source => {
            let record::Recording {
                mut file,
                code,
                totals,
            } = record::record(&args.record, source)?;
            let mut view = args.view.clone();
            let path = match &args.record.output {
                // A kept trace can be shown again: only the totals now.
                Some(path) => {
                    view.summary = view.is_listing();
                    path
                }
                None => Path::new("the recording"),
            };
            file.rewind().map_err(|error| failure(path, error.into()))?;
            let is_whole = args.filter == FilterArgs::default() && view.limit.is_none();
            if view.is_listing() && view.summary && is_whole {
                show_totals(&view, path, file, totals)?;
            } else {
                show_file(args, &view, path, file)?;
            }
            Ok(code)
        }
    }
}

fn failure(path: &Path, error: ReadError) -> Failure {
    let path = path.display();
    match error {
        ReadError::Io(error) => Failure::of_end(format!("cannot read {path}: {error}"), &error, code::SOURCE),
        ReadError::Line(number, what) => Failure::usage(format!("{path}:{number}: {what}")),
    }
    .hint("give a file that --trace wrote")
}

fn show_file(args: &TraceArgs, view: &ViewArgs, path: &Path, file: File) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut shown: Box<dyn View> = match (view.stacks_by, view.plot(), view.perfetto) {
        (Some(by), ..) => Box::new(Stacks::new(view, by)),
        (_, Some(plot), _) => Box::new(Plots::new(plot, busiest(args, path, &file)?)),
        (_, _, true) => Box::<Perfetto>::default(),
        _ => Box::new(Listing::new(view)),
    };
    let mut reader = TraceReader::of_file(file).map_err(|error| failure(path, error))?;
    let written = show(&mut reader, &args.filter, shown.as_mut(), &mut out);
    let written = written.map_err(|error| failure(path, error))?;
    if !printed(written.and_then(|()| out.flush()))? {
        return Ok(());
    }
    if !reader.is_whole() && !shown.is_full() {
        print_stderr("note: the trace is truncated: the run was killed or is still running");
    }
    if let (Some(summary), TraceSource::File(_)) = (reader.summary(), args.source()?) {
        for note in notes(summary) {
            print_stderr(&format!("note: {note}"));
        }
    }
    Ok(())
}

/// Shows what was counted during the recording: only the head of its trace is read.
fn show_totals(view: &ViewArgs, path: &Path, file: File, totals: Totals) -> Result<(), Failure> {
    let reader = TraceReader::of_file(file).map_err(|error| failure(path, error))?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut shown = Listing::of_totals(view, totals);
    let begun = shown.begin(reader.header(), &mut out);
    printed(
        begun
            .and_then(|()| shown.end(&mut out))
            .and_then(|()| out.flush()),
    )
    .map(|_| ())
}

/// Judges what came of printing: whether there is still a reader.
fn printed(written: io::Result<()>) -> Result<bool, Failure> {
    match written {
        Ok(()) => Ok(true),
        // The reader of the pipe has closed it.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::new(code::TARGET, format!("cannot write: {error}"))),
    }
}

fn notes(summary: &Summary) -> Vec<String> {
    match summary.notes.as_slice() {
        [] if summary.lost > 0 => vec![format!("{} operations are missing", summary.lost)],
        notes => notes.iter().map(|note| view::one_line(note)).collect(),
    }
}

/// Finds the files with most bytes, for the plot of offsets: a first pass over the trace.
fn busiest(args: &TraceArgs, path: &Path, file: &File) -> Result<plot::Busiest, Failure> {
    let mut busiest = plot::Busiest::default();
    let mut again = file.try_clone().map_err(|error| failure(path, error.into()))?;
    if again.stream_position().is_err() {
        // A pipe can be read only once: the offsets of all files are drawn together.
        return Ok(busiest);
    }
    let reader = TraceReader::of_file(again).map_err(|error| failure(path, error))?;
    // What is read up to a damaged line is drawn; the second pass reports it.
    for operation in reader.map_while(Result::ok) {
        if fits(&args.filter, &operation) {
            busiest.take(&operation);
        }
    }
    busiest.settle();
    again = file.try_clone().map_err(|error| failure(path, error.into()))?;
    again.rewind().map_err(|error| failure(path, error.into()))?;
    Ok(busiest)
}

/// Reads and shows a trace; the inner result is that of writing.
fn show(
    reader: &mut TraceReader<impl io::BufRead>,
    filter: &FilterArgs,
    view: &mut dyn View,
    out: &mut dyn Write,
) -> Result<io::Result<()>, ReadError> {
    if let Err(error) = view.begin(reader.header(), out) {
        return Ok(Err(error));
    }
    let mut damage = None;
    for operation in reader {
        let operation = match operation {
            Ok(operation) => operation,
            Err(error) => {
                damage = Some(error);
                break;
            }
        };
        if !fits(filter, &operation) {
            continue;
        }
        if let Err(error) = view.take(&operation, out) {
            return Ok(Err(error));
        }
        if view.is_full() {
            break;
        }
    }
    // What was read up to the damage is shown.
    let written = view.end(out).and_then(|()| out.flush());
    match damage {
        Some(error) => Err(error),
        None => Ok(written),
    }
}

#[cfg(test)]
mod tests;
