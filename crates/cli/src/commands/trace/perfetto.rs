//! `--perfetto`: the trace event format of Chrome, which Perfetto reads too
//! ("Trace Event Format", Google 2016).
//!
//! A thread that does one operation at a time is a track. Operations without a thread overlap, so they
//! are laid out on as many tracks as were in flight at once.

use std::collections::HashMap;
use std::io::{self, Write};

use ropeway_vfs::End;
use serde::Serialize;

use super::view::View;
use crate::trace_file::{Header, Operation};

/// Most tracks of one process without threads; what overlaps more shares the last one.
const TRACKS_MAX: usize = 256;
/// Most processes whose tracks are remembered. Beyond, names are told again.
const PROCESSES_MAX: usize = 4096;

/// Numbers of processes that stand for something else.
const SOURCE: u32 = 1;
const TARGET: u32 = 2;
const OTHER: u32 = 3;

/// Writes events.
#[derive(Default)]
pub(super) struct Perfetto {
    processes: HashMap<u32, Tracks>,
    is_later: bool,
}

/// Tracks of one process.
#[derive(Default)]
struct Tracks {
    /// End of the last operation of each track.
    ends: Vec<u64>,
}

impl Tracks {
    /// Returns the track for an operation: the one that became free last, or a new one. Operations come
    /// in the order of their ends, so none is laid over another one.
    fn place(&mut self, start: u64, end: u64) -> usize {
        let free = self.ends.iter().enumerate().filter(|(_, ended)| **ended <= start);
        let track = match free.max_by_key(|(_, ended)| **ended) {
            Some((track, _)) => track,
            None if self.ends.len() < TRACKS_MAX => {
                self.ends.push(0);
                self.ends.len() - 1
            }
            None => TRACKS_MAX - 1,
        };
        self.ends[track] = self.ends[track].max(end);
        track
    }
}

#[derive(Serialize)]
struct Event<'a> {
    ph: &'a str,
    name: &'a str,
    cat: &'a str,
    /// Microseconds.
    ts: f64,
    dur: f64,
    pid: u32,
    tid: u32,
    args: Arguments<'a>,
}

#[derive(Serialize)]
struct Arguments<'a> {
    path: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    to: &'a str,
    offset: u64,
    length: u64,
    result: i64,
    #[serde(skip_serializing_if = "str::is_empty")]
    call: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    connection: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ring: Option<u32>,
}

/// Name of a process.
#[derive(Serialize)]
struct Named<'a> {
    ph: &'a str,
    name: &'a str,
    pid: u32,
    args: Name<'a>,
}

#[derive(Serialize)]
struct Name<'a> {
    name: &'a str,
}

impl Perfetto {
    fn event(&mut self, event: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
        if self.is_later {
            writeln!(out, ",")?;
        }
        self.is_later = true;
        serde_json::to_writer(out, event)?;
        Ok(())
    }
}

impl View for Perfetto {
    fn begin(&mut self, header: &Header, out: &mut dyn Write) -> io::Result<()> {
        write!(out, "{{\"displayTimeUnit\":\"ns\",\"otherData\":")?;
        serde_json::to_writer(&mut *out, header)?;
        writeln!(out, ",\"traceEvents\":[")
    }

    fn take(&mut self, operation: &Operation, out: &mut dyn Write) -> io::Result<()> {
        let (pid, name) = match (operation.process, operation.end) {
            (Some(process), _) => (process, operation.program.as_str()),
            (None, Some(End::Source)) => (SOURCE, "source"),
            (None, Some(End::Target)) => (TARGET, "target"),
            (None, None) => (OTHER, "ropeway"),
        };
        if self.processes.len() >= PROCESSES_MAX && !self.processes.contains_key(&pid) {
            self.processes.clear();
        }
        let is_new = !self.processes.contains_key(&pid);
        if is_new && !name.is_empty() {
            let args = Name { name };
            let named = Named {
                ph: "M",
                name: "process_name",
                pid,
                args,
            };
            self.event(&named, out)?;
        }
        let tracks = self.processes.entry(pid).or_default();
        let end = operation.t_ns.saturating_add(operation.duration_ns);
        let tid = match operation.thread {
            Some(thread) => thread,
            // Fewer than `TRACKS_MAX`.
            None => tracks.place(operation.t_ns, end) as u32 + 1,
        };
        let event = Event {
            ph: "X",
            name: &operation.kind,
            cat: "file",
            ts: operation.t_ns as f64 / 1e3,
            dur: operation.duration_ns as f64 / 1e3,
            pid,
            tid,
            args: Arguments {
                path: &operation.path,
                to: &operation.to,
                offset: operation.offset,
                length: operation.length,
                result: operation.result,
                call: &operation.call,
                connection: operation.connection,
                ring: operation.ring,
            },
        };
        self.event(&event, out)
    }

    fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "\n]}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn operations_on_one_track_never_overlap(mut spans in proptest::collection::vec((0_u64..100, 0_u64..30), 0..60)) {
            spans.sort_by_key(|(start, length)| start + length);
            let mut tracks = Tracks::default();
            let mut last = vec![0; TRACKS_MAX];
            for (start, length) in spans {
                let track = tracks.place(start, start + length);
                prop_assert!(last[track] <= start);
                last[track] = start + length;
            }
        }
    }
}
