//! After the hogs: what memory pressure has thrown out of the kernel's memory is brought back, the
//! likeliest first, while nobody waits for anything.
//!
//! ```text
//!  sights (PSI, groups, meminfo) ──> watch: when         worked, cache, calendar ──> order: what next
//!                                      │                                               │
//!                                      v                                               v
//!            KernelPages::kept: what is gone ──> stage: from flash, or a near disk ──> KernelPages::read
//! ```
//!
//! The kernel's memory (page cache) of the mount is what answers the next read of a program without
//! any device, so that is where blocks go (docs/adr/0025). Only blocks that are in the cache on flash come back, so a far
//! source is not asked for content. A gateway has no such memory: its clients are answered from the
//! cache's own, which no pressure takes away.

mod brought;
mod order;
mod sights;
mod stage;
mod status;
#[cfg(test)]
mod tests;
mod watch;
mod worked;

use std::ops::Range;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_cache::predict::Block;
use ropeway_vfs::pages::KernelPages;
use ropeway_vfs::{RelPath, caller, patience};

pub(crate) use self::brought::Brought;
use self::order::{From, Order, Pace, Paces, Run};
use self::sights::{Look, Sights};
pub use self::status::BringStatus;
use self::watch::{Phase, Sight, Watch};
pub(crate) use self::worked::Worked;
use crate::ahead::worker::moment;
use crate::ahead::{Ahead, NextStatus};
use crate::boost::Shared;
use crate::node::BoostNode;
use crate::ranges::BLOCK;
use crate::store::StoreShared;

/// Time between two looks at memory.
const LOOK: Duration = Duration::from_secs(1);
/// Reads through the mount that fail one after the other until it is given up.
const FAILURES_MAX: u32 = 3;
/// What would be brought back first, as it is shown.
const SHOWN_MAX: usize = 5;
/// Seconds before a read of flash, and bytes per second of flash and of a disk, until they were
/// measured. Guesses: a cheap stick, and a disk that turns.
const FLASH_ACCESS_S: f64 = 0.001;
const FLASH_RATE: f64 = 20e6;
const DISK_RATE: f64 = 50e6;

/// The part that others see.
#[derive(Default)]
pub(crate) struct Hogs {
    pages: OnceLock<Arc<dyn KernelPages>>,
    status: Mutex<BringStatus>,
}

impl Hogs {
    /// Whether the present call of a store is made for the process that brings back.
    pub(crate) fn is_reader(&self) -> bool {
        let reader = self.pages.get().and_then(|pages| pages.process());
        reader.is_some() && reader == caller::process()
    }

    /// Returns the figures.
    pub(crate) fn status(&self) -> BringStatus {
        self.status.lock().clone()
    }
}

/// Begins to watch memory, and to bring back what it throws out of a mount of a share. Only the first
/// mount on a cache has that.
pub(crate) fn start(
    shared: &Arc<Shared>,
    share: [u8; 16],
    pages: Arc<dyn KernelPages>,
) -> std::io::Result<()> {
    if shared.ahead.is_none() || shared.hogs.pages.set(Arc::clone(&pages)).is_err() {
        return Ok(());
    }
    shared.hogs.status.lock().is_on = true;
    let weak = Arc::downgrade(shared);
    let thread = std::thread::Builder::new().name("boost-hogs".into());
    thread.spawn(move || run(&weak, share, &*pages)).map(drop)
}

fn run(shared: &Weak<Shared>, share: [u8; 16], pages: &dyn KernelPages) {
    let (mut sights, mut watch, mut paces) = (Sights::new(), Watch::default(), None);
    while let Some(shared) = shared.upgrade() {
        let Some(ahead) = shared.ahead.as_ref().filter(|_| !shared.is_closed()) else {
            return;
        };
        let was = watch.phase();
        let sight = sights.look(shared.idle_for());
        let goes = watch.look(shared.now(), &sight);
        let paces = paces.get_or_insert_with(|| first_paces(&shared));
        let mut bringer = Bringer {
            shared: &shared,
            ahead,
            share,
            pages,
            sights: &mut sights,
            watch: &mut watch,
            paces,
            open: None,
            failures: 0,
        };
        bringer.note(&sight);
        if was != Phase::Due && bringer.watch.phase() == Phase::Due {
            bringer.show_next();
        }
        if goes && shared.is_on() {
            bringer.bring(sight.room);
        }
        shared.wait(LOOK);
    }
}

fn first_paces(shared: &Shared) -> Paces {
    let rate = shared.device_rate().unwrap_or(FLASH_RATE);
    Paces {
        flash: Pace {
            access_s: FLASH_ACCESS_S,
            block_s: BLOCK as f64 / rate,
        },
        source: None,
    }
}

/// A try to bring everything back.
struct Bringer<'a> {
    shared: &'a Shared,
    ahead: &'a Ahead,
    share: [u8; 16],
    pages: &'a dyn KernelPages,
    sights: &'a mut dyn Look,
    watch: &'a mut Watch,
    paces: &'a mut Paces,
    /// The file of the last run.
    open: Option<(u32, BoostNode)>,
    failures: u32,
}

/// Why a run brought nothing.
enum Failure {
    /// The file: it is gone, changed or not in the cache any more.
    File,
    /// The reading process, or the mount.
    Reader(std::io::Error),
}

impl Bringer<'_> {
    fn note(&self, sight: &Sight) {
        let mut status = self.shared.hogs.status.lock();
        status.state = self.watch.phase().name().to_owned();
        status.episodes = self.watch.episodes();
        status.stalled = sight.stalled;
        status.room_bytes = sight.room;
    }

    /// Shows what would come first.
    fn show_next(&self) {
        let mut blocks = self.ahead.working_set(self.share, moment(), self.shared.now());
        blocks.sort_by(|one, other| other.1.total_cmp(&one.1));
        let next = blocks.iter().take(SHOWN_MAX).filter_map(|(block, likelihood)| {
            let (_, path, _) = self.ahead.place_of(block.file())?;
            Some(NextStatus {
                path: String::from_utf8_lossy(path.as_bytes()).into_owned(),
                block: Some(block.index()),
                // Uses that are expected, as a probability.
                likelihood: likelihood / (1.0 + likelihood),
                because: "used before memory was short".to_owned(),
            })
        });
        self.shared.hogs.status.lock().next = next.collect();
    }

    fn bring(&mut self, most: u64) {
        let started = self.shared.now();
        let blocks = self.ahead.working_set(self.share, moment(), started);
        let mut order = Order::new(blocks);
        self.paces.source = self.source_pace();
        let mut brought = 0;
        let ended = loop {
            let Some(run) = order.next(self.paces) else {
                self.watch.done();
                break "everything was there or is back".to_owned();
            };
            match patience::impatiently(|| self.bring_run(&run)) {
                Ok(bytes) => {
                    (brought, self.failures) = (brought + bytes, 0);
                }
                Err(Failure::File) => self.open = None,
                Err(Failure::Reader(error)) => {
                    (self.open, self.failures) = (None, self.failures + 1);
                    if self.failures >= FAILURES_MAX {
                        self.watch.done();
                        break format!("the mount cannot be read: {error}");
                    }
                }
            }
            let sight = self.sights.look(self.shared.idle_for());
            let goes = self.watch.goes_on(self.shared.now(), &sight, brought, most);
            self.note(&sight);
            if self.shared.is_closed() || !self.shared.is_on() {
                break "the cache is off".to_owned();
            }
            if !goes {
                break match self.watch.phase() {
                    Phase::Pressed => "memory is short again".to_owned(),
                    Phase::Due => "a program waits".to_owned(),
                    Phase::Calm | Phase::Bringing => "there is no more room".to_owned(),
                };
            }
        };
        let mut status = self.shared.hogs.status.lock();
        status.seconds += self.shared.now().saturating_sub(started).as_secs_f64();
        status.ended = ended;
        status.state = self.watch.phase().name().to_owned();
    }

    /// How long a near source takes; `None` for one that is far away.
    fn source_pace(&self) -> Option<Pace> {
        let store = self.ahead.store(self.share)?;
        if store.inner.reachability().is_some() {
            return None;
        }
        let known = self.paces.source.or_else(|| {
            let rate = self.shared.source_rate().unwrap_or(DISK_RATE);
            let block_s = BLOCK as f64 / rate;
            let answer_s = self.ahead.usual_answer()?;
            Some(Pace {
                access_s: (answer_s - block_s).max(0.0),
                block_s,
            })
        });
        known.filter(|pace| pace.access_s.is_finite() && pace.block_s.is_finite())
    }

    /// Brings a run back. Returns the bytes.
    fn bring_run(&mut self, run: &Run) -> Result<u64, Failure> {
        let (store, path, id) = self.ahead.place_of(run.file).ok_or(Failure::File)?;
        if store.is_lost() {
            return Err(Failure::File);
        }
        let gone = self.gone(run, &path)?;
        let kept = run.blocks.len() - gone.len();
        self.shared.hogs.status.lock().bytes_kept += kept as u64 * BLOCK;
        if gone.is_empty() {
            return Ok(0);
        }
        // What is left of a run may be quicker from elsewhere.
        let from = match gone.len() == run.blocks.len() {
            true => run.from,
            false => self.paces.cheaper(&gone),
        };
        let open = self.open.take().filter(|(file, _)| *file == run.file);
        let open = match open {
            Some(open) => open,
            None => (
                run.file,
                StoreShared::open_ahead(&store, &path, id).ok_or(Failure::File)?,
            ),
        };
        let since = self.shared.now();
        let bytes = open.1.stage(&gone, from).ok_or(Failure::File)?;
        let took = self.shared.now().saturating_sub(since).as_secs_f64();
        self.paces.measured(&gone, from, took);
        self.open = Some(open);
        for range in in_a_row(&gone) {
            let (start, length) = (range.start * BLOCK, (range.end - range.start) * BLOCK);
            self.pages.read(&path, start, length).map_err(failure)?;
        }
        self.ahead.brought(run.file, &gone, bytes);
        let mut status = self.shared.hogs.status.lock();
        status.blocks += gone.len() as u64;
        status.bytes += bytes;
        if from == From::Source {
            status.bytes_from_source += bytes;
        }
        Ok(bytes)
    }

    /// Returns the blocks of a run that the kernel does not have. If it does not tell, all are read:
    /// what it has costs little.
    fn gone(&self, run: &Run, path: &RelPath) -> Result<Vec<u64>, Failure> {
        let (Some(first), Some(last)) = (run.blocks.first(), run.blocks.last()) else {
            return Ok(Vec::new());
        };
        let length = (last - first + 1) * BLOCK;
        let kept = self
            .pages
            .kept(path, first * BLOCK, length, BLOCK)
            .map_err(failure)?;
        Ok(still_gone(&run.blocks, *first, kept.as_deref()))
    }
}

/// Returns the blocks that are not known to be in memory.
fn still_gone(blocks: &[u64], first: u64, kept: Option<&[bool]>) -> Vec<u64> {
    let is_kept = |block: u64| {
        let place = usize::try_from(block - first).ok();
        kept.zip(place)
            .and_then(|(kept, place)| kept.get(place).copied())
            .unwrap_or(false)
    };
    blocks.iter().copied().filter(|block| !is_kept(*block)).collect()
}

/// A file that has changed its kind or place is its own fault; everything else is the reader's.
fn failure(error: std::io::Error) -> Failure {
    use std::io::ErrorKind::{
        InvalidInput, NotADirectory, NotFound, PermissionDenied, StaleNetworkFileHandle,
    };
    match error.kind() {
        NotFound | NotADirectory | StaleNetworkFileHandle | InvalidInput | PermissionDenied => Failure::File,
        _ => Failure::Reader(error),
    }
}

/// Returns the ranges of blocks that follow each other.
fn in_a_row(blocks: &[u64]) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for block in blocks {
        match ranges.last_mut() {
            Some(range) if range.end == *block => range.end += 1,
            _ => ranges.push(*block..*block + 1),
        }
    }
    ranges
}

impl Ahead {
    /// Notes blocks that were brought back, with so many bytes together.
    fn brought(&self, file: u32, blocks: &[u64], bytes: u64) {
        let each = bytes / (blocks.len() as u64).max(1);
        let blocks = blocks.iter().filter_map(|index| Block::new(file, *index));
        self.with_brought(|brought| blocks.for_each(|block| brought.add(block, each)));
    }
}

#[cfg(test)]
mod part_tests {
    use super::*;

    #[test]
    fn without_cachestat_all_blocks_are_read() {
        let blocks = [10, 11, 14];
        assert_eq!(still_gone(&blocks, 10, None), blocks);
        let kept = [false, true, false, false, true];
        assert_eq!(still_gone(&blocks, 10, Some(&kept)), [10]);
        assert_eq!(still_gone(&blocks, 10, Some(&[])), blocks, "a short answer");
    }

    #[test]
    fn blocks_in_a_row_are_read_at_once() {
        assert_eq!(in_a_row(&[3, 4, 5, 9, 11, 12]), [3..6, 9..10, 11..13]);
        assert_eq!(in_a_row(&[]), Vec::<Range<u64>>::new());
    }

    #[test]
    fn a_file_that_is_gone_is_not_the_readers_fault() {
        let of = |number| failure(std::io::Error::from_raw_os_error(number));
        // ENOENT, ESTALE, EACCES; then ENOSYS (no openat2, no fadvise), ENOTCONN, EPIPE.
        assert!(
            [2, 116, 13]
                .into_iter()
                .all(|number| matches!(of(number), Failure::File))
        );
        assert!(
            [38, 107, 32]
                .into_iter()
                .all(|number| matches!(of(number), Failure::Reader(_)))
        );
    }
}
