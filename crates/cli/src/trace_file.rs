//! The file that `--trace` writes: JSON Lines, documented in `docs/trace.md`.
//!
//! Records are put into lines by a thread of their own, behind a bounded queue: an operation waits when the queue is
//! full, and none is lost. The first line describes the run, the last one counts the operations, so that a trace
//! that was cut off is recognised.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ropeway_copy::private_options;
use ropeway_vfs::RelPath;
use ropeway_vfs::trace::{End, Observer, Record};
use serde::{Deserialize, Serialize};

/// Format version; readers refuse others.
const VERSION: u32 = 1;
/// Records waiting to be written: about 2 MiB with paths of common length.
const QUEUE_RECORDS: usize = 8192;
/// Bytes collected before they are written.
const BUFFER_BYTES: usize = 256 << 10;

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// Format version.
    pub(crate) version: u32,
    /// Name and version of the program.
    pub(crate) program: String,
    /// Zero of all times, RFC 3339.
    pub(crate) started: String,
    /// The copy engine.
    pub(crate) engine: String,
    /// The command line.
    pub(crate) command: Vec<String>,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Operation {
    /// Start in nanoseconds since the trace's zero.
    pub(crate) t_ns: u64,
    /// Which end of the copy.
    pub(crate) end: End,
    /// What was done.
    pub(crate) kind: String,
    /// The node, escaped by [`escape`].
    pub(crate) path: String,
    /// First byte, 0 where it has no meaning.
    pub(crate) offset: u64,
    /// Bytes asked for, 0 where it has no meaning.
    pub(crate) length: u64,
    /// Bytes done, or a negative errno.
    pub(crate) result: i64,
    /// How long it took, in nanoseconds.
    pub(crate) duration_ns: u64,
}

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Line {
    /// The first one.
    Trace(Header),
    /// An operation.
    Op(Operation),
    /// The last one.
    End {
        /// Operations before it.
        operations: u64,
    },
}

/// An owned record on its way to the writer; escaping is left to its thread.
struct Queued {
    operation: Operation,
    path: RelPath,
}

/// Writes a trace; give [`observer`](Self::observer) to the trees and call [`finish`](Self::finish) at the end.
pub(crate) struct TraceWriter {
    observer: Arc<Sender>,
    thread: JoinHandle<io::Result<()>>,
}

/// The observer: hands records to the writer's thread.
struct Sender {
    zero: Instant,
    /// `None` after the end.
    queue: Mutex<Option<SyncSender<Queued>>>,
}

impl TraceWriter {
    /// Creates the file and writes its first line.
    ///
    /// # Errors
    /// The file cannot be written, or there is no thread to be had.
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

    /// What trees report to.
    pub(crate) fn observer(&self) -> Arc<dyn Observer> {
        Arc::clone(&self.observer) as Arc<dyn Observer>
    }

    /// Writes what is queued and the last line. Operations that finish later are not recorded.
    ///
    /// # Errors
    /// The file could not be written whole.
    pub(crate) fn finish(self) -> io::Result<()> {
        self.observer.lock().take();
        match self.thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Sender {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<SyncSender<Queued>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
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
        // The clone lets several threads wait for room at once, without the lock.
        let Some(queue) = self.lock().clone() else { return };
        // It fails only when the writer stopped on an error, which `finish` reports.
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

/// A path as text, reversibly: UTF-8 as it is, a backslash doubled, other bytes as `\xNN`. The root is `.`.
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

/// Why a trace cannot be read.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The system's reason.
    Io(io::Error),
    /// Number of the line, and what is wrong with it.
    Line(u64, String),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reads a trace line by line; memory does not grow with it.
pub(crate) struct TraceReader<R> {
    lines: io::Lines<R>,
    number: u64,
    header: Header,
    operations: u64,
    /// Whether the last line was seen.
    whole: bool,
}

impl TraceReader<BufReader<File>> {
    /// Opens a file.
    ///
    /// # Errors
    /// It cannot be read or is no trace.
    pub(crate) fn open(path: &Path) -> Result<Self, ReadError> {
        Self::new(BufReader::with_capacity(BUFFER_BYTES, File::open(path)?))
    }
}

impl<R: BufRead> TraceReader<R> {
    /// Reads the first line.
    ///
    /// # Errors
    /// It is no trace, or one of another version.
    pub(crate) fn new(reader: R) -> Result<Self, ReadError> {
        let mut lines = reader.lines();
        let no_trace = || ReadError::Line(1, "this is no trace of ropeway".to_owned());
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
                format!("format version {}, and only {VERSION} is known", header.version),
            )),
            _ => Err(no_trace()),
        }
    }

    /// The first line.
    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    /// Whether everything was read and nothing is missing at the end.
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
                "a second first line".to_owned(),
            ))),
            // A line that was cut off by the end of the file.
            Err(error) if error.is_eof() => None,
            Err(error) => Some(Err(ReadError::Line(self.number, error.to_string()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_recorded_is_read_back() {
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
    fn a_cut_off_trace_is_recognised_and_nonsense_refused() {
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
