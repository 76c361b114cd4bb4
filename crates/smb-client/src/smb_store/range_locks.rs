//! The byte-range locks of one file's nodes. Pure.
//!
//! All nodes of a file share one open file on the server, which therefore does not tell their locks
//! apart: conflicts between them are found here. A server unlocks exactly the ranges that were
//! locked, so a lock that replaces a part of another one is planned as a list of unlocks and locks.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};

use ropeway_vfs::store::RangeLock;

/// The identity of a node as the owner of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder(u64);

impl Holder {
    /// Makes a new identity.
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A lock as the server has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeldLock {
    holder: Holder,
    /// First and last byte.
    pub(super) range: RangeInclusive<u64>,
    /// Whether it excludes readers too.
    pub(super) exclusive: bool,
}

/// The locks of a file.
#[derive(Debug, Default)]
pub(super) struct RangeLocks(Vec<HeldLock>);

/// What to do for a change of locks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Locks to release first.
    pub(super) unlock: Vec<HeldLock>,
    /// Locks to take then: what remains of those released, and the new one last.
    pub(super) lock: Vec<HeldLock>,
}

fn overlap(one: &RangeInclusive<u64>, other: &RangeInclusive<u64>) -> bool {
    one.start() <= other.end() && other.start() <= one.end()
}

impl RangeLocks {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a lock of another node excludes `holder` from reading, or writing.
    pub(super) fn is_locked(&self, holder: Holder, range: &RangeInclusive<u64>, write: bool) -> bool {
        let mut others = self.0.iter().filter(|lock| lock.holder != holder);
        others.any(|lock| overlap(&lock.range, range) && (write || lock.exclusive))
    }

    /// Plans a change; `None` if a lock of another node excludes it.
    pub(super) fn plan(&self, holder: Holder, range: &RangeInclusive<u64>, lock: RangeLock) -> Option<Plan> {
        if lock != RangeLock::None && self.is_locked(holder, range, lock == RangeLock::Exclusive) {
            return None;
        }
        let own = self.0.iter().filter(|held| held.holder == holder);
        let mut plan = Plan::default();
        for held in own.filter(|held| overlap(&held.range, range)) {
            plan.unlock.push(held.clone());
            let (first, last) = (*held.range.start(), *held.range.end());
            let before = (first < *range.start()).then(|| first..=range.start() - 1);
            let behind = (last > *range.end()).then(|| range.end() + 1..=last);
            plan.lock
                .extend(before.into_iter().chain(behind).map(|range| HeldLock {
                    range,
                    ..held.clone()
                }));
        }
        if lock != RangeLock::None {
            plan.lock.push(HeldLock {
                holder,
                range: range.clone(),
                exclusive: lock == RangeLock::Exclusive,
            });
        }
        // The same lock again changes nothing.
        match plan.unlock == plan.lock {
            true => Some(Plan::default()),
            false => Some(plan),
        }
    }

    /// Returns the shared locks of all nodes in a range: on the server they exclude every write there.
    pub(super) fn shared_in(&self, range: &RangeInclusive<u64>) -> Vec<HeldLock> {
        let shared = self.0.iter().filter(|lock| !lock.exclusive);
        shared
            .filter(|lock| overlap(&lock.range, range))
            .cloned()
            .collect()
    }

    /// Plans the release of everything that a node holds.
    pub(super) fn all_of(&self, holder: Holder) -> Vec<HeldLock> {
        let own = self.0.iter().filter(|lock| lock.holder == holder);
        own.cloned().collect()
    }

    /// Notes that the server has released a lock.
    pub(super) fn released(&mut self, lock: &HeldLock) {
        if let Some(at) = self.0.iter().position(|held| held == lock) {
            self.0.swap_remove(at);
        }
    }

    /// Notes that the server has granted a lock.
    pub(super) fn granted(&mut self, lock: HeldLock) {
        self.0.push(lock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(locks: &mut RangeLocks, holder: Holder, range: RangeInclusive<u64>, lock: RangeLock) -> bool {
        let Some(plan) = locks.plan(holder, &range, lock) else {
            return false;
        };
        plan.unlock.iter().for_each(|held| locks.released(held));
        plan.lock.into_iter().for_each(|held| locks.granted(held));
        true
    }

    /// Any sequence of locks agrees with a table of bytes.
    #[test]
    fn locks_agree_with_a_table_of_bytes() {
        for seed in 0..500 {
            let mut random = fastrand::Rng::with_seed(seed);
            let holders = [Holder::new(), Holder::new(), Holder::new()];
            let mut locks = RangeLocks::default();
            let mut table = [[RangeLock::None; 40]; 3];
            for _ in 0..100 {
                let who = random.usize(0..3);
                let first = random.usize(0..40);
                let last = random.usize(first..40);
                let lock = [RangeLock::None, RangeLock::Shared, RangeLock::Exclusive][random.usize(0..3)];
                let is_free = (0..3).filter(|other| *other != who).all(|other| {
                    table[other][first..=last].iter().all(|held| {
                        let both_shared = lock == RangeLock::Shared && *held == RangeLock::Shared;
                        lock == RangeLock::None || *held == RangeLock::None || both_shared
                    })
                });
                let range = first as u64..=last as u64;
                assert_eq!(take(&mut locks, holders[who], range, lock), is_free, "{seed}");
                if is_free {
                    table[who][first..=last].fill(lock);
                }
                for byte in 0..40_u64 {
                    let at = byte..=byte;
                    for (who, holder) in holders.iter().enumerate() {
                        let others = (0..3)
                            .filter(|other| *other != who)
                            .map(|other| table[other][byte as usize]);
                        let most = others.max().unwrap();
                        assert_eq!(locks.is_locked(*holder, &at, true), most > RangeLock::None);
                        assert_eq!(locks.is_locked(*holder, &at, false), most == RangeLock::Exclusive);
                    }
                }
            }
            for holder in holders {
                locks.all_of(holder).iter().for_each(|held| locks.released(held));
            }
            assert!(locks.is_empty());
        }
    }

    #[test]
    fn the_largest_range_can_be_released() {
        let (mut locks, holder) = (RangeLocks::default(), Holder::new());
        assert!(take(&mut locks, holder, 5..=9, RangeLock::Shared));
        assert!(take(&mut locks, holder, 0..=i64::MAX as u64, RangeLock::None));
        assert!(locks.is_empty());
    }
}
