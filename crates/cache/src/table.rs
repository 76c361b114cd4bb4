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
    cells: Cells,
    /// Cells of the size before, while their entries are moved, and how many are empty for good.
    old: Option<(Cells, usize)>,
}

/// The cells of one size.
#[derive(Debug)]
struct Cells(Vec<u32>);

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
        Self {
            cells: Cells::new(slots),
            old: None,
        }
    }

    /// Makes the table larger. Its entries are moved by later calls of [`migrate`](Self::migrate).
    pub(crate) fn grow(&mut self, slots: usize, tag_of: impl Fn(u32) -> u64) {
        while self.migrate(usize::MAX, &tag_of) {}
        let old = std::mem::replace(&mut self.cells, Cells::new(slots));
        self.old = Some((old, 0));
    }

    /// Looks at up to `max` cells of the size before and moves their entries. Returns whether there
    /// are more.
    pub(crate) fn migrate(&mut self, max: usize, tag_of: impl Fn(u32) -> u64) -> bool {
        let Some((old, empty)) = &mut self.old else {
            return false;
        };
        for _ in 0..max {
            match old.0.get(*empty).copied() {
                None => {
                    self.old = None;
                    return false;
                }
                Some(EMPTY) => *empty += 1,
                Some(slot) => {
                    // Another entry may take its cell: the cell is looked at again.
                    old.empty(*empty, &tag_of);
                    self.cells.insert(tag_of(slot), slot);
                }
            }
        }
        true
    }

    /// Returns the bytes of memory in use.
    pub(crate) fn memory_bytes(&self) -> usize {
        let old = self.old.as_ref().map_or(0, |(old, _)| old.0.capacity());
        (self.cells.0.capacity() + old) * size_of::<u32>()
    }

    /// Returns the slot of a tag.
    pub(crate) fn find(&self, tag: u64, tag_of: impl Fn(u32) -> u64) -> Option<u32> {
        let is_its = |slot| tag_of(slot) == tag;
        let find = |cells: &Cells| cells.find(tag, is_its).map(|cell| cells.0[cell]);
        find(&self.cells).or_else(|| self.old.as_ref().and_then(|(old, _)| find(old)))
    }

    /// Adds a slot whose tag is not in the table.
    pub(crate) fn insert(&mut self, tag: u64, slot: u32) {
        self.cells.insert(tag, slot);
    }

    /// Removes a slot; does nothing if it is not in the table.
    pub(crate) fn remove(&mut self, tag: u64, slot: u32, tag_of: impl Fn(u32) -> u64) {
        for cells in [Some(&mut self.cells), self.old.as_mut().map(|(old, _)| old)] {
            if let Some(cells) = cells
                && let Some(cell) = cells.find(tag, |found| found == slot)
            {
                cells.empty(cell, &tag_of);
                return;
            }
        }
    }
}

impl Cells {
    fn new(slots: usize) -> Self {
        // 4 bytes a cell and 5 cells for 4 slots make 5 bytes a slot.
        Self(vec![EMPTY; slots + slots / 4 + 1])
    }

    fn home(&self, tag: u64) -> usize {
        let low = tag & u64::from(u32::MAX);
        usize::try_from((low * self.0.len() as u64) >> 32).expect("below the number of cells")
    }

    /// Returns the cell of the slot that is looked for.
    fn find(&self, tag: u64, is_its: impl Fn(u32) -> bool) -> Option<usize> {
        let mut cell = self.home(tag);
        loop {
            match self.0[cell] {
                EMPTY => return None,
                slot if is_its(slot) => return Some(cell),
                _ => cell = self.next(cell),
            }
        }
    }

    fn insert(&mut self, tag: u64, slot: u32) {
        let mut cell = self.home(tag);
        while self.0[cell] != EMPTY {
            cell = self.next(cell);
        }
        self.0[cell] = slot;
    }

    /// Empties a cell, and moves entries back that were behind it.
    fn empty(&mut self, cell: usize, tag_of: &impl Fn(u32) -> u64) {
        let (mut hole, mut cell) = (cell, cell);
        loop {
            cell = self.next(cell);
            let moved = self.0[cell];
            if moved == EMPTY {
                break;
            }
            // The entry may fill the hole unless its home lies behind the hole.
            let home = self.home(tag_of(moved));
            if self.distance(home, cell) >= self.distance(hole, cell) {
                self.0[hole] = moved;
                hole = cell;
            }
        }
        self.0[hole] = EMPTY;
    }

    fn next(&self, cell: usize) -> usize {
        if cell + 1 == self.0.len() { 0 } else { cell + 1 }
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from {
            to - from
        } else {
            to + self.0.len() - from
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn it_behaves_like_a_map_under_random_operations() {
        for seed in 0..200 {
            let mut slots = 64;
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut table = Table::new(slots);
            let mut tags = vec![0_u64; slots];
            let mut model: HashMap<u64, u32> = HashMap::new();
            let mut free: Vec<u32> = (0..slots as u32).collect();
            for step in 0..500 {
                if step % 150 == 149 {
                    table.grow(slots + 9, |slot| tags[slot as usize]);
                    tags.resize(slots + 9, 0);
                    free.extend(slots as u32..slots as u32 + 9);
                    slots += 9;
                }
                table.migrate(rng.usize(..3), |slot| tags[slot as usize]);
                // Few distinct homes, so that clusters form and wrap around.
                let tag = u64::from(rng.u32(..8)) * 0x2000_0000 + u64::from(rng.u32(..16));
                let found = table.find(tag, |slot| tags[slot as usize]);
                assert_eq!(found, model.get(&tag).copied(), "seed {seed}");
                if let Some(slot) = found {
                    table.remove(tag, slot, |slot| tags[slot as usize]);
                    model.remove(&tag);
                    free.push(slot);
                    assert_eq!(table.find(tag, |slot| tags[slot as usize]), None, "seed {seed}");
                } else if let Some(slot) = free.pop() {
                    tags[slot as usize] = tag;
                    table.insert(tag, slot);
                    model.insert(tag, slot);
                }
            }
        }
    }
}
