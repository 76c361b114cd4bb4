//! The data read ahead of the readers of one file. Pure.
//!
//! A *slot* is a range of the file that was requested in one READ. It is loading until the reply
//! has come, then it is ready. Slots do not overlap. A slot is removed once all its bytes have been
//! read, when the range is written, when it is too old to be trusted, or when its memory is needed.
//! The reply to a READ whose slot is gone is dropped.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use ropeway_block::Block;

/// The slots of one file, by their first byte.
#[derive(Debug, Default)]
pub(super) struct ReadBuffers {
    slots: BTreeMap<u64, Slot>,
    next: u64,
}

#[derive(Debug)]
struct Slot {
    id: u64,
    length: u64,
    /// Bytes that readers have taken.
    taken: u64,
    /// When the slot was requested.
    at: Duration,
    /// `None` while it is loading.
    data: Option<Block>,
}

/// The number of a slot, to which its reply belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotId(u64);

/// What is known at an offset.
#[derive(Debug)]
pub(super) enum Found {
    /// The bytes from the offset on. `is_end`: the server's file ended behind them.
    Ready { data: Block, is_end: bool },
    /// They are being read.
    Loading,
    /// Nothing, up to this offset.
    Nothing { upto: u64 },
}

impl ReadBuffers {
    /// Returns the parts of a range that have no slot, in order, each at most `piece` bytes.
    pub(super) fn gaps(&self, range: Range<u64>, piece: u64) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        while at < range.end {
            match self.slot_at(at) {
                Some((start, slot)) => at = start + slot.length,
                None => {
                    let upto = self.next_start(at).min(range.end).min(at + piece);
                    gaps.push(at..upto);
                    at = upto;
                }
            }
        }
        gaps
    }

    /// Adds a slot for a range from [`gaps`](Self::gaps).
    pub(super) fn begin(&mut self, range: &Range<u64>, now: Duration) -> SlotId {
        debug_assert!(self.slot_at(range.start).is_none());
        self.next += 1;
        let slot = Slot {
            id: self.next,
            length: range.end - range.start,
            taken: 0,
            at: now,
            data: None,
        };
        self.slots.insert(range.start, slot);
        SlotId(self.next)
    }

    /// Takes the reply for a slot; `None` if the READ failed. Then the reader asks again, and
    /// receives the error.
    pub(super) fn loaded(&mut self, start: u64, id: SlotId, data: Option<Block>) {
        let Some(slot) = self.slots.get_mut(&start).filter(|slot| slot.id == id.0) else {
            return;
        };
        match data {
            Some(data) => slot.data = Some(data),
            None => {
                self.slots.remove(&start);
            }
        }
    }

    /// Returns what is known at `offset`, of which a reader wants at most `length` bytes. Removes a
    /// slot requested before `oldest`.
    pub(super) fn find(&mut self, offset: u64, length: u64, oldest: Duration) -> Found {
        let Some((start, slot)) = self.slot_at(offset) else {
            return Found::Nothing {
                upto: self.next_start(offset),
            };
        };
        if slot.at < oldest {
            let upto = start + slot.length;
            self.slots.remove(&start);
            return Found::Nothing {
                upto: self.next_start(offset).min(upto),
            };
        }
        let Some(data) = &slot.data else {
            return Found::Loading;
        };
        let skipped = offset - start;
        let there = data.len() as u64;
        let is_short = there < slot.length;
        let from = skipped.min(there);
        let upto = skipped.saturating_add(length).min(there);
        Found::Ready {
            data: data.slice(index(from)..index(upto)),
            is_end: is_short && upto == there,
        }
    }

    /// Notes that a reader has taken `length` bytes at `offset`. A slot that has been taken whole
    /// is removed.
    pub(super) fn took(&mut self, offset: u64, length: u64) {
        let Some((start, _)) = self.slot_at(offset) else {
            return;
        };
        let Some(slot) = self.slots.get_mut(&start) else {
            return;
        };
        slot.taken += length;
        let there = slot.data.as_ref().map_or(slot.length, |data| data.len() as u64);
        // The slot with the end of the file stays: another read there finds the end in it.
        if slot.taken >= there && there == slot.length {
            self.slots.remove(&start);
        }
    }

    /// Removes the slots that overlap a range that is written. `extends`: the write makes the file
    /// longer, so that slots in which it ended, or may turn out to end, are removed too.
    pub(super) fn invalidate(&mut self, range: &Range<u64>, extends: bool) {
        self.slots.retain(|start, slot| {
            let end = start.saturating_add(slot.length);
            let may_end = match &slot.data {
                Some(data) => (data.len() as u64) < slot.length,
                None => true,
            };
            let overlaps = *start < range.end && range.start < end;
            !(overlaps || extends && may_end)
        });
    }

    /// Removes all slots.
    pub(super) fn clear(&mut self) {
        self.slots.clear();
    }

    /// Removes the slot that was requested first, if its reply has come and it was requested before
    /// `old`. Returns whether there was one.
    pub(super) fn evict(&mut self, old: Duration) -> bool {
        let ready = self
            .slots
            .iter()
            .filter(|(_, slot)| slot.data.is_some() && slot.at < old);
        let oldest = ready.min_by_key(|(_, slot)| slot.id).map(|(start, _)| *start);
        oldest.is_some_and(|start| self.slots.remove(&start).is_some())
    }

    /// Number of slots.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.slots.len()
    }

    fn slot_at(&self, offset: u64) -> Option<(u64, &Slot)> {
        let (start, slot) = self.slots.range(..=offset).next_back()?;
        (offset - start < slot.length).then_some((*start, slot))
    }

    fn next_start(&self, offset: u64) -> u64 {
        let next = self.slots.range(offset..).next();
        next.map_or(u64::MAX, |(start, _)| *start)
    }
}

/// A position in a block, which is no longer than memory.
fn index(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_block::Pool;

    const START: Duration = Duration::ZERO;

    fn block(pool: &Pool, range: &Range<u64>, size: u64) -> Block {
        let mut block = pool.try_get().expect("a slot of the pool is free");
        let upto = range.end.min(size).max(range.start);
        let length = index(upto - range.start);
        for (at, byte) in block.capacity_mut()[..length].iter_mut().enumerate() {
            *byte = pattern(range.start + at as u64);
        }
        block.set_len(length);
        block.freeze()
    }

    fn pattern(at: u64) -> u8 {
        (at % 251) as u8
    }

    /// Any sequence of requests, replies, reads and writes yields the bytes of the file.
    #[test]
    fn bytes_come_from_their_place() {
        for seed in 0..300 {
            let mut random = fastrand::Rng::with_seed(seed);
            let pool = Pool::new(4096, 64);
            let (mut buffers, size) = (ReadBuffers::default(), 60_000);
            let mut loading: Vec<(Range<u64>, SlotId)> = Vec::new();
            for _ in 0..200 {
                let at = random.u64(0..70_000);
                match random.u8(0..6) {
                    0 | 1 => {
                        for gap in buffers.gaps(at..at + random.u64(1..9000), 4096) {
                            if pool.available() > 4 && buffers.len() < 40 {
                                let id = buffers.begin(&gap, START);
                                loading.push((gap, id));
                            }
                        }
                    }
                    2 if !loading.is_empty() => {
                        let (range, id) = loading.swap_remove(random.usize(0..loading.len()));
                        let data = random.bool().then(|| block(&pool, &range, size));
                        buffers.loaded(range.start, id, data);
                    }
                    3 => buffers.invalidate(&(at..at + 100), random.bool()),
                    4 => drop(buffers.evict(Duration::from_secs(1))),
                    _ => check_read(&mut buffers, at, size),
                }
            }
            buffers.clear();
            assert_eq!(pool.available(), 64, "{seed}");
        }
    }

    fn check_read(buffers: &mut ReadBuffers, at: u64, size: u64) {
        match buffers.find(at, 1000, START) {
            Found::Ready { data, is_end } => {
                for (index, byte) in data.iter().enumerate() {
                    assert_eq!(*byte, pattern(at + index as u64));
                }
                let end = at + data.len() as u64;
                assert!(!is_end || end >= size || data.is_empty());
                assert!(end <= size || data.is_empty());
                buffers.took(at, data.len() as u64);
            }
            Found::Loading => {}
            Found::Nothing { upto } => assert!(upto > at),
        }
    }

    #[test]
    fn a_write_makes_replies_in_flight_void() {
        let pool = Pool::new(4096, 4);
        let mut buffers = ReadBuffers::default();
        let id = buffers.begin(&(0..4096), START);
        buffers.invalidate(&(10..20), false);
        buffers.loaded(0, id, Some(block(&pool, &(0..4096), 9999)));
        assert!(matches!(buffers.find(0, 1, START), Found::Nothing { .. }));
    }

    #[test]
    fn what_is_too_old_is_forgotten() {
        let pool = Pool::new(4096, 4);
        let mut buffers = ReadBuffers::default();
        let id = buffers.begin(&(0..4096), Duration::from_secs(5));
        buffers.loaded(0, id, Some(block(&pool, &(0..4096), 9999)));
        let found = buffers.find(0, 1, Duration::from_secs(5));
        assert!(matches!(found, Found::Ready { .. }));
        drop(found);
        let found = buffers.find(0, 1, Duration::from_secs(6));
        assert!(matches!(found, Found::Nothing { .. }));
        assert_eq!(pool.available(), 4);
    }
}
