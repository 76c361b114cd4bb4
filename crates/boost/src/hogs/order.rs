//! In which order blocks are brought back, and from where. Pure.
//!
//! The likeliest block comes first, with those neighbours that pay: a run grows as long as a neighbour
//! brings at least as much likelihood a second as the run does without it. From flash each
//! block is a read of its own. From a disk one seek serves the whole run, and small gaps are read
//! along. The better one of both runs is taken.

use std::collections::HashMap;

use ropeway_cache::predict::Block;

/// Blocks of a run, at most: 1 MiB.
pub(crate) const RUN_MAX: usize = 16;
/// Blocks between two wanted ones that are read along from a disk, at most.
const GAP_MAX: u64 = 4;
/// Seconds that a run takes besides its reads: the file is opened and read through the mount.
const TRIP_S: f64 = 0.001;
/// Weight of a new measurement.
const WEIGHT: f64 = 0.2;
/// Blocks from which on a run tells how long a block takes, and up to which it tells of the access.
const LONG: usize = 8;
const SHORT: usize = 2;
/// Likelihood of a block, at least: a run needs some.
const LEAST: f32 = 1e-6;

/// How long a device takes to read blocks in a row: the access, and each block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pace {
    pub(crate) access_s: f64,
    pub(crate) block_s: f64,
}

/// How long the devices take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Paces {
    pub(crate) flash: Pace,
    /// `None` if nothing may be read from the source: it is far away.
    pub(crate) source: Option<Pace>,
}

/// Where a run is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    Flash,
    Source,
}

/// Blocks of one file to be read together, in ascending order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Run {
    pub(crate) file: u32,
    pub(crate) blocks: Vec<u64>,
    pub(crate) from: From,
    /// Of its likeliest block.
    pub(crate) likelihood: f32,
}

/// Blocks that are still to be brought back.
#[derive(Debug)]
pub(crate) struct Order {
    /// By likelihood, the likeliest last.
    sorted: Vec<(Block, f32)>,
    open: HashMap<Block, f32>,
}

impl Pace {
    /// Learns from a read of so many blocks.
    pub(crate) fn measured(&mut self, blocks: usize, seconds: f64) {
        if blocks >= LONG {
            let each = ((seconds - self.access_s) / blocks as f64).max(1e-6);
            self.block_s += (each - self.block_s) * WEIGHT;
        } else if (1..=SHORT).contains(&blocks) {
            let access = (seconds - self.block_s * blocks as f64).max(0.0);
            self.access_s += (access - self.access_s) * WEIGHT;
        }
    }
}

impl Paces {
    /// Returns where blocks, in ascending order, are read from sooner.
    pub(crate) fn cheaper(&self, blocks: &[u64]) -> From {
        let (count, span) = (blocks.len() as f64, span(blocks) as f64);
        let flash = count * (self.flash.access_s + self.flash.block_s);
        let source = self.source.map(|pace| pace.access_s + span * pace.block_s);
        match source {
            Some(source) if source < flash => From::Source,
            _ => From::Flash,
        }
    }

    /// Learns from a read of blocks.
    pub(crate) fn measured(&mut self, blocks: &[u64], from: From, seconds: f64) {
        match (from, &mut self.source) {
            // Each block was a read of its own.
            (From::Flash, _) if !blocks.is_empty() => {
                self.flash.measured(1, seconds / blocks.len() as f64);
            }
            (From::Source, Some(pace)) => pace.measured(span(blocks), seconds),
            _ => {}
        }
    }
}

/// Returns the blocks from the first to the last one.
fn span(blocks: &[u64]) -> usize {
    let ends = blocks.first().zip(blocks.last());
    ends.map_or(0, |(first, last)| {
        usize::try_from(last - first + 1).unwrap_or(usize::MAX)
    })
}

/// A run while it grows.
struct Growing {
    first: u64,
    last: u64,
    count: usize,
    likelihood: f64,
    seconds: f64,
}

impl Growing {
    fn worth(&self) -> f64 {
        self.likelihood / self.seconds
    }
}

impl Order {
    /// Makes the order of blocks with their likelihoods.
    pub(crate) fn new(mut blocks: Vec<(Block, f32)>) -> Self {
        for (_, likelihood) in &mut blocks {
            *likelihood = likelihood.max(LEAST);
        }
        // Equal ones in the order of their places.
        blocks.sort_by(|one, other| one.1.total_cmp(&other.1).then(other.0.cmp(&one.0)));
        Self {
            open: blocks.iter().copied().collect(),
            sorted: blocks,
        }
    }

    /// Returns the next run.
    pub(crate) fn next(&mut self, paces: &Paces) -> Option<Run> {
        let (best, likelihood) = loop {
            let (block, likelihood) = self.sorted.pop()?;
            if self.open.contains_key(&block) {
                break (block, likelihood);
            }
        };
        let flash = self.grow(best, likelihood, From::Flash, paces.flash);
        let source = paces
            .source
            .map(|pace| self.grow(best, likelihood, From::Source, pace));
        let (run, from) = match source {
            Some(source) if source.worth() > flash.worth() => (source, From::Source),
            _ => (flash, From::Flash),
        };
        let blocks = (run.first..=run.last).filter(|index| {
            let block = Block::new(best.file(), *index);
            block.is_some_and(|block| self.open.remove(&block).is_some())
        });
        Some(Run {
            file: best.file(),
            blocks: blocks.collect(),
            from,
            likelihood,
        })
    }

    fn grow(&self, best: Block, likelihood: f32, from: From, pace: Pace) -> Growing {
        let mut run = Growing {
            first: best.index(),
            last: best.index(),
            count: 1,
            likelihood: f64::from(likelihood),
            seconds: TRIP_S + pace.access_s + pace.block_s,
        };
        let reach = match from {
            From::Flash => 1,
            From::Source => GAP_MAX + 1,
        };
        let open = |index: u64| self.open.get(&Block::new(best.file(), index)?).copied();
        while run.count < RUN_MAX {
            let cost = |distance: u64| match from {
                From::Flash => pace.access_s + pace.block_s,
                From::Source => pace.block_s * distance as f64,
            };
            let sides = (1..=reach).flat_map(|distance| {
                let before = run.first.checked_sub(distance);
                [before, run.last.checked_add(distance)].map(|index| (distance, index))
            });
            let found = sides.filter_map(|(distance, index)| {
                let index = index?;
                let span = index.max(run.last) - index.min(run.first) + 1;
                let likelihood = open(index).filter(|_| span <= RUN_MAX as u64)?;
                Some((index, f64::from(likelihood), cost(distance)))
            });
            let nearest = found.max_by(|one, other| (one.1 / one.2).total_cmp(&(other.1 / other.2)));
            let Some((index, likelihood, seconds)) = nearest else {
                break;
            };
            if likelihood / seconds < run.worth() {
                break;
            }
            run.first = run.first.min(index);
            run.last = run.last.max(index);
            run.count += 1;
            run.likelihood += likelihood;
            run.seconds += seconds;
        }
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLASH: Pace = Pace {
        access_s: 0.001,
        block_s: 0.002,
    };
    const DISK: Pace = Pace {
        access_s: 0.015,
        block_s: 0.0013,
    };

    fn block(file: u32, index: u64) -> Block {
        Block::new(file, index).unwrap()
    }

    fn all(blocks: Vec<(Block, f32)>, source: Option<Pace>) -> Vec<Run> {
        let paces = Paces { flash: FLASH, source };
        let mut order = Order::new(blocks);
        std::iter::from_fn(|| order.next(&paces)).collect()
    }

    #[test]
    fn the_likeliest_comes_first_with_its_equal_neighbours() {
        let blocks = vec![
            (block(1, 7), 1.0),
            (block(2, 3), 3.0),
            (block(2, 4), 3.0),
            (block(1, 8), 1.0),
            (block(2, 5), 0.2),
        ];
        let runs = all(blocks, None);
        let short = |run: &Run| (run.file, run.blocks.clone(), run.likelihood);
        assert_eq!(
            runs.iter().map(short).collect::<Vec<_>>(),
            [(2, vec![3, 4], 3.0), (1, vec![7, 8], 1.0), (2, vec![5], 0.2)],
            "an unlikely neighbour waits: from flash it costs as much later"
        );
        assert!(runs.iter().all(|run| run.from == From::Flash));
    }

    #[test]
    fn a_disk_is_read_in_sequence_where_that_is_cheaper() {
        // Scattered blocks come from flash, a whole file from the disk.
        let mut blocks: Vec<_> = (0..16).map(|index| (block(1, index), 1.0)).collect();
        blocks.extend((0..16).map(|index| (block(2, index * 50), 1.0)));
        let runs = all(blocks, Some(DISK));
        let of = |file: u32| runs.iter().filter(move |run| run.file == file);
        assert_eq!(of(1).count(), 1);
        assert!(of(1).all(|run| run.from == From::Source && run.blocks.len() == 16));
        assert_eq!(of(2).count(), 16);
        assert!(of(2).all(|run| run.from == From::Flash));
        // A far source is never read.
        let far = all((0..16).map(|index| (block(1, index), 1.0)).collect(), None);
        assert!(far.iter().all(|run| run.from == From::Flash));
    }

    #[test]
    fn a_disk_reads_small_gaps_and_less_likely_neighbours_along() {
        let slow_flash = Paces {
            flash: Pace {
                access_s: 0.05,
                block_s: 0.01,
            },
            source: Some(DISK),
        };
        let blocks = [(10, 1.0), (12, 0.5), (13, 0.5), (30, 1.0)];
        let mut order = Order::new(blocks.map(|(at, likely)| (block(1, at), likely)).into());
        let run = order.next(&slow_flash).unwrap();
        assert_eq!((run.from, run.blocks), (From::Source, vec![10, 12, 13]));
    }

    #[test]
    fn each_block_comes_once_by_falling_likelihood_and_runs_are_bounded() {
        for seed in 0..300 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut blocks = HashMap::new();
            for _ in 0..random.usize(..200) {
                let block = block(random.u32(..4), random.u64(..100));
                blocks.insert(block, random.f32() * 4.0);
            }
            let source = random.bool().then_some(DISK);
            let runs = all(
                blocks.iter().map(|(block, likely)| (*block, *likely)).collect(),
                source,
            );
            let mut seen = Vec::new();
            for run in &runs {
                assert!(run.blocks.is_sorted() && !run.blocks.is_empty(), "seed {seed}");
                let span = run.blocks[run.blocks.len() - 1] - run.blocks[0];
                assert!(span < RUN_MAX as u64, "seed {seed}");
                seen.extend(run.blocks.iter().map(|index| block(run.file, *index)));
            }
            assert!(runs.is_sorted_by(|one, other| one.likelihood >= other.likelihood));
            seen.sort();
            let mut expected: Vec<_> = blocks.keys().copied().collect();
            expected.sort();
            assert_eq!(seen, expected, "seed {seed}");
        }
    }

    #[test]
    fn paces_are_learned() {
        let mut pace = DISK;
        for _ in 0..40 {
            pace.measured(16, 0.005 + 16.0 * 0.0004);
            pace.measured(1, 0.0054);
        }
        assert!((pace.access_s - 0.005).abs() < 0.001, "{pace:?}");
        assert!((pace.block_s - 0.0004).abs() < 0.0002, "{pace:?}");
    }
}
