//! All that is learned, within one bound of memory.

use crate::predict::Predictor;
use crate::predict::calendar::{self, Calendar};
use crate::predict::pairs::PAIR_BYTES;
use crate::predict::successors::{self, Successors};

/// Bytes of memory for each block of the cache: at most.
const BLOCK_BYTES: usize = 120;
/// Bytes of memory in any case: streams, history, watched predictions, classes, processes. 20 KiB are
/// in use.
const FIXED_BYTES: usize = 24 << 10;
/// What each block of the cache pays for: 90 bytes of pairs, 12 of successors, 8 of the calendar,
/// and up to 5 of fetches under way.
const PAIRS: usize = 10;
const SUCCESSORS_BYTES: usize = 12;
const CALENDAR_BYTES: usize = 8;

/// Predictions by block, by file and by hour.
#[derive(Debug)]
pub struct Superfetch {
    /// Which blocks come next.
    pub blocks: Predictor,
    /// Which files a program opens next.
    pub files: Successors,
    /// Which files are used at this time of the day and of the week.
    pub calendar: Calendar,
}

impl Superfetch {
    /// Makes one for a cache of so many blocks.
    ///
    /// # Panics
    /// If `blocks` is 0 or above 2^31.
    pub fn new(blocks: usize) -> Self {
        assert!(blocks > 0 && blocks <= 1 << 31, "a cache of {blocks} blocks");
        Self {
            blocks: Predictor::new(blocks, blocks * PAIRS),
            files: Successors::new(blocks * SUCCESSORS_BYTES / successors::ENTRY_BYTES),
            calendar: Calendar::new(blocks * CALENDAR_BYTES / calendar::ENTRY_BYTES),
        }
    }

    /// Returns the most memory that a cache of so many blocks costs: 120 bytes a block and 24 KiB.
    pub fn memory_max(blocks: usize) -> usize {
        blocks * BLOCK_BYTES + FIXED_BYTES
    }

    /// Returns the bytes of memory in use.
    pub fn memory_bytes(&self) -> usize {
        self.blocks.memory_bytes() + self.files.memory_bytes() + self.calendar.memory_bytes()
    }

    /// Returns how much is known: pairs of blocks, and files after which another is expected.
    pub fn known(&self) -> (usize, usize) {
        (self.blocks.pairs.count(), self.files.count())
    }

    /// Forgets everything that was learned.
    pub fn forget(&mut self) {
        self.blocks.forget();
        self.files.clear();
        self.calendar.clear();
    }

    /// Forgets a file: its blocks, of which so many may have been used, its place in the sequences
    /// of the programs in `names`, and its hours.
    pub fn forget_file(&mut self, file: u32, blocks: u64, names: &[u64]) {
        self.blocks.forget_file(file, blocks);
        self.files.forget_file(file, names);
        self.calendar.forget_file(file);
    }
}

const _: () = assert!(PAIRS * PAIR_BYTES + SUCCESSORS_BYTES + CALENDAR_BYTES + 5 <= BLOCK_BYTES);
