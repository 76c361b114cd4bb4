//! Byte ranges and their overlap ([MS-FSA] 2.1.4.10).

use super::ids::OpenId;

/// A range of bytes that does not wrap around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) offset: u64,
    pub(super) length: u64,
}

impl Range {
    /// CreateReplays a range. Returns `None` if its last byte has no offset.
    pub(super) fn new(offset: u64, length: u64) -> Option<Self> {
        offset.checked_add(length.saturating_sub(1))?;
        Some(Self { offset, length })
    }

    /// Returns the offset of the last byte; for an empty range, its offset.
    fn last(self) -> u64 {
        self.offset + self.length.saturating_sub(1)
    }

    /// Returns whether two ranges share a byte, or one is empty and lies strictly inside the other
    /// (smb2.lock.zerobytelength).
    pub(super) fn overlaps(self, other: Self) -> bool {
        match (self.length, other.length) {
            (0, 0) => false,
            (0, _) => other.offset < self.offset && self.offset <= other.last(),
            (_, 0) => other.overlaps(self),
            _ => self.offset <= other.last() && other.offset <= self.last(),
        }
    }
}

/// A granted lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lock {
    pub(super) open: OpenId,
    pub(super) range: Range,
    pub(super) exclusive: bool,
}

impl Lock {
    /// Returns whether `wanted` cannot be granted next to this lock. Shared locks stack, also on an
    /// exclusive one of the same open. Exclusive locks do not stack (smb2.lock.stacking).
    pub(super) fn conflicts_with(&self, wanted: &Self) -> bool {
        let stacks = !wanted.exclusive && (!self.exclusive || self.open == wanted.open);
        !stacks && self.range.overlaps(wanted.range)
    }

    /// Returns whether the lock denies `open` to read or write the range.
    pub(super) fn denies_io(&self, open: OpenId, range: Range, write: bool) -> bool {
        let allowed = if self.exclusive { self.open == open } else { !write };
        !allowed && self.range.overlaps(range)
    }
}
