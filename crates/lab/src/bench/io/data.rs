//! The bytes that are written: random, so that nothing can compress them, and with a mark in each
//! 4 KiB, so that nothing can store two of them once. The mark of a record also proves on reading
//! that the right bytes came back.

use std::collections::VecDeque;

use ropeway_block::{BlockMut, Pool};

use crate::random::SplitMix64;

/// Distance of marks: the block size of most file systems.
const MARK_EVERY: usize = 4096;
/// Bytes of random data that are written before the same come again. More than what a file system
/// compresses at a time (btrfs: 128 KiB; ZFS: as a rule up to 1 MiB), and little enough for the
/// processor's cache.
const NOISE_BYTES: usize = 1 << 20;

/// Marks of one file in one pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks {
    /// Differs between files, and is the same in all passes over one.
    pub(crate) file: u64,
    /// Differs between passes.
    pub(crate) pass: u64,
}

impl Marks {
    /// Marks a record that is written at `offset`.
    pub(crate) fn write(self, record: &mut [u8], offset: u64) {
        for (number, part) in record.chunks_mut(MARK_EVERY).enumerate() {
            if let Some(mark) = part.first_chunk_mut::<16>() {
                let place = offset + (number * MARK_EVERY) as u64;
                mark[..8].copy_from_slice(&(place ^ self.file).to_le_bytes());
                mark[8..].copy_from_slice(&self.pass.to_le_bytes());
            }
        }
    }

    /// Whether the start of a record that was read at `offset` has the mark of its place. Places
    /// between marks are not looked at.
    pub(crate) fn hold(self, record: &[u8], offset: u64) -> bool {
        if !offset.is_multiple_of(MARK_EVERY as u64) {
            return true;
        }
        record
            .first_chunk::<8>()
            .is_some_and(|mark| u64::from_le_bytes(*mark) == offset ^ self.file)
    }
}

/// Returns the number of blocks with different random bytes for records of this size with so many in
/// flight.
fn slots(record: usize, depth: usize) -> usize {
    (NOISE_BYTES / record.max(1)).max(depth).max(1)
}

/// Blocks for one record size and depth, filled with random bytes.
#[derive(Debug)]
pub(crate) struct Buffers {
    pool: Pool,
    key: (usize, usize),
}

impl Buffers {
    /// Makes the blocks. Their memory is touched, so that no pass pays for that.
    pub(crate) fn new(record: usize, depth: usize, seed: u64) -> Self {
        let pool = Pool::new(record, slots(record, depth));
        let mut random = SplitMix64::new(seed);
        let mut all: Vec<BlockMut> = std::iter::from_fn(|| pool.try_get()).collect();
        for block in &mut all {
            random.fill(block.capacity_mut());
        }
        drop(all);
        Self {
            pool,
            key: (record, depth),
        }
    }

    /// Returns those of `kept` if they fit, else new ones.
    pub(crate) fn of(kept: &mut Option<Self>, record: usize, depth: usize, seed: u64) -> &Self {
        if kept.as_ref().is_none_or(|kept| kept.key != (record, depth)) {
            // The old memory goes before the new is taken.
            *kept = None;
        }
        kept.get_or_insert_with(|| Self::new(record, depth, seed))
    }

    /// The pool of the blocks.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Takes `1/parts` of the free blocks, at least one, to be used in turns.
    pub(crate) fn share(&self, parts: usize) -> VecDeque<BlockMut> {
        let count = (self.pool.slots() / parts.max(1)).max(1);
        std::iter::from_fn(|| self.pool.try_get()).take(count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_pages_are_equal_and_the_place_is_proved() {
        let buffers = Buffers::new(8192, 1, 1);
        let mut blocks = buffers.share(1);
        let marks = Marks { file: 77, pass: 3 };
        let mut pages = std::collections::HashSet::new();
        for record in 0..1000_u64 {
            let mut block = blocks.pop_front().unwrap();
            marks.write(block.capacity_mut(), record * 8192);
            for page in block.capacity_mut().chunks(4096) {
                assert!(pages.insert(page.to_vec()));
            }
            assert!(marks.hold(block.capacity_mut(), record * 8192));
            assert!(!marks.hold(block.capacity_mut(), record * 8192 + 4096));
            blocks.push_back(block);
        }
        let mut small = [0; 512];
        marks.write(&mut small, 0);
        assert!(marks.hold(&small, 0) && marks.hold(&small, 512));
    }

    #[test]
    fn what_is_written_does_not_compress() {
        // As btrfs sees it: 128 KiB at a time.
        let buffers = Buffers::new(4096, 1, 9);
        let mut blocks = buffers.share(1);
        let marks = Marks { file: 1, pass: 1 };
        let mut extent = Vec::new();
        for record in 0..32_u64 {
            let mut block = blocks.pop_front().unwrap();
            marks.write(block.capacity_mut(), record * 4096);
            extent.extend_from_slice(block.capacity_mut());
            blocks.push_back(block);
        }
        assert!(lz4_flex::compress(&extent).len() > extent.len());
    }

    #[test]
    fn buffers_are_made_again_only_for_other_records() {
        let mut kept = None;
        let first = Buffers::of(&mut kept, 4096, 4, 1).pool().region().0;
        assert_eq!(Buffers::of(&mut kept, 4096, 4, 1).pool().region().0, first);
        assert_eq!(Buffers::of(&mut kept, 4 << 20, 4, 1).pool().slots(), 4);
        assert_eq!(Buffers::of(&mut kept, 4096, 16, 1).share(4).len(), 64);
    }
}
