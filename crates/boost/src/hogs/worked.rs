//! What programs have read and opened in this session, and when: what was probably in the kernel's
//! memory before the hogs. Pure, and bounded.
//!
//! The kernel asks for a block once, and answers from its memory then. So a later opening of the file
//! is a use of its blocks too.

use std::collections::HashMap;
use std::time::Duration;

use ropeway_cache::predict::Block;

/// Seconds after which a use counts half. A guess: what was used in the last hours comes first.
const HALF_LIFE_S: f32 = 3600.0;

/// Blocks and files, and the second of their last use.
#[derive(Debug)]
pub(crate) struct Worked {
    blocks: HashMap<Block, u32>,
    files: HashMap<u32, u32>,
    most: usize,
}

fn second(now: Duration) -> u32 {
    u32::try_from(now.as_secs()).unwrap_or(u32::MAX)
}

impl Worked {
    /// Remembers so many blocks, at least two, and as many files.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            blocks: HashMap::new(),
            files: HashMap::new(),
            most: most.max(2),
        }
    }

    /// Notes that a program asked for a block.
    pub(crate) fn used(&mut self, block: Block, now: Duration) {
        self.blocks.insert(block, second(now));
        make_room(&mut self.blocks, self.most);
    }

    /// Notes that a program opened a file.
    pub(crate) fn opened(&mut self, file: u32, now: Duration) {
        self.files.insert(file, second(now));
        make_room(&mut self.files, self.most);
    }

    /// Returns the blocks, each with what its last use still counts, from 0 to 1.
    pub(crate) fn blocks(&self, now: Duration) -> impl Iterator<Item = (Block, f32)> + '_ {
        let now = second(now);
        self.blocks.iter().map(move |(block, last)| {
            let opened = self.files.get(&block.file()).copied().unwrap_or(0);
            let age = now.saturating_sub(opened.max(*last));
            (*block, (-(age as f32) / HALF_LIFE_S).exp2())
        })
    }
}

/// Forgets the half that was used longest ago if there are too many.
fn make_room<K: Copy + Eq + std::hash::Hash>(all: &mut HashMap<K, u32>, most: usize) {
    if all.len() <= most {
        return;
    }
    let mut times: Vec<(u32, K)> = all.iter().map(|(key, last)| (*last, *key)).collect();
    let half = times.len() / 2;
    times.select_nth_unstable_by_key(half, |(last, _)| *last);
    for (_, key) in &times[..half] {
        all.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(file: u32, index: u64) -> Block {
        Block::new(file, index).unwrap()
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_use_counts_half_after_an_hour_and_opening_the_file_is_a_use() {
        let mut worked = Worked::new(10);
        worked.used(block(1, 5), at(0));
        worked.used(block(2, 5), at(0));
        worked.opened(2, at(3600));
        let mut all: Vec<_> = worked.blocks(at(7200)).collect();
        all.sort_by_key(|(block, _)| *block);
        assert_eq!(all, [(block(1, 5), 0.25), (block(2, 5), 0.5)]);
    }

    #[test]
    fn the_oldest_half_gives_way() {
        let mut worked = Worked::new(100);
        for number in 0..1000 {
            worked.used(block(1, number), at(number));
            worked.opened(number as u32, at(number));
            assert!(worked.blocks.len() <= 100 && worked.files.len() <= 100);
        }
        assert!(worked.blocks.len() > 40);
        assert!((960..1000).all(|number| worked.blocks.contains_key(&block(1, number))));
    }
}
