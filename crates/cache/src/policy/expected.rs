//! Blocks in the cache that a prediction says will be used: the last ones, one in 32 of the cache.
//!
//! A prediction is a matter of moments, unlike a use. So it does not change a block's count; it
//! protects the block until it is used, or until as many later predictions came.

/// One in so many blocks of the cache. On P2, 16 to 64 made no difference above .002.
const SHARE: usize = 32;

/// A set of slots that loses its oldest member.
#[derive(Debug)]
pub(super) struct Expected {
    /// One bit a slot.
    bits: Vec<u64>,
    ring: Vec<u32>,
    next: usize,
}

/// Marks a free place of the ring.
const NONE: u32 = u32::MAX;

impl Expected {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            bits: vec![0; slots.div_ceil(64)],
            ring: vec![NONE; (slots / SHARE).max(1)],
            next: 0,
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.bits.capacity() * size_of::<u64>() + self.ring.capacity() * size_of::<u32>()
    }

    pub(super) fn contains(&self, slot: u32) -> bool {
        self.bits[slot as usize / 64] >> (slot % 64) & 1 == 1
    }

    pub(super) fn insert(&mut self, slot: u32) {
        if self.contains(slot) {
            return;
        }
        let oldest = std::mem::replace(&mut self.ring[self.next], slot);
        self.next = (self.next + 1) % self.ring.len();
        if oldest != NONE {
            self.remove(oldest);
        }
        self.bits[slot as usize / 64] |= 1 << (slot % 64);
    }

    /// Takes a slot out. Its place in the ring stays until it is the oldest, which then takes out a
    /// later prediction of the same slot too early: no harm.
    pub(super) fn remove(&mut self, slot: u32) {
        self.bits[slot as usize / 64] &= !(1 << (slot % 64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_prediction_gives_way() {
        let mut expected = Expected::new(128);
        for slot in [1, 2, 3, 3, 63] {
            expected.insert(slot);
        }
        assert!([1, 2, 3, 63].iter().all(|slot| expected.contains(*slot)));
        expected.insert(40);
        assert!(!expected.contains(1) && expected.contains(2) && expected.contains(40));
        expected.remove(40);
        assert!(!expected.contains(40));
    }
}
