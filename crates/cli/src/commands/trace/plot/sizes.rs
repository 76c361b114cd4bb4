//! The histogram of sizes.

use super::{SERIES, Series};
use crate::ui::format;

/// Powers of two that a size can have, and none.
const CLASSES: usize = 66;

/// Operations by size: class 0 is none, class n up to 2^(n-1) bytes.
#[derive(Debug)]
pub(super) struct Sizes {
    counts: [[u64; SERIES]; CLASSES],
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            counts: [[0; SERIES]; CLASSES],
        }
    }
}

/// One class of sizes.
#[derive(Clone, Debug)]
pub(super) struct Class {
    pub(super) name: String,
    counts: [u64; SERIES],
}

impl Class {
    pub(super) fn count(&self, series: Series) -> u64 {
        self.counts[series as usize]
    }
}

impl Sizes {
    pub(super) fn add(&mut self, length: u64, series: Series) {
        let class = match length {
            0 => 0,
            // The power of two that it does not exceed: at most 64.
            length => 1 + (u64::BITS - (length - 1).leading_zeros()) as usize,
        };
        self.counts[class][series as usize] += 1;
    }

    /// Returns the classes from the smallest to the largest that has operations.
    pub(super) fn classes(&self) -> Vec<Class> {
        let used = |counts: &[u64; SERIES]| counts.iter().any(|count| *count > 0);
        let first = self.counts.iter().position(used).unwrap_or(0);
        let last = self.counts.iter().rposition(used).map_or(0, |last| last + 1);
        let classes = (first..last.max(first)).map(|class| Class {
            name: match class {
                0 => "0".to_owned(),
                65 => "16 EiB".to_owned(),
                class => short(1 << (class - 1)),
            },
            counts: self.counts[class],
        });
        classes.collect()
    }
}

/// Formats a power of two as `4 KiB`.
fn short(bytes: u64) -> String {
    format::bytes(bytes).replace(".0 ", " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_in_the_class_that_it_does_not_exceed() {
        let mut sizes = Sizes::default();
        for length in [4095, 4096, 4097, 16384] {
            sizes.add(length, Series::Read);
        }
        let found: Vec<(String, u64)> = sizes
            .classes()
            .into_iter()
            .map(|class| (class.name.clone(), class.count(Series::Read)))
            .collect();
        let expected = [("4 KiB", 2), ("8 KiB", 1), ("16 KiB", 1)];
        assert_eq!(found, expected.map(|(name, count)| (name.to_owned(), count)));
        for length in [0, 1, u64::MAX] {
            sizes.add(length, Series::Write);
        }
        assert_eq!(sizes.classes().len(), CLASSES);
        assert!(Sizes::default().classes().is_empty());
    }
}
