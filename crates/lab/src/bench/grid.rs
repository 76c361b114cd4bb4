//! The cells of a run and the order in which they are measured. Pure.

use std::collections::BTreeSet;

use crate::bench::cell::{Key, Mode, Pattern};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Largest number of values of one axis (a guess: more is no table).
pub const VALUES_MAX: usize = 32;
/// Factor between the values of a range that names none.
const FACTOR: u64 = 4;

/// Values of all axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    /// File sizes in bytes.
    pub sizes: Vec<u64>,
    /// Record sizes in bytes.
    pub records: Vec<u64>,
    /// Patterns.
    pub patterns: Vec<Pattern>,
    /// Modes.
    pub modes: Vec<Mode>,
    /// Numbers of requests in flight.
    pub depths: Vec<u32>,
}

impl Grid {
    /// The grid of a whole run.
    pub fn whole() -> Self {
        Self {
            sizes: vec![64 * KIB, MIB, 16 * MIB, 256 * MIB, 4 * GIB],
            records: range(4 * KIB, 16 * MIB, 4),
            patterns: Pattern::ALL.to_vec(),
            modes: vec![Mode::Cached, Mode::Fsync, Mode::Direct],
            depths: vec![1, 16],
        }
    }

    /// The grid of `--quick`.
    pub fn quick() -> Self {
        Self {
            sizes: vec![MIB, 64 * MIB],
            records: vec![4 * KIB, 64 * KIB, MIB],
            patterns: vec![
                Pattern::Write,
                Pattern::Read,
                Pattern::Reread,
                Pattern::RandomRead,
                Pattern::RandomWrite,
            ],
            ..Self::whole()
        }
    }

    /// Returns the steps in the order of a round: by size, so that each file is filled once, then by
    /// record, depth and mode. Requests in flight of more than `flight_max` bytes are left out.
    pub fn steps(&self, flight_max: u64) -> Vec<Step> {
        let mut steps = Vec::new();
        for &size in &sorted(&self.sizes) {
            for &record in sorted(&self.records).iter().filter(|record| **record <= size) {
                for &depth in &sorted(&self.depths) {
                    // More requests than records are never in flight.
                    let flight = record.saturating_mul(u64::from(depth).min(size / record));
                    if flight > flight_max && depth > 1 {
                        continue;
                    }
                    steps.extend(self.modes_of(size, record, depth));
                }
            }
        }
        steps
    }

    fn modes_of(&self, size: u64, record: u64, depth: u32) -> impl Iterator<Item = Step> {
        sorted(&self.modes).into_iter().filter_map(move |mode| {
            let patterns = sorted(&self.patterns);
            let patterns: Vec<Pattern> = patterns
                .into_iter()
                .filter(|pattern| mode.has(*pattern))
                .collect();
            (!patterns.is_empty()).then_some(Step {
                size,
                record,
                mode,
                depth,
                patterns,
            })
        })
    }
}

/// The passes that share size, record, mode and depth, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Size of the file in bytes.
    pub size: u64,
    /// Bytes of a request.
    pub record: u64,
    /// Use of the page cache.
    pub mode: Mode,
    /// Number of requests in flight.
    pub depth: u32,
    /// Patterns, in their order.
    pub patterns: Vec<Pattern>,
}

impl Step {
    /// Returns the key of one of its patterns.
    pub fn key(&self, pattern: Pattern) -> Key {
        Key {
            size: self.size,
            record: self.record,
            mode: self.mode,
            depth: self.depth,
            pattern,
        }
    }

    /// Returns the keys of all its patterns.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        self.patterns.iter().map(|pattern| self.key(*pattern))
    }
}

fn sorted<T: Copy + Ord>(values: &[T]) -> Vec<T> {
    values
        .iter()
        .copied()
        .collect::<BTreeSet<T>>()
        .into_iter()
        .collect()
}

/// Returns `low`, `low` times `factor`, and so on, up to `high`, which is always the last.
fn range(low: u64, high: u64, factor: u64) -> Vec<u64> {
    let mut values: Vec<u64> = std::iter::successors(Some(low), |value| value.checked_mul(factor))
        .take_while(|value| *value < high)
        .take(VALUES_MAX)
        .collect();
    values.push(high);
    values
}

/// Parses `64K,1M`, or `64K..4G` in steps of 4, or `64K..4G:16`, with the caller's parser of a size.
///
/// # Errors
/// A clause that says what is wrong.
pub fn sizes(text: &str, size: &dyn Fn(&str) -> Result<u64, String>) -> Result<Vec<u64>, String> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let Some((low, rest)) = part.split_once("..") else {
            all.push(size(part)?);
            continue;
        };
        let (high, factor) = match rest.split_once(':') {
            None => (rest, FACTOR),
            Some((high, factor)) => {
                let factor = factor.parse().ok().filter(|factor| (2..=1024).contains(factor));
                (
                    high,
                    factor.ok_or("the step of a range is a factor between 2 and 1024, e.g. 64K..4G:16")?,
                )
            }
        };
        let (low, high) = (size(low)?, size(high)?);
        if low == 0 || low > high {
            return Err("a range begins with the smaller size, e.g. 64K..4G".to_owned());
        }
        all.extend(range(low, high, factor));
    }
    let all = sorted(&all);
    match all.len() {
        ..=VALUES_MAX => Ok(all),
        _ => Err(format!("more than {VALUES_MAX} sizes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> Result<u64, String> {
        text.parse().map_err(|_| format!("{text:?} is no size"))
    }

    #[test]
    fn the_whole_run_spans_what_is_promised() {
        let grid = Grid::whole();
        assert_eq!((grid.sizes[0], grid.sizes[4]), (64 * KIB, 4 * GIB));
        assert_eq!(
            (grid.records[0], grid.records.last()),
            (4 * KIB, Some(&(16 * MIB)))
        );
        let steps = grid.steps(u64::MAX);
        // 3 + 5 + 7 + 7 + 7 pairs of size and record, two depths, three modes.
        assert_eq!(steps.len(), 29 * 2 * 3);
        let cells: usize = steps.iter().map(|step| step.patterns.len()).sum();
        assert_eq!(cells, 29 * 2 * (7 + 3 + 7));
        assert!(steps.iter().all(|step| step.record <= step.size));
        let quick: usize = Grid::quick()
            .steps(u64::MAX)
            .iter()
            .map(|step| step.patterns.len())
            .sum();
        assert!(quick < 150, "{quick}");
    }

    #[test]
    fn each_size_comes_once_and_a_new_file_first() {
        let steps = Grid::whole().steps(u64::MAX);
        let mut sizes: Vec<u64> = steps.iter().map(|step| step.size).collect();
        sizes.dedup();
        assert_eq!(sizes, Grid::whole().sizes);
        assert!(steps.iter().all(|step| step.patterns[0] == Pattern::Write));
        let keys: BTreeSet<Key> = steps.iter().flat_map(Step::keys).collect();
        assert_eq!(keys.len(), 29 * 2 * 17);
    }

    #[test]
    fn what_does_not_fit_memory_is_left_out() {
        let deep = |flight_max| {
            let steps = Grid::whole().steps(flight_max);
            steps
                .iter()
                .filter(|step| step.record == 16 * MIB && step.depth == 16)
                .count()
        };
        // 16 records of a file of 16 MiB are one record.
        assert_eq!((deep(u64::MAX), deep(64 * MIB)), (9, 3));
        let single = Grid::whole().steps(1);
        assert!(single.iter().all(|step| step.depth == 1));
    }

    #[test]
    fn sizes_are_lists_and_ranges() {
        assert_eq!(sizes("4,1,4", &plain), Ok(vec![1, 4]));
        assert_eq!(sizes("1..20", &plain), Ok(vec![1, 4, 16, 20]));
        assert_eq!(sizes("2..32:4,5", &plain), Ok(vec![2, 5, 8, 32]));
        assert_eq!(sizes("7..7", &plain), Ok(vec![7]));
        for bad in ["", "x", "5..2", "1..4:1", "0..4", "1..18446744073709551615:2"] {
            assert!(sizes(bad, &plain).is_err(), "{bad}");
        }
        assert!(sizes("64..4096:4096", &plain).is_err());
    }
}
