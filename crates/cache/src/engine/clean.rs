//! Cleaning: the segment with the least live data is emptied.
//!
//! Its footer lists its records, so neither the index is walked nor lists are kept. What the
//! footer does not list, since it is damaged, is found by a walk in pieces.

use crate::engine::read::Record;
use crate::engine::state::{Segment, State, Use};
use crate::engine::work::{FLUSH_BYTES, PIECE, Writer};
use crate::engine::{Inner, Place};
use crate::error::Error;
use crate::log::SECTOR;
use crate::log::record::{HEADER_BYTES, RecordHeader};
use crate::log::segment::{self, Entry, FOOTER_BYTES, RECORDS_MAX};
use crate::mutations::{self, Mutation};

/// Part of a cleaned segment that is moved to a new one, as a divisor: at most half, so that
/// cleaning writes at most as much as callers cause. Colder blocks are evicted with the segment.
/// With a quarter the hit ratio is below that of S3-FIFO at 10 % of the footprint (docs/adr/0017).
const MOVED_PART: usize = 2;

/// Live data that a segment may have more than the emptiest one, to be cleaned in its place, as a
/// divisor of a segment.
const NEARLY_PART: u32 = 32;

/// What a pinned block is worth, in uses. It would be moved each time that its segment is cleaned.
const PINNED: f32 = 64.0;

/// A block of the segment that is cleaned.
struct Live {
    tag: u64,
    place: Place,
    is_pinned: bool,
    likelihood: f32,
}

impl Inner {
    /// Cleans the segment with the least live data: moves its likeliest blocks, evicts the others.
    /// Returns whether there was one.
    pub(super) fn clean(&self, writer: &mut Writer<'_>) -> Result<bool, Error> {
        let victim = self.victim();
        let Some(victim) = victim else {
            return Ok(false);
        };
        let blocks = self.blocks_of(victim, writer)?;
        // By bytes and by number: small blocks fill a segment by their number.
        let bytes_max = self.state.lock().record_max() / MOVED_PART;
        let (mut moved, mut count) = (0, 0);
        for block in blocks {
            let len = usize::from(block.place.sectors) * SECTOR;
            let has_room = moved + len <= bytes_max && count < RECORDS_MAX / MOVED_PART;
            let record = match block.is_pinned || has_room {
                true => self.read_record(block.place)?,
                false => None,
            };
            if record.is_some_and(|mut record| self.move_block(&block, record.bytes())) {
                (moved, count) = (moved + len, count + 1);
                self.write_out(writer, FLUSH_BYTES)?;
                continue;
            }
            let mut state = self.state.lock();
            if let Some(slot) = state.slot_at(block.tag, block.place) {
                state.evict(slot);
            }
        }
        if self.state.lock().segments[victim as usize].live_sectors > 0 {
            self.evict_all_in(victim);
        }
        let mut state = self.state.lock();
        state.stats.bytes_moved += moved as u64;
        let is_freed = mutations::is(Mutation::FreedBeforeCheckpoint);
        state.segments[victim as usize].state = if is_freed { Use::Free } else { Use::Pending };
        Ok(true)
    }

    /// Returns the segment to clean: of those with nearly the least live data, the one whose blocks are
    /// the least likely to be used.
    fn victim(&self) -> Option<u32> {
        let (mut worth, count) = self.state.lock().emptiest();
        if count > 1 {
            self.each_slot(|state, slots| {
                for slot in slots {
                    let slot = slot as u32;
                    let place = state.index.place(slot);
                    if place.sectors == 0 {
                        continue;
                    }
                    if let Some(worth) = &mut worth[state.segment_of(place.sector) as usize] {
                        let likely = match state.is_pinned(state.index.tag(slot)) {
                            true => PINNED,
                            false => state.index.policy().likelihood(slot).exp2(),
                        };
                        *worth += likely * f32::from(place.sectors);
                    }
                }
            });
        }
        self.state.lock().least_worth(&worth)
    }

    /// Returns the blocks that the footer of a segment lists and the index knows: pinned ones
    /// first, then by likelihood.
    fn blocks_of(&self, victim: u32, writer: &mut Writer<'_>) -> Result<Vec<Live>, Error> {
        let mut blocks = Vec::new();
        for part in self.entries_of(victim, writer)?.chunks(PIECE / 4) {
            let state = self.state.lock();
            blocks.extend(part.iter().filter_map(|entry| state.live_block(victim, entry)));
        }
        blocks.sort_by(|one, other| {
            let pinned = other.is_pinned.cmp(&one.is_pinned);
            pinned.then(other.likelihood.total_cmp(&one.likelihood))
        });
        Ok(blocks)
    }

    /// Reads the footer of a segment; nothing if it is damaged.
    fn entries_of(&self, victim: u32, writer: &mut Writer<'_>) -> Result<Vec<Entry>, Error> {
        let (end, seq, salt) = {
            let state = self.state.lock();
            let first = u64::from(state.first_sector(victim)) * SECTOR as u64;
            let end = first + u64::from(state.superblock.segment_bytes);
            (end, state.segments[victim as usize].seq, state.superblock.salt)
        };
        let footer = &mut writer.capacity_mut()[..FOOTER_BYTES];
        self.device.read_at(end - FOOTER_BYTES as u64, footer)?;
        Ok(segment::parse_footer(footer, seq, &salt).unwrap_or_default())
    }

    fn evict_all_in(&self, segment: u32) {
        self.each_slot(|state, slots| {
            for slot in slots {
                let slot = slot as u32;
                let place = state.index.place(slot);
                if place.sectors > 0 && state.segment_of(place.sector) == segment {
                    state.evict(slot);
                }
            }
        });
    }

    /// Appends a record once more. Its seal stays as it is.
    fn move_block(&self, block: &Live, record: &[u8]) -> bool {
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(header) = RecordHeader::parse(record, &state.superblock.salt) else {
            return false;
        };
        let body = HEADER_BYTES..HEADER_BYTES + header.stored_len as usize;
        let slot = state.slot_at(block.tag, block.place);
        let (Some(slot), Some(body)) = (slot, record.get(body)) else {
            return false;
        };
        if header.tag != block.tag || header.sectors() != block.place.sectors {
            return false;
        }
        let Some(sector) = state.append(header, body, 0) else {
            return false;
        };
        state.live(block.place, false);
        state.index.relocate(slot, sector);
        let sectors = block.place.sectors;
        state.live(Place { sector, sectors }, true);
        true
    }

    /// Reads a record to be moved; `None` if too many reads are under way.
    fn read_record(&self, place: Place) -> Result<Option<Record>, Error> {
        let located = self.locate(&mut self.state.lock(), place);
        Ok(located.map(|located| self.read(located)).transpose()?)
    }
}

impl State {
    /// Returns a place for the worth of each sealed segment with nearly the least live data, and how
    /// many these are.
    fn emptiest(&self) -> (Vec<Option<f32>>, usize) {
        let sealed = |segment: &&Segment| segment.state == Use::Sealed;
        let least = self
            .segments
            .iter()
            .filter(sealed)
            .map(|of| of.live_sectors)
            .min();
        let most = least.unwrap_or(0) + self.segment_sectors() / NEARLY_PART;
        let is_near = |segment: &Segment| sealed(&segment) && segment.live_sectors <= most;
        let worth: Vec<_> = self
            .segments
            .iter()
            .map(|of| is_near(of).then_some(0.0))
            .collect();
        let count = worth.iter().flatten().count();
        (worth, count)
    }

    /// Returns the segment that is worth least, the oldest of several.
    fn least_worth(&self, worth: &[Option<f32>]) -> Option<u32> {
        let known = self.segments.iter().zip(worth).enumerate();
        let known = known.filter_map(|(at, (segment, worth))| Some((at, segment.seq, (*worth)?)));
        let (victim, ..) = known.min_by(|one, other| one.2.total_cmp(&other.2).then(one.1.cmp(&other.1)))?;
        Some(u32::try_from(victim).expect("segments are numbered by u32"))
    }

    fn live_block(&self, segment: u32, entry: &Entry) -> Option<Live> {
        let place = self.place_of(segment, entry);
        let slot = self.slot_at(entry.tag, place)?;
        Some(Live {
            tag: entry.tag,
            place,
            is_pinned: self.is_pinned(entry.tag),
            likelihood: self.index.policy().likelihood(slot),
        })
    }
}
