//! What is used at this time of the day and of the week.
//!
//! A day has 8 slots of 3 hours, and working days differ from weekends: 16 slots. A file has a
//! *strength* from 0 to 15 in each slot. The first use of a day in a slot adds a third of what is
//! missing to 15 (rounded up, so the first one gives 5), and each day of the same kind takes 5 % (and
//! the rest is rounded down). What is used each day reaches 13.
//!
//! The likelihood of a file is `max(strength now, half of the strength in the next slot) / 12`, at
//! most 1, and its priority `1 + round(6 x likelihood)`: 1 to 7, as SuperFetch had them for pages. A
//! daily habit has 7, what was used once yesterday at this time has 3.

use crate::predict::block::FILES_MAX;
use crate::table::mix;

/// Bytes of an entry.
pub(super) const ENTRY_BYTES: usize = 16;
/// Entries in a bucket.
const WAYS: usize = 4;
/// Slots of a day.
const SLOTS: u8 = 8;
/// Largest strength.
const STRENGTH_MAX: u8 = 15;
/// Share of a strength that is left after a day of its kind.
const DAY: f32 = 0.95;
/// Strength of a daily habit on the next day.
const DAILY: f32 = 12.0;
/// Marks a free entry.
const NONE: u32 = u32::MAX;

/// A date and an hour in local time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Days since 1 January 1970, a Thursday.
    pub day: u16,
    /// Hour of the day; above 23 counts as 23.
    pub hour: u8,
}

impl Moment {
    /// Returns the moment of a local time in seconds since 1970; 65,535 days at most.
    pub fn from_seconds(local: u64) -> Self {
        Self {
            day: u16::try_from(local / 86_400).unwrap_or(u16::MAX),
            hour: (local % 86_400 / 3600) as u8,
        }
    }

    fn slot(self) -> u8 {
        self.hour.min(23) / 3 + if is_weekend(self.day) { SLOTS } else { 0 }
    }

    fn next(self) -> Self {
        match self.hour {
            21.. => Self {
                day: self.day.saturating_add(1),
                hour: 0,
            },
            hour => Self {
                hour: hour + 3,
                ..self
            },
        }
    }
}

fn is_weekend(day: u16) -> bool {
    // Day 0 was a Thursday.
    matches!((u32::from(day) + 4) % 7, 0 | 6)
}

/// Returns the working days and the days of weekends after `from` and up to `to`.
fn days_between(from: u16, to: u16) -> [u16; 2] {
    let weeks = to.saturating_sub(from) / 7;
    let rest = from + weeks * 7..to.max(from);
    let weekend = rest.clone().filter(|day| is_weekend(day + 1)).count() as u16;
    [weeks * 5 + rest.len() as u16 - weekend, weeks * 2 + weekend]
}

/// A file that is probably used now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Due {
    /// The file.
    pub file: u32,
    /// From 1 to 7, the most urgent.
    pub priority: u8,
    /// From 0 to 1.
    pub likelihood: f32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    file: u32,
    day: u16,
    /// Slot of the last use.
    slot: u8,
    /// Two strengths a byte.
    strengths: [u8; SLOTS as usize],
}

const EMPTY: Entry = Entry {
    file: NONE,
    day: 0,
    slot: 0,
    strengths: [0; SLOTS as usize],
};

/// The habits of files.
#[derive(Debug)]
pub struct Calendar {
    entries: Vec<Entry>,
}

impl Calendar {
    /// Makes a table for so many files, and at least one bucket.
    pub(super) fn new(entries: usize) -> Self {
        Self {
            entries: vec![EMPTY; (entries / WAYS).max(1) * WAYS],
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }

    /// A file is used.
    pub fn used(&mut self, file: u32, now: Moment) {
        if file >= FILES_MAX {
            return;
        }
        let buckets = (self.entries.len() / WAYS) as u64;
        let bucket = (((mix(u64::from(file)) >> 32) * buckets) >> 32) as usize * WAYS;
        let bucket = &mut self.entries[bucket..bucket + WAYS];
        if !bucket.iter().any(|entry| entry.file == file) {
            let worth = |entry: &&mut Entry| entry.aged(now.day).worth();
            let weakest = bucket.iter_mut().min_by_key(worth);
            *weakest.expect("a bucket has entries") = Entry {
                file,
                day: now.day,
                slot: u8::MAX,
                ..EMPTY
            };
        }
        let entry = bucket.iter_mut().find(|entry| entry.file == file);
        entry.expect("found or added").used(now);
    }

    /// Returns the files that are probably used now or soon, the most urgent first, at most `most`.
    /// Looks at every entry: for the beginning of a slot, and for a user who comes back.
    pub fn due(&self, now: Moment, most: usize) -> Vec<Due> {
        let entries = self.entries.iter().filter(|entry| entry.file != NONE);
        let mut due: Vec<Due> = entries
            .map(|entry| {
                let likelihood = entry.aged(now.day).likelihood(now);
                Due {
                    file: entry.file,
                    priority: priority(likelihood),
                    likelihood,
                }
            })
            .filter(|due| due.likelihood > 0.0)
            .collect();
        due.sort_by(|one, other| other.likelihood.total_cmp(&one.likelihood));
        due.truncate(most);
        due
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.entries.fill(EMPTY);
    }

    /// Forgets a file.
    pub(super) fn forget_file(&mut self, file: u32) {
        for entry in self.entries.iter_mut().filter(|entry| entry.file == file) {
            *entry = EMPTY;
        }
    }

    pub(super) fn entries(&self) -> usize {
        self.entries.len()
    }

    /// Returns the entries as they are saved.
    pub(super) fn save(&self) -> impl Iterator<Item = [u8; ENTRY_BYTES]> + '_ {
        self.entries.iter().map(|entry| {
            let mut bytes = [0; ENTRY_BYTES];
            bytes[..4].copy_from_slice(&entry.file.to_le_bytes());
            bytes[4..6].copy_from_slice(&entry.day.to_le_bytes());
            bytes[6] = entry.slot;
            bytes[8..].copy_from_slice(&entry.strengths);
            bytes
        })
    }

    /// Sets an entry as it was saved. Returns whether it is possible.
    pub(super) fn load(&mut self, place: usize, bytes: &[u8; ENTRY_BYTES]) -> bool {
        let [f0, f1, f2, f3, d0, d1, slot, zero, strengths @ ..] = *bytes;
        let entry = Entry {
            file: u32::from_le_bytes([f0, f1, f2, f3]),
            day: u16::from_le_bytes([d0, d1]),
            slot,
            strengths,
        };
        let is_possible = zero == 0 && (entry == EMPTY || (entry.file < FILES_MAX && slot < 2 * SLOTS));
        if is_possible {
            self.entries[place] = entry;
        }
        is_possible
    }
}

/// Returns the priority of a likelihood.
fn priority(likelihood: f32) -> u8 {
    // From 1 to 7, so the cast is exact.
    1 + (6.0 * likelihood.clamp(0.0, 1.0)).round() as u8
}

impl Entry {
    fn strength(&self, slot: u8) -> u8 {
        let pair = self.strengths[usize::from(slot / 2)];
        if slot.is_multiple_of(2) {
            pair >> 4
        } else {
            pair & 15
        }
    }

    fn set_strength(&mut self, slot: u8, strength: u8) {
        let pair = &mut self.strengths[usize::from(slot / 2)];
        *pair = if slot.is_multiple_of(2) {
            strength << 4 | (*pair & 15)
        } else {
            (*pair & 0xf0) | strength
        };
    }

    /// Returns the entry as it is on a later day. A day before its last use changes nothing.
    fn aged(&self, day: u16) -> Self {
        let mut aged = *self;
        let left = days_between(self.day, day).map(|days| DAY.powi(i32::from(days)));
        for slot in 0..2 * SLOTS {
            let left = left[usize::from(slot / SLOTS)];
            aged.set_strength(slot, (f32::from(self.strength(slot)) * left) as u8);
        }
        aged.day = self.day.max(day);
        aged
    }

    /// What the entry is worth when one must give way.
    fn worth(&self) -> u32 {
        let sum: u32 = (0..2 * SLOTS).map(|slot| u32::from(self.strength(slot))).sum();
        if self.file == NONE { 0 } else { 1 + sum }
    }

    fn used(&mut self, now: Moment) {
        let slot = now.slot();
        if self.slot == slot && self.day >= now.day {
            return;
        }
        *self = self.aged(now.day);
        self.slot = slot;
        let strength = self.strength(slot);
        self.set_strength(slot, strength + (STRENGTH_MAX - strength).div_ceil(3));
    }

    fn likelihood(&self, now: Moment) -> f32 {
        let strength = |moment: Moment| f32::from(self.strength(moment.slot()));
        (strength(now).max(strength(now.next()) / 2.0) / DAILY).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2 January 2023, a Monday.
    const MONDAY: u16 = 19_359;

    fn at(day: u16, hour: u8) -> Moment {
        Moment {
            day: MONDAY + day,
            hour,
        }
    }

    #[test]
    fn what_is_used_each_morning_is_urgent_in_the_morning() {
        let mut calendar = Calendar::new(64);
        for day in (0..14).filter(|day| day % 7 < 5) {
            for _ in 0..50 {
                calendar.used(1, at(day, 9));
            }
        }
        calendar.used(2, at(11, 15));
        let morning = calendar.due(at(14, 9), 10);
        assert_eq!((morning[0].file, morning.len()), (1, 1), "{morning:?}");
        assert!(morning[0].priority >= 6, "{morning:?}");
        let before = calendar.due(at(14, 7), 10);
        assert_eq!(before[0].file, 1, "the next slot counts half");
        assert!(before[0].priority < morning[0].priority);
        assert!(calendar.due(at(14, 15), 10).iter().all(|due| due.file == 2));
        assert!(calendar.due(at(19, 9), 10).is_empty(), "not on Saturday");
        assert!(calendar.due(at(114, 9), 10).is_empty(), "forgotten");
    }

    #[test]
    fn priorities_are_from_1_to_7() {
        assert_eq!((priority(0.0), priority(0.5), priority(1.0)), (1, 4, 7));
        let mut calendar = Calendar::new(64);
        for day in 0..365 {
            calendar.used(1, at(day, 23));
        }
        let due = calendar.due(at(365, 23), 1);
        assert_eq!(due[0].priority, 7, "{due:?}");
        calendar.used(2, at(364, 9));
        assert_eq!(calendar.due(at(365, 9), 1)[0].priority, 3);
    }

    #[test]
    fn days_are_counted_by_kind() {
        assert_eq!(days_between(MONDAY, MONDAY), [0, 0]);
        assert_eq!(days_between(MONDAY, MONDAY + 4), [4, 0]);
        assert_eq!(
            days_between(MONDAY + 4, MONDAY + 7),
            [1, 2],
            "from Friday to Monday"
        );
        assert_eq!(days_between(MONDAY, MONDAY + 70), [50, 20]);
        assert_eq!(days_between(MONDAY + 1, MONDAY), [0, 0]);
        assert_eq!(days_between(0, u16::MAX).iter().sum::<u16>(), u16::MAX);
    }

    #[test]
    fn a_full_bucket_loses_its_weakest_file_and_clocks_that_go_back_do_no_harm() {
        let mut calendar = Calendar::new(4);
        for file in 0..4 {
            for day in 0..=file as u16 {
                calendar.used(file, at(day, 9));
            }
        }
        calendar.used(9, at(3, 9));
        let files: Vec<u32> = calendar.due(at(3, 9), 10).iter().map(|due| due.file).collect();
        assert!(
            files.contains(&9) && files.contains(&3) && !files.contains(&0),
            "{files:?}"
        );
        calendar.used(3, Moment { day: 0, hour: 99 });
        calendar.used(
            3,
            Moment {
                day: u16::MAX,
                hour: 23,
            },
        );
        assert_eq!(
            calendar.due(
                Moment {
                    day: u16::MAX,
                    hour: 23
                },
                1
            )[0]
            .file,
            3
        );
    }
}
