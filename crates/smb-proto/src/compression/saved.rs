//! Counts of what compression saved.

use super::Algorithms;

/// What compression has saved on a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// Bytes that did not have to be sent.
    pub bytes: u64,
    /// Of these, by Zstandard.
    pub by_zstd: u64,
}

impl Saved {
    /// Returns what one frame saved.
    pub(crate) fn by(algorithms: Algorithms, plain: usize, compressed: usize) -> Self {
        let bytes = plain.saturating_sub(compressed) as u64;
        Self {
            bytes,
            by_zstd: if algorithms.zstd { bytes } else { 0 },
        }
    }

    /// Adds another count.
    pub fn add(&mut self, more: Self) {
        self.bytes += more.bytes;
        self.by_zstd += more.by_zstd;
    }

    /// Returns what was added since an earlier count.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(earlier.bytes),
            by_zstd: self.by_zstd.saturating_sub(earlier.by_zstd),
        }
    }
}
