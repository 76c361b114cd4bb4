//! Flags of `trace`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{AFTER_HELP, values};
use crate::failure::Failure;

/// `ropeway trace`.
#[derive(Args, Clone, Debug)]
#[command(
    after_long_help = AFTER_HELP,
    override_usage = "ropeway trace [OPTIONS] FILE\n       ropeway trace [OPTIONS] --run COMMAND [ARG]...\n       \
                      ropeway trace [OPTIONS] --pid N\n       ropeway trace [OPTIONS] --volume DIR"
)]
pub(crate) struct TraceArgs {
    /// Trace file to read
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// What to record, and how.
    #[command(flatten)]
    pub(crate) record: RecordArgs,
    /// Which operations to show.
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// How to show them.
    #[command(flatten)]
    pub(crate) view: ViewArgs,
}

/// Recording of other programs.
#[derive(Args, Clone, Debug)]
pub(crate) struct RecordArgs {
    /// Run a program and record its file operations; everything after --run is its command line
    ///
    /// Records the program and all processes that it starts, until it ends. The exit code is that of
    /// the program. Its own output comes first, then what is shown of the trace.
    #[arg(long, value_name = "COMMAND", num_args = 1.., allow_hyphen_values = true)]
    pub(crate) run: Vec<OsString>,
    /// Record a process that runs already, with its threads and children
    ///
    /// Ends when the process ends, with Ctrl-C, or after --for. The process goes on.
    #[arg(long, value_name = "N")]
    pub(crate) pid: Option<u32>,
    /// Record what all programs do on the file system of this folder (as root)
    ///
    /// Ends with Ctrl-C or after --for. The kernel tells which files are opened, read, written,
    /// closed, made, renamed and removed, and by whom, but not which bytes.
    #[arg(long, value_name = "DIR")]
    pub(crate) volume: Option<PathBuf>,
    /// Keep the recording in this file, a trace as --trace writes it; shows only the totals
    #[arg(short = 'o', long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Stop recording after this time, e.g. 30s
    #[arg(long = "for", value_name = "TIME", value_parser = values::duration)]
    pub(crate) duration: Option<Duration>,
    /// How to record: bpf, tracefs or ptrace [default: the best that is permitted]
    ///
    /// bpf (root) sees everything and costs about a microsecond for each operation. tracefs (root)
    /// costs as little, but most kernels do not tell it the names of files. ptrace needs no rights
    /// over one's own programs and is slower.
    #[arg(long, value_name = "HOW", value_parser = values::mechanism)]
    pub(crate) with: Option<ropeway_observe::Mechanism>,
}

/// Which operations to show.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub(crate) struct FilterArgs {
    /// Only this kind of operation, e.g. read or rename (repeatable)
    #[arg(short = 'k', long, value_name = "KIND", value_parser = values::kind)]
    pub(crate) kind: Vec<String>,
    /// Only operations on `source` or `target`
    #[arg(long, value_name = "END", value_parser = values::end)]
    pub(crate) end: Option<ropeway_vfs::End>,
    /// Only paths that contain this text
    #[arg(short = 'p', long, value_name = "TEXT")]
    pub(crate) path: Option<String>,
    /// Only this process: its number or the name of its program
    #[arg(long, value_name = "N|NAME")]
    pub(crate) process: Option<String>,
    /// Only operations that failed
    #[arg(long)]
    pub(crate) failed: bool,
    /// Only operations that took longer than this, e.g. 10ms
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) longer_than: Option<Duration>,
}

/// How to show operations.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ViewArgs {
    /// Show at most N operations (with --stacks-by: N groups)
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// Only the totals by kind: count, bytes, times
    #[arg(short = 's', long)]
    pub(crate) summary: bool,
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Comma-separated values (RFC 4180)
    #[arg(long)]
    pub(crate) csv: bool,
    /// Chrome's trace format, for ui.perfetto.dev and chrome://tracing
    #[arg(long)]
    pub(crate) perfetto: bool,
    /// Group by size of I/O, by path or by process, each divided into kinds
    #[arg(long, value_name = "KEY")]
    pub(crate) stacks_by: Option<StacksBy>,
    /// Plot against time: operations/s, bytes/s, in flight, sizes, offsets; to a .svg or .png, or the terminal
    #[arg(long, value_name = "PICTURE", num_args = 0..=1, default_missing_value = "-")]
    pub(crate) plot: Option<PathBuf>,
}

/// What operations are grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StacksBy {
    /// Bytes asked for, by powers of two.
    Size,
    /// Path.
    Path,
    /// Process and program, or connection.
    Process,
}

/// Where the operations come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TraceSource<'a> {
    /// A trace file.
    File(&'a Path),
    /// A command to run.
    Run(&'a [OsString]),
    /// A running process.
    Process(u32),
    /// A file system.
    Volume(&'a Path),
}

/// Where a plot goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plot<'a> {
    Terminal,
    Svg(&'a Path),
    Png(&'a Path),
}

fn extension<'a>(path: &'a Path, wanted: &str) -> Option<&'a Path> {
    let found = path.extension()?;
    found.eq_ignore_ascii_case(wanted).then_some(path)
}

impl ViewArgs {
    /// Returns where the plot goes, and the argument of --plot that is no picture.
    fn plot_and_rest(&self) -> (Option<Plot<'_>>, Option<&Path>) {
        let Some(path) = self.plot.as_deref() else {
            return (None, None);
        };
        if path == "-" {
            return (Some(Plot::Terminal), None);
        }
        let svg = extension(path, "svg").map(Plot::Svg);
        match svg.or_else(|| extension(path, "png").map(Plot::Png)) {
            Some(plot) => (Some(plot), None),
            None => (Some(Plot::Terminal), Some(path)),
        }
    }

    /// Whether every operation is listed, or their totals are.
    pub(crate) fn is_listing(&self) -> bool {
        self.stacks_by.is_none() && self.plot.is_none() && !self.perfetto
    }

    /// Returns where the plot goes; `None` if none is wanted.
    pub(crate) fn plot(&self) -> Option<Plot<'_>> {
        self.plot_and_rest().0
    }
}

impl TraceArgs {
    /// Returns where the operations come from.
    ///
    /// # Errors
    /// There is none, or several are given.
    pub(crate) fn source(&self) -> Result<TraceSource<'_>, Failure> {
        // `trace --plot FILE`: a value that is no picture is the trace.
        let (_, rest) = self.view.plot_and_rest();
        if let (Some(_), Some(rest)) = (&self.file, rest) {
            let message = format!("{} is not a picture", rest.display());
            return Err(Failure::usage(message).hint("give --plot a name that ends in .svg or .png, or none"));
        }
        let record = &self.record;
        let file = self.file.as_deref().or(rest).map(TraceSource::File);
        let run = (!record.run.is_empty()).then_some(TraceSource::Run(&record.run));
        let process = record.pid.map(TraceSource::Process);
        let volume = record.volume.as_deref().map(TraceSource::Volume);
        let mut given = [file, run, process, volume].into_iter().flatten();
        match (given.next(), given.next()) {
            (Some(source), None) => Ok(source),
            (None, _) => Err(Failure::usage("nothing to show")
                .hint("give a trace FILE, or --run COMMAND, --pid N or --volume DIR")),
            (Some(_), Some(_)) => Err(Failure::usage(
                "FILE, --run, --pid and --volume cannot be used together",
            )
            .hint("the command after --run takes everything that follows it")),
        }
    }

    /// Checks the views.
    ///
    /// # Errors
    /// Two views are given, or a flag of recording without a recording.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let (view, record) = (&self.view, &self.record);
        let formats = [
            (view.json, "--json"),
            (view.csv, "--csv"),
            (view.perfetto, "--perfetto"),
            (view.plot.is_some(), "--plot"),
        ];
        let views = [
            (view.summary, "--summary"),
            (view.stacks_by.is_some(), "--stacks-by"),
            (view.perfetto, "--perfetto"),
            (view.plot.is_some(), "--plot"),
        ];
        for group in [formats, views] {
            let mut given = group.into_iter().filter(|(given, _)| *given);
            if let (Some((_, one)), Some((_, two))) = (given.next(), given.next()) {
                return Err(Failure::usage(format!("{one} and {two} cannot be used together"))
                    .hint("leave out one of them"));
            }
        }
        let records = !matches!(self.source()?, TraceSource::File(_));
        let flags = [
            (record.output.is_some(), "--output"),
            (record.duration.is_some(), "--for"),
            (record.with.is_some(), "--with"),
        ];
        match flags.into_iter().find(|(given, _)| *given && !records) {
            Some((_, flag)) => Err(Failure::usage(format!("{flag} belongs to a recording"))
                .hint("use it with --run, --pid or --volume")),
            None => Ok(()),
        }
    }
}
