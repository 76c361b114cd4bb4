//! Watching by the kernel's recorder of tracepoints, through tracefs.
//!
//! An instance of its own below `instances/` has its own buffers, events and filter, so nobody else's
//! tracing is disturbed. It is removed at the end; one that a killed run left behind is removed by the
//! next run.

pub mod events;
pub mod format;
pub mod page;
mod place;

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};

use self::events::{Meanings, Merge, Pairing, Threads};
use self::page::{Page, PageLayout};
use self::place::Instance;
use crate::call::RawEvent;
use crate::catalogue::Catalogue;
use crate::mechanism::Losses;
use crate::proc;

/// Size of the buffer of each processor in KiB: about 50,000 events.
const BUFFER_KB: u32 = 4096;
/// Most pages of one processor that are read at a time; more than its buffer has.
const PAGES_MAX: usize = 2048;
/// Largest `format` file that is read.
const FORMAT_BYTES_MAX: usize = 64 << 10;

/// A running recorder.
#[derive(Debug)]
pub(crate) struct Tracefs {
    layout: PageLayout,
    pairing: Pairing,
    merge: Merge,
    /// The buffers of all processors.
    pipes: Vec<File>,
    page: Vec<u8>,
    lost: u64,
    has_names: bool,
    /// Dropped last: it can be removed when its buffers are closed.
    instance: Instance,
}

/// Threads by /proc.
struct ByProc;

impl Threads for ByProc {
    fn process_of(&mut self, thread: u32) -> Option<u32> {
        proc::process_of(thread)
    }
}

/// Reads a file. Some of tracefs tell everything in the first read only, however little it asks for.
fn read_text(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut bytes = vec![0; FORMAT_BYTES_MAX];
    let mut length = 0;
    loop {
        match file.read(&mut bytes[length..])? {
            0 => break,
            read => length += read,
        }
    }
    bytes.truncate(length);
    String::from_utf8(bytes).map_err(io::Error::other)
}

impl Tracefs {
    /// Makes an instance and turns the events on. No thread is watched yet.
    ///
    /// # Errors
    /// There is no tracefs or no permission, or the kernel lacks the events.
    pub(crate) fn start(catalogue: &Catalogue) -> io::Result<Self> {
        let instance = Instance::new()?;
        let folder = instance.folder().to_owned();
        let write = |name: &str, value: &str| {
            fs::write(folder.join(name), value)
                .map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))
        };
        write("trace_clock", "mono")?;
        write("options/event-fork", "1")?;
        write("buffer_size_kb", &BUFFER_KB.to_string())?;
        let events = folder.join("events");
        let layout = read_text(&events.join("header_page"))?;
        let layout = PageLayout::parse(&layout)
            .ok_or_else(|| io::Error::other("unknown layout of the ring buffer"))?;
        // Nothing is recorded before a thread is watched: 0 is the number of no program.
        write("set_event_pid", "0")?;
        let mut formats = Vec::new();
        for group in [
            "sched/sched_process_fork",
            "sched/sched_process_exec",
            "sched/sched_process_exit",
        ] {
            let event = events.join(group);
            formats.push((
                group.trim_start_matches("sched/").to_owned(),
                read_text(&event.join("format"))?,
            ));
            fs::write(event.join("enable"), "1")?;
        }
        for (_, entry) in catalogue.entries() {
            for side in ["sys_exit_", "sys_enter_"] {
                let name = format!("{side}{}", entry.tracepoint());
                let event = events.join("syscalls").join(&name);
                // Not every kernel has every call.
                let Ok(format) = read_text(&event.join("format")) else {
                    continue;
                };
                fs::write(event.join("enable"), "1")?;
                formats.push((name, format));
            }
        }
        let texts = formats.iter().map(|(name, text)| (name.as_str(), text.as_str()));
        let meanings = Meanings::new(texts, catalogue);
        let meanings = meanings.ok_or_else(|| io::Error::other("unknown layout of events"))?;
        Ok(Self {
            has_names: meanings.has_names(),
            pairing: Pairing::new(meanings),
            pipes: pipes(&folder)?,
            page: vec![0; layout.page_bytes()],
            merge: Merge::default(),
            instance,
            layout,
            lost: 0,
        })
    }

    /// Whether the kernel tells the names of files.
    pub(crate) fn has_names(&self) -> bool {
        self.has_names
    }

    /// Watches a thread, and from now on all that it makes.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn watch(&self, thread: u32) -> io::Result<()> {
        let path = self.instance.folder().join("set_event_pid");
        let mut file = File::options().append(true).open(path)?;
        file.write_all(thread.to_string().as_bytes())
    }

    /// Passes on what has happened up to now.
    pub(crate) fn drain(&mut self, pass: &mut dyn FnMut(RawEvent<'_>)) {
        let now = clock_gettime(ClockId::Monotonic);
        let now = now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned();
        self.read_pages();
        // What happened before `now` is in the buffers by now, on all processors.
        self.release(now, pass);
    }

    fn release(&mut self, before: u64, pass: &mut dyn FnMut(RawEvent<'_>)) {
        let pairing = &mut self.pairing;
        self.merge
            .release(before, |time, event| pairing.take(time, event, &mut ByProc, pass));
    }

    fn read_pages(&mut self) {
        for pipe in &mut self.pipes {
            for _ in 0..PAGES_MAX {
                // Would block: the buffer is empty.
                let Ok(length) = pipe.read(&mut self.page) else {
                    break;
                };
                let Some(page) = self
                    .page
                    .get(..length)
                    .and_then(|bytes| Page::parse(bytes, &self.layout))
                else {
                    break;
                };
                // An unknown number is at least one.
                self.lost += page.lost().map_or(0, |lost| lost.max(1));
                for entry in page {
                    self.merge.add(entry.time, entry.payload);
                }
            }
        }
    }

    /// Stops recording and passes on the rest.
    pub(crate) fn stop(&mut self, pass: &mut dyn FnMut(RawEvent<'_>)) {
        // If that fails, the instance is removed a moment later anyway.
        let _ = fs::write(self.instance.folder().join("tracing_on"), "0");
        self.read_pages();
        self.release(u64::MAX, pass);
    }

    /// Returns what was lost up to now.
    pub(crate) fn losses(&self) -> Losses {
        Losses {
            events: self.lost + self.pairing.unpaired(),
            foreign: 0,
        }
    }
}

/// Opens the buffers of all processors.
fn pipes(folder: &Path) -> io::Result<Vec<File>> {
    let mut pipes = Vec::new();
    for entry in fs::read_dir(folder.join("per_cpu"))? {
        let path = entry?.path().join("trace_pipe_raw");
        let opened = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)?;
        pipes.push(opened);
    }
    Ok(pipes)
}
