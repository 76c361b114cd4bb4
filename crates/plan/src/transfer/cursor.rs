//! The position of the next block: walks over the data and skips the holes.

use ropeway_vfs::Extent;

/// The planning position. Invariant: `start <= position <= size` at the beginning, and `position`
/// never goes back.
#[derive(Debug)]
pub(super) struct Cursor {
    /// Size as known now.
    size: u64,
    /// Size as announced.
    announced: u64,
    /// First byte not yet planned.
    position: u64,
    /// End of the extent that contains `position`; unknown if not greater than `position`.
    data_end: u64,
    /// Whether an extent was asked for and not answered yet.
    asked: bool,
}

/// What is known at the position.
pub(super) enum Data {
    /// Data from `offset` to `end`.
    Known { offset: u64, end: u64 },
    /// Ask for the next extent now.
    Ask { from: u64 },
    /// The extent has been asked for.
    Asked,
}

impl Cursor {
    pub(super) fn new(size: u64, start: u64) -> Self {
        Self {
            size,
            announced: size,
            position: start.min(size),
            data_end: 0,
            asked: false,
        }
    }

    /// Whether nothing is left to plan and no answer is awaited.
    pub(super) fn is_exhausted(&self) -> bool {
        !self.asked && self.position >= self.size
    }

    /// Returns what is known at the position. Marks the question as asked.
    pub(super) fn data(&mut self) -> Data {
        let end = self.data_end.min(self.size);
        if self.asked {
            Data::Asked
        } else if self.position < end {
            Data::Known {
                offset: self.position,
                end,
            }
        } else {
            self.asked = true;
            Data::Ask { from: self.position }
        }
    }

    /// Marks `length` bytes of data as planned.
    pub(super) fn advance(&mut self, length: u64) {
        self.position += length;
    }

    /// Takes the answer to the question; ignored if none was asked.
    pub(super) fn answer(&mut self, extent: Option<Extent>) {
        if !std::mem::take(&mut self.asked) {
            return;
        }
        match extent {
            None => self.position = self.position.max(self.size),
            Some(extent) => {
                let end = extent.offset.saturating_add(extent.length);
                if end <= self.position {
                    // A senseless answer. Reading too much is slow; skipping data would lose it.
                    self.data_end = self.size;
                } else {
                    self.position = extent.offset.min(self.size).max(self.position);
                    self.data_end = end;
                }
            }
        }
    }

    /// Records that the file now ends at `size`.
    pub(super) fn shrink(&mut self, size: u64) {
        self.size = self.size.min(size);
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn has_shrunk(&self) -> bool {
        self.size < self.announced
    }

    /// Returns the offset below which everything has been planned or is a hole; never beyond the
    /// size.
    pub(super) fn frontier(&self) -> u64 {
        self.position.min(self.size)
    }
}
