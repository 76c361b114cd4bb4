//! `ropeway trace`: shows the operations of a run.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::time::Duration;

use ropeway_vfs::End;
use serde::Serialize;

use crate::args::TraceArgs;
use crate::failure::{Failure, code};
use crate::trace_file::{Header, Operation, ReadError, TraceReader};
use crate::ui::format;
use crate::ui::messages::print_stderr;

/// Runs the command and returns its exit code.
///
/// # Errors
/// The file cannot be read or is not a trace.
pub(crate) fn run(args: &TraceArgs) -> Result<u8, Failure> {
    args.check()?;
    let mut reader = TraceReader::open(&args.file).map_err(|error| failure(args, error))?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut view = View::new(args);
    let written = show(&mut reader, args, &mut view, &mut out)?;
    match written.and_then(|()| out.flush()) {
        Ok(()) => {}
        // The reader of the pipe has closed it.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(code::DONE),
        Err(error) => return Err(Failure::new(code::TARGET, format!("cannot write: {error}"))),
    }
    if !reader.is_whole() && !view.full() {
        print_stderr("note: the trace is truncated: the run was killed or is still running");
    }
    Ok(code::DONE)
}

fn failure(args: &TraceArgs, error: ReadError) -> Failure {
    match error {
        ReadError::Io(error) => Failure::of_end(
            format!("cannot read {}: {error}", args.file.display()),
            &error,
            code::SOURCE,
        )
        .hint("give a file that --trace wrote"),
        ReadError::Line(number, what) => Failure::usage(format!("{}:{number}: {what}", args.file.display()))
            .hint("give a file that --trace wrote"),
    }
}

/// Reads and prints the trace; the inner result is that of writing.
fn show(
    reader: &mut TraceReader<impl io::BufRead>,
    args: &TraceArgs,
    view: &mut View<'_>,
    out: &mut impl Write,
) -> Result<io::Result<()>, Failure> {
    if let Err(error) = view.begin(reader.header(), out) {
        return Ok(Err(error));
    }
    for operation in reader {
        let operation = operation.map_err(|error| failure(args, error))?;
        if let Err(error) = view.take(&operation, out) {
            return Ok(Err(error));
        }
        if view.full() {
            break;
        }
    }
    Ok(view.end(out))
}

/// The part of a trace to print.
struct View<'a> {
    args: &'a TraceArgs,
    shown: u64,
    kinds: BTreeMap<(&'static str, String), Statistics>,
}

impl<'a> View<'a> {
    fn new(args: &'a TraceArgs) -> Self {
        Self {
            args,
            shown: 0,
            kinds: BTreeMap::new(),
        }
    }

    /// Returns whether `--limit` is reached.
    fn full(&self) -> bool {
        self.args.limit.is_some_and(|limit| self.shown >= limit)
    }

    fn lists(&self) -> bool {
        !self.args.summary
    }

    fn fits(&self, operation: &Operation) -> bool {
        let args = self.args;
        (args.kind.is_empty() || args.kind.contains(&operation.kind))
            && args.end.is_none_or(|end| end == operation.end)
            && args
                .path
                .as_ref()
                .is_none_or(|part| operation.path.contains(part.as_str()))
            && (!args.failed || operation.result < 0)
            && args
                .longer_than
                .is_none_or(|bound| Duration::from_nanos(operation.duration_ns) > bound)
    }

    fn begin(&mut self, header: &Header, out: &mut impl Write) -> io::Result<()> {
        if self.args.csv {
            let columns = if self.lists() {
                "t_ns,end,kind,path,offset,length,result,duration_ns"
            } else {
                "end,kind,count,failed,bytes,seconds,mean_us,p50_us,p99_us,max_us"
            };
            return writeln!(out, "{columns}");
        }
        if self.args.json {
            return Ok(());
        }
        writeln!(
            out,
            "# {} · engine {} · started {}",
            header.program, header.engine, header.started
        )?;
        writeln!(out, "# {}", one_line(&header.command.join(" ")))?;
        if self.lists() {
            writeln!(
                out,
                "{:>12} {:>10}  {:6} {:14} {:>12} {:>9} {:>9}  path",
                "at s", "took", "end", "kind", "offset", "length", "result"
            )?;
        }
        Ok(())
    }

    fn take(&mut self, operation: &Operation, out: &mut impl Write) -> io::Result<()> {
        if !self.fits(operation) {
            return Ok(());
        }
        self.shown += 1;
        self.kinds
            .entry((end_name(operation.end), operation.kind.clone()))
            .or_default()
            .add(operation);
        if !self.lists() {
            return Ok(());
        }
        if self.args.json {
            serde_json::to_writer(&mut *out, operation)?;
            return writeln!(out);
        }
        let Operation {
            t_ns,
            end,
            kind,
            path,
            offset,
            length,
            result,
            duration_ns,
        } = operation;
        let end = end_name(*end);
        if self.args.csv {
            let (kind, path) = (csv_field(kind), csv_field(path));
            return writeln!(
                out,
                "{t_ns},{end},{kind},{path},{offset},{length},{result},{duration_ns}"
            );
        }
        let at = Duration::from_nanos(*t_ns).as_secs_f64();
        let took = short_time(*duration_ns as f64);
        let path = one_line(path);
        write!(
            out,
            "{at:>12.6} {took:>10}  {end:6} {kind:14} {offset:>12} {length:>9} {result:>9}  {path}"
        )?;
        match i32::try_from(-result) {
            Ok(errno) if errno > 0 => writeln!(out, "  ({})", cause(errno)),
            _ => writeln!(out),
        }
    }

    fn end(&self, out: &mut impl Write) -> io::Result<()> {
        if (self.args.json || self.args.csv) && self.lists() {
            return Ok(());
        }
        let rows = self
            .kinds
            .iter()
            .map(|((end, kind), statistics)| statistics.row(end, kind));
        if self.args.json {
            for row in rows {
                serde_json::to_writer(&mut *out, &row)?;
                writeln!(out)?;
            }
            return Ok(());
        }
        if self.args.csv {
            for Row {
                end,
                kind,
                count,
                failed,
                bytes,
                seconds,
                mean_us,
                p50_us,
                p99_us,
                max_us,
            } in rows
            {
                let kind = csv_field(kind);
                writeln!(
                    out,
                    "{end},{kind},{count},{failed},{bytes},{seconds},{mean_us},{p50_us},{p99_us},{max_us}"
                )?;
            }
            return Ok(());
        }
        if self.lists() {
            writeln!(out)?;
        }
        writeln!(
            out,
            "{:6} {:14} {:>11} {:>8} {:>11} {:>10} {:>10} {:>10} {:>10} {:>10}",
            "end", "kind", "count", "failed", "bytes", "time", "mean", "p50", "p99", "max"
        )?;
        for row in rows {
            writeln!(
                out,
                "{:6} {:14} {:>11} {:>8} {:>11} {:>10} {:>10} {:>10} {:>10} {:>10}",
                row.end,
                row.kind,
                format::count(row.count),
                format::count(row.failed),
                format::bytes(row.bytes),
                short_time(row.seconds * 1e9),
                short_time(row.mean_us * 1e3),
                short_time(row.p50_us * 1e3),
                short_time(row.p99_us * 1e3),
                short_time(row.max_us * 1e3),
            )?;
        }
        Ok(())
    }
}

/// Number of histogram buckets: 8 for each power of two in nanoseconds, so a quantile is right
/// within 9 %.
const BUCKETS: usize = 64 * 8;

/// Totals for one kind of operation.
struct Statistics {
    count: u64,
    failed: u64,
    bytes: u64,
    total_ns: u64,
    max_ns: u64,
    histogram: Box<[u64; BUCKETS]>,
}

/// One line of the summary.
#[derive(Serialize)]
struct Row<'a> {
    end: &'a str,
    kind: &'a str,
    count: u64,
    failed: u64,
    bytes: u64,
    /// Sum of all durations; operations overlap.
    seconds: f64,
    mean_us: f64,
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
}

impl Default for Statistics {
    fn default() -> Self {
        Self {
            count: 0,
            failed: 0,
            bytes: 0,
            total_ns: 0,
            max_ns: 0,
            histogram: Box::new([0; BUCKETS]),
        }
    }
}

impl Statistics {
    fn add(&mut self, operation: &Operation) {
        self.count += 1;
        match u64::try_from(operation.result) {
            // Only for these kinds is the result a number of bytes.
            Ok(bytes)
                if matches!(
                    operation.kind.as_str(),
                    "read" | "write" | "copy_range" | "reflink" | "batch"
                ) =>
            {
                self.bytes = self.bytes.saturating_add(bytes);
            }
            Ok(_) => {}
            Err(_) => self.failed += 1,
        }
        self.total_ns = self.total_ns.saturating_add(operation.duration_ns);
        self.max_ns = self.max_ns.max(operation.duration_ns);
        self.histogram[bucket(operation.duration_ns)] += 1;
    }

    /// Returns the duration that the fraction `fraction` of all operations does not exceed.
    fn quantile(&self, fraction: f64) -> u64 {
        let wanted = (self.count as f64 * fraction).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, number) in self.histogram.iter().enumerate() {
            seen += number;
            if seen >= wanted {
                return upper(index).min(self.max_ns);
            }
        }
        self.max_ns
    }

    fn row<'a>(&self, end: &'a str, kind: &'a str) -> Row<'a> {
        let micro = |nanoseconds: f64| (nanoseconds / 10.0).round() / 100.0;
        Row {
            end,
            kind,
            count: self.count,
            failed: self.failed,
            bytes: self.bytes,
            seconds: self.total_ns as f64 / 1e9,
            mean_us: micro(self.total_ns as f64 / self.count.max(1) as f64),
            p50_us: micro(self.quantile(0.5) as f64),
            p99_us: micro(self.quantile(0.99) as f64),
            max_us: micro(self.max_ns as f64),
        }
    }
}

/// Returns the bucket of a duration: exponent, and the three bits after the leading one.
fn bucket(nanoseconds: u64) -> usize {
    if nanoseconds < 8 {
        return nanoseconds as usize;
    }
    let exponent = nanoseconds.ilog2() as usize;
    exponent * 8 + ((nanoseconds >> (exponent - 3)) & 7) as usize
}

/// Returns the largest duration in a bucket.
fn upper(bucket: usize) -> u64 {
    if bucket < 8 {
        return bucket as u64;
    }
    let (exponent, part) = (bucket / 8, bucket as u64 % 8);
    let top = u128::from(8 + part + 1) << exponent.saturating_sub(3);
    u64::try_from(top - 1).unwrap_or(u64::MAX)
}

fn end_name(end: End) -> &'static str {
    match end {
        End::Source => "source",
        End::Target => "target",
    }
}

/// Quotes fields that have separators or quotes, and doubles the quotes (RFC 4180).
fn csv_field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// Replaces control characters in names, which would disturb the table or the terminal.
fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// Formats a duration as `12.3 us`.
fn short_time(nanoseconds: f64) -> String {
    match nanoseconds {
        n if n < 1e3 => format!("{n:.0} ns"),
        n if n < 1e6 => format!("{:.1} us", n / 1e3),
        n if n < 1e9 => format!("{:.1} ms", n / 1e6),
        n => format!("{:.2} s", n / 1e9),
    }
}

/// Returns the text of an errno.
fn cause(errno: i32) -> String {
    let text = io::Error::from_raw_os_error(errno).to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

#[cfg(test)]
#[path = "trace_tests.rs"]
mod tests;
