//! CLOSE ([MS-CIFS] 2.2.4.5), FLUSH (2.2.4.6) and FIND_CLOSE2 (2.2.4.48).

use ropeway_smb_wire::{Result, Writer};

use crate::message::{Block, write_block};
use crate::words::words;

words! {
    /// CLOSE request.
    pub struct CloseRequest {
        /// The open file.
        fid: u16,
        /// Time of the last write to set, in seconds since 1970; 0 or -1 to keep it.
        last_write_time: u32,
    }
}

impl CloseRequest {
    /// Decodes the block.
    ///
    /// # Errors
    /// Truncation, another number of words than 3.
    pub fn decode(block: &Block<'_>) -> Result<Self> {
        Self::read(&mut block.words_exactly(3)?)
    }

    /// Appends the block.
    pub fn encode(&self, w: &mut Writer<'_>) {
        write_block(w, |w| self.write(w), |_| {});
    }
}

/// Decodes a block of one word: the FID of FLUSH, the SID of FIND_CLOSE2.
///
/// # Errors
/// Truncation, another number of words than 1.
pub fn decode_id(block: &Block<'_>) -> Result<u16> {
    block.words_exactly(1)?.u16()
}

/// Appends a block of one word.
pub fn encode_id(id: u16, w: &mut Writer<'_>) {
    write_block(w, |w| w.u16(id), |_| {});
}

/// Appends a block without words and bytes.
pub fn encode_empty(w: &mut Writer<'_>) {
    write_block(w, |_| {}, |_| {});
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile;

    #[test]
    fn requests_round_trip() {
        let request = CloseRequest {
            fid: 5,
            last_write_time: u32::MAX,
        };
        hostile::check(
            &[request],
            |block| CloseRequest::decode(block).ok(),
            |request, w| request.encode(w),
        );
        hostile::check(&[7_u16], |block| decode_id(block).ok(), |id, w| encode_id(*id, w));
        let bytes = hostile::message(encode_empty);
        assert_eq!(bytes[32..], [0, 0, 0]);
    }
}
