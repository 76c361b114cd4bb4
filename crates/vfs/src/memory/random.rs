//! Random decisions that follow from a seed.

use super::content::mix;

pub(super) struct Random {
    seed: u64,
    drawn: u64,
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, drawn: 0 }
    }

    /// Returns a number below `bound`, which is at least 1.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.drawn += 1;
        mix(self.seed, self.drawn) % bound.max(1)
    }

    pub(super) fn flip(&mut self) -> bool {
        self.below(2) == 0
    }
}
