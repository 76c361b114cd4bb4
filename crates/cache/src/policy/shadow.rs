//! A small cache without data that tells how well one half-life would do.
//!
//! It sees a random share of the blocks (by tag) with a capacity of the same share, so its hit
//! ratio estimates that of the whole cache (miniature simulation: Waldspurger et al., USENIX ATC '17).

use crate::policy::ghosts::Ghosts;
use crate::policy::ranking::Ranking;
use crate::table::{Table, mix};

/// A cache of tags with a fixed half-life.
#[derive(Debug)]
pub(super) struct Shadow {
    tags: Vec<u32>,
    table: Table,
    ranking: Ranking,
    ghosts: Ghosts,
    filled: usize,
    half_life: f32,
}

impl Shadow {
    /// Makes a shadow of `slots` slots; the half-life is in generations.
    pub(super) fn new(slots: usize, generations: f32) -> Self {
        Self {
            tags: vec![0; slots],
            table: Table::new(slots),
            ranking: Ranking::new(slots),
            ghosts: Ghosts::new(slots),
            filled: 0,
            half_life: generations * slots as f32,
        }
    }

    pub(super) fn slots(&self) -> usize {
        self.tags.len()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.tags.capacity() * size_of::<u32>()
            + self.table.memory_bytes()
            + self.ranking.memory_bytes()
            + self.ghosts.memory_bytes()
    }

    /// Uses a block, and brings it in if it was not there. Returns whether it was.
    pub(super) fn access(&mut self, tag: u64, rng: &mut fastrand::Rng) -> bool {
        let tag = mix(tag) & u64::from(u32::MAX);
        let tags = &mut self.tags;
        if let Some(slot) = self.table.find(tag, |slot| u64::from(tags[slot as usize])) {
            self.ranking.touch(slot, self.half_life);
            return true;
        }
        let earlier = self.ghosts.take(tag, self.ranking.tick(), self.half_life);
        let slot = if self.filled < tags.len() {
            self.filled += 1;
            u32::try_from(self.filled - 1).expect("slots are numbered by u32")
        } else {
            let Some(victim) = self.ranking.victim(self.half_life, rng, |_| true, |_| false) else {
                return false;
            };
            let old = u64::from(tags[victim.slot as usize]);
            self.table
                .remove(old, victim.slot, |slot| u64::from(tags[slot as usize]));
            let tick = self.ranking.tick();
            self.ghosts
                .insert(old, victim.code, victim.age, tick, self.half_life);
            victim.slot
        };
        tags[slot as usize] = u32::try_from(tag).expect("masked to 32 bits");
        self.table.insert(tag, slot);
        self.ranking.insert(slot, earlier);
        false
    }
}
