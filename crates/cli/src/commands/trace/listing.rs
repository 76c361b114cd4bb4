//! The table, JSON Lines and CSV: every operation, then totals by kind.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use super::sums::{Row, Statistics, Totals};
use super::view::{View, actor, cause, csv_field, end_name, one_line, short_time};
use crate::args::ViewArgs;
use crate::trace_file::{Header, Operation};
use crate::ui::format;

/// Most kinds that have totals of their own; further ones of a foreign file are summed as `other`.
const KINDS_MAX: usize = 256;
/// Columns of `--csv`; the first eight are those of version 1.
const COLUMNS: &str =
    "t_ns,end,kind,path,offset,length,result,duration_ns,to,connection,ring,process,thread,program,call";

/// Lists operations.
pub(super) struct Listing<'a> {
    args: &'a ViewArgs,
    /// Without totals behind the list, and without heading.
    is_bare: bool,
    shown: u64,
    kinds: BTreeMap<(&'static str, String), Statistics>,
}

impl<'a> Listing<'a> {
    pub(super) fn new(args: &'a ViewArgs) -> Self {
        Self {
            args,
            is_bare: (args.json || args.csv) && !args.summary,
            shown: 0,
            kinds: BTreeMap::new(),
        }
    }

    /// Shows totals that are known already.
    pub(super) fn of_totals(args: &'a ViewArgs, totals: Totals) -> Self {
        let kinds = totals.into_kinds();
        Self {
            kinds: kinds.map(|(kind, sums)| (("", kind.to_owned()), sums)).collect(),
            ..Self::new(args)
        }
    }

    fn lists(&self) -> bool {
        !self.args.summary
    }

    fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.kinds
            .iter()
            .map(|((end, kind), statistics)| statistics.row(end, kind))
    }
}

impl View for Listing<'_> {
    fn is_full(&self) -> bool {
        self.args.limit.is_some_and(|limit| self.shown >= limit)
    }

    fn begin(&mut self, header: &Header, out: &mut dyn Write) -> io::Result<()> {
        if self.args.csv {
            let columns = if self.lists() {
                COLUMNS
            } else {
                "end,kind,count,failed,bytes,seconds,mean_us,p50_us,p99_us,max_us"
            };
            return writeln!(out, "{columns}");
        }
        if self.args.json {
            return Ok(());
        }
        heading(header, out)?;
        if self.lists() {
            writeln!(
                out,
                "{:>12} {:>10}  {:16} {:14} {:>12} {:>9} {:>9}  path",
                "at s", "took", "by", "kind", "offset", "length", "result"
            )?;
        }
        Ok(())
    }

    fn take(&mut self, operation: &Operation, out: &mut dyn Write) -> io::Result<()> {
        self.shown += 1;
        if !self.is_bare {
            let key = (end_name(operation.end), operation.kind.clone());
            let key = match self.kinds.len() {
                KINDS_MAX.. if !self.kinds.contains_key(&key) => (key.0, "other".to_owned()),
                _ => key,
            };
            self.kinds
                .entry(key)
                .or_default()
                .add(&operation.kind, operation.result, operation.duration_ns);
        }
        if !self.lists() {
            return Ok(());
        }
        if self.args.json {
            serde_json::to_writer(&mut *out, operation)?;
            return writeln!(out);
        }
        if self.args.csv {
            return csv_line(operation, out);
        }
        table_line(operation, out)
    }

    fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.is_bare {
            return Ok(());
        }
        if self.args.json {
            for row in self.rows() {
                serde_json::to_writer(&mut *out, &row)?;
                writeln!(out)?;
            }
            return Ok(());
        }
        if self.args.csv {
            return self.rows().try_for_each(|row| csv_row(&row, out));
        }
        if self.lists() {
            writeln!(out)?;
        }
        writeln!(
            out,
            "{:6} {:14} {:>11} {:>8} {:>11} {:>10} {:>10} {:>10} {:>10} {:>10}",
            "end", "kind", "count", "failed", "bytes", "time", "mean", "p50", "p99", "max"
        )?;
        self.rows().try_for_each(|row| table_row(&row, out))
    }
}

/// Writes what is known of the run.
pub(super) fn heading(header: &Header, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "# {}", one_line(&header.program))?;
    if !header.engine.is_empty() {
        write!(out, " · engine {}", one_line(&header.engine))?;
    }
    if !header.mechanism.is_empty() {
        write!(out, " · recorded by {}", one_line(&header.mechanism))?;
    }
    writeln!(out, " · started {}", one_line(&header.started))?;
    writeln!(out, "# {}", one_line(&header.command.join(" ")))?;
    for unseen in &header.unseen {
        writeln!(out, "# not seen: {}", one_line(unseen))?;
    }
    Ok(())
}

fn csv_line(operation: &Operation, out: &mut dyn Write) -> io::Result<()> {
    let Operation {
        t_ns,
        end,
        kind,
        path,
        to,
        offset,
        length,
        result,
        duration_ns,
        connection,
        ring,
        process,
        thread,
        program,
        call,
    } = operation;
    let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
    let end = end_name(*end);
    let [kind, path, to, program, call] = [kind, path, to, program, call].map(|text| csv_field(text));
    write!(
        out,
        "{t_ns},{end},{kind},{path},{offset},{length},{result},{duration_ns},{to},"
    )?;
    let numbers = [
        *connection,
        ring.map(u64::from),
        process.map(u64::from),
        thread.map(u64::from),
    ];
    writeln!(out, "{},{program},{call}", numbers.map(number).join(","))
}

fn table_line(operation: &Operation, out: &mut dyn Write) -> io::Result<()> {
    let at = Duration::from_nanos(operation.t_ns).as_secs_f64();
    let took = short_time(operation.duration_ns as f64);
    let (by, kind, path) = (
        actor(operation),
        one_line(&operation.kind),
        one_line(&operation.path),
    );
    let (offset, length, result) = (operation.offset, operation.length, operation.result);
    write!(
        out,
        "{at:>12.6} {took:>10}  {by:16} {kind:14} {offset:>12} {length:>9} {result:>9}  {path}"
    )?;
    if !operation.to.is_empty() {
        write!(out, " -> {}", one_line(&operation.to))?;
    }
    match i32::try_from(result.unsigned_abs()) {
        Ok(errno) if result < 0 => writeln!(out, "  ({})", cause(errno)),
        _ => writeln!(out),
    }
}

fn csv_row(row: &Row<'_>, out: &mut dyn Write) -> io::Result<()> {
    let Row {
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
    } = row;
    let kind = csv_field(kind);
    writeln!(
        out,
        "{end},{kind},{count},{failed},{bytes},{seconds},{mean_us},{p50_us},{p99_us},{max_us}"
    )
}

fn table_row(row: &Row<'_>, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "{:6} {:14} {:>11} {:>8} {:>11} {:>10} {:>10} {:>10} {:>10} {:>10}",
        row.end,
        one_line(row.kind),
        format::count(row.count),
        format::count(row.failed),
        format::bytes(row.bytes),
        short_time(row.seconds * 1e9),
        short_time(row.mean_us * 1e3),
        short_time(row.p50_us * 1e3),
        short_time(row.p99_us * 1e3),
        short_time(row.max_us * 1e3),
    )
}
