//! Watching by BPF programs at the raw tracepoints of system calls, threads and processes.
//!
//! The programs are assembled here ([`programs`]), not compiled: no compiler for BPF is needed. They
//! keep a call's begin, read its paths and write one record to a ring when it ends. They look at
//! watched threads only. When this process ends, in any way, the kernel removes them.
//!
//! Needs CAP_BPF and CAP_PERFMON (root), Linux 5.8, its BTF, and the initial process namespace.

mod asm;
mod layout;
mod programs;
pub(crate) mod record;

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use self::asm::MapFd;
use self::programs::{COUNTERS, Counter, Maps, NUMBERS_MAX, PROGRESS_BYTES, SCRATCH_BYTES};
use crate::call::RawEvent;
use crate::catalogue::{Capture, Catalogue, Entry, Place, Shape};
use crate::mechanism::Losses;
use crate::sys::bpf::{Map, MapKind, MapShape, Program};
use crate::sys::ring_map::RingMap;

/// Bytes of the ring: about 50,000 records, a tenth of a second of a very busy program. Its memory is
/// cleared at the start, which takes 3 ms for 8 MiB.
const RING_BYTES: u32 = 8 << 20;
/// Bytes from which on the consumer is woken before its time.
const WAKE_BYTES: u32 = RING_BYTES / 4;
/// Most threads that are watched, and calls in progress, at a time.
const THREADS_MAX: u32 = 8192;

/// Loaded and running programs.
#[derive(Debug)]
pub(crate) struct Bpf {
    ring: RingMap,
    watched: Map,
    counters: Map,
    programs: Vec<Program>,
    /// Running as long as these are open.
    links: Vec<OwnedFd>,
    malformed: u64,
}

fn map(kind: MapKind, value_bytes: usize, entries: u32) -> io::Result<Map> {
    Map::new(MapShape {
        kind,
        key_bytes: if kind == MapKind::Ring { 0 } else { 4 },
        value_bytes: value_bytes as u32,
        entries,
    })
}

/// Returns a call's entry in the map of the catalogue.
fn encode(entry: &Entry) -> u64 {
    let mut what = programs::RECORDED;
    match entry.shape {
        Shape::Execute { .. } => what |= programs::AT_ENTRY,
        Shape::Transfer {
            place: Place::Current,
            ..
        } => what |= programs::POSITION,
        _ => {}
    }
    for (capture, shift) in entry.captures.into_iter().zip(programs::CAPTURE_SHIFTS) {
        let (kind, argument, words) = match capture {
            Capture::Nothing => (0, 0, 0),
            Capture::Text(argument) => (programs::CAPTURE_TEXT, argument, 0),
            Capture::Words(argument, words) => (programs::CAPTURE_BYTES, argument, words),
            Capture::Vectors(argument) => (programs::CAPTURE_VECTORS, argument, 0),
        };
        let fields = kind
            | u64::from(argument) << programs::CAPTURE_ARG_SHIFT
            | u64::from(words) << programs::CAPTURE_WORDS_SHIFT;
        what |= fields << shift;
    }
    what
}

/// Catalogue and maps that the programs use.
struct Tables {
    watched: Map,
    catalogue: Map,
    progress: Map,
    scratch: Map,
    counters: Map,
    ring: Map,
}

impl Tables {
    fn new(catalogue: &Catalogue) -> io::Result<Self> {
        let tables = Self {
            watched: map(MapKind::Hash, 4, THREADS_MAX)?,
            catalogue: map(MapKind::Array, 8, NUMBERS_MAX)?,
            progress: map(MapKind::Hash, PROGRESS_BYTES, THREADS_MAX)?,
            scratch: map(MapKind::PerCpuArray, SCRATCH_BYTES, 1)?,
            counters: map(MapKind::Array, 8, COUNTERS)?,
            ring: map(MapKind::Ring, 0, RING_BYTES)?,
        };
        for (number, entry) in catalogue.entries() {
            tables.catalogue.set(number, &encode(entry).to_ne_bytes())?;
        }
        Ok(tables)
    }

    fn maps(&self) -> Maps {
        let fd = |map: &Map| MapFd(map.fd().as_raw_fd());
        Maps {
            watched: fd(&self.watched),
            catalogue: fd(&self.catalogue),
            progress: fd(&self.progress),
            scratch: fd(&self.scratch),
            counters: fd(&self.counters),
            ring: fd(&self.ring),
        }
    }
}

impl Bpf {
    /// Loads the programs and starts them. No thread is watched yet.
    ///
    /// # Errors
    /// The kernel lacks BPF or its types, or refuses.
    pub(crate) fn start(catalogue: &Catalogue) -> io::Result<Self> {
        let layout = layout::of_this_kernel(WAKE_BYTES)?;
        let tables = Tables::new(catalogue)?;
        let maps = tables.maps();
        // The end of a call first: nothing is kept for calls whose end would not be seen.
        let all: [(&str, &CStr, Vec<u64>); 5] = [
            ("ropeway_exit", c"sys_exit", programs::sys_exit(maps, layout)),
            ("ropeway_enter", c"sys_enter", programs::sys_enter(maps, layout)),
            (
                "ropeway_fork",
                c"sched_process_fork",
                programs::fork(maps, layout),
            ),
            (
                "ropeway_exec",
                c"sched_process_exec",
                programs::execute(maps, layout),
            ),
            ("ropeway_end", c"sched_process_exit", programs::exit(maps, layout)),
        ];
        let (mut loaded, mut links) = (Vec::new(), Vec::new());
        for (name, tracepoint, code) in all {
            let program = Program::load(name, &code)?;
            links.push(program.attach(tracepoint)?);
            loaded.push(program);
        }
        Ok(Self {
            ring: RingMap::new(tables.ring.fd().try_clone()?, RING_BYTES)?,
            watched: tables.watched,
            counters: tables.counters,
            programs: loaded,
            links,
            malformed: 0,
        })
    }

    /// Watches a thread, and from now on all that it makes.
    ///
    /// # Errors
    /// Too many threads are watched.
    pub(crate) fn watch(&self, thread: u32) -> io::Result<()> {
        self.watched.set(thread, &1_u32.to_ne_bytes())
    }

    /// Passes on what has happened since the last call.
    pub(crate) fn drain(&mut self, take: &mut dyn FnMut(RawEvent<'_>)) {
        let malformed = &mut self.malformed;
        self.ring.drain(|bytes| match record::parse(bytes) {
            Some(event) => take(event),
            None => *malformed += 1,
        });
    }

    /// Returns the descriptor that becomes readable when much waits.
    pub(crate) fn fd(&self) -> &OwnedFd {
        self.ring.fd()
    }

    /// Returns what was lost up to now.
    pub(crate) fn losses(&self) -> Losses {
        let counter = |which: Counter| self.counters.number(which as u32).unwrap_or(0);
        let missed: u64 = self.programs.iter().map(Program::misses).sum();
        Losses {
            events: counter(Counter::Lost) + counter(Counter::Full) + missed + self.malformed,
            foreign: counter(Counter::Foreign),
        }
    }

    /// Stops the programs. What is in the ring can still be drained.
    pub(crate) fn stop(&mut self) {
        self.links.clear();
    }
}
