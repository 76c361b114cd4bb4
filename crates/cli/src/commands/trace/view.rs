//! What all views have in common: they take operations one by one, and keep a bounded amount.

use std::io::{self, Write};
use std::time::Duration;

use ropeway_vfs::End;

use crate::args::FilterArgs;
use crate::trace_file::{Header, Operation};

/// Shows a trace.
pub(super) trait View {
    /// Takes the first line.
    ///
    /// # Errors
    /// The output cannot be written.
    fn begin(&mut self, header: &Header, out: &mut dyn Write) -> io::Result<()>;

    /// Takes an operation.
    ///
    /// # Errors
    /// The output cannot be written.
    fn take(&mut self, operation: &Operation, out: &mut dyn Write) -> io::Result<()>;

    /// Returns whether it needs no further operations.
    fn is_full(&self) -> bool {
        false
    }

    /// Shows what was gathered.
    ///
    /// # Errors
    /// The output cannot be written.
    fn end(&mut self, out: &mut dyn Write) -> io::Result<()>;
}

/// Whether an operation is one of those to show.
pub(super) fn fits(args: &FilterArgs, operation: &Operation) -> bool {
    let contains = |part: &String| operation.path.contains(part) || operation.to.contains(part);
    let is_of = |process: &String| {
        operation.program == *process
            || process
                .parse()
                .is_ok_and(|number: u32| operation.process == Some(number))
    };
    (args.kind.is_empty() || args.kind.contains(&operation.kind))
        && args.end.is_none_or(|end| Some(end) == operation.end)
        && args.path.as_ref().is_none_or(contains)
        && args.process.as_ref().is_none_or(is_of)
        && (!args.failed || operation.result < 0)
        && args
            .longer_than
            .is_none_or(|bound| Duration::from_nanos(operation.duration_ns) > bound)
}

/// Returns the end of an operation; empty if it has none.
pub(super) fn end_name(end: Option<End>) -> &'static str {
    match end {
        Some(End::Source) => "source",
        Some(End::Target) => "target",
        None => "",
    }
}

/// Returns who did an operation: end, process, connection or ring, as far as known.
pub(super) fn actor(operation: &Operation) -> String {
    let mut actor = String::from(end_name(operation.end));
    let mut add = |part: String| {
        if !actor.is_empty() {
            actor.push(' ');
        }
        actor.push_str(&part);
    };
    match (operation.process, operation.program.as_str()) {
        (Some(process), "") => add(process.to_string()),
        (Some(process), program) => add(format!("{}[{process}]", one_line(program))),
        (None, _) => {}
    }
    if let Some(connection) = operation.connection {
        add(format!("#{connection}"));
    }
    if let Some(ring) = operation.ring {
        add(format!("ring {ring}"));
    }
    actor
}

/// Quotes fields that have separators or quotes, and doubles the quotes (RFC 4180).
pub(super) fn csv_field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// Replaces control characters in names, which would disturb the table or the terminal.
pub(super) fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// Formats a duration as `12.3 us`.
pub(super) fn short_time(nanoseconds: f64) -> String {
    match nanoseconds {
        n if n < 1e3 => format!("{n:.0} ns"),
        n if n < 1e6 => format!("{:.1} us", n / 1e3),
        n if n < 1e9 => format!("{:.1} ms", n / 1e6),
        n => format!("{:.2} s", n / 1e9),
    }
}

/// Returns the text of an errno.
pub(super) fn cause(errno: i32) -> String {
    let text = io::Error::from_raw_os_error(errno).to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
