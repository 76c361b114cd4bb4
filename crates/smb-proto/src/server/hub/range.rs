//! Byte ranges and when they meet ([MS-FSA] 2.1.4.10).

use super::ids::OpenId;

/// A range of bytes that does not wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) offset: u64,
    pub(super) length: u64,
}

impl Range {
    /// `None` if its last byte has no offset.
    pub(super) fn new(offset: u64, length: u64) -> Option<Self> {
        offset.checked_add(length.saturating_sub(1))?;
        Some(Self { offset, length })
    }

    /// Offset of the last byte; of an empty range, its offset.
    fn last(self) -> u64 {
        self.offset + self.length.saturating_sub(1)
    }

    /// Whether they share a byte, or one is empty and lies strictly inside the other (smb2.lock.zerobytelength).
    pub(super) fn meets(self, other: Self) -> bool {
        match (self.length, other.length) {
            (0, 0) => false,
            (0, _) => other.offset < self.offset && self.offset <= other.last(),
            (_, 0) => other.meets(self),
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
    /// Whether `wanted` cannot be granted beside it. Shared locks stack, also on an exclusive one of the same open; an
    /// exclusive one stacks on nothing (smb2.lock.stacking).
    pub(super) fn refuses(&self, wanted: &Self) -> bool {
        let stacks = !wanted.exclusive && (!self.exclusive || self.open == wanted.open);
        !stacks && self.range.meets(wanted.range)
    }

    /// Whether `open` may not read, or write, that range.
    pub(super) fn bars(&self, open: OpenId, range: Range, write: bool) -> bool {
        let allowed = if self.exclusive { self.open == open } else { !write };
        !allowed && self.range.meets(range)
    }
}
