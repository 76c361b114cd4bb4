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
use self::programs::{COUNTERS, Counter, Maps, NUMBERS_MAX, SCRATCH_BYTES, THREAD_BYTES};
use crate::call::RawEvent;
use crate::catalogue::{Capture, Catalogue, Entry, Place, Shape};
use crate::mechanism::Losses;
use crate::sys::bpf::{Map, MapKind, MapShape, Program};
use crate::sys::ring_map::RingMap;

/// Bytes of the ring for each processor: about 12,000 records, 10 ms of a very busy program.
const RING_BYTES_EACH: u32 = 2 << 20;
/// Bounds of the ring. Its memory is cleared at the start, which takes 0.4 ms for a MiB.
const RING_BYTES: std::ops::RangeInclusive<u32> = 4 << 20..=32 << 20;
/// Part of the ring from which on the consumer is woken before its time.
const WAKE_PART: u32 = 4;
/// Most threads that are watched at a time.
const THREADS_MAX: u32 = 8192;

/// Loaded and running programs.
#[derive(Debug)]
pub(crate) struct Bpf {
    ring: RingMap,
    watched: Map,
    counters: Map,
    programs: Vec<Program>,
    /// The programs run as long as these are open.
    _links: Vec<OwnedFd>,
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

/// Returns the size of the ring for this machine, a power of two.
fn ring_bytes() -> u32 {
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
    let processors = u32::try_from(processors).unwrap_or(u32::MAX).min(1024);
    let bytes = (processors * RING_BYTES_EACH).next_power_of_two();
    bytes.clamp(*RING_BYTES.start(), *RING_BYTES.end())
}

/// Makes and maps the ring.
fn ring(bytes: u32) -> io::Result<RingMap> {
    RingMap::new(map(MapKind::Ring, 0, bytes)?.into_fd(), bytes)
}

/// Catalogue and maps that the programs use, beside the ring.
struct Tables {
    watched: Map,
    catalogue: Map,
    scratch: Map,
    counters: Map,
}

impl Tables {
    fn new(catalogue: &Catalogue) -> io::Result<Self> {
        let tables = Self {
            watched: map(MapKind::Hash, THREAD_BYTES, THREADS_MAX)?,
            catalogue: map(MapKind::Array, 8, NUMBERS_MAX)?,
            scratch: map(MapKind::PerCpuArray, SCRATCH_BYTES, 1)?,
            counters: map(MapKind::Array, 8, COUNTERS)?,
        };
        for (number, entry) in catalogue.entries() {
            tables.catalogue.set(number, &encode(entry).to_ne_bytes())?;
        }
        Ok(tables)
    }

    fn maps(&self, ring: &RingMap) -> Maps {
        let fd = |map: &Map| MapFd(map.fd().as_raw_fd());
        Maps {
            watched: fd(&self.watched),
            catalogue: fd(&self.catalogue),
            scratch: fd(&self.scratch),
            counters: fd(&self.counters),
            ring: MapFd(ring.fd().as_raw_fd()),
        }
    }
}

impl Bpf {
    /// Loads the programs and starts them. No thread is watched yet.
    ///
    /// # Errors
    /// The kernel lacks BPF or its types, or refuses.
    pub(crate) fn start(catalogue: &Catalogue) -> io::Result<Self> {
        let bytes = ring_bytes();
        // Clearing the ring takes as long as everything else together.
        let (ring, found, tables) = std::thread::scope(|scope| {
            let ring = scope.spawn(|| ring(bytes));
            let found = layout::of_this_kernel(bytes / WAKE_PART);
            let tables = Tables::new(catalogue);
            (ring.join(), found, tables)
        });
        let ring = ring.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let (layout, tables) = (found?, tables?);
        let maps = tables.maps(&ring);
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
            ring,
            watched: tables.watched,
            counters: tables.counters,
            programs: loaded,
            _links: links,
            malformed: 0,
        })
    }

    /// Watches a thread, and from now on all that it makes.
    ///
    /// # Errors
    /// Too many threads are watched.
    pub(crate) fn watch(&self, thread: u32) -> io::Result<()> {
        self.watched.set(thread, &[0; THREAD_BYTES])
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
}
