//! Which processes make pages dirty, which wait, and which files are behind the backlog.
//!
//! A look has three parts, the most telling first, so that a look that is cut short still finds who
//! matters: what each process made dirty since the last look (two small files each); whether threads of
//! those that did are waiting; and the files that processes have open for writing, beginning with those
//! that made most dirty. Processes may end at any time; what cannot be read any more is left out.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::time::{Duration, Instant};

use super::disk::Number;
use super::open_files::{self, Duplicates};
use super::table::{Table, on_block_device};
use super::text;
use crate::parse::process::{Io, Stat, is_held};
use crate::reading::{FileReading, Offenders, ProcessReading};

/// Most processes that are looked at.
const PROCESSES_MAX: usize = 8192;
/// Most descriptors that are looked at.
const DESCRIPTORS_MAX: u64 = 65_536;
/// Most threads of one process whose wait is looked at.
const THREADS_MAX: usize = 256;
/// Most processes that are named for one file.
const PIDS_MAX: usize = 4;
/// Longest time of a look. A guess: a watched machine should not feel it. Looking at 100 processes
/// takes some 5 ms here.
const LOOK_MAX: Duration = Duration::from_millis(400);
/// The process that all threads of the kernel descend from (kernel: `kthreadd`).
const KERNEL: u32 = 2;

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// Only files on this backing device; of a path that has none there are no files.
    pub(crate) bdi: Option<Option<String>>,
    /// Largest number of processes, and of files, to list.
    pub(crate) top: usize,
}

/// Remembers what processes had made dirty at the last look.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    /// Start of the process and bytes, by process id. As large as the table of processes, at most
    /// [`PROCESSES_MAX`].
    last: HashMap<u32, (u64, u64)>,
    looked_at: Option<Instant>,
}

/// What a look finds.
#[derive(Debug, Default)]
pub(crate) struct Look {
    pub(crate) offenders: Offenders,
    /// Waiting threads of processes that have files open for writing on a backing device.
    pub(crate) held: HashMap<String, u64>,
    /// All waiting threads that were seen.
    pub(crate) held_total: u64,
}

/// One process during a look.
#[derive(Debug)]
struct Seen {
    pid: u32,
    name: String,
    dirtied: Option<u64>,
    held: u64,
    open_bytes: Option<u64>,
}

/// One file during a look.
#[derive(Debug)]
struct SeenFile {
    at: (u32, i32),
    bdi: String,
    bytes: [u64; 2],
    pids: Vec<u32>,
}

impl Processes {
    /// Looks at all processes. The first look has no rates.
    pub(crate) fn look(&mut self, table: &Table, wanted: &Wanted) -> Look {
        let begun = Instant::now();
        let since = self
            .looked_at
            .replace(begun)
            .map(|last| begun.duration_since(last));
        let mut look = Look::default();
        let mut seen = self.dirtied(&mut look.offenders, begun);
        for process in seen.iter_mut().filter(|process| process.dirtied > Some(0)) {
            process.held = held_threads(process.pid);
            look.held_total += process.held;
        }
        seen.sort_by_key(|process| (std::cmp::Reverse((process.held, process.dirtied)), process.pid));
        let files = open_files(&mut seen, table, wanted, &mut look, begun);
        look.offenders.files = top_files(files, wanted.top);
        if wanted.bdi.is_some() {
            // What a process makes dirty elsewhere is none of this device's.
            seen.retain(|process| process.open_bytes > Some(0));
        }
        look.offenders.processes = top_processes(seen, since, wanted.top);
        look
    }

    fn dirtied(&mut self, offenders: &mut Offenders, begun: Instant) -> Vec<Seen> {
        let mut seen = Vec::new();
        let mut now = HashMap::new();
        for pid in pids() {
            if seen.len() >= PROCESSES_MAX || begun.elapsed() > LOOK_MAX / 2 {
                let count = seen.len();
                offenders.cut_short = Some(format!("only {count} processes were looked at"));
                break;
            }
            let folder = format!("/proc/{pid}");
            let Some(stat) = text(format!("{folder}/stat"))
                .ok()
                .and_then(|text| Stat::parse(&text))
            else {
                continue;
            };
            offenders.processes_seen += 1;
            let io = match text(format!("{folder}/io")) {
                Ok(text) => Io::parse(&text),
                Err(error) => {
                    let denied = error.kind() == std::io::ErrorKind::PermissionDenied;
                    // Threads of the kernel have no open files.
                    let is_kernel = pid == KERNEL || stat.parent == KERNEL;
                    offenders.processes_hidden += u64::from(denied && !is_kernel);
                    continue;
                }
            };
            let total = io.map(|io| io.dirtied_bytes.saturating_sub(io.cancelled_bytes));
            let before = self
                .last
                .get(&pid)
                .filter(|(start, _)| *start == stat.start_ticks);
            let dirtied = total
                .zip(before)
                .map(|(total, (_, before))| total.saturating_sub(*before));
            if let Some(total) = total {
                now.insert(pid, (stat.start_ticks, total));
            }
            seen.push(Seen {
                pid,
                name: stat.name,
                dirtied,
                held: 0,
                open_bytes: None,
            });
        }
        self.last = now;
        seen
    }
}

/// Returns the ids of all processes that /proc shows.
pub(crate) fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns the name of a process.
pub(crate) fn name_of(pid: u32) -> Option<String> {
    Some(Stat::parse(&text(format!("/proc/{pid}/stat")).ok()?)?.name)
}

/// Returns the number of threads that wait since too much is dirty.
fn held_threads(pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let waits = |entry: &fs::DirEntry| text(entry.path().join("wchan")).is_ok_and(|name| is_held(&name));
    threads.take(THREADS_MAX).filter(waits).count() as u64
}

/// Counts the dirty bytes of files that processes have open for writing.
fn open_files(
    seen: &mut [Seen],
    table: &Table,
    wanted: &Wanted,
    look: &mut Look,
    begun: Instant,
) -> HashMap<(Number, u64), SeenFile> {
    let mut files: HashMap<(Number, u64), SeenFile> = HashMap::new();
    let mut clean: HashSet<(Number, u64)> = HashSet::new();
    let offenders = &mut look.offenders;
    for (index, process) in seen.iter_mut().enumerate() {
        if begun.elapsed() > LOOK_MAX || offenders.files_seen >= DESCRIPTORS_MAX {
            let what = format!("open files of only {index} processes were looked at");
            offenders.cut_short.get_or_insert(what);
            break;
        }
        let duplicates = Duplicates::of(process.pid);
        let (mut open_bytes, mut bdis) = (0_u64, HashSet::new());
        let result = open_files::for_each_writable(process.pid, |open| {
            let key = (open.device, open.inode);
            let place = table.of_file(&open);
            let Some((place, bdi)) = place.and_then(|place| Some((place, place.bdi.clone()?))) else {
                return true;
            };
            bdis.insert(bdi.clone());
            let is_other = wanted
                .bdi
                .as_ref()
                .is_some_and(|wanted| wanted.as_ref() != Some(&bdi));
            if is_other || clean.contains(&key) {
                return true;
            }
            if let Some(file) = files.get_mut(&key) {
                if !file.pids.contains(&process.pid) {
                    open_bytes = open_bytes.saturating_add(file.bytes[0].saturating_add(file.bytes[1]));
                    if file.pids.len() < PIDS_MAX {
                        file.pids.push(process.pid);
                    }
                }
                return true;
            }
            let may = on_block_device(&place.mount);
            let bytes = may
                .then(|| duplicates.unflushed(&open))
                .flatten()
                .unwrap_or([0, 0]);
            if bytes == [0, 0] {
                clean.insert(key);
            } else {
                open_bytes = open_bytes.saturating_add(bytes[0].saturating_add(bytes[1]));
                let file = SeenFile {
                    at: (process.pid, open.descriptor),
                    bdi,
                    bytes,
                    pids: vec![process.pid],
                };
                files.insert(key, file);
            }
            begun.elapsed() <= LOOK_MAX
        });
        match result {
            Ok(descriptors) => {
                offenders.files_seen += descriptors;
                process.open_bytes = Some(open_bytes);
            }
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                offenders.processes_hidden += 1
            }
            // It has ended.
            Err(_) => {}
        }
        if process.held > 0 {
            for bdi in bdis {
                *look.held.entry(bdi).or_default() += process.held;
            }
        }
    }
    files
}

fn top_files(files: HashMap<(Number, u64), SeenFile>, top: usize) -> Vec<FileReading> {
    let mut files: Vec<SeenFile> = files.into_values().collect();
    files.sort_by_key(|file| {
        (
            std::cmp::Reverse(file.bytes[0].saturating_add(file.bytes[1])),
            file.at,
        )
    });
    let shown = files.into_iter().take(top).filter_map(|file| {
        Some(FileReading {
            path: open_files::path_of(file.at.0, file.at.1)?,
            bdi: file.bdi,
            dirty_bytes: file.bytes[0],
            writeback_bytes: file.bytes[1],
            pids: file.pids,
        })
    });
    shown.collect()
}

fn top_processes(mut seen: Vec<Seen>, since: Option<Duration>, top: usize) -> Vec<ProcessReading> {
    seen.retain(|process| process.dirtied > Some(0) || process.open_bytes > Some(0) || process.held > 0);
    seen.sort_by_key(|process| {
        let most = std::cmp::Reverse((process.held > 0, process.open_bytes, process.dirtied));
        (most, process.pid)
    });
    let seconds = since
        .map(|since| since.as_secs_f64())
        .filter(|seconds| *seconds > 0.0);
    let shown = seen.into_iter().take(top).map(|process| ProcessReading {
        pid: process.pid,
        dirtied_rate: process
            .dirtied
            .zip(seconds)
            .map(|(bytes, seconds)| bytes as f64 / seconds),
        open_bytes: process.open_bytes,
        held: process.held > 0,
        name: process.name,
    });
    shown.collect()
}
