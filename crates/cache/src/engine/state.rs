//! What is in memory: index, segments, and the segments being filled. No I/O.
//!
//! ```text
//! Free --begin--> Filling --close, written--> Sealed --clean--> Pending --checkpoint--> Free
//! ```

use std::collections::HashSet;
use std::ops::Range;

use ropeway_block::{BlockMut, Pool};

use crate::index::{Index, Place};
use crate::log::checkpoint::Saved;
use crate::log::record::{HEADER_BYTES, Kind, RECORD_MAX, RecordHeader};
use crate::log::segment::{self, Entry, FOOTER_BYTES, RECORDS_MAX, SEGMENT_HEADER_BYTES};
use crate::log::superblock::Superblock;
use crate::log::{PAGE, SECTOR};
use crate::stats::Stats;

/// Share of the segments in use that live records may take. The rest is what the policy has evicted
/// before cleaning comes to it.
pub(super) const LIVE_PERCENT: u64 = 98;

/// Segments kept free or nearly free, as a divisor of all: cleaning and checkpoints are paid once
/// for so many segments.
const RESERVE_PART: usize = 64;

/// Fewest segments kept free: one for what cleaning moves, one to be filled, and one for a
/// checkpoint that is under way.
const RESERVE_MIN: usize = 3;

/// While the writer is behind: from which share of the segment in memory on which likelihood is
/// needed, in uses.
const BEHIND: [(f32, f32); 2] = [(0.5, 1.0), (0.75, 1.25)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Free,
    Filling,
    Sealed,
    /// Cleaned, but the last checkpoint lists it: free after the next one.
    Pending,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) state: Use,
    pub(super) seq: u64,
    pub(super) live_sectors: u32,
}

/// A segment in memory that is not yet on the device as a whole.
#[derive(Debug)]
pub(super) struct Filling {
    pub(super) segment: u32,
    pub(super) seq: u64,
    buffer: BlockMut,
    filled: usize,
    flushed: usize,
    entries: Vec<Entry>,
}

/// A part of a segment to be written.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) segment: u32,
    pub(super) start: usize,
    pub(super) len: usize,
    pub(super) is_last: bool,
}

pub(super) struct State {
    pub(super) superblock: Superblock,
    pub(super) index: Index,
    pub(super) segments: Vec<Segment>,
    pub(super) open: Option<Filling>,
    pub(super) closing: Option<Filling>,
    pub(super) next_seq: u64,
    pub(super) sealed_since_checkpoint: usize,
    pub(super) pinned: HashSet<u32>,
    pub(super) stats: Stats,
    pub(super) live_sectors: u64,
    slots_max: usize,
    buffers: Pool,
}

impl State {
    pub(super) fn new(superblock: Superblock, index: Index, slots_max: usize) -> Self {
        let segments = superblock.segments as usize;
        let free = Segment {
            state: Use::Free,
            seq: 0,
            live_sectors: 0,
        };
        Self {
            superblock,
            index,
            segments: vec![free; segments],
            open: None,
            closing: None,
            // Begins anew at each open: a segment whose header was lost in a power cut may have left
            // records with its number.
            next_seq: u64::from(superblock.epoch) << 32,
            sealed_since_checkpoint: 0,
            pinned: HashSet::new(),
            stats: Stats::default(),
            live_sectors: 0,
            slots_max,
            // One segment is filled while the one before is written.
            buffers: Pool::new(superblock.segment_bytes as usize, 2),
        }
    }

    pub(super) fn segment_sectors(&self) -> u32 {
        self.superblock.segment_bytes / SECTOR as u32
    }

    /// Returns the segment that a place lies in.
    pub(super) fn segment_of(&self, sector: u32) -> u32 {
        let first = (self.superblock.data_start() / SECTOR as u64) as u32;
        (sector - first) / self.segment_sectors()
    }

    /// Returns the position of a segment in sectors.
    pub(super) fn first_sector(&self, segment: u32) -> u32 {
        let first = (self.superblock.data_start() / SECTOR as u64) as u32;
        first + segment * self.segment_sectors()
    }

    pub(super) fn count(&self, state: Use) -> usize {
        let with = self.segments.iter().filter(|segment| segment.state == state);
        with.count()
    }

    /// Returns the largest record that fits into an empty segment.
    pub(super) fn record_max(&self) -> usize {
        self.superblock.segment_bytes as usize - SEGMENT_HEADER_BYTES - FOOTER_BYTES
    }

    /// Appends a record. Returns its sector, or `None` if there is no room now. `reserve` segments
    /// stay free, for the records that cleaning moves.
    pub(super) fn append(&mut self, mut header: RecordHeader, body: &[u8], reserve: usize) -> Option<u32> {
        let len = usize::from(header.sectors()) * SECTOR;
        let end = self.superblock.segment_bytes as usize - FOOTER_BYTES;
        let is_full = self
            .open
            .as_ref()
            .is_some_and(|open| open.filled + len > end || open.entries.len() == RECORDS_MAX);
        if is_full {
            if self.closing.is_some() {
                return None;
            }
            self.closing = self.open.take();
        }
        if self.open.is_none() {
            self.open = Some(self.begin(reserve)?);
        }
        let salt = self.superblock.salt;
        let first = self.first_sector(self.open.as_ref()?.segment);
        let open = self.open.as_mut()?;
        header.segment_seq = open.seq;
        let bytes = &mut open.buffer.capacity_mut()[open.filled..open.filled + len];
        bytes[..HEADER_BYTES].copy_from_slice(&header.encode(&salt));
        bytes[HEADER_BYTES..HEADER_BYTES + body.len()].copy_from_slice(body);
        bytes[HEADER_BYTES + body.len()..].fill(0);
        let within = (open.filled / SECTOR) as u32;
        open.entries.push(Entry {
            kind: header.kind,
            tag: header.tag,
            sector: within,
            sectors: header.sectors(),
        });
        open.filled += len;
        Some(first + within)
    }

    /// Whether a block with this likelihood may come in now. While the writer is behind by a segment, the
    /// room that is left is for the likeliest blocks: first those that only a prediction wants wait,
    /// then those that nobody used before.
    pub(super) fn admits(&self, likelihood: f32) -> bool {
        let (Some(open), Some(_)) = (&self.open, &self.closing) else {
            return true;
        };
        let filled = open.filled as f32 / self.superblock.segment_bytes as f32;
        let steps = BEHIND.iter().filter(|(share, _)| filled >= *share);
        steps.map(|(_, least)| *least).fold(0.0, f32::max) <= likelihood
    }

    fn begin(&mut self, reserve: usize) -> Option<Filling> {
        if self.count(Use::Free) <= reserve {
            return None;
        }
        let mut buffer = self.buffers.try_get()?;
        let free = self
            .segments
            .iter()
            .position(|segment| segment.state == Use::Free)?;
        let seq = self.next_seq;
        self.next_seq += 1;
        self.segments[free] = Segment {
            state: Use::Filling,
            seq,
            live_sectors: 0,
        };
        let header = &mut buffer.capacity_mut()[..SEGMENT_HEADER_BYTES];
        header.fill(0);
        segment::encode_header(seq, &self.superblock.salt, header);
        Some(Filling {
            segment: u32::try_from(free).expect("segments are numbered by u32"),
            seq,
            buffer,
            filled: SEGMENT_HEADER_BYTES,
            flushed: 0,
            entries: Vec::new(),
        })
    }

    /// Copies the next part to be written: at least `least` bytes, unless a segment ends. Returns
    /// `None` if there is nothing to write.
    pub(super) fn take_chunk(&mut self, least: usize, into: &mut [u8]) -> Option<Chunk> {
        let salt = self.superblock.salt;
        let segment_bytes = self.superblock.segment_bytes as usize;
        let is_closing = self.closing.is_some();
        let filling = self.closing.as_mut().or(self.open.as_mut())?;
        let padded = filling.filled.next_multiple_of(PAGE);
        if is_closing && filling.flushed >= padded {
            let start = segment_bytes - FOOTER_BYTES;
            segment::encode_footer(filling.seq, &filling.entries, &salt, &mut into[..FOOTER_BYTES]);
            return Some(Chunk {
                segment: filling.segment,
                start,
                len: FOOTER_BYTES,
                is_last: true,
            });
        }
        let ready = padded - filling.flushed;
        if ready == 0 || (!is_closing && ready < least) {
            return None;
        }
        let len = ready.min(into.len());
        let start = filling.flushed;
        let bytes = filling.buffer.capacity_mut();
        if start + len == padded {
            // Later records begin on a page of their own: no page is written twice.
            bytes[filling.filled..padded].fill(0);
            filling.filled = padded;
        }
        into[..len].copy_from_slice(&bytes[start..start + len]);
        Some(Chunk {
            segment: filling.segment,
            start,
            len,
            is_last: false,
        })
    }

    /// Notes that a part is on the device.
    pub(super) fn written(&mut self, chunk: &Chunk) {
        self.stats.bytes_written += chunk.len as u64;
        let is_its = |filling: &&mut Filling| filling.segment == chunk.segment;
        if chunk.is_last {
            if self
                .closing
                .take_if(|closing| closing.segment == chunk.segment)
                .is_some()
            {
                self.segments[chunk.segment as usize].state = Use::Sealed;
                self.sealed_since_checkpoint += 1;
            }
        } else if let Some(filling) = self.closing.as_mut().filter(is_its) {
            filling.flushed = chunk.start + chunk.len;
        } else if let Some(filling) = self.open.as_mut().filter(is_its) {
            filling.flushed = chunk.start + chunk.len;
        }
    }

    /// Copies a record that is still in memory. Returns whether it was.
    pub(super) fn copy_record(&mut self, place: Place, into: &mut [u8]) -> bool {
        let segment = self.segment_of(place.sector);
        let within = (place.sector - self.first_sector(segment)) as usize * SECTOR;
        let len = usize::from(place.sectors) * SECTOR;
        let mut fillings = self.open.iter_mut().chain(self.closing.as_mut());
        let Some(filling) = fillings.find(|filling| filling.segment == segment) else {
            return false;
        };
        into[..len].copy_from_slice(&filling.buffer.capacity_mut()[within..within + len]);
        true
    }

    /// Adds a block to the index, in place of an older one with its tag.
    pub(super) fn add(&mut self, tag: u64, place: Place, is_predicted: bool) {
        if let Some(old) = self.index.find(tag) {
            self.remove(old);
        }
        if self.index.len() == self.index.slots() && !self.grow() && !self.evict_one() {
            return;
        }
        let slot = match is_predicted {
            true => self.index.insert_predicted(tag, place),
            false => self.index.insert(tag, place),
        };
        if slot.is_some() {
            self.live(place, true);
        }
    }

    /// Adds slots where compression makes room for more blocks: a 16th at a time, so that with the
    /// empty ones the index takes at most 32 bytes a block.
    fn grow(&mut self) -> bool {
        let slots = self.index.slots();
        let larger = (slots + slots / 16 + 1).min(self.slots_max);
        if larger == slots || self.live_sectors >= self.live_max() {
            return false;
        }
        self.index.grow(larger);
        true
    }

    /// Returns the sectors that may be live: without the reserve, the segment that is filled, and
    /// what stays empty at the end of a segment. If more could be live than has room, only cleaning
    /// would evict: whole segments, the hot blocks with the cold ones.
    fn live_max(&self) -> u64 {
        let overhead = FOOTER_BYTES + SEGMENT_HEADER_BYTES + RECORD_MAX / 2;
        let data = u64::from(self.segment_sectors()) - (overhead / SECTOR) as u64;
        let in_use = self.segments.len() - self.reserve() - 1;
        data * in_use as u64 * LIVE_PERCENT / 100
    }

    /// Returns the number of segments to keep free or pending.
    pub(super) fn reserve(&self) -> usize {
        (self.segments.len() / RESERVE_PART).max(RESERVE_MIN)
    }

    /// Evicts up to `max` blocks until there is room for cleaning. Returns whether more have to go.
    pub(super) fn keep_room(&mut self, max: usize) -> bool {
        let live_max = self.live_max();
        for _ in 0..max {
            if self.live_sectors <= live_max || !self.evict_one() {
                return false;
            }
        }
        true
    }

    fn evict_one(&mut self) -> bool {
        let pinned = &self.pinned;
        let Some(slot) = self.index.victim(|tag| !pinned.contains(&((tag >> 32) as u32))) else {
            return false;
        };
        self.evict(slot);
        true
    }

    pub(super) fn evict(&mut self, slot: u32) {
        self.live(self.index.place(slot), false);
        self.index.evict(slot);
        self.stats.evicted += 1;
    }

    pub(super) fn remove(&mut self, slot: u32) {
        self.live(self.index.place(slot), false);
        self.index.remove(slot);
    }

    /// Counts a record of the index as live, or no longer.
    pub(super) fn live(&mut self, place: Place, is_live: bool) {
        let segment = self.segment_of(place.sector) as usize;
        let sectors = u32::from(place.sectors);
        if is_live {
            self.segments[segment].live_sectors += sectors;
            self.live_sectors += u64::from(sectors);
        } else {
            self.segments[segment].live_sectors -= sectors;
            self.live_sectors -= u64::from(sectors);
        }
    }

    /// Removes the blocks of a file among these slots.
    pub(super) fn remove_file(&mut self, slots: Range<usize>, file_tag: u32) {
        for slot in slots {
            let slot = slot as u32;
            if self.index.is_of_file(slot, file_tag) {
                self.remove(slot);
            }
        }
    }

    /// Returns the slot of a block, if it lies in this place.
    pub(super) fn slot_at(&self, tag: u64, place: Place) -> Option<u32> {
        let slot = self.index.find(tag)?;
        (self.index.place(slot) == place).then_some(slot)
    }

    /// Returns the place of a record in a segment.
    pub(super) fn place_of(&self, segment: u32, entry: &Entry) -> Place {
        Place {
            sector: self.first_sector(segment) + entry.sector,
            sectors: entry.sectors,
        }
    }

    pub(super) fn is_pinned(&self, tag: u64) -> bool {
        self.pinned.contains(&((tag >> 32) as u32))
    }

    /// Gives up segments whose parts could not be written.
    pub(super) fn abandon(&mut self) {
        for filling in [self.open.take(), self.closing.take()].into_iter().flatten() {
            for entry in &filling.entries {
                let place = self.place_of(filling.segment, entry);
                if let Some(slot) = self.slot_at(entry.tag, place) {
                    self.remove(slot);
                }
            }
            self.segments[filling.segment as usize].state = Use::Pending;
        }
    }

    /// Returns the highest number of a segment that is not being filled and has no higher one
    /// behind it.
    pub(super) fn covered_seq(&self) -> u64 {
        let fillings = self.open.iter().chain(&self.closing);
        let first_open = fillings.map(|filling| filling.seq).min();
        first_open.unwrap_or(self.next_seq) - 1
    }

    /// Returns the number of each sealed segment, and 0 for the others.
    pub(super) fn sealed(&self) -> Vec<u64> {
        let number = |segment: &Segment| match segment.state {
            Use::Sealed => segment.seq,
            _ => 0,
        };
        self.segments.iter().map(number).collect()
    }

    /// Returns what a checkpoint keeps of a slot: a block in a sealed segment.
    pub(super) fn saved(&self, slot: u32) -> Option<Saved> {
        let place = self.index.place(slot);
        if place.sectors == 0 {
            return None;
        }
        let segment = self.segment_of(place.sector) as usize;
        let (code, age) = self.index.policy().save(slot);
        (self.segments[segment].state == Use::Sealed).then(|| Saved {
            tag: self.index.tag(slot),
            place,
            code,
            age,
        })
    }
}

/// Returns the header of the order to forget a file.
pub(super) fn forget_header(file_tag: u32) -> RecordHeader {
    RecordHeader {
        kind: Kind::Forget,
        tag: u64::from(file_tag) << 32,
        segment_seq: 0,
        raw_len: 0,
        stored_len: 0,
        nonce: [0; 12],
        is_compressed: false,
    }
}
