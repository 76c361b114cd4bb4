//! Where each block lies on the device, and what the policy knows of it: in memory, without I/O.
//!
//! Arrays by slot instead of structs, so that nothing is lost to padding. In all at most 32 bytes a
//! block (`tests/memory.rs` measures it):
//!
//! | array | bytes a slot |
//! |---|---|
//! | tag: hash of file (upper half) and of file, version and block (lower half) | 8 |
//! | place in sectors of 512 bytes, so that 2 TiB can be addressed | 4 |
//! | length in sectors | 1 |
//! | table from tag to slot | 5 |
//! | policy: ranking 5, ghosts 5, expected blocks 1/4, shadows up to 3 1/2 | 14 |

use crate::policy::Policy;
use crate::table::Table;

/// Cells of a table that has grown that an insertion moves. A table grows by a 16th at least, so 20
/// are enough to be ready before it grows again.
const MIGRATED: usize = 64;

/// Marks the end of the free list.
const END: u32 = u32::MAX;

/// Where a block lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Position on the device in sectors of 512 bytes.
    pub sector: u32,
    /// Length in sectors; never 0.
    pub sectors: u8,
}

/// The blocks in the cache.
#[derive(Debug)]
pub struct Index {
    tags: Vec<u64>,
    /// Sector of the block, or the next free slot.
    sectors: Vec<u32>,
    /// Length in sectors; 0 marks a free slot.
    lengths: Vec<u8>,
    table: Table,
    policy: Policy,
    free: u32,
    len: usize,
}

impl Index {
    /// Makes an empty index of `slots` slots.
    pub fn new(slots: usize, seed: u64) -> Self {
        let mut index = Self {
            tags: Vec::new(),
            sectors: Vec::new(),
            lengths: Vec::new(),
            table: Table::new(slots),
            policy: Policy::new(slots, seed),
            free: END,
            len: 0,
        };
        index.add_slots(slots);
        index
    }

    fn add_slots(&mut self, slots: usize) {
        let old = self.tags.len();
        self.tags.reserve_exact(slots - old);
        self.sectors.reserve_exact(slots - old);
        self.lengths.reserve_exact(slots - old);
        self.tags.resize(slots, 0);
        self.lengths.resize(slots, 0);
        for slot in old..slots {
            self.sectors.push(self.free);
            self.free = u32::try_from(slot).expect("slots are numbered by u32");
        }
    }

    /// Adds slots. The table is moved to its new size by later insertions, some cells each.
    pub fn grow(&mut self, slots: usize) {
        assert!(slots >= self.tags.len(), "an index does not shrink");
        self.add_slots(slots);
        self.policy.grow(slots);
        let tags = &self.tags;
        self.table.grow(slots, |slot| tags[slot as usize]);
    }

    /// Returns the number of blocks.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no block.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> usize {
        self.tags.len()
    }

    /// Returns the bytes of memory in use.
    pub fn memory_bytes(&self) -> usize {
        self.tags.capacity() * size_of::<u64>()
            + self.sectors.capacity() * size_of::<u32>()
            + self.lengths.capacity()
            + self.table.memory_bytes()
            + self.policy.memory_bytes()
    }

    /// Returns the policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Looks for a block as a reader does: the policy learns from it.
    pub fn access(&mut self, tag: u64) -> Option<Place> {
        self.policy.access(tag);
        let slot = self.find(tag)?;
        self.policy.touch(slot);
        Some(self.place(slot))
    }

    /// Returns the slot of a tag.
    pub fn find(&self, tag: u64) -> Option<u32> {
        self.table.find(tag, |slot| self.tags[slot as usize])
    }

    /// Returns the tag of a slot in use.
    pub fn tag(&self, slot: u32) -> u64 {
        self.tags[slot as usize]
    }

    /// Whether a slot holds a block of a file, by the upper half of its tag.
    pub fn is_of_file(&self, slot: u32, file_tag: u32) -> bool {
        let slot = slot as usize;
        (self.tags[slot] >> 32) as u32 == file_tag && self.lengths[slot] != 0
    }

    /// Returns the place of a slot; its length is 0 if the slot is free.
    pub fn place(&self, slot: u32) -> Place {
        Place {
            sector: self.sectors[slot as usize],
            sectors: self.lengths[slot as usize],
        }
    }

    /// Sets the place of a block that moved.
    pub fn relocate(&mut self, slot: u32, sector: u32) {
        self.sectors[slot as usize] = sector;
    }

    /// Takes in a block that is not in the index. Returns its slot, or `None` if no slot is free.
    pub fn insert(&mut self, tag: u64, place: Place) -> Option<u32> {
        let slot = self.take_slot(tag, place)?;
        self.policy.insert(slot, tag);
        Some(slot)
    }

    /// Takes in a block that a prediction brought, as [`insert`](Self::insert) does.
    pub fn insert_predicted(&mut self, tag: u64, place: Place) -> Option<u32> {
        let slot = self.take_slot(tag, place)?;
        self.policy.insert_predicted(slot);
        Some(slot)
    }

    /// Notes a prediction of a block; see [`Policy::expect`].
    pub fn expect(&mut self, tag: u64) {
        if let Some(slot) = self.find(tag) {
            self.policy.expect(slot);
        }
    }

    /// Takes in a block from a checkpoint, with what [`Policy::save`] returned for it.
    pub fn load(&mut self, tag: u64, place: Place, code: u8, age: u32) -> Option<u32> {
        let slot = self.take_slot(tag, place)?;
        self.policy.load(slot, code, age);
        Some(slot)
    }

    fn take_slot(&mut self, tag: u64, place: Place) -> Option<u32> {
        assert!(place.sectors > 0, "a block has a length");
        if self.free == END {
            return None;
        }
        let slot = self.free;
        self.free = self.sectors[slot as usize];
        self.tags[slot as usize] = tag;
        self.sectors[slot as usize] = place.sector;
        self.lengths[slot as usize] = place.sectors;
        let tags = &self.tags;
        self.table.migrate(MIGRATED, |slot| tags[slot as usize]);
        self.table.insert(tag, slot);
        self.len += 1;
        Some(slot)
    }

    /// Drops a block without remembering it.
    pub fn remove(&mut self, slot: u32) {
        self.policy.remove(slot);
        self.give_slot(slot);
    }

    /// Drops a block; the policy remembers its use count.
    pub fn evict(&mut self, slot: u32) {
        self.policy.evict(slot, self.tags[slot as usize]);
        self.give_slot(slot);
    }

    fn give_slot(&mut self, slot: u32) {
        let tag = self.tags[slot as usize];
        self.table.remove(tag, slot, |slot| self.tags[slot as usize]);
        self.lengths[slot as usize] = 0;
        self.sectors[slot as usize] = self.free;
        self.free = slot;
        self.len -= 1;
    }

    /// Chooses a block to evict among those whose tag `may_go`.
    pub fn victim(&mut self, may_go: impl Fn(u64) -> bool) -> Option<u32> {
        let tags = &self.tags;
        let victim = self.policy.victim(|slot| may_go(tags[slot as usize]))?;
        Some(victim.slot)
    }

    /// Returns the slots in use.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let used = self.lengths.iter().enumerate();
        used.filter(|(_, length)| **length != 0)
            .map(|(slot, _)| slot as u32)
    }
}
