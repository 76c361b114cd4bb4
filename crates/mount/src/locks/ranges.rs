//! The locks of one file among the programs of the mount, without I/O.

use ropeway_vfs::store::RangeLock;

use super::Request;

/// Bytes from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl Span {
    pub(crate) const ALL: Self = Self {
        first: 0,
        last: u64::MAX,
    };

    fn meets(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// A lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) owner: u64,
    pub(crate) handle: u64,
    pub(crate) pid: u32,
    pub(crate) span: Span,
    pub(crate) is_exclusive: bool,
}

impl Held {
    pub(super) fn of(request: &Request) -> Self {
        Self {
            owner: request.owner,
            handle: request.handle,
            pid: request.pid,
            span: request.span,
            is_exclusive: request.lock == RangeLock::Exclusive,
        }
    }

    /// A lock of somebody behind the mount.
    pub(super) fn unknown(span: Span, lock: RangeLock) -> Self {
        Self {
            owner: 0,
            handle: 0,
            pid: 0,
            span,
            // A shared lock is excluded by exclusive ones only.
            is_exclusive: lock == RangeLock::Shared,
        }
    }
}

/// All locks of a file. Those of one owner do not overlap.
#[derive(Default)]
pub(super) struct Ranges(Vec<Held>);

impl Ranges {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn has(&self, owner: u64) -> bool {
        self.0.iter().any(|held| held.owner == owner)
    }

    /// Returns a lock of another owner that excludes this one.
    pub(super) fn conflict(&self, owner: u64, span: Span, lock: RangeLock) -> Option<Held> {
        let excludes = |held: &&Held| {
            let is_strong = held.is_exclusive || lock == RangeLock::Exclusive;
            held.owner != owner && held.span.meets(span) && is_strong
        };
        self.0.iter().find(excludes).copied()
    }

    /// Sets a lock; it replaces what its owner held there.
    pub(super) fn set(&mut self, held: Held) {
        self.clear(held.owner, held.span);
        let mut whole = held;
        // Neighbours of the same kind become one, so that a file of small locks stays small.
        self.0.retain(|other| {
            let is_same = (other.owner, other.handle, other.is_exclusive)
                == (held.owner, held.handle, held.is_exclusive);
            let is_next = other.span.last.checked_add(1) == Some(whole.span.first)
                || whole.span.last.checked_add(1) == Some(other.span.first);
            if is_same && is_next {
                whole.span.first = whole.span.first.min(other.span.first);
                whole.span.last = whole.span.last.max(other.span.last);
            }
            !(is_same && is_next)
        });
        self.0.push(whole);
    }

    /// Releases what an owner holds in a span; returns whether there was something.
    pub(super) fn clear(&mut self, owner: u64, span: Span) -> bool {
        let is_hit = |held: &Held| held.owner == owner && held.span.meets(span);
        let hit: Vec<Held> = self.0.iter().copied().filter(is_hit).collect();
        self.0.retain(|held| !is_hit(held));
        for held in &hit {
            if held.span.first < span.first {
                let last = span.first - 1;
                let span = Span { last, ..held.span };
                self.0.push(Held { span, ..*held });
            }
            if held.span.last > span.last {
                let first = span.last + 1;
                let span = Span { first, ..held.span };
                self.0.push(Held { span, ..*held });
            }
        }
        !hit.is_empty()
    }

    /// Returns the owners of locks that were taken through a handle.
    pub(super) fn owners_through(&self, handle: u64) -> Vec<u64> {
        let mut owners: Vec<u64> = self
            .0
            .iter()
            .filter(|held| held.handle == handle)
            .map(|held| held.owner)
            .collect();
        owners.sort_unstable();
        owners.dedup();
        owners
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes of the model.
    const BYTES: usize = 24;

    proptest! {
        /// Each byte on its own says who holds it and how.
        #[test]
        fn ranges_agree_with_single_bytes(
            steps in prop::collection::vec((0_u64..3, 0_u64..BYTES as u64, 0_u64..BYTES as u64, 0_u8..3), 1..60)
        ) {
            let mut ranges = Ranges::default();
            let mut bytes = [[None::<bool>; 3]; BYTES];
            for (owner, one, other, what) in steps {
                let span = Span { first: one.min(other), last: one.max(other) };
                let inside = span.first as usize..=span.last as usize;
                let lock = [RangeLock::None, RangeLock::Shared, RangeLock::Exclusive][usize::from(what)];
                let is_exclusive = lock == RangeLock::Exclusive;
                let excluded = lock != RangeLock::None && bytes[inside.clone()].iter().any(|byte| {
                    (0..3).any(|other| other != owner as usize
                        && byte[other].is_some_and(|held| held || is_exclusive))
                });
                if lock != RangeLock::None {
                    prop_assert_eq!(ranges.conflict(owner, span, lock).is_some(), excluded);
                }
                if excluded {
                    continue;
                }
                match lock {
                    RangeLock::None => drop(ranges.clear(owner, span)),
                    _ => ranges.set(Held { owner, handle: 0, pid: 0, span, is_exclusive }),
                }
                for byte in &mut bytes[inside] {
                    byte[owner as usize] = (lock != RangeLock::None).then_some(is_exclusive);
                }
                for (at, byte) in bytes.iter().enumerate() {
                    for (owner, expected) in byte.iter().enumerate() {
                        let at = at as u64;
                        let held: Vec<_> = ranges.0.iter()
                            .filter(|held| held.owner == owner as u64 && held.span.meets(Span { first: at, last: at }))
                            .map(|held| held.is_exclusive)
                            .collect();
                        prop_assert_eq!(held, expected.iter().copied().collect::<Vec<_>>());
                    }
                }
            }
        }
    }
}
