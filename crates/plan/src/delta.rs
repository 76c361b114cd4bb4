//! What of a new file is in the old one already, and what must cross the line.
//!
//! Both files are cut into chunks by their content ([`ropeway_vfs::chunks`]). [`OldChunks`] holds
//! those of the old file. [`plan`](OldChunks::plan) compares a part of the new file with it and
//! returns [`Piece`]s: ranges to copy from the old file, and ranges to send. Every byte of the part
//! is in exactly one piece.
//!
//! ```text
//! old   | a | b |  c  | d |             pieces of new:  0: copy a b   send X   copy d   copy b
//! new   | a | b | X | d | b |
//! ```

use std::collections::HashMap;
use std::ops::Range;

use ropeway_vfs::chunks::{Chunk, ChunkHash, Cutter, chunk_hash};

/// Length in bytes of the parts that are cut, sent and compared by themselves. The cuts begin anew
/// with each part, so both ends work on several at once. A part is copied by two or three requests
/// ([MS-SMB2] 3.3.5.15.6), and its cut ends cost some 30 KiB where content has moved.
pub const PART: u64 = 32 << 20;

/// Average length in bytes of a chunk of a small file. A changed place costs about one such chunk
/// beside the change, the list of chunks a thousandth of the file.
const AVERAGE: u64 = 8 << 10;

/// Most chunks of a file at that length: they take 35 MiB of memory. The chunks of larger files are
/// longer.
const CHUNKS_MAX: u64 = 1 << 19;

/// Size in bytes above which a file is copied whole: the list of its chunks would take more than
/// 150 MiB.
pub const SIZE_MAX: u64 = 512 << 30;

/// Share of the new file that must be in the old one: a sixteenth. Below, blocks that are read
/// ahead and written in order are the better way.
const KNOWN_MIN_DIVISOR: u64 = 16;

/// Ranges of a new file that differ in offset by a multiple of this from the old file can share its
/// blocks. It is the cluster size of the file systems that can.
const CLUSTER: u64 = 4096;

/// Returns how files of this size are cut.
pub fn cutter_for(size: u64) -> Cutter {
    let average = (size / CHUNKS_MAX).max(AVERAGE).next_power_of_two();
    Cutter::new(u32::try_from(average).unwrap_or(u32::MAX))
}

/// Returns the parts of a file from `start` on. All but the first and the last begin and end at a
/// multiple of [`PART`].
pub fn parts(start: u64, size: u64) -> impl Iterator<Item = Range<u64>> {
    let mut at = start;
    std::iter::from_fn(move || {
        let end = ((at / PART + 1) * PART).min(size);
        let part = at..end;
        at = end;
        (!part.is_empty()).then_some(part)
    })
}

/// A range of the new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// Where the same bytes are in the old file. `None`: they must be sent.
    pub old: Option<u64>,
}

impl Piece {
    /// Returns the piece that this one and the next one are together, if they are one range.
    fn joined(self, next: Self) -> Option<Self> {
        let follows = match (self.old, next.old) {
            (Some(one), Some(two)) => one.checked_add(self.length) == Some(two),
            (None, None) => true,
            _ => false,
        };
        (follows && self.offset + self.length == next.offset).then_some(Self {
            length: self.length + next.length,
            ..self
        })
    }
}

/// The chunks of the old file.
#[derive(Debug, Default)]
pub struct OldChunks {
    /// Offset and hash of each chunk, ascending. A chunk ends where the next one begins.
    list: Vec<(u64, ChunkHash)>,
    /// The first chunk with each hash.
    by_hash: HashMap<ChunkHash, u32>,
    end: u64,
}

impl OldChunks {
    /// Adds the chunks that follow those added so far. What the peer says about lengths cannot lead
    /// beyond the end of the file, since the caller has asked for a range within it.
    pub fn add(&mut self, chunks: &[Chunk]) {
        for chunk in chunks {
            // Callers keep to `SIZE_MAX`; further chunks would not be found, which is allowed.
            let number = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
            self.list.push((self.end, chunk.hash));
            self.by_hash.entry(chunk.hash).or_insert(number);
            self.end += u64::from(chunk.length);
        }
    }

    /// Passes over a range whose chunks are not known.
    pub fn skip_to(&mut self, offset: u64) {
        if offset > self.end {
            // No content has this hash in all likelihood, and the length does not fit.
            self.list.push((self.end, ChunkHash::default()));
            self.end = offset;
        }
    }

    /// Returns where what is known of the file ends.
    pub fn end(&self) -> u64 {
        self.end
    }

    fn length(&self, number: usize) -> u64 {
        let end = self.list.get(number + 1).map_or(self.end, |next| next.0);
        end - self.list[number].0
    }

    fn is(&self, number: usize, chunk: &Chunk) -> bool {
        self.list.get(number).is_some_and(|one| one.1 == chunk.hash)
            && self.length(number) == u64::from(chunk.length)
    }

    /// Returns the number of a chunk of the old file with the content of `chunk`: best the one
    /// behind the last one used, else the one at the same offset, else the first.
    fn find(&self, chunk: &Chunk, offset: u64, last: Option<usize>) -> Option<usize> {
        if let Some(next) = last.map(|last| last + 1)
            && self.is(next, chunk)
        {
            return Some(next);
        }
        if let Ok(same) = self.list.binary_search_by_key(&offset, |one| one.0)
            && self.is(same, chunk)
        {
            return Some(same);
        }
        let first = *self.by_hash.get(&chunk.hash)? as usize;
        self.is(first, chunk).then_some(first)
    }

    /// Returns the pieces of a part of the new file that begins at `start` and has these chunks.
    /// Chunks equal to `hole` are left out.
    pub fn plan(&self, start: u64, chunks: &[Chunk], hole: Option<Chunk>) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        let (mut offset, mut last) = (start, None);
        for chunk in chunks {
            let length = u64::from(chunk.length);
            if hole == Some(*chunk) {
                (offset, last) = (offset + length, None);
                continue;
            }
            last = self.find(chunk, offset, last);
            let piece = Piece {
                offset,
                length,
                old: last.map(|number| self.list[number].0),
            };
            match pieces.last_mut() {
                Some(before) if before.joined(piece).is_some() => before.length += length,
                _ => pieces.push(piece),
            }
            offset += length;
        }
        pieces
    }
}

/// Returns the chunk of which a long run of zeroes consists.
pub fn zeroes(cutter: Cutter) -> Chunk {
    let content = vec![0; cutter.longest()];
    let mut first = None;
    cutter.cut(&content, false, |chunk| {
        first.get_or_insert(Chunk {
            // The longest chunk has 1 MiB.
            length: chunk.len() as u32,
            hash: chunk_hash(chunk),
        });
    });
    first.unwrap_or(Chunk {
        length: u32::MAX,
        hash: ChunkHash::default(),
    })
}

/// Returns whether so much is known that the old file helps.
pub fn is_worthwhile(known: u64, size: u64) -> bool {
    known >= size.div_ceil(KNOWN_MIN_DIVISOR)
}

/// Splits a piece that is copied so that as much as possible of it begins at a cluster in both
/// files, and can be shared instead of copied. Returns one piece or two.
pub fn aligned(piece: Piece) -> impl Iterator<Item = Piece> {
    let head = piece.offset.next_multiple_of(CLUSTER) - piece.offset;
    let is_even = piece
        .old
        .is_some_and(|old| old % CLUSTER == piece.offset % CLUSTER);
    let cut = if is_even && head < piece.length { head } else { 0 };
    let first = Piece { length: cut, ..piece };
    let rest = Piece {
        offset: piece.offset + cut,
        length: piece.length - cut,
        old: piece.old.map(|old| old + cut),
    };
    [first, rest].into_iter().filter(|piece| piece.length > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CUT: u32 = 2048;

    fn chunks(content: &[u8]) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        Cutter::new(CUT).cut(content, true, |chunk| {
            chunks.push(Chunk {
                length: chunk.len() as u32,
                hash: chunk_hash(chunk),
            });
        });
        chunks
    }

    fn noise(seed: u64, length: usize) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(seed);
        std::iter::repeat_with(|| random.u8(..)).take(length).collect()
    }

    /// Changes a content in one place: inserts, deletes, overwrites, moves, truncates, repeats.
    fn edit(random: &mut fastrand::Rng, content: &mut Vec<u8>) {
        let at = random.usize(..=content.len());
        let end = (at + random.usize(..30_000)).min(content.len());
        let some = noise(random.u64(..), end - at);
        match random.u8(..7) {
            0 => drop(content.splice(at..at, some)),
            1 => drop(content.drain(at..end)),
            2 => content[at..end].copy_from_slice(&some),
            3 => {
                let moved: Vec<u8> = content.drain(at..end).collect();
                let to = random.usize(..=content.len());
                drop(content.splice(to..to, moved));
            }
            4 => content.truncate(at),
            5 => content.extend_from_within(at..end),
            _ => content[at..end].fill(0),
        }
    }

    /// Builds the new content from the pieces, as an end does.
    fn apply(pieces: &[Piece], old: &[u8], new: &[u8]) -> Vec<u8> {
        let mut built = Vec::new();
        for piece in pieces.iter().copied().flat_map(aligned) {
            assert_eq!(piece.offset, built.len() as u64, "no gap and no overlap");
            let (from, at) = match piece.old {
                Some(at) => (old, at),
                None => (new, piece.offset),
            };
            built.extend_from_slice(&from[at as usize..(at + piece.length) as usize]);
        }
        built
    }

    proptest! {
        #[test]
        fn pieces_make_the_new_content(seed: u64, size in 0_usize..120_000, edits in 0_usize..6, gap: bool) {
            let mut random = fastrand::Rng::with_seed(seed);
            let old = noise(seed, size);
            let mut new = old.clone();
            (0..edits).for_each(|_| edit(&mut random, &mut new));
            let mut known = OldChunks::default();
            if gap {
                // A peer that does not tell about the middle.
                let (from, to) = (size / 3, size / 2);
                known.add(&chunks(&old[..from]));
                known.skip_to(to as u64);
                known.add(&chunks(&old[to..]));
            } else {
                known.add(&chunks(&old));
            }
            let pieces = known.plan(0, &chunks(&new), None);
            prop_assert_eq!(apply(&pieces, &old, &new), new.clone());
            let joined = pieces.windows(2).all(|two| two[0].joined(two[1]).is_none());
            prop_assert!(joined, "neighbours are one piece");
            let sent: u64 = pieces.iter().filter(|piece| piece.old.is_none()).map(|piece| piece.length).sum();
            if edits == 0 && !gap {
                prop_assert_eq!(sent, 0);
            }
        }

        #[test]
        fn parts_cover_a_file(start in 0..PART * 3, length in 0..PART * 3) {
            let mut at = start;
            for part in parts(start, start + length) {
                prop_assert_eq!(part.start, at);
                prop_assert!(part.end - part.start <= PART && (part.end % PART == 0 || part.end == start + length));
                at = part.end;
            }
            prop_assert_eq!(at, start + length);
        }
    }

    #[test]
    fn a_small_change_sends_little() {
        let old = noise(1, 1 << 20);
        let mut new = old.clone();
        new[500_000] ^= 1;
        new.splice(200_000..200_000, *b"inserted");
        let mut known = OldChunks::default();
        known.add(&chunks(&old));
        let pieces = known.plan(0, &chunks(&new), None);
        let sent: u64 = pieces
            .iter()
            .filter(|piece| piece.old.is_none())
            .map(|piece| piece.length)
            .sum();
        assert!(sent < 40_000, "{sent}");
        assert!(is_worthwhile((1 << 20) - sent, 1 << 20) && !is_worthwhile(60_000, 1 << 20));
    }

    /// A run of equal chunks is one piece, at the place where it stands.
    #[test]
    fn zeroes_stay_where_they_are() {
        let mut old = noise(2, 300_000);
        old[100_000..250_000].fill(0);
        let mut known = OldChunks::default();
        known.add(&chunks(&old));
        let pieces = known.plan(0, &chunks(&old), None);
        let whole = Piece {
            offset: 0,
            length: 300_000,
            old: Some(0),
        };
        assert_eq!(pieces, [whole]);
        // In a sparse file only their edges are copied.
        let pieces = known.plan(0, &chunks(&old), Some(zeroes(Cutter::new(CUT))));
        let copied: u64 = pieces.iter().map(|piece| piece.length).sum();
        assert!((150_000..170_000).contains(&copied), "{copied}");
        assert!(pieces.iter().all(|piece| piece.old == Some(piece.offset)));
    }

    #[test]
    fn pieces_at_equal_places_within_clusters_are_split_at_a_cluster() {
        let piece = |offset, length, old| Piece {
            offset,
            length,
            old: Some(old),
        };
        let split = |one| aligned(one).collect::<Vec<_>>();
        assert_eq!(
            split(piece(5000, 9000, 904)),
            [piece(5000, 3192, 904), piece(8192, 5808, 4096)]
        );
        for whole in [
            piece(5000, 9000, 905),
            piece(5000, 3000, 904),
            piece(8192, 10, 4096),
        ] {
            assert_eq!(split(whole), [whole]);
        }
    }

    #[test]
    fn large_files_have_longer_chunks() {
        for (size, average) in [
            (0, 8 << 10),
            (4 << 30, 8 << 10),
            (20 << 30, 64 << 10),
            (u64::MAX, 256 << 10),
        ] {
            assert_eq!(cutter_for(size).average(), average);
        }
    }
}
