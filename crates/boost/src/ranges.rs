//! Which blocks a read touches, and what to ask the source for. Pure.

use std::ops::Range;

/// Bytes of a block.
pub(crate) const BLOCK: u64 = ropeway_cache::BLOCK_BYTES as u64;

/// Returns the blocks that a range of bytes touches, in a file of `size` bytes.
pub(crate) fn blocks(offset: u64, length: usize, size: u64) -> Range<u64> {
    let end = offset.saturating_add(length as u64).min(size);
    if offset >= end {
        return 0..0;
    }
    offset / BLOCK..end.div_ceil(BLOCK)
}

/// Returns the bytes of a block in a file of `size` bytes.
pub(crate) fn bytes_of(block: u64, size: u64) -> Range<u64> {
    let start = block * BLOCK;
    start..(start + BLOCK).min(size)
}

/// Returns the part of `bytes`, which begin at `at`, that lies in `wanted`.
pub(crate) fn part<'a>(bytes: &'a [u8], at: u64, wanted: &Range<u64>) -> (u64, &'a [u8]) {
    let end = at + bytes.len() as u64;
    let from = wanted.start.clamp(at, end);
    let upto = wanted.end.clamp(from, end);
    let place = |position: u64| usize::try_from(position - at).expect("within the bytes");
    (from, &bytes[place(from)..place(upto)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_blocks_of_a_read_cover_it(offset in 0_u64..1_000_000, length in 0_usize..500_000, size in 0_u64..1_000_000) {
            let end = (offset + length as u64).min(size);
            let blocks = blocks(offset, length, size);
            prop_assert_eq!(blocks.is_empty(), offset >= end);
            let mut at = offset;
            for block in blocks {
                let bytes = bytes_of(block, size);
                prop_assert!(bytes.start <= at && at < bytes.end && bytes.end <= size);
                at = bytes.end;
            }
            prop_assert!(offset >= end || at >= end);
        }

        #[test]
        fn parts_are_those_bytes(at in 0_u64..100, len in 0_usize..100, start in 0_u64..200, wanted in 0_u64..200) {
            let bytes: Vec<u8> = (0..len).map(|place| (at + place as u64) as u8).collect();
            let wanted = start..start + wanted;
            let (from, part) = part(&bytes, at, &wanted);
            for (place, byte) in part.iter().enumerate() {
                prop_assert_eq!(u64::from(*byte), from + place as u64);
                prop_assert!(wanted.contains(&(from + place as u64)));
            }
            let expected = (at..at + len as u64).filter(|place| wanted.contains(place)).count();
            prop_assert_eq!(part.len(), expected);
        }
    }
}
