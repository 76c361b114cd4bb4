//! Segments: blocks of records, each compressed and with a checksum.
//!
//! ```text
//!   block    magic "RwFc" or "RwFn" | bytes stored (u32) | bytes inside (u32) | checksum (16) | LZ4 block
//!   inside   kind (1) | count | records, each path sharing the begin of the one before it
//!                             | or tasks that the claim gave away
//!                             | or attributes that the target could not keep
//! ```
//!
//! Numbers are little-endian. The checksum is the first half of the BLAKE3 hash of both lengths and
//! the stored bytes. "RwFn" marks records of files that need nothing more, nearly all of them: the
//! late passes skip them. A segment may be appended to; a block that is cut off or damaged ends it
//! ([`Tail::Torn`]). Nothing behind such a block is used, since blocks count in their order.

use std::fmt;

use crate::catalog::losses::Losses;
use crate::catalog::record::Record;
use crate::claim::{ClaimId, number};
use crate::codec::{Reader, put_bytes, put_number};
use crate::task::Task;

const MAGIC: &[u8; 4] = b"RwFc";

/// Begin of a block of records that are settled ([`Record::is_settled`]).
const MAGIC_SETTLED: &[u8; 4] = b"RwFn";

const HEAD: usize = 4 + 4 + 4 + 16;

/// Largest block before compression. A reader allocates no more, whatever a block says.
pub const BLOCK_MAX: usize = 8 << 20;

/// Memory that the records of one segment may take: paths share their begins, and blocks are
/// compressed, so few bytes may say much. The largest that is written, 21,000 records with paths of
/// 4,096 bytes, takes 90 MiB.
const MEMORY_MAX: usize = 256 << 20;

/// Memory that a name in a list takes besides its bytes.
const NAME_COST: usize = 48;

/// Name of a segment: its claim, and its number within the claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentId {
    /// The claim that published it.
    pub claim: ClaimId,
    /// Number within the claim, from 0.
    pub number: u32,
}

impl SegmentId {
    /// Parses what `Display` writes.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (claim, rest) = text.split_at_checked(text.len().checked_sub(9)?)?;
        Some(Self {
            claim: ClaimId::parse(claim)?,
            number: number(rest.strip_prefix(b".")?)?,
        })
    }
}

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:08x}", self.claim, self.number)
    }
}

/// The content of one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// What became of nodes.
    Records(Vec<Record>),
    /// Tasks that the claim gave away.
    Given(Vec<Task>),
    /// Attributes that the target could not keep.
    Lost(Losses),
}

/// How the blocks of a segment end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// At the end of the last block.
    Clean,
    /// In a block that is cut off or damaged.
    Torn {
        /// Where that block begins.
        at: usize,
    },
}

/// Appends blocks for all records, and for all tasks that are given away. Records that are settled
/// come first, in blocks of their own.
pub fn encode(out: &mut Vec<u8>, records: &[Record], given: &[Task]) {
    for (magic, settled) in [(MAGIC_SETTLED, true), (MAGIC, false)] {
        let (mut inside, mut count): (Vec<u8>, usize) = (Vec::new(), 0);
        let mut before: &[u8] = &[];
        for record in records.iter().filter(|record| record.is_settled() == settled) {
            if inside.len() > BLOCK_MAX / 8 {
                put_block(out, (magic, 1), count, &std::mem::take(&mut inside));
                (count, before) = (0, &[]);
            }
            record.put(&mut inside, before);
            before = record.path.as_bytes();
            count += 1;
        }
        if count > 0 {
            put_block(out, (magic, 1), count, &inside);
        }
    }
    if !given.is_empty() {
        encode_given(out, given);
    }
}

/// Appends blocks for tasks that are given away: one at least, also if there are none.
pub fn encode_given(out: &mut Vec<u8>, given: &[Task]) {
    let (mut inside, mut count) = (Vec::new(), 0);
    for task in given {
        put_bytes(&mut inside, &task.encode());
        count += 1;
        if inside.len() > BLOCK_MAX / 8 {
            put_block(out, (MAGIC, 2), count, &std::mem::take(&mut inside));
            count = 0;
        }
    }
    if count > 0 || given.is_empty() {
        put_block(out, (MAGIC, 2), count, &inside);
    }
}

/// Appends a block of losses, if there are some.
pub fn encode_lost(out: &mut Vec<u8>, losses: &Losses) {
    if !losses.is_empty() {
        let mut inside = Vec::new();
        losses.put(&mut inside);
        put_block(out, (MAGIC, 3), 1, &inside);
    }
}

fn put_block(out: &mut Vec<u8>, (magic, kind): (&[u8; 4], u8), count: usize, items: &[u8]) {
    let mut inside = vec![kind];
    put_number(&mut inside, count as u64);
    inside.extend_from_slice(items);
    assert!(
        inside.len() <= BLOCK_MAX,
        "a block has a bound, and so have its items"
    );
    let stored = lz4_flex::block::compress(&inside);
    let lengths = (stored.len() as u32, inside.len() as u32);
    out.extend_from_slice(magic);
    out.extend_from_slice(&lengths.0.to_le_bytes());
    out.extend_from_slice(&lengths.1.to_le_bytes());
    out.extend_from_slice(&checksum(lengths, &stored));
    out.extend_from_slice(&stored);
}

fn checksum((stored_len, inside_len): (u32, u32), stored: &[u8]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&stored_len.to_le_bytes());
    hasher.update(&inside_len.to_le_bytes());
    hasher.update(stored);
    let mut sum = [0; 16];
    sum.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    sum
}

/// Reads the blocks of a segment.
pub struct SegmentReader<'a> {
    bytes: &'a [u8],
    at: usize,
    tail: Tail,
    /// Memory that further records may take.
    budget: usize,
    /// Whether blocks of settled records are passed over.
    skips: bool,
}

impl<'a> SegmentReader<'a> {
    /// Reads from the bytes of a segment.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            tail: Tail::Clean,
            budget: MEMORY_MAX,
            skips: false,
        }
    }

    /// Returns the blocks of a whole segment without those of settled records, which are not examined;
    /// `None` if it is empty, cut off or damaged elsewhere, or takes too much memory.
    pub fn unsettled(bytes: &'a [u8]) -> Option<Vec<Block>> {
        let mut reader = Self::new(bytes);
        reader.skips = true;
        let blocks: Vec<Block> = reader.by_ref().collect();
        (reader.tail() == Tail::Clean && !bytes.is_empty()).then_some(blocks)
    }

    /// Returns the blocks of a whole segment; `None` if it is empty, cut off or damaged, or takes too
    /// much memory.
    pub fn all(bytes: &'a [u8]) -> Option<Vec<Block>> {
        let mut reader = Self::new(bytes);
        let blocks: Vec<Block> = reader.by_ref().collect();
        (reader.tail() == Tail::Clean && !blocks.is_empty()).then_some(blocks)
    }

    /// Returns how the segment ends, once all blocks were read.
    pub fn tail(&self) -> Tail {
        self.tail
    }

    /// Reads the next block; the inner `None` is one that is passed over.
    fn block(&mut self) -> Option<Option<Block>> {
        let mut reader = Reader::new(&self.bytes[self.at..]);
        let word = |reader: &mut Reader<'_>| Some(u32::from_le_bytes(reader.take(4)?.try_into().ok()?));
        let magic = reader.take(4)?;
        let is_settled = magic == MAGIC_SETTLED;
        (is_settled || magic == MAGIC).then_some(())?;
        let lengths = (word(&mut reader)?, word(&mut reader)?);
        let sum = reader.take(16)?;
        let stored = reader.take(usize::try_from(lengths.0).ok()?)?;
        if is_settled && self.skips {
            self.at += HEAD + stored.len();
            return Some(None);
        }
        let inside_len = usize::try_from(lengths.1)
            .ok()
            .filter(|length| *length <= BLOCK_MAX)?;
        (checksum(lengths, stored) == sum).then_some(())?;
        let inside = lz4_flex::block::decompress(stored, inside_len).ok()?;
        let block = parse(&inside, &mut self.budget)?;
        // A mark that says something else would hide records from the late passes.
        let is_true = |record: &Record| record.is_settled() == is_settled;
        match &block {
            Block::Records(records) => records.iter().all(is_true).then_some(())?,
            Block::Given(_) | Block::Lost(_) => (!is_settled).then_some(())?,
        }
        self.at += HEAD + stored.len();
        Some(Some(block))
    }
}

impl Iterator for SegmentReader<'_> {
    type Item = Block;

    fn next(&mut self) -> Option<Block> {
        while self.at < self.bytes.len() && self.tail == Tail::Clean {
            match self.block() {
                Some(Some(block)) => return Some(block),
                Some(None) => {}
                None => self.tail = Tail::Torn { at: self.at },
            }
        }
        None
    }
}

fn parse(inside: &[u8], budget: &mut usize) -> Option<Block> {
    let mut spend = |memory: usize| budget.checked_sub(memory).map(|left| *budget = left);
    let mut reader = Reader::new(inside);
    let kind = reader.byte()?;
    let count = reader.count()?;
    let block = match kind {
        1 => {
            // Grown as records are read: a record takes far more memory than its first byte.
            let mut records: Vec<Record> = Vec::new();
            for _ in 0..count {
                let before = records.last().map_or(&[][..], |record| record.path.as_bytes());
                let record = Record::get(&mut reader, before)?;
                spend(size_of::<Record>() + record.path.as_bytes().len())?;
                records.push(record);
            }
            Block::Records(records)
        }
        2 => {
            let mut tasks = Vec::new();
            for _ in 0..count {
                let bytes = reader.bytes()?;
                let task = Task::decode(bytes)?;
                spend(size_of::<Task>() + bytes.len() + NAME_COST * task.names())?;
                tasks.push(task);
            }
            Block::Given(tasks)
        }
        3 if count == 1 => Block::Lost(Losses::get(&mut reader)?),
        _ => return None,
    };
    reader.end()?;
    Some(block)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ropeway_vfs::{FileId, Loss, RelPath};

    use super::*;
    use crate::catalog::record::State;

    fn record() -> impl Strategy<Value = Record> {
        let state = prop_oneof![
            any::<u32>().prop_map(|staged| State::Copied { staged }),
            Just(State::Equal),
            Just(State::Skipped),
            "[a-z ]{0,20}".prop_map(State::Failed),
            Just(State::Folder),
            Just(State::FolderLeft),
            (any::<u64>(), any::<u64>()).prop_map(|(volume, index)| State::Linked(FileId { volume, index })),
        ];
        (
            "[a-c]{1,3}(/[a-c]{1,3}){0,3}",
            any::<u64>(),
            any::<i64>(),
            any::<Option<[u8; 32]>>(),
            state,
        )
            .prop_map(|(path, size, modified, hash, state)| Record {
                path: RelPath::parse(path.as_bytes()).unwrap(),
                size,
                modified,
                hash,
                state,
            })
    }

    proptest! {
        #[test]
        fn segments_are_read_as_written(records in prop::collection::vec(record(), 1..30), cut: u16) {
            let given = vec![Task::root()];
            let mut bytes = Vec::new();
            encode(&mut bytes, &records, &given);
            let losses = Losses([(Loss::Owner, 7)].into());
            encode_lost(&mut bytes, &losses);
            let first = bytes.len();
            encode(&mut bytes, &records[..1], &[]);
            let mut reader = SegmentReader::new(&bytes);
            let (settled, open): (Vec<Record>, Vec<Record>) = records.iter().cloned().partition(Record::is_settled);
            let mut expected = Vec::new();
            for records in [settled, open] {
                expected.extend((!records.is_empty()).then_some(Block::Records(records)));
            }
            expected.extend([Block::Given(given), Block::Lost(losses), Block::Records(records[..1].to_vec())]);
            prop_assert_eq!(reader.by_ref().collect::<Vec<_>>(), expected.clone());
            prop_assert_eq!(reader.tail(), Tail::Clean);
            // The late passes see everything but settled records.
            let is_late = |block: &Block| !matches!(block, Block::Records(records) if records[0].is_settled());
            let late: Vec<Block> = expected.iter().filter(|block| is_late(block)).cloned().collect();
            prop_assert_eq!(SegmentReader::unsettled(&bytes), Some(late));
            // A tail that is cut off takes nothing of what is before it.
            let end = first + usize::from(cut) % (bytes.len() - first);
            let mut torn = SegmentReader::new(&bytes[..end]);
            prop_assert_eq!(torn.by_ref().count(), expected.len() - 1);
            prop_assert_eq!(torn.tail(), if end == first { Tail::Clean } else { Tail::Torn { at: first } });
        }

        #[test]
        fn a_changed_bit_is_found(records in prop::collection::vec(record(), 1..10), place: usize, bit in 0..8_u32) {
            let mut bytes = Vec::new();
            encode(&mut bytes, &records, &[]);
            let place = place % bytes.len();
            bytes[place] ^= 1_u8 << bit;
            let mut reader = SegmentReader::new(&bytes);
            let blocks = 1 + usize::from(records.iter().any(|record| record.is_settled() != records[0].is_settled()));
            prop_assert!(reader.by_ref().count() < blocks);
            prop_assert_ne!(reader.tail(), Tail::Clean);
        }

        #[test]
        fn hostile_segments_never_panic(
            records in prop::collection::vec(record(), 1..20),
            flips in prop::collection::vec((any::<usize>(), any::<u8>()), 0..4),
            cut: Option<u16>,
            tail in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let mutate = |bytes: &mut Vec<u8>| {
                let length = bytes.len();
                bytes.truncate(length - cut.map_or(0, |cut| usize::from(cut) % length));
                bytes.extend_from_slice(&tail);
                let length = bytes.len();
                flips.iter().filter(|_| length > 0).for_each(|(place, value)| bytes[place % length] ^= value);
            };
            let read = |bytes: &[u8]| {
                let mut reader = SegmentReader::new(bytes);
                let _ = (reader.by_ref().count(), reader.tail());
                let _ = (SegmentReader::all(bytes), SegmentReader::unsettled(bytes));
            };
            let mut bytes = Vec::new();
            encode(&mut bytes, &records, &[Task::root()]);
            mutate(&mut bytes);
            read(&bytes);
            // Whoever makes a segment can make its checksums: what is inside is hostile too.
            for magic in [MAGIC, MAGIC_SETTLED] {
                let mut items = Vec::new();
                records.iter().for_each(|record| record.put(&mut items, &[]));
                mutate(&mut items);
                let mut bytes = Vec::new();
                put_block(&mut bytes, (magic, 1), records.len(), &items);
                put_block(&mut bytes, (magic, 2), records.len(), &items);
                read(&bytes);
                let _ = parse(&items, &mut MEMORY_MAX.clone());
            }
        }
    }

    /// A few bytes of a hostile catalog took all memory.
    #[test]
    fn a_segment_that_takes_too_much_memory_is_refused() {
        let long = RelPath::parse("x".repeat(4_000).as_bytes()).unwrap();
        let records = vec![Record::new(long, 0, 0, State::Equal); 10_000];
        let mut bytes = Vec::new();
        encode(&mut bytes, &records, &[]);
        let one = bytes.len();
        assert!(one < 10_000, "{one}");
        assert!(SegmentReader::all(&bytes).is_some());
        for _ in 0..8 {
            bytes.extend_from_within(..one);
        }
        assert!(SegmentReader::all(&bytes).is_none());
        let names = (0..200_000).map(|_| ropeway_vfs::Name::new(b"x").unwrap());
        let task = Task::folder(1, RelPath::root(), crate::task::Scope::Names(names.collect()));
        let mut bytes = Vec::new();
        encode_given(&mut bytes, &[task.clone(), task]);
        assert!(SegmentReader::all(&bytes).is_some());
        let one = bytes.len();
        (0..15).for_each(|_| bytes.extend_from_within(..one));
        assert!(SegmentReader::all(&bytes).is_none());
    }

    #[test]
    fn a_block_that_is_marked_as_settled_and_is_not_is_refused() {
        let folder = Record::new(RelPath::root(), 0, 0, State::Folder);
        let mut inside = Vec::new();
        folder.put(&mut inside, &[]);
        for (magic, is_read) in [(MAGIC, true), (MAGIC_SETTLED, false)] {
            let mut bytes = Vec::new();
            put_block(&mut bytes, (magic, 1), 1, &inside);
            assert_eq!(SegmentReader::all(&bytes).is_some(), is_read);
        }
    }

    #[test]
    fn names_of_segments_are_read_back() {
        let id = SegmentId {
            claim: ClaimId::parse(format!("{}.00000002", "0a".repeat(16)).as_bytes()).unwrap(),
            number: 77,
        };
        assert_eq!(SegmentId::parse(id.to_string().as_bytes()), Some(id));
        assert_eq!(SegmentId::parse(b"x"), None);
    }

    #[test]
    fn many_records_become_many_blocks_and_little_space() {
        let path =
            |number: u64| RelPath::parse(format!("some/folder/file-{number:07}.jpg").as_bytes()).unwrap();
        let records: Vec<_> = (0..100_000)
            .map(|number| {
                Record::new(
                    path(number),
                    4_000 + number,
                    1_700_000_000_000 + number as i64,
                    State::Equal,
                )
            })
            .collect();
        let mut bytes = Vec::new();
        encode(&mut bytes, &records, &[]);
        let blocks: Vec<Block> = SegmentReader::new(&bytes).collect();
        assert!(blocks.len() > 1);
        let read: usize = blocks
            .iter()
            .map(|block| match block {
                Block::Records(records) => records.len(),
                Block::Given(_) | Block::Lost(_) => 0,
            })
            .sum();
        assert_eq!(read, records.len());
        assert!(bytes.len() < 20 * records.len(), "{} bytes", bytes.len());
    }
}
