//! Puts the pieces of a transaction together.

use ropeway_smb_wire::{DecodeErrorKind, Reader, Result};

use super::transaction::{Piece, Totals};

/// Puts the pieces of a transaction together. It never holds more than its limits, and grows as
/// pieces come, not as they are announced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assembly {
    totals: Totals,
    parameters: Vec<u8>,
    data: Vec<u8>,
}

impl Assembly {
    /// Begins with the lengths of the whole.
    pub fn new(totals: Totals) -> Self {
        Self {
            totals,
            ..Self::default()
        }
    }

    /// Adds a piece, which must continue what is there: all servers and clients send pieces in
    /// order. Returns whether the whole is there now.
    ///
    /// # Errors
    /// The piece does not continue what is there, or is longer than the whole.
    pub fn add(&mut self, piece: &Piece<'_>) -> Result<bool> {
        let fault = |at| Reader::at(&[], at, "transaction").error(DecodeErrorKind::Bounds);
        // Later pieces may lower the totals, not raise them ([MS-CIFS] 3.2.4.1.5).
        self.totals = Totals {
            parameters: self.totals.parameters.min(piece.totals.parameters),
            data: self.totals.data.min(piece.totals.data),
        };
        let parts = [
            (piece.parameters, &mut self.parameters, self.totals.parameters),
            (piece.data, &mut self.data, self.totals.data),
        ];
        for ((at, bytes), whole, total) in parts {
            if bytes.is_empty() {
                continue;
            }
            if at != whole.len() || bytes.len() > total.saturating_sub(at) {
                return Err(fault(at));
            }
            whole.extend_from_slice(bytes);
        }
        Ok(self.is_whole())
    }

    /// Returns whether everything is there.
    pub fn is_whole(&self) -> bool {
        self.parameters.len() >= self.totals.parameters && self.data.len() >= self.totals.data
    }

    /// Returns parameters and data.
    pub fn into_parts(self) -> (Vec<u8>, Vec<u8>) {
        (self.parameters, self.data)
    }

    /// Returns the number of bytes held.
    pub fn len(&self) -> usize {
        self.parameters.len() + self.data.len()
    }

    /// Returns whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
