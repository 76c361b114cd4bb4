//! Collects the entries of one listing, or cuts a folder that has too many into ranges of names.
//!
//! A folder may have millions of entries, and a worker may hold a few ten thousand. Up to
//! [`Collector::new`]'s limit all entries are kept. Above it only a random sample of the names is
//! (reservoir sampling, Vitter 1985, algorithm R), and the quantiles of the sample cut the folder
//! into ranges of about half the limit. A range that turns out too large is cut again when its task
//! lists it, so the sample need not be exact.

use ropeway_vfs::{Metadata, Name};

use crate::task::NameRange;

/// Names in the sample: about 1 MiB.
const SAMPLE: usize = 16_384;

/// Smallest number of names in the sample for each range. With 16 the sizes of ranges vary by a
/// quarter, so hardly any has twice the size aimed at.
const SAMPLE_EACH: usize = 16;

/// One entry of a folder of the source.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What orders the entries of a folder, and what ranges are made of: the name, or what a target
    /// that ignores case takes it for. So names that are one on the target are in one range.
    pub key: Name,
    /// Its name.
    pub name: Name,
    /// Its attributes.
    pub metadata: Metadata,
}

/// What a listing came to.
#[derive(Debug)]
pub enum Collected {
    /// All entries, sorted by key, then by name.
    Entries(Vec<Entry>),
    /// There are too many: ranges that together hold each name once.
    Ranges(Vec<NameRange>),
}

/// Takes the entries of a listing one by one.
#[derive(Debug)]
pub struct Collector {
    range: NameRange,
    entries_max: usize,
    random: fastrand::Rng,
    entries: Vec<Entry>,
    sample: Vec<Name>,
    count: u64,
}

impl Collector {
    /// Makes a collector for the names in `range`, which keeps at most `entries_max` entries.
    pub fn new(range: NameRange, entries_max: usize, random: fastrand::Rng) -> Self {
        Self {
            range,
            entries_max: entries_max.max(1),
            random,
            entries: Vec::new(),
            sample: Vec::new(),
            count: 0,
        }
    }

    /// Adds an entry. Keys outside the range are ignored.
    pub fn push(&mut self, entry: Entry) {
        if !self.range.contains(&entry.key) {
            return;
        }
        self.count += 1;
        if self.sample.is_empty() {
            if self.entries.len() < self.entries_max {
                self.entries.push(entry);
                return;
            }
            let mut kept: Vec<Name> = std::mem::take(&mut self.entries)
                .into_iter()
                .map(|entry| entry.key)
                .collect();
            self.random.shuffle(&mut kept);
            kept.truncate(SAMPLE);
            self.sample = kept;
        }
        if self.sample.len() < SAMPLE {
            self.sample.push(entry.key);
        } else if let Some(place) = self.sample.get_mut(self.random.u64(0..self.count) as usize) {
            *place = entry.key;
        }
    }

    /// Whether all entries so far are kept.
    pub fn fits(&self) -> bool {
        self.sample.is_empty()
    }

    /// Returns the number of entries so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Ends the listing.
    pub fn finish(mut self) -> Collected {
        if self.sample.is_empty() {
            let order = |entry: &Entry| (entry.key.clone(), entry.name.clone());
            self.entries.sort_by_cached_key(order);
            self.entries.dedup_by(|one, two| one.name == two.name);
            return Collected::Entries(self.entries);
        }
        self.sample.sort_unstable();
        self.sample.dedup();
        let aim = (self.entries_max as u64).div_ceil(2);
        let most = (self.sample.len() / SAMPLE_EACH).max(2) as u64;
        let ranges = self.count.div_ceil(aim).clamp(2, most) as usize;
        let mut after = self.range.after.clone();
        let mut cut = Vec::with_capacity(ranges);
        for number in 1..ranges {
            // The last name of the sample is never a boundary: each range is smaller than the whole.
            let place = (number * self.sample.len() / ranges).saturating_sub(1);
            let until = self.sample[place].clone();
            if after.as_ref().is_some_and(|after| *after >= until) {
                continue;
            }
            cut.push(NameRange {
                after: after.replace(until.clone()),
                until: Some(until),
            });
        }
        cut.push(NameRange {
            after,
            until: self.range.until,
        });
        Collected::Ranges(cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_vfs::{Kind, Timestamp};

    fn entry(number: u64) -> Entry {
        let name = Name::new(format!("f{number:08}").as_bytes()).unwrap();
        Entry {
            key: name.clone(),
            name,
            metadata: Metadata::bare(Kind::File, 1, Timestamp(0)),
        }
    }

    #[test]
    fn a_small_folder_is_kept_and_sorted() {
        let mut collector = Collector::new(NameRange::default(), 100, fastrand::Rng::with_seed(1));
        (0..100).rev().for_each(|number| collector.push(entry(number)));
        let Collected::Entries(entries) = collector.finish() else {
            panic!("100 entries fit");
        };
        assert!(entries.is_sorted_by(|one, two| one.name < two.name) && entries.len() == 100);
    }

    #[test]
    fn a_huge_folder_is_cut_into_ranges_that_fit_and_hold_each_name_once() {
        for (seed, count) in [(1, 101), (2, 1_000), (3, 20_000), (4, 300_000)] {
            let max = if count > 50_000 { 20_000 } else { 100 };
            let range = NameRange {
                after: Some(entry(9).name),
                until: None,
            };
            let mut collector = Collector::new(range.clone(), max, fastrand::Rng::with_seed(seed));
            (0..count + 10).for_each(|number| collector.push(entry(number * 7_919 % (count + 10))));
            assert_eq!(collector.count(), count);
            let Collected::Ranges(ranges) = collector.finish() else {
                panic!("{count} entries do not fit");
            };
            assert!(ranges.len() >= 2);
            let mut sizes = vec![0; ranges.len()];
            for number in 10..count + 10 {
                let name = entry(number).name;
                let mut holders = (0..ranges.len()).filter(|at| ranges[*at].contains(&name));
                sizes[holders.next().expect("a range for each name")] += 1;
                assert_eq!(holders.next(), None);
            }
            assert_eq!(ranges[0].after, range.after);
            assert!(sizes.iter().all(|size| *size <= max), "{sizes:?}");
        }
    }
}
