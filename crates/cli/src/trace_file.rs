//! The file that `--trace` writes: JSON Lines, described in `docs/trace.md`.
//!
//! A thread formats and writes the records behind a bounded queue. An operation waits while the
//! queue is full, so no record is lost. The first line describes the run, and the last line counts
//! the operations, so a reader can tell that a trace is truncated.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ropeway_copy::private_options;
use ropeway_vfs::End;
use ropeway_vfs::RelPath;
use ropeway_vfs::trace::{Observer, Record};
use serde::{Deserialize, Serialize};

/// Version of the format; the reader refuses all others.
const VERSION: u32 = 1;
/// Bound of the queue in records: about 2 MiB with paths of ordinary length.
const QUEUE_RECORDS: usize = 8192;
/// Size of the write buffer in bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// Format version.
    pub(crate) version: u32,
    /// Name and version of the program.
    pub(crate) program: String,
    /// Start of the run (RFC 3339); all times count from here.
    pub(crate) started: String,
    /// Name of the copy engine.
    pub(crate) engine: String,
    /// The command line.
    pub(crate) command: Vec<String>,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Operation {
    /// Start in nanoseconds since [`Header::started`].
    pub(crate) t_ns: u64,
    /// End of the copy on which it ran.
    pub(crate) end: End,
    /// Kind of operation.
    pub(crate) kind: String,
    /// Path of the node, escaped by [`escape`].
    pub(crate) path: String,
    /// Offset of the first byte; 0 if the kind has none.
    pub(crate) offset: u64,
    /// Bytes requested; 0 if the kind has none.
    pub(crate) length: u64,
    /// Bytes transferred, or a negative errno.
    pub(crate) result: i64,
    /// Duration in nanoseconds.
    pub(crate) duration_ns: u64,
}

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Line {
    /// The first line.
    Trace(Header),
    /// An operation.
    Op(Operation),
    /// The last line.
    End {
        /// Number of operations before it.
        operations: u64,
    },
}

/// A record on its way to the writer's thread, which escapes the path.
struct Queued {
    operation: Operation,
    path: RelPath,
}

/// Writes a trace. Give [`observer`](Self::observer) to the trees and call [`finish`](Self::finish)
/// at the end.
pub(crate) struct TraceWriter {
    observer: Arc<Sender>,
    thread: JoinHandle<io::Result<()>>,
}

/// The observer, which passes records to the writer's thread.
struct Sender {
    zero: Instant,
    /// `None` once the trace is finished.
    queue: Mutex<Option<SyncSender<Queued>>>,
}

impl TraceWriter {
    /// Creates the file and writes its first line.
    ///
    /// # Errors
    /// The file cannot be written, or no thread can be started.
    pub(crate) fn create(path: &Path, engine: &str) -> io::Result<Self> {
        let mut out = BufWriter::with_capacity(
            BUFFER_BYTES,
            private_options()
                .write(true)
                .create(true)
                .truncate(true)
                .open(path)?,
        );
        let zero = Instant::now();
        let header = Header {
            version: VERSION,
            program: concat!("ropeway ", env!("CARGO_PKG_VERSION")).to_owned(),
            started: jiff::Timestamp::now().to_string(),
            engine: engine.to_owned(),
            command: std::env::args_os()
                .map(|part| part.to_string_lossy().into_owned())
                .collect(),
        };
        write_line(&mut out, &Line::Trace(header))?;
        let (sender, receiver) = sync_channel(QUEUE_RECORDS);
        let thread = std::thread::Builder::new()
            .name("ropeway-trace".into())
            .spawn(move || write_all(out, &receiver))?;
        Ok(Self {
            observer: Arc::new(Sender {
                zero,
                queue: Mutex::new(Some(sender)),
            }),
            thread,
        })
    }

    /// Returns the observer to give to the trees.
    pub(crate) fn observer(&self) -> Arc<dyn Observer> {
        Arc::clone(&self.observer) as Arc<dyn Observer>
    }

    /// Writes the queued records and the last line. Later operations are not recorded.
    ///
    /// # Errors
    /// The file could not be written completely.
    pub(crate) fn finish(self) -> io::Result<()> {
        self.observer.queue.lock().take();
        match self.thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Observer for Sender {
    fn now(&self) -> Duration {
        self.zero.elapsed()
    }

    fn record(&self, record: Record<'_>) {
        let operation = Operation {
            t_ns: nanoseconds(record.start),
            end: record.end,
            kind: record.kind.to_owned(),
            path: String::new(),
            offset: record.offset,
            length: record.length,
            result: record.result,
            duration_ns: nanoseconds(record.duration),
        };
        // The clone lets several threads wait for space without the lock.
        let Some(queue) = self.queue.lock().clone() else {
            return;
        };
        // Sending fails only after the writer has stopped on an error, which `finish` reports.
        _ = queue.send(Queued {
            operation,
            path: record.path.clone(),
        });
    }
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

fn write_all(mut out: BufWriter<File>, queue: &Receiver<Queued>) -> io::Result<()> {
    let mut operations = 0;
    for Queued { mut operation, path } in queue {
        operation.path = escape(path.as_bytes());
        write_line(&mut out, &Line::Op(operation))?;
        operations += 1;
    }
    write_line(&mut out, &Line::End { operations })?;
    out.flush()
}

fn write_line(out: &mut impl Write, line: &Line) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

/// Converts a path to text reversibly: UTF-8 as it is, a backslash doubled, other bytes as `\xNN`.
/// The root is `.`.
pub(crate) fn escape(path: &[u8]) -> String {
    if path.is_empty() {
        return ".".to_owned();
    }
    let mut text = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '\\' {
                text.push('\\');
            }
            text.push(c);
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// Errors while reading a trace.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The file cannot be read.
    Io(io::Error),
    /// Line number, and what is wrong with the line.
    Line(u64, String),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reads a trace line by line; memory use does not grow with its size.
pub(crate) struct TraceReader<R> {
    lines: io::Lines<R>,
    number: u64,
    header: Header,
    operations: u64,
    /// Whether the last line was read and its count is right.
    whole: bool,
}

impl TraceReader<BufReader<File>> {
    /// Opens a trace file.
    ///
    /// # Errors
    /// The file cannot be read or is not a trace.
    pub(crate) fn open(path: &Path) -> Result<Self, ReadError> {
        Self::new(BufReader::with_capacity(BUFFER_BYTES, File::open(path)?))
    }
}

impl<R: BufRead> TraceReader<R> {
    /// Reads the first line.
    ///
    /// # Errors
    /// The text is not a trace, or has another version.
    pub(crate) fn new(reader: R) -> Result<Self, ReadError> {
        let mut lines = reader.lines();
        let no_trace = || ReadError::Line(1, "this is not a trace of ropeway".to_owned());
        let first = lines.next().ok_or_else(no_trace)?.map_err(|_| no_trace())?;
        match serde_json::from_str(&first) {
            Ok(Line::Trace(header)) if header.version == VERSION => Ok(Self {
                lines,
                number: 1,
                header,
                operations: 0,
                whole: false,
            }),
            Ok(Line::Trace(header)) => Err(ReadError::Line(
                1,
                format!(
                    "the format version is {}, but only {VERSION} is supported",
                    header.version
                ),
            )),
            _ => Err(no_trace()),
        }
    }

    /// Returns the first line.
    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    /// Returns whether the trace was read completely and is not truncated.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }
}

impl<R: BufRead> Iterator for TraceReader<R> {
    type Item = Result<Operation, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.whole {
            return None;
        }
        let text = match self.lines.next()? {
            Ok(text) => text,
            Err(error) => return Some(Err(error.into())),
        };
        self.number += 1;
        match serde_json::from_str(&text) {
            Ok(Line::Op(operation)) => {
                self.operations += 1;
                Some(Ok(operation))
            }
            Ok(Line::End { operations }) => {
                self.whole = operations == self.operations;
                None
            }
            Ok(Line::Trace(_)) => Some(Err(ReadError::Line(
                self.number,
                "a second header line".to_owned(),
            ))),
            // A line that the end of the file truncated.
            Err(error) if error.is_eof() => None,
            Err(error) => Some(Err(ReadError::Line(self.number, error.to_string()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_operations_are_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("trace");
        let writer = TraceWriter::create(&file, "auto").unwrap();
        let observer = writer.observer();
        let path = RelPath::parse(b"a\\b/\xff \"c\"\n").unwrap();
        let count = 3 * QUEUE_RECORDS as u64;
        for offset in 0..count {
            let now = observer.now();
            observer.record(Record {
                start: now,
                duration: Duration::from_nanos(5),
                end: End::Target,
                kind: "write",
                path: &path,
                offset,
                length: 4096,
                result: -28,
            });
        }
        writer.finish().unwrap();
        let mut reader = TraceReader::open(&file).unwrap();
        assert_eq!(reader.header().engine, "auto");
        let read: Vec<Operation> = reader.by_ref().map(Result::unwrap).collect();
        assert!(reader.is_whole());
        assert_eq!(read.len() as u64, count);
        let last = read.last().unwrap();
        assert_eq!(
            (last.offset, last.result, last.end),
            (count - 1, -28, End::Target)
        );
        assert_eq!(last.path, "a\\\\b/\\xff \"c\"\n");
        assert!(read.windows(2).all(|pair| pair[0].t_ns <= pair[1].t_ns));
    }

    #[test]
    fn a_truncated_trace_is_recognised_and_other_files_are_refused() {
        let header =
            r#"{"type":"trace","version":1,"program":"p","started":"s","engine":"auto","command":[]}"#;
        let op = r#"{"type":"op","t_ns":1,"end":"source","kind":"read","path":"a","offset":0,"length":1,"result":1,"duration_ns":2}"#;
        let cut = format!("{header}\n{op}\n{}", &op[..40]);
        let mut reader = TraceReader::new(cut.as_bytes()).unwrap();
        assert_eq!(reader.by_ref().filter_map(Result::ok).count(), 1);
        assert!(!reader.is_whole());
        for bad in ["", "\u{0}", "{}", &header.replace(":1,", ":9,")] {
            assert!(TraceReader::new(bad.as_bytes()).is_err(), "{bad}");
        }
        let damaged = format!("{header}\n{{}}\n");
        let mut reader = TraceReader::new(damaged.as_bytes()).unwrap();
        assert!(matches!(reader.next(), Some(Err(ReadError::Line(2, _)))));
    }

    #[test]
    fn escapes_are_unambiguous() {
        assert_eq!(escape(b""), ".");
        assert_ne!(escape(b"\xff"), escape(b"\\xff"));
        assert_eq!(escape("ä/ö".as_bytes()), "ä/ö");
    }
}
