//! The hashes of a file's blocks, and what differs from them.

use std::ops::Range;

use parking_lot::Mutex;

/// Size in bytes of the smallest file whose blocks are worth a list. A guess.
const SIZE_MIN: u64 = 4 << 20;
/// Most blocks of a file: a list has 4 MiB.
const BLOCKS_MAX: u64 = 1 << 18;
/// Bytes of a block: the last one of a file may be shorter. A guess: images and databases change pages of 4 to
/// 64 KiB. Files of more than 16 GiB have larger blocks.
const BLOCK: u64 = 64 << 10;
/// Largest block, which is also the largest piece in which a file is read.
const BLOCK_MAX: u64 = 1 << 20;

/// The first half of a block's BLAKE3 hash.
type Hash = [u8; 16];

/// Stands for a block that is not known. No block has this hash, as far as anybody knows.
const UNKNOWN: Hash = [0; 16];

/// The hashes of all blocks of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockList {
    size: u64,
    /// Bytes of a block.
    block: u64,
    hashes: Vec<Hash>,
}

impl BlockList {
    /// Makes the list of a file of which nothing is known. `None` if a list of it is not worth its room.
    pub(crate) fn unknown(size: u64) -> Option<Self> {
        let is_worth_it = (SIZE_MIN..=BLOCKS_MAX * BLOCK_MAX).contains(&size);
        is_worth_it.then(|| {
            let block = size.div_ceil(BLOCKS_MAX).max(BLOCK).next_power_of_two();
            Self {
                size,
                block,
                hashes: vec![UNKNOWN; size.div_ceil(block) as usize],
            }
        })
    }

    /// Reads the list of a file of `size` bytes. `None` if it cannot be one.
    pub(crate) fn from_bytes(size: u64, bytes: &[u8]) -> Option<Self> {
        let mut list = Self::unknown(size)?;
        if bytes.len() != list.hashes.len() * UNKNOWN.len() {
            return None;
        }
        for (hash, bytes) in list.hashes.iter_mut().zip(bytes.chunks_exact(UNKNOWN.len())) {
            hash.copy_from_slice(bytes);
        }
        Some(list)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.hashes.concat()
    }

    /// Returns the size of the file in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Whether no block is known: the data took a way that shows none.
    pub(crate) fn is_unknown(&self) -> bool {
        self.hashes.iter().all(|hash| *hash == UNKNOWN)
    }

    /// Returns where a block ends.
    fn end(&self, index: u64) -> u64 {
        ((index + 1) * self.block).min(self.size)
    }

    /// Returns the hash of a block of `block` bytes that ends at `end`, if it is known.
    fn hash(&self, index: u64, block: u64, end: u64) -> Option<Hash> {
        let hash = usize::try_from(index)
            .ok()
            .and_then(|index| self.hashes.get(index))?;
        (self.block == block && self.end(index) == end && *hash != UNKNOWN).then_some(*hash)
    }

    fn set(&mut self, index: u64, hash: Hash) {
        if let Some(at) = usize::try_from(index)
            .ok()
            .and_then(|index| self.hashes.get_mut(index))
        {
            *at = hash;
        }
    }
}

/// Compares the blocks of a file that is copied with those that the target has, and makes the list of the new
/// ones.
#[derive(Debug)]
pub(crate) struct BlockChanges {
    old: Option<BlockList>,
    new: Mutex<BlockList>,
}

impl BlockChanges {
    /// Makes the changes of a file of which nothing is known: everything differs. `new` is its empty list.
    pub(crate) fn new(new: BlockList) -> Self {
        Self {
            old: None,
            new: new.into(),
        }
    }

    /// Whether anything can be equal.
    pub(crate) fn has_old(&self) -> bool {
        self.old.is_some()
    }

    pub(crate) fn compare_with(&mut self, old: BlockList) {
        self.old = Some(old);
    }

    pub(crate) fn into_new(self) -> BlockList {
        self.new.into_inner()
    }

    /// Notes that the source has a hole and the target reads as zeroes there.
    pub(crate) fn hole(&self, hole: Range<u64>) {
        let mut new = self.new.lock();
        // At most 1 MiB.
        let zeroes = vec![0; new.block as usize];
        let whole = hash_of(&zeroes);
        for index in hole.start.div_ceil(new.block).. {
            let (begin, end) = (index * new.block, new.end(index));
            if begin >= end || end > hole.end {
                break;
            }
            let hash = match end - begin == new.block {
                true => whole,
                false => hash_of(&zeroes[..(end - begin) as usize]),
            };
            new.set(index, hash);
        }
    }

    /// Returns the parts of `data`, which the file has from `offset` on, that the target must get: in order,
    /// not touching each other. A block that `data` holds in part only is among them.
    pub(crate) fn differing(&self, offset: u64, data: &[u8]) -> Vec<Range<usize>> {
        let mut new = self.new.lock();
        let block = new.block;
        let mut parts: Vec<Range<usize>> = Vec::new();
        let mut at = 0;
        while at < data.len() {
            let begin = offset + at as u64;
            let index = begin / block;
            let end = new.end(index);
            let left = data.len() - at;
            // Nothing lies beyond the end of the list, unless the source has grown.
            let length = match end.checked_sub(begin) {
                None | Some(0) => left,
                Some(length) => usize::try_from(length).map_or(left, |length| length.min(left)),
            };
            let part = at..at + length;
            let is_whole = begin.is_multiple_of(block) && begin + length as u64 == end;
            let hash = is_whole.then(|| hash_of(&data[part.clone()]));
            new.set(index, hash.unwrap_or(UNKNOWN));
            let old = self.old.as_ref().and_then(|old| old.hash(index, block, end));
            if hash.is_none() || hash != old {
                match parts.last_mut().filter(|last| last.end == at) {
                    Some(last) => last.end = part.end,
                    None => parts.push(part),
                }
            }
            at += length;
        }
        parts
    }
}

fn hash_of(data: &[u8]) -> Hash {
    let mut hash = UNKNOWN;
    hash.copy_from_slice(&blake3::hash(data).as_bytes()[..UNKNOWN.len()]);
    hash
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of parts, some of one part")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const B: usize = BLOCK as usize;

    fn bytes(size: usize, seed: u64) -> Vec<u8> {
        let mut bytes = vec![0; size];
        fastrand::Rng::with_seed(seed).fill(&mut bytes);
        bytes
    }

    /// The list of a file that was copied in pieces of `piece` bytes.
    fn list(data: &[u8], piece: usize) -> BlockList {
        let changes = BlockChanges::new(BlockList::unknown(data.len() as u64).unwrap());
        for (index, part) in data.chunks(piece).enumerate() {
            let differing = changes.differing((index * piece) as u64, part);
            assert_eq!(differing, [0..part.len()], "nothing is known");
        }
        changes.into_new()
    }

    fn against(old: &BlockList, data: &[u8]) -> BlockChanges {
        let mut changes = BlockChanges::new(BlockList::unknown(data.len() as u64).unwrap());
        changes.compare_with(old.clone());
        changes
    }

    #[test]
    fn only_blocks_that_differ_are_named() {
        let mut data = bytes(5 << 20, 1);
        let old = list(&data, 1 << 20);
        assert!(against(&old, &data).differing(0, &data).is_empty());
        data[3 * B + 7] ^= 1;
        data[4 * B] ^= 1;
        data[9 * B - 1] ^= 1;
        let changes = against(&old, &data);
        assert_eq!(changes.differing(0, &data), [3 * B..5 * B, 8 * B..9 * B]);
        assert_eq!(changes.into_new(), list(&data, 1 << 20));
        // From an offset on.
        let changes = against(&old, &data);
        assert_eq!(changes.differing(2 * B as u64, &data[2 * B..5 * B]), [B..3 * B]);
    }

    #[test]
    fn blocks_in_part_and_blocks_of_another_length_differ() {
        let data = bytes((4 << 20) + 1000, 2);
        let old = list(&data, 1 << 20);
        let longer = [&data[..], &[0; 9]].concat();
        let last = 64 * B;
        assert_eq!(against(&old, &longer).differing(0, &longer), [last..longer.len()]);
        let cut = &data[..last + 10];
        assert_eq!(against(&old, cut).differing(0, cut), [last..cut.len()]);
        let changes = against(&old, &data);
        assert_eq!(changes.differing(1, &data[1..2 * B]), [0..B - 1]);
        // Next time nobody knows the first block.
        let next = against(&changes.into_new(), &data);
        assert_eq!(next.differing(0, &data[..2 * B]), [0..B]);
    }

    #[test]
    fn holes_are_blocks_of_zeroes() {
        let size = (4 << 20) + 1000;
        let mut data = vec![0; size];
        data[3 * B + 5..10 * B].copy_from_slice(&bytes(7 * B - 5, 4));
        let changes = BlockChanges::new(BlockList::unknown(size as u64).unwrap());
        changes.hole(0..3 * BLOCK + 5);
        assert_eq!(
            changes.differing(3 * BLOCK + 5, &data[3 * B + 5..10 * B]),
            [0..7 * B - 5]
        );
        changes.hole(10 * BLOCK..size as u64);
        // One block is a hole in part, so nobody knows it.
        let parts = against(&changes.into_new(), &data).differing(0, &data);
        assert_eq!(parts, [3 * B..4 * B]);
    }

    #[test]
    fn pieces_that_are_no_blocks_only_cost_the_list() {
        let data = bytes(4 << 20, 3);
        let odd = list(&data, 100_000);
        let parts = against(&odd, &data).differing(0, &data);
        let named: usize = parts.iter().map(Range::len).sum();
        assert!(named > data.len() / 2 && named < data.len(), "{named}");
    }

    #[test]
    fn small_and_huge_files_have_no_list() {
        assert!(BlockList::unknown((4 << 20) - 1).is_none());
        assert!(BlockList::unknown((256 << 30) + 1).is_none());
        for (size, block) in [
            (4 << 20, 64 << 10),
            (16 << 30, 64 << 10),
            ((16 << 30) + 1, 128 << 10),
            (256 << 30, 1 << 20),
        ] {
            let list = BlockList::unknown(size).unwrap();
            assert_eq!(list.block, block, "{size}");
            assert!(list.to_bytes().len() <= 4 << 20);
        }
    }

    proptest! {
        #[test]
        fn a_list_survives_its_bytes_and_nothing_else_is_one(size in 0_u64..10 << 20, extra in 0_usize..40) {
            if let Some(list) = BlockList::unknown(size) {
                let mut bytes = list.to_bytes();
                fastrand::Rng::with_seed(size).fill(&mut bytes);
                let list = BlockList::from_bytes(size, &bytes).unwrap();
                prop_assert_eq!(list.to_bytes(), bytes.clone());
                bytes.resize(bytes.len() + 1 + extra, 1);
                prop_assert!(BlockList::from_bytes(size, &bytes).is_none());
            }
            prop_assert!(BlockList::from_bytes(size, &vec![1; extra]).is_none());
        }
    }
}
