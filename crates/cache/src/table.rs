//! A hash table of slot numbers: 5 bytes a slot.
//!
//! The table stores `u32` slot numbers only; tags live in the arrays of its owner, which passes a
//! function from slot to tag. Linear probing with backward-shift deletion, so there are no
//! tombstones and a lookup never degrades. A fifth of the cells is always empty.

/// Marks an empty cell.
const EMPTY: u32 = u32::MAX;

/// Maps tags to slot numbers.
#[derive(Debug)]
pub(crate) struct Table {
    cells: Vec<u32>,
}

/// Returns the well-mixed 64-bit value of a tag (the finaliser of SplitMix64), for uses that must
/// not correlate with the position in the table.
pub(crate) fn mix(tag: u64) -> u64 {
    let mut mixed = tag.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Table {
    /// Makes a table for `slots` slots.
    pub(crate) fn new(slots: usize) -> Self {
        // 4 bytes a cell and 5 cells for 4 slots make 5 bytes a slot.
        let cells = slots + slots / 4 + 1;
        Self {
            cells: vec![EMPTY; cells],
        }
    }

    /// Returns the bytes of memory in use.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.cells.capacity() * size_of::<u32>()
    }

    fn home(&self, tag: u64) -> usize {
        let low = tag & u64::from(u32::MAX);
        usize::try_from((low * self.cells.len() as u64) >> 32).expect("below the number of cells")
    }

    /// Returns the slot of a tag.
    pub(crate) fn find(&self, tag: u64, tag_of: impl Fn(u32) -> u64) -> Option<u32> {
        let mut cell = self.home(tag);
        loop {
            match self.cells[cell] {
                EMPTY => return None,
                slot if tag_of(slot) == tag => return Some(slot),
                _ => cell = self.next(cell),
            }
        }
    }

    /// Adds a slot whose tag is not in the table.
    pub(crate) fn insert(&mut self, tag: u64, slot: u32) {
        let mut cell = self.home(tag);
        while self.cells[cell] != EMPTY {
            cell = self.next(cell);
        }
        self.cells[cell] = slot;
    }

    /// Removes a slot; does nothing if it is not in the table.
    pub(crate) fn remove(&mut self, tag: u64, slot: u32, tag_of: impl Fn(u32) -> u64) {
        let mut hole = self.home(tag);
        while self.cells[hole] != slot {
            if self.cells[hole] == EMPTY {
                return;
            }
            hole = self.next(hole);
        }
        let mut cell = hole;
        loop {
            cell = self.next(cell);
            let moved = self.cells[cell];
            if moved == EMPTY {
                break;
            }
            // The entry may fill the hole unless its home lies behind the hole.
            let home = self.home(tag_of(moved));
            if self.distance(home, cell) >= self.distance(hole, cell) {
                self.cells[hole] = moved;
                hole = cell;
            }
        }
        self.cells[hole] = EMPTY;
    }

    fn next(&self, cell: usize) -> usize {
        if cell + 1 == self.cells.len() { 0 } else { cell + 1 }
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from {
            to - from
        } else {
            to + self.cells.len() - from
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn it_behaves_like_a_map_under_random_operations() {
        let slots = 64;
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut table = Table::new(slots);
            let mut tags = vec![0_u64; slots];
            let mut model: HashMap<u64, u32> = HashMap::new();
            let mut free: Vec<u32> = (0..slots as u32).collect();
            for _ in 0..500 {
                // Few distinct homes, so that clusters form and wrap around.
                let tag = u64::from(rng.u32(..8)) * 0x2000_0000 + u64::from(rng.u32(..16));
                let found = table.find(tag, |slot| tags[slot as usize]);
                assert_eq!(found, model.get(&tag).copied(), "seed {seed}");
                if let Some(slot) = found {
                    table.remove(tag, slot, |slot| tags[slot as usize]);
                    model.remove(&tag);
                    free.push(slot);
                } else if let Some(slot) = free.pop() {
                    tags[slot as usize] = tag;
                    table.insert(tag, slot);
                    model.insert(tag, slot);
                }
            }
        }
    }
}
