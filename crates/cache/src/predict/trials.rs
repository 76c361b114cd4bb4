//! How often predictions of each class come true: shadow statistics.
//!
//! A sample of the predictions is watched, whether or not they are carried out. One whose block is
//! requested in time was right, one whose block is not requested for long was wrong, and one that
//! was requested before a fetch could have brought it counts as neither for its class. So a class that is not
//! carried out can prove itself without a byte of traffic.

use crate::predict::block::Block;
use crate::predict::class::{CLASSES, Class};
use crate::table::mix;

/// Predictions watched at once. One that finds its cell taken is not in the sample.
const WATCHED: usize = 1024;
/// Trials after which a class has forgotten the larger part (1 - 1/e) of its past. A guess.
const MEMORY: f32 = 400.0;
/// Trials that the prior of a class counts for.
const PRIOR_TRIALS: f32 = 2.0;

#[derive(Clone, Copy, Debug, Default)]
struct Trial {
    fingerprint: u32,
    at: u32,
    /// Class, and whether it was likely enough to be carried out; `None` for a free cell.
    what: Option<(u16, bool)>,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    right: f32,
    all: f32,
}

/// What became of a prediction that was likely enough to be carried out: right if its block was
/// requested, late or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) class: Class,
    pub(super) is_right: bool,
}

/// The precision of each class.
#[derive(Debug)]
pub(super) struct Trials {
    watched: Vec<Trial>,
    records: Vec<Record>,
    /// Requests after which a prediction was wrong.
    patience: u32,
}

impl Trials {
    pub(super) fn new(patience: u32) -> Self {
        let mut trials = Self {
            watched: vec![Trial::default(); WATCHED],
            records: Vec::with_capacity(CLASSES),
            patience,
        };
        trials.clear();
        trials
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.watched.fill(Trial::default());
        self.records.clear();
        self.records.extend((0..CLASSES).map(|class| Record {
            right: PRIOR_TRIALS * Class::prior(class),
            all: PRIOR_TRIALS,
        }));
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.watched.capacity() * size_of::<Trial>() + self.records.capacity() * size_of::<Record>()
    }

    /// Returns the share of a class's predictions that come true.
    pub(super) fn precision(&self, class: Class) -> f32 {
        let record = &self.records[class.index()];
        record.right / record.all
    }

    fn cell(block: Block) -> (usize, u32) {
        let mixed = mix(block.number() ^ 0x7419_f35d);
        ((mixed >> 32) as usize % WATCHED, mixed as u32)
    }

    fn note(&mut self, (class, is_proposed): (u16, bool), is_right: bool) -> Option<Outcome> {
        let class = Class::from_index(usize::from(class))?;
        let record = &mut self.records[class.index()];
        let keep = 1.0 - 1.0 / MEMORY;
        record.all = record.all * keep + 1.0;
        record.right = record.right * keep + f32::from(u8::from(is_right));
        is_proposed.then_some(Outcome { class, is_right })
    }

    /// Watches a prediction, if there is room for it. Returns what became of the one before it.
    pub(super) fn watch(
        &mut self,
        block: Block,
        class: Class,
        is_proposed: bool,
        now: u32,
    ) -> Option<Outcome> {
        let (cell, fingerprint) = Self::cell(block);
        let old = self.watched[cell];
        if old.what.is_some() && now.wrapping_sub(old.at) < self.patience {
            return None;
        }
        self.watched[cell] = Trial {
            fingerprint,
            at: now,
            what: Some((class.index() as u16, is_proposed)),
        };
        old.what.and_then(|what| self.note(what, false))
    }

    /// A block is requested; `lag` is what a fetch takes, in requests.
    pub(super) fn request(&mut self, block: Block, now: u32, lag: u32) -> Option<Outcome> {
        let (cell, fingerprint) = Self::cell(block);
        let trial = self.watched[cell];
        let what = trial.what.filter(|_| trial.fingerprint == fingerprint)?;
        self.watched[cell].what = None;
        let age = now.wrapping_sub(trial.at);
        if age < lag {
            // Too late to be a hit, but the block was not fetched in vain.
            let class = Class::from_index(usize::from(what.0))?;
            return what.1.then_some(Outcome {
                class,
                is_right: true,
            });
        }
        self.note(what, age < self.patience)
    }

    /// Returns the precision of each class as it is saved: right and all, in hundredths.
    pub(super) fn save(&self) -> impl Iterator<Item = (u16, u16)> + '_ {
        // At most MEMORY, so 40,000.
        let saved = |value: f32| (value * 100.0).round().clamp(0.0, 65_535.0) as u16;
        self.records
            .iter()
            .map(move |record| (saved(record.right), saved(record.all)))
    }

    /// Sets the precision of a class as it was saved. Returns whether it is possible.
    pub(super) fn load(&mut self, index: usize, right: u16, all: u16) -> bool {
        let is_possible = right <= all && all > 0;
        if let Some(record) = self.records.get_mut(index).filter(|_| is_possible) {
            record.right = f32::from(right) / 100.0;
            record.all = f32::from(all) / 100.0;
        }
        is_possible
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_right_in_time_wrong_after_its_patience_and_neither_when_late() {
        let class = Class::pair(2, 4);
        let block = Block::from_number(5);
        let mut trials = Trials::new(100);
        let prior = trials.precision(class);
        assert_eq!(trials.watch(block, class, true, 0), None);
        let outcome = trials.request(block, 7, 8).expect("proposed");
        assert!(outcome.is_right, "not in vain, but no hit for its class");
        assert!((trials.precision(class) - prior).abs() < 1e-6);
        trials.watch(block, class, true, 10);
        let outcome = trials.request(block, 18, 8).expect("in time");
        assert!(outcome.is_right && trials.precision(class) > prior);
        trials.watch(block, class, false, 20);
        assert_eq!(trials.watch(block, class, true, 119), None, "still open");
        assert_eq!(trials.watch(block, class, true, 120), None, "was not proposed");
        let outcome = trials.request(block, 300, 8).expect("proposed");
        assert!(!outcome.is_right);
    }

    #[test]
    fn a_class_that_never_comes_true_falls_far_below_one_that_does() {
        let (good, bad) = (Class::pair(4, 5), Class::pair(5, 5));
        let mut trials = Trials::new(100);
        for round in 0..400_u32 {
            let now = round * 200;
            trials.watch(Block::from_number(1), good, false, now);
            trials.watch(Block::from_number(2), bad, false, now);
            trials.request(Block::from_number(1), now + 10, 8);
        }
        assert!(trials.precision(good) > 0.95 && trials.precision(bad) < 0.05);
    }
}
