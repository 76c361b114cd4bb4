//! What bounds the small files under way between two sides: permits, and blocks of six sizes.

use std::sync::Arc;

use parking_lot::Mutex;
use ropeway_block::{BlockMut, Pool};
use ropeway_vfs::Tree;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::job::root::JobRoot;

/// Payload and number of blocks of each class, in addition to the pool of the job (1 MiB). 256
/// files of 64 KiB are 16 MiB in flight, 8 of 4 MiB are 32: each is more than twice what a line of
/// 622 Mbit/s and 75 ms holds (5.8 MB). On a line of 1 Gbit/s and 100 ms (12.5 MB) that loses 1 % of its
/// segments twice as much again waits for what is sent again, in both directions. Slots that are never used
/// cost nothing. A file of less than 4 KiB takes a tiny block or, below 512 bytes, a part of a page.
const PACKED: (usize, usize) = (512, IN_FLIGHT_MAX);
const TINY: (usize, usize) = (4096, IN_FLIGHT_MAX);
const LITTLE: (usize, usize) = (16 << 10, IN_FLIGHT_MAX);
const SMALL: (usize, usize) = (68 << 10, 256);
const MIDDLE: (usize, usize) = ((4 << 20) + 4096, 10);
/// Bytes in front of a packed block: enough for the header of a READ, even a sealed one. A longer one is
/// copied.
const PACKED_HEADROOM: usize = 512;
/// Bytes in all blocks at once, in pages: eight files of 4 MiB and some small ones. With 21 MiB instead, files
/// of 10 KB took half as long again on a line of 1 Gbit/s and 100 ms that loses 1 %. With tiny files, which
/// take little of it, the process stays below 64 MiB.
///
/// On a long line this is also the memory of all blocks, used or free, above which free ones of other classes
/// return theirs. While streams of larger files hold as much by themselves, no free block keeps its
/// memory. A file of 4 MiB then takes up to 10 ms of page faults, and 50 ms of such a line.
const ROOM: usize = 36 << 20;
/// Most room while a long line needs more in flight, as one that loses segments does.
const ROOM_MAX: usize = 72 << 20;
/// Room beyond what is in flight, for files that were read and not sent yet. A guess.
const ROOM_WAITING: usize = 8 << 20;
/// Spare slots of the two largest classes: together with the others they fill [`ROOM_MAX`].
const SMALL_SPARE: usize = (ROOM_MAX - ROOM) / (68 << 10);
const MIDDLE_SPARE: usize = (ROOM_MAX - ROOM) / (4 << 20);
/// Bytes of one permit of [`ROOM`].
const UNIT: usize = 4096;
/// Largest number of files under way, whatever a tree wants. A guess.
const IN_FLIGHT_MAX: usize = 3072;

/// Bounds the small files under way.
pub(crate) struct SmallFilePipeline {
    is_far: bool,
    permits: Arc<Semaphore>,
    permits_max: usize,
    packed: Pool,
    tiny: Pool,
    little: Pool,
    small: Pool,
    middle: Pool,
    room: Semaphore,
    room_size: Mutex<RoomSize>,
}

/// How much room there is, in units.
#[derive(Debug)]
struct RoomSize {
    /// Free and taken permits.
    present: usize,
    /// As many as there should be. Surplus permits that are in use are withdrawn when they are returned.
    wanted: usize,
}

/// The room of one file, until it is dropped.
pub(crate) struct Room<'a> {
    pipeline: &'a SmallFilePipeline,
    held: Option<SemaphorePermit<'a>>,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        let Some(mut held) = self.held.take() else { return };
        let mut size = self.pipeline.room_size.lock();
        let surplus = size.present.saturating_sub(size.wanted);
        // A waiting caller would get them otherwise.
        if let Some(part) = held.split(surplus.min(held.num_permits())) {
            size.present -= part.num_permits();
            part.forget();
        }
    }
}

impl SmallFilePipeline {
    /// Makes the pipeline between these trees. `None` if neither side is behind a network.
    pub(crate) fn between(target: &dyn Tree, roots: &[Arc<JobRoot>]) -> Option<Self> {
        let sources = roots.iter().map(|root| root.root.source.capabilities());
        let gets = sources.map(|can| can.small_in_flight.max(can.small_gets_in_flight));
        let puts = target.capabilities();
        let puts = puts.small_in_flight.max(puts.small_puts_in_flight);
        let wanted = gets.fold(puts, usize::max);
        let mut trees = roots.iter().map(|root| &*root.root.source).chain([target]);
        let is_far = trees.any(|tree| tree.capabilities().far);
        (wanted > 1).then(|| Self::with(is_far, wanted.min(IN_FLIGHT_MAX)))
    }

    fn with(is_far: bool, permits_max: usize) -> Self {
        Self {
            is_far,
            permits: Arc::new(Semaphore::new(permits_max)),
            permits_max,
            packed: Pool::packed(PACKED.0, PACKED_HEADROOM, PACKED.1),
            tiny: Pool::new(TINY.0, TINY.1),
            little: Pool::new(LITTLE.0, LITTLE.1),
            small: Pool::with_spare(SMALL.0, SMALL.1, SMALL_SPARE),
            middle: Pool::with_spare(MIDDLE.0, MIDDLE.1, MIDDLE_SPARE),
            room: Semaphore::new(ROOM / UNIT),
            room_size: Mutex::new(RoomSize {
                present: ROOM / UNIT,
                wanted: ROOM / UNIT,
            }),
        }
    }

    /// Returns the size of the largest file that goes this way.
    pub(crate) fn size_max(&self) -> u64 {
        // One byte less than the block, so that a file that grew by a byte is noticed.
        self.middle.block_size() as u64 - 1
    }

    /// Returns the permits: one for each file under way.
    pub(crate) fn permits(&self) -> &Arc<Semaphore> {
        &self.permits
    }

    /// Waits until no file is under way.
    pub(crate) async fn all_idle(&self) {
        let all = u32::try_from(self.permits_max).unwrap_or(u32::MAX);
        drop(self.permits.acquire_many(all).await);
    }

    /// Makes room for as many bytes in flight as the line needs. Returns how many of them are in use.
    pub(crate) fn set_room(&self, in_flight: usize) -> usize {
        let wanted = in_flight.saturating_add(ROOM_WAITING).clamp(ROOM, ROOM_MAX) / UNIT;
        let present = {
            let mut size = self.room_size.lock();
            size.wanted = wanted;
            if wanted > size.present {
                self.room.add_permits(wanted - size.present);
                size.present = wanted;
            } else {
                size.present -= self.room.forget_permits(size.present - wanted);
            }
            size.present
        };
        let more = wanted * UNIT - ROOM;
        for (pool, slots) in [(&self.small, SMALL.1), (&self.middle, MIDDLE.1)] {
            pool.set_usable(slots + more / pool.block_size());
        }
        present.saturating_sub(self.room.available_permits()) * UNIT
    }

    /// Returns a block for `size` bytes, and the room that it takes.
    pub(crate) async fn block(&self, job_pool: &Pool, size: u64) -> (Room<'_>, BlockMut) {
        let classes = [
            &self.packed,
            &self.tiny,
            &self.little,
            &self.small,
            job_pool,
            &self.middle,
        ];
        let fits = |pool: &&Pool| size < pool.block_size() as u64;
        let pool = classes.into_iter().find(fits).unwrap_or(&self.middle);
        // Only the pages that are used have memory. Exact: a few thousand at most.
        let length = usize::try_from(size + 1).unwrap_or(ROOM);
        let units = length.min(pool.block_size()).min(ROOM).div_ceil(UNIT) as u32;
        let room = self.room.acquire_many(units).await;
        let room = Room {
            pipeline: self,
            held: Some(room.expect("the semaphore is never closed")),
        };
        let block = pool.get().await;
        self.bound_memory(job_pool, pool);
        (room, block)
    }

    /// Bounds the memory of free blocks: they keep it for the next file, but all of them together
    /// little more than can be used at once. Those of the size that is needed now return theirs last.
    fn bound_memory(&self, job_pool: &Pool, taken: &Pool) {
        if !self.is_far {
            // Page faults would cost more than the line.
            return;
        }
        // Packed blocks keep their memory: 3 MiB at most.
        let all = [&self.tiny, &self.little, &self.small, job_pool, &self.middle];
        let resident: usize = all.iter().map(|pool| pool.resident()).sum();
        let mut surplus = resident.saturating_sub(self.room_size.lock().wanted * UNIT);
        let is_other = |pool: &&Pool| pool.block_size() != taken.block_size();
        let own = all.into_iter().filter(|pool| !is_other(pool));
        for pool in all.into_iter().filter(is_other).chain(own) {
            surplus = surplus.saturating_sub(pool.give_back(surplus));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn room_follows_the_line_within_bounds() {
        let pipeline = SmallFilePipeline::with(true, 8);
        let job_pool = Pool::new(1 << 20, 2);
        assert_eq!(pipeline.set_room(0), 0);
        let free = |pipeline: &SmallFilePipeline| pipeline.room.available_permits() * UNIT;
        assert_eq!((free(&pipeline), pipeline.middle.usable()), (ROOM, MIDDLE.1));
        pipeline.set_room(usize::MAX);
        assert_eq!(free(&pipeline), ROOM_MAX);
        assert_eq!(pipeline.middle.usable(), MIDDLE.1 + MIDDLE_SPARE - 1);
        let mut held = Vec::new();
        for _ in 0..MIDDLE.1 + 4 {
            held.push(pipeline.block(&job_pool, 4 << 20).await);
        }
        let used = pipeline.set_room(0);
        assert!(used > ROOM, "{used}");
        assert_eq!(free(&pipeline), 0, "what is in use stays in use");
        // Somebody who waits does not get what is to be withdrawn.
        let mut waiting = std::pin::pin!(pipeline.block(&job_pool, 4 << 20));
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        held.pop();
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        drop(held);
        drop(waiting.await);
        assert_eq!(pipeline.set_room(0), 0);
        assert_eq!((free(&pipeline), pipeline.middle.usable()), (ROOM, MIDDLE.1));
    }
}
