//! ECHO ([MS-CIFS] 2.2.4.39).

use ropeway_smb_wire::{Result, Writer};

use crate::message::{Block, write_block};

/// ECHO in either direction: the number of responses wanted, or the number of this one, and data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Echo<'a> {
    /// `EchoCount` or `SequenceNumber`.
    pub number: u16,
    /// The data to repeat.
    pub data: &'a [u8],
}

impl<'a> Echo<'a> {
    /// Decodes the block.
    ///
    /// # Errors
    /// Truncation, another number of words than 1.
    pub fn decode(block: &Block<'a>) -> Result<Self> {
        Ok(Self {
            number: block.words_exactly(1)?.u16()?,
            data: block.bytes().rest(),
        })
    }

    /// Appends the block.
    pub fn encode(&self, w: &mut Writer<'_>) {
        write_block(w, |w| w.u16(self.number), |w| w.bytes(self.data));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hostile;

    proptest! {
        #[test]
        fn echos_round_trip(number: u16, data: Vec<u8>) {
            let echo = Echo { number, data: &data };
            let bytes = hostile::message(|w| echo.encode(w));
            prop_assert_eq!(Echo::decode(&Block::first(&bytes).unwrap()), Ok(echo));
        }
    }
}
