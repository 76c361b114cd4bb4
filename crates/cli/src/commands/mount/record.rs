//! `mount --record FILE`: writes down what programs open and read (docs/recording.md).
//!
//! ```text
//! requests ──> Sender ── queue, bounded ──> thread ──> FILE
//!                └ full: counted as lost      └ an error, or a full FILE: it ends, and says so
//! ```
//!
//! No request ever waits for the recording. It reaches the file within a second.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ropeway_cache::recording::{LINE_BYTES_MAX, MAGIC, Open, Read, Record, Session};
use ropeway_mount::{ReadObserver, SharedObserver, UseObserver};
use ropeway_vfs::store::{NodeStat, Store};
use ropeway_vfs::{Kind, RelPath};
use rustix::fs::{FlockOperation, flock};

use super::report::Reporter;
use crate::failure::{Failure, code};
use crate::ui::format;

/// Records that wait for the thread: about 2 MiB with paths of ordinary length.
const QUEUE_RECORDS: usize = 8192;
/// Bytes of text gathered for one write.
const BUFFER_BYTES: usize = 64 << 10;
/// Size of a recording, at most. A read of 128 KiB takes some 60 bytes: this is 2 TB of reads.
const BYTES_MAX: u64 = 1 << 30;
/// Longest time that a record waits to be written.
const DELAY_MAX: Duration = Duration::from_secs(1);
/// Longest time that the end of the mount waits for the recording. A guess.
const END_MAX: Duration = Duration::from_secs(5);
/// Bytes of a program's name (TASK_COMM_LEN of the kernel is 16; kernel threads have more).
const PROGRAM_MAX: u64 = 64;

/// A file to record in, which no other process uses.
pub(super) struct Target {
    path: PathBuf,
    file: File,
    size: u64,
    /// Whether the file was made here and nothing is in it yet.
    is_new: bool,
}

impl Target {
    /// Opens a new or empty file, or a recording to go on with. Others are not changed.
    ///
    /// # Errors
    /// It is another file, in use, or cannot be opened.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let failed = |error: io::Error| {
            let message = format!("cannot record in {shown}: {error}");
            Failure::of_end(message, &error, code::TARGET)
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        // A pipe without a reader is not waited for.
        options.custom_flags(libc_nonblock());
        let opened = match options.clone().create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                options.open(path).map(|file| (file, false))
            }
            opened => opened.map(|file| (file, true)),
        };
        let (file, is_new) = opened.map_err(failed)?;
        let foreign = || {
            let message = format!("{shown} is not a recording; nothing was changed");
            Failure::new(code::REFUSED, message).hint("choose a new file")
        };
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(foreign());
        }
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let message = format!("another process records in {shown}");
            return Err(Failure::new(code::REFUSED, message).hint("each mount needs a recording of its own"));
        }
        let mut target = Self {
            path: path.to_owned(),
            size: 0,
            file,
            is_new,
        };
        match whole_lines(&mut target.file).map_err(failed)? {
            Some(size) => target.size = size,
            None => return Err(foreign()),
        }
        Ok(target)
    }

    /// Begins a session: from now on the observer's records are written.
    ///
    /// # Errors
    /// The file cannot be written, or no thread can be started.
    pub(super) fn start(mut self, session: Session, reporter: Reporter) -> Result<Recorder, Failure> {
        let volume = session.volume;
        let mut text = String::new();
        Record::Session(session).write(&mut text);
        let shown = self.path.display().to_string();
        let failed = |error: io::Error| {
            Failure::of_end(format!("cannot record in {shown}: {error}"), &error, code::TARGET)
        };
        // What a killed writer left of a line goes.
        self.file.set_len(self.size).map_err(failed)?;
        self.file.seek(SeekFrom::Start(self.size)).map_err(failed)?;
        self.file.write_all(text.as_bytes()).map_err(failed)?;
        self.is_new = false;
        let (sender, receiver) = sync_channel(QUEUE_RECORDS);
        let sender = Arc::new(Sender {
            zero: Instant::now(),
            volume,
            queue: Mutex::new(Some(sender)),
            counts: Counts::default(),
        });
        let writer = Writer {
            written: self.size + text.len() as u64,
            text: String::with_capacity(BUFFER_BYTES),
            file: self.file.try_clone().map_err(failed)?,
            sender: Arc::clone(&sender),
            path: self.path.clone(),
            reporter,
        };
        let thread = std::thread::Builder::new().name("recording".into());
        let thread = thread.spawn(move || writer.run(&receiver)).map_err(failed)?;
        Ok(Recorder {
            sender,
            thread,
            path: self.path.clone(),
            reporter,
        })
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if self.is_new {
            // The mount did not come about.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Opens without waiting (open(2)).
fn libc_nonblock() -> i32 {
    // The bits are those of a C int.
    rustix::fs::OFlags::NONBLOCK.bits() as i32
}

/// Returns the bytes of a recording's whole lines; `None` if it is not one.
fn whole_lines(file: &mut File) -> io::Result<Option<u64>> {
    let size = file.metadata()?.len();
    if size == 0 {
        return Ok(Some(0));
    }
    let mut first = Vec::new();
    let mut limited = BufReader::new(&mut *file).take(LINE_BYTES_MAX as u64);
    limited.read_until(b'\n', &mut first)?;
    let line = first.strip_suffix(b"\n");
    let line = line.and_then(|line| std::str::from_utf8(line).ok());
    let record = line.map(Record::parse);
    if !first.starts_with(MAGIC.as_bytes()) || !matches!(record, Some(Ok(Record::Session(_)))) {
        return Ok(None);
    }
    let from = size.saturating_sub(LINE_BYTES_MAX as u64);
    let mut end = Vec::new();
    file.seek(SeekFrom::Start(from))?;
    file.read_to_end(&mut end)?;
    let last = end.iter().rposition(|byte| *byte == b'\n');
    Ok(last.map(|at| from + at as u64 + 1))
}

/// Returns the session of a mount of a store.
///
/// # Errors
/// The store's root cannot be examined.
pub(super) fn session(store: &dyn Store, share: [u8; 16], source: &str) -> ropeway_vfs::Result<Session> {
    let now = jiff::Zoned::now();
    Ok(Session {
        share,
        volume: store.look(&RelPath::root())?.id.volume,
        start_us: u64::try_from(now.timestamp().as_microsecond()).unwrap_or(0),
        utc_offset_s: now.offset().seconds(),
        source: source.as_bytes().to_vec(),
    })
}

#[derive(Default)]
struct Counts {
    opens: AtomicU64,
    reads: AtomicU64,
    /// Records for which there was no room in the queue: since the last line that says so, and all.
    lost: AtomicU64,
    lost_ever: AtomicU64,
}

/// Passes what is heard to the thread.
struct Sender {
    zero: Instant,
    volume: u64,
    /// `None` once the recording has ended.
    queue: Mutex<Option<SyncSender<Record>>>,
    counts: Counts,
}

impl Sender {
    fn at_us(&self, moment: Instant) -> u64 {
        let since = moment.saturating_duration_since(self.zero);
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    fn send(&self, record: Record) {
        let counter = match record {
            Record::Open(_) => &self.counts.opens,
            _ => &self.counts.reads,
        };
        let queue = self.queue.lock();
        let Some(sender) = &*queue else { return };
        match sender.try_send(record) {
            Ok(()) => {
                counter.fetch_add(1, Ordering::Relaxed);
            }
            Err(TrySendError::Full(_)) => {
                self.counts.lost.fetch_add(1, Ordering::Relaxed);
                self.counts.lost_ever.fetch_add(1, Ordering::Relaxed);
            }
            // The thread has ended, and has said why.
            Err(TrySendError::Disconnected(_)) => {}
        }
    }
}

/// The observer of a mount.
struct Opens(Arc<Sender>);

impl UseObserver for Opens {
    fn opened(&self, process: u32, path: &RelPath, stat: &NodeStat) -> Option<Arc<dyn ReadObserver>> {
        let sender = &self.0;
        // The others cannot be cached either.
        if stat.kind != Kind::File || stat.id.volume != sender.volume || stat.id.index == 0 {
            return None;
        }
        let reads = Reads {
            sender: Arc::clone(sender),
            pid: process,
            program: program(process),
            file: stat.id.index,
            size: stat.size,
        };
        sender.send(Record::Open(Open {
            at_us: sender.at_us(Instant::now()),
            pid: process,
            program: reads.program.clone(),
            file: reads.file,
            size: reads.size,
            path: path.as_bytes().to_vec(),
        }));
        Some(Arc::new(reads))
    }
}

/// The observer of an open file.
struct Reads {
    sender: Arc<Sender>,
    pid: u32,
    program: Vec<u8>,
    file: u64,
    size: u64,
}

impl ReadObserver for Reads {
    fn read(&self, offset: u64, length: u64, start: Instant) {
        self.sender.send(Record::Read(Read {
            at_us: self.sender.at_us(start),
            took_us: u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX),
            pid: self.pid,
            program: self.program.clone(),
            file: self.file,
            size: self.size,
            offset,
            length,
        }));
    }
}

/// Returns a program's name; empty if it is not known.
fn program(process: u32) -> Vec<u8> {
    let mut name = Vec::new();
    if let Ok(file) = File::open(format!("/proc/{process}/comm")) {
        // Ended meanwhile: then it has no name.
        let _ = file.take(PROGRAM_MAX).read_to_end(&mut name);
    }
    if name.last() == Some(&b'\n') {
        name.pop();
    }
    name
}

/// A recording under way.
pub(super) struct Recorder {
    sender: Arc<Sender>,
    thread: JoinHandle<()>,
    path: PathBuf,
    reporter: Reporter,
}

impl Recorder {
    /// Returns the observer to give to the mount.
    pub(super) fn observer(&self) -> SharedObserver {
        Arc::new(Opens(Arc::clone(&self.sender)))
    }

    /// Ends the recording, and says what is in it.
    pub(super) fn finish(self) {
        drop(self.sender.queue.lock().take());
        // The file may be on a disk that hangs.
        let deadline = Instant::now() + END_MAX;
        while !self.thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let counts = &self.sender.counts;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let lost = match load(&counts.lost_ever) {
            0 => String::new(),
            lost => format!("; {} more came too fast and are missing", format::count(lost)),
        };
        self.reporter.say(&format!(
            "recorded {} and {} in {}{lost}",
            format::counted(load(&counts.opens), "open", "opens"),
            format::counted(load(&counts.reads), "read", "reads"),
            self.path.display(),
        ));
    }
}

/// The thread that writes.
struct Writer {
    file: File,
    sender: Arc<Sender>,
    /// Lines that are not written yet.
    text: String,
    /// Bytes of the file.
    written: u64,
    path: PathBuf,
    reporter: Reporter,
}

impl Writer {
    fn run(mut self, queue: &Receiver<Record>) {
        let ended = self.write_all(queue);
        if let Err(why) = ended {
            let path = self.path.display();
            self.reporter.say(&format!(
                "{path}: {why}; the recording ends here, the mount goes on"
            ));
        }
    }

    /// Writes until the mount ends.
    fn write_all(&mut self, queue: &Receiver<Record>) -> Result<(), String> {
        let mut last = Instant::now();
        loop {
            let next = queue.recv_timeout(DELAY_MAX.saturating_sub(last.elapsed()));
            let lost = self.sender.counts.lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                Record::Lost(lost).write(&mut self.text);
            }
            let is_last = match next {
                Ok(record) => {
                    record.write(&mut self.text);
                    false
                }
                Err(RecvTimeoutError::Timeout) => false,
                Err(RecvTimeoutError::Disconnected) => true,
            };
            if is_last || self.text.len() >= BUFFER_BYTES || last.elapsed() >= DELAY_MAX {
                self.flush()?;
                last = Instant::now();
            }
            if is_last {
                return Ok(());
            }
        }
    }

    fn flush(&mut self) -> Result<(), String> {
        let bytes = self.text.as_bytes();
        if self.written + bytes.len() as u64 > BYTES_MAX {
            return Err(format!("it has reached {}", format::bytes(BYTES_MAX)));
        }
        let written = self.file.write_all(bytes);
        written.map_err(|error| format!("it cannot be written ({error})"))?;
        self.written += bytes.len() as u64;
        self.text.clear();
        Ok(())
    }
}
