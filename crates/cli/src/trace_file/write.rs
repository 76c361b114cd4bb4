//! Writing a trace.
//!
//! ```text
//! operation ends ──> its thread formats a line ──> shared buffer ──(256 KiB, or a second)──> thread ──> FILE
//! ```
//!
//! Lines are handed over in buffers of some thousand, so that an operation costs no change of threads.
//! At most [`BUFFERS`] wait to be written; beyond, operations wait. So no record is lost.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_copy::private_options;
use ropeway_vfs::End;
use ropeway_vfs::trace::{KINDS, Observer, Record};
use rustix::time::{ClockId, clock_gettime};

use super::text::{push_name, push_number, push_path, push_word};
use super::{Header, Line, Summary, VERSION, VERSION_OF_COPIES};
use crate::failure::{Failure, code};

/// Size at which a buffer is handed to the writer, in bytes: some 1,500 lines.
const BUFFER_BYTES: usize = 256 << 10;
/// Buffers that wait for the writer, at most.
const BUFFERS: usize = 8;
/// Longest time that a line waits in a buffer that is not full.
const DELAY_MAX: Duration = Duration::from_secs(1);
/// Size of a line's buffer that a thread keeps (a guess: longer paths are rare).
const LINE_KEPT_BYTES: usize = 1 << 10;

/// What the last line says besides the number of operations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ending {
    /// Operations that happened and are not in the trace.
    pub(crate) lost: u64,
    /// What a reader should know about the recording.
    pub(crate) notes: Vec<String>,
}

/// Writes a trace. Give [`observer`](Self::observer) to what is to be recorded and call
/// [`finish`](Self::finish) at the end.
pub(crate) struct TraceWriter {
    observer: Arc<Sender>,
    thread: JoinHandle<io::Result<File>>,
}

/// The observer, which formats records.
struct Sender {
    /// The trace's zero, since the boot of the machine.
    zero: Duration,
    state: Mutex<State>,
    /// Empty buffers that were written, to be used again: new memory costs as much as what is put into it.
    /// At most [`BUFFERS`].
    spare: Mutex<Vec<Vec<u8>>>,
}

struct State {
    /// Lines that were not handed over yet.
    lines: Vec<u8>,
    operations: u64,
    /// `None` once the trace is finished.
    full: Option<SyncSender<Vec<u8>>>,
}

thread_local! {
    /// The line that this thread formats.
    static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Returns CLOCK_MONOTONIC.
fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec as u32)
}

impl TraceWriter {
    /// Creates the file of a copy, mirror or check, and writes its first line.
    ///
    /// # Errors
    /// The file cannot be written, or no thread can be started.
    pub(crate) fn create(path: &Path, engine: &str) -> io::Result<Self> {
        let header = Header {
            version: VERSION_OF_COPIES,
            engine: engine.to_owned(),
            ..Header::default()
        };
        Self::with_header(open(path)?, header)
    }

    /// Creates the file of another run, whose operations have no end: for `serve`, `mount` and the like.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub(crate) fn start_run(path: &Path) -> Result<Self, Failure> {
        let writer = open(path).and_then(|file| Self::of_program(file, "", Vec::new()));
        writer.map_err(|error| {
            let message = format!("cannot write the trace {}: {error}", path.display());
            Failure::of_end(message, &error, code::TARGET)
                .hint("give a file in a folder that exists and is writable")
        })
    }

    /// Finishes the trace of such a run.
    ///
    /// # Errors
    /// The file could not be written completely.
    pub(crate) fn finish_run(self) -> Result<(), Failure> {
        self.finish()
            .map_err(|error| Failure::new(code::SOME_FAILED, format!("the trace is incomplete: {error}")))
    }

    /// Begins a recording of other programs in an empty file.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub(crate) fn of_program(file: File, mechanism: &str, unseen: Vec<String>) -> io::Result<Self> {
        let header = Header {
            version: VERSION,
            mechanism: mechanism.to_owned(),
            unseen,
            ..Header::default()
        };
        Self::with_header(file, header)
    }

    fn with_header(mut file: File, header: Header) -> io::Result<Self> {
        let zero = monotonic();
        let header = Header {
            program: concat!("ropeway ", env!("CARGO_PKG_VERSION")).to_owned(),
            started: jiff::Timestamp::now().to_string(),
            command: std::env::args_os()
                .map(|part| part.to_string_lossy().into_owned())
                .collect(),
            ..header
        };
        let mut first = serde_json::to_vec(&Line::Trace(header))?;
        first.push(b'\n');
        file.write_all(&first)?;
        let (sender, receiver) = sync_channel(BUFFERS);
        let observer = Arc::new(Sender {
            zero,
            state: Mutex::new(State {
                lines: Vec::with_capacity(BUFFER_BYTES),
                operations: 0,
                full: Some(sender),
            }),
            spare: Mutex::default(),
        });
        let shared = Arc::clone(&observer);
        let thread = std::thread::Builder::new()
            .name("ropeway-trace".into())
            .spawn(move || write_all(file, &receiver, &shared))?;
        Ok(Self { observer, thread })
    }

    /// Returns the observer to give to the trees.
    pub(crate) fn observer(&self) -> Arc<dyn Observer> {
        Arc::clone(&self.observer) as Arc<dyn Observer>
    }

    /// Returns the trace's zero, in nanoseconds of CLOCK_MONOTONIC.
    pub(crate) fn zero_ns(&self) -> u64 {
        nanoseconds(self.observer.zero)
    }

    /// Writes the queued records and the last line. Later operations are not recorded.
    ///
    /// # Errors
    /// The file could not be written completely.
    pub(crate) fn finish(self) -> io::Result<()> {
        self.finish_with(Ending::default()).map(|_| ())
    }

    /// Finishes a recording that has more to say at its end. Returns the file.
    ///
    /// # Errors
    /// The file could not be written completely.
    pub(crate) fn finish_with(self, ending: Ending) -> io::Result<File> {
        let (operations, rest) = {
            let mut state = self.observer.state.lock();
            state.full = None;
            (state.operations, std::mem::take(&mut state.lines))
        };
        let mut file = match self.thread.join() {
            Ok(result) => result?,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let summary = Summary {
            operations,
            lost: ending.lost,
            notes: ending.notes,
        };
        let mut last = rest;
        serde_json::to_writer(&mut last, &Line::End(summary))?;
        last.push(b'\n');
        file.write_all(&last)?;
        Ok(file)
    }
}

fn open(path: &Path) -> io::Result<File> {
    private_options()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
}

impl Observer for Sender {
    fn now(&self) -> Duration {
        monotonic().saturating_sub(self.zero)
    }

    fn record(&self, record: Record<'_>) {
        debug_assert!(
            KINDS.contains(&record.kind),
            "{} is no kind of operation",
            record.kind
        );
        LINE.with_borrow_mut(|line| {
            line.clear();
            format(line, &record);
            self.take(line);
            line.shrink_to(LINE_KEPT_BYTES);
        });
    }
}

impl Sender {
    /// Takes a line. Waits with the lock held while too much waits to be written: so do the others
    /// then, and the order stays.
    fn take(&self, line: &[u8]) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(full) = &state.full else {
            return;
        };
        state.operations += 1;
        state.lines.extend_from_slice(line);
        if state.lines.len() >= BUFFER_BYTES {
            let lines = std::mem::replace(&mut state.lines, self.empty());
            // Sending fails only after the writer has stopped on an error, which `finish` reports.
            _ = full.send(lines);
        }
    }

    /// Returns an empty buffer, with room for a line beyond its size.
    fn empty(&self) -> Vec<u8> {
        let spare = self.spare.lock().pop();
        spare.unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES + LINE_KEPT_BYTES))
    }

    /// Keeps a buffer that was written.
    fn reuse(&self, mut lines: Vec<u8>) {
        lines.clear();
        // A long line has made it larger.
        lines.shrink_to(BUFFER_BYTES + LINE_KEPT_BYTES);
        let mut spare = self.spare.lock();
        if spare.len() < BUFFERS {
            spare.push(lines);
        }
    }
}

/// Writes what is handed over, and once in a while what was not yet. Returns the file when the trace
/// is finished.
fn write_all(mut file: File, full: &Receiver<Vec<u8>>, observer: &Sender) -> io::Result<File> {
    loop {
        match full.recv_timeout(DELAY_MAX) {
            Ok(lines) => {
                file.write_all(&lines)?;
                observer.reuse(lines);
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(file),
            Err(RecvTimeoutError::Timeout) => {
                // Whoever holds the lock may wait for this thread.
                let Some(mut state) = observer.state.try_lock() else {
                    continue;
                };
                // No buffer can be handed over between the look and the swap.
                let lines = match full.try_recv() {
                    Ok(lines) => lines,
                    Err(_) if state.full.is_none() => return Ok(file),
                    Err(_) => std::mem::replace(&mut state.lines, observer.empty()),
                };
                drop(state);
                file.write_all(&lines)?;
                observer.reuse(lines);
            }
        }
    }
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Formats a line. Fields that have no meaning for an operation are left out, except those of
/// version 1.
fn format(line: &mut Vec<u8>, record: &Record<'_>) {
    line.extend_from_slice(b"{\"type\":\"op\",\"t_ns\":");
    push_number(line, nanoseconds(record.start));
    match record.end {
        Some(End::Source) => line.extend_from_slice(b",\"end\":\"source\""),
        Some(End::Target) => line.extend_from_slice(b",\"end\":\"target\""),
        None => {}
    }
    push_name!(line, "kind");
    push_word(line, record.kind);
    push_name!(line, "path");
    push_path(line, record.path);
    if !record.to.is_empty() {
        push_name!(line, "to");
        push_path(line, record.to);
    }
    push_name!(line, "offset");
    push_number(line, record.offset);
    push_name!(line, "length");
    push_number(line, record.length);
    push_name!(line, "result");
    push_number(line, record.result);
    push_name!(line, "duration_ns");
    push_number(line, nanoseconds(record.duration));
    let by = &record.by;
    if let Some(connection) = by.connection {
        push_name!(line, "connection");
        push_number(line, connection);
    }
    if let Some(ring) = by.ring {
        push_name!(line, "ring");
        push_number(line, ring);
    }
    if let Some(process) = by.process {
        push_name!(line, "process");
        push_number(line, process);
    }
    if let Some(thread) = by.thread {
        push_name!(line, "thread");
        push_number(line, thread);
    }
    if !by.program.is_empty() {
        push_name!(line, "program");
        push_path(line, by.program);
    }
    if !by.call.is_empty() {
        push_name!(line, "call");
        push_word(line, by.call);
    }
    line.extend_from_slice(b"}\n");
}
