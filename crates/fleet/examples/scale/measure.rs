//! What a process measures of itself.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::Child;
use std::time::Instant;

use parking_lot::Mutex;
use ropeway_fleet::claim::Epoch;
use ropeway_fleet::error::Result;
use ropeway_fleet::queue::{Message, Queue, ShareQueue};
use ropeway_fleet::task::{Task, Work};
use ropeway_vfs::Pending;
use serde::{Deserialize, Serialize};

/// Tasks of one kind.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Kind {
    /// Number of tasks.
    pub(crate) tasks: u64,
    /// Time from taking them to their end.
    pub(crate) seconds: f64,
    /// Processor time of the process in that time.
    pub(crate) processor_s: f64,
    /// Largest memory of the whole process in that time.
    pub(crate) memory_kib: u64,
}

/// The queue of a worker, with a watch on each task.
pub(crate) struct TimedQueue {
    inner: ShareQueue,
    state: Mutex<Timing>,
}

#[derive(Default)]
struct Timing {
    running: Option<(&'static str, Instant, f64)>,
    kinds: BTreeMap<&'static str, Kind>,
}

fn kind_of(work: &Work) -> &'static str {
    match work {
        Work::Folder { .. } => "walk",
        Work::Part(_) => "parts",
        Work::Join { .. } => "join",
        Work::Links { .. } => "links",
        Work::Delete { .. } => "delete",
        _ => "folders",
    }
}

impl TimedQueue {
    /// Watches a queue.
    pub(crate) fn new(inner: ShareQueue) -> Self {
        Self {
            inner,
            state: Mutex::default(),
        }
    }

    fn end(&self) {
        let mut state = self.state.lock();
        if let Some((kind, begun, processor_s)) = state.running.take() {
            let kind = state.kinds.entry(kind).or_default();
            kind.tasks += 1;
            kind.seconds += begun.elapsed().as_secs_f64();
            // In hundredths, which is coarse for one task and not for many.
            kind.processor_s += self::processor_s() - processor_s;
            kind.memory_kib = kind.memory_kib.max(memory_kib());
            forget_largest_memory();
        }
    }
}

impl Queue for TimedQueue {
    fn offer<'a>(&'a self, task: &'a Task, least: Epoch) -> Pending<'a, Result<()>> {
        self.inner.offer(task, least)
    }
    fn take(&self) -> Pending<'_, Result<Option<Message>>> {
        Box::pin(async {
            let (begun, processor_s) = (Instant::now(), processor_s());
            let taken = self.inner.take().await?;
            let running = taken
                .as_ref()
                .map(|message| (kind_of(&message.task.work), begun, processor_s));
            self.state.lock().running = running;
            Ok(taken)
        })
    }
    fn renew<'a>(&'a self, message: &'a Message) -> Pending<'a, Result<()>> {
        self.inner.renew(message)
    }
    fn ack<'a>(&'a self, message: &'a Message) -> Pending<'a, Result<()>> {
        self.end();
        self.inner.ack(message)
    }
    fn release<'a>(&'a self, message: &'a Message) -> Pending<'a, Result<()>> {
        self.end();
        self.inner.release(message)
    }
}

/// What a worker measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WorkerReport {
    /// Its number.
    pub(crate) number: u64,
    /// Its tasks, by kind.
    pub(crate) kinds: BTreeMap<String, Kind>,
    /// Largest memory of the whole process.
    pub(crate) memory_kib: u64,
    /// Processor time of the process.
    pub(crate) processor_s: f64,
}

impl WorkerReport {
    /// Collects what this process measured.
    pub(crate) fn new(number: u64, queue: &TimedQueue) -> Self {
        let kinds = queue.state.lock().kinds.clone();
        let of_kinds = kinds.values().map(|kind| kind.memory_kib).max();
        Self {
            number,
            memory_kib: of_kinds.unwrap_or(0).max(memory_kib()),
            kinds: kinds
                .into_iter()
                .map(|(name, kind)| (name.to_owned(), kind))
                .collect(),
            processor_s: processor_s(),
        }
    }

    /// Returns it as a line.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers are JSON")
    }
}

/// Waits for a worker, and returns what it printed.
pub(crate) fn read(mut child: Child) -> Option<WorkerReport> {
    let mut text = String::new();
    child.stdout.take()?.read_to_string(&mut text).ok()?;
    child.wait().ok()?;
    serde_json::from_str(text.trim()).ok()
}

/// Returns the largest resident memory of this process (VmHWM), since it was last forgotten.
pub(crate) fn memory_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let digits = line.and_then(|line| line.split_whitespace().next());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// Sets the largest memory of this process to that of now: proc(5), `clear_refs`.
fn forget_largest_memory() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Returns the processor time of this process: proc(5), fields 14 and 15 of `stat`, in hundredths.
fn processor_s() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = text.rsplit(')').next().unwrap_or_default();
    let fields = after.split_whitespace().skip(11).take(2);
    fields.filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// Files of a catalog.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Segments.
    pub(crate) segments: u64,
    /// Their bytes.
    pub(crate) segment_bytes: u64,
    /// Bytes that all files take on the volume.
    pub(crate) allocated: u64,
}

impl Usage {
    /// Counts the files below a folder.
    pub(crate) fn of(folder: &Path) -> Self {
        let mut usage = Self::default();
        usage.add(folder, false);
        usage
    }

    fn add(&mut self, folder: &Path, is_segment: bool) {
        use std::os::unix::fs::MetadataExt;
        let Ok(entries) = std::fs::read_dir(folder) else {
            return;
        };
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            self.allocated += metadata.blocks() * 512;
            let is_segment = is_segment || entry.file_name() == "segments";
            if metadata.is_dir() {
                self.add(&entry.path(), is_segment);
            } else if is_segment {
                self.segments += 1;
                self.segment_bytes += metadata.len();
            }
        }
    }
}
