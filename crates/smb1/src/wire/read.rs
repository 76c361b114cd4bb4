//! READ_ANDX ([MS-CIFS] 2.2.4.42, [MS-SMB] 2.2.4.2).

use ropeway_smb_wire::{Reader, Result, Writer};

use crate::header::HEADER_LEN;
use crate::message::{AndX, Block, write_block, write_block_with_payload};
use crate::words::{Reserved, words};

words! {
    /// The 10 words that every request has.
    struct RequestWords {
        andx: AndX,
        fid: u16,
        offset_low: u32,
        max_count_low: u16,
        min_count: u16,
        max_count_high: u32,
        remaining: u16,
    }
}

/// READ_ANDX request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadRequest {
    /// The command that follows.
    pub andx: AndX,
    /// The open file.
    pub fid: u16,
    /// First byte in the file.
    pub offset: u64,
    /// Bytes wanted.
    pub count: u32,
    /// Bytes of which fewer make the request fail (pipes).
    pub min_count: u16,
    /// Whether the offset has 64 bits on the wire.
    pub is_large: bool,
}

impl ReadRequest {
    /// Decodes the block.
    ///
    /// # Errors
    /// Truncation, another number of words than 10 or 12.
    pub fn decode(block: &Block<'_>) -> Result<Self> {
        let is_large = block.word_count() != 10;
        let mut reader = match is_large {
            true => block.words_exactly(12)?,
            false => block.words(),
        };
        let words = RequestWords::read(&mut reader)?;
        let high = match is_large {
            true => reader.u32()?,
            false => 0,
        };
        // The field is the time-out of a pipe where large reads are unknown; all ones mean none
        // ([MS-SMB] 2.2.4.2.1).
        let count_high = match words.max_count_high {
            u32::MAX => 0,
            high => high & 0xFFFF,
        };
        Ok(Self {
            andx: words.andx,
            fid: words.fid,
            offset: u64::from(high) << 32 | u64::from(words.offset_low),
            count: count_high << 16 | u32::from(words.max_count_low),
            min_count: words.min_count,
            is_large,
        })
    }

    /// Appends the block. Without [`Self::is_large`] the upper half of the offset is dropped.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let words = RequestWords {
            andx: self.andx,
            fid: self.fid,
            offset_low: self.offset as u32,
            max_count_low: self.count as u16,
            min_count: self.min_count,
            max_count_high: self.count >> 16,
            remaining: 0,
        };
        write_block(
            w,
            |w| {
                words.write(w);
                if self.is_large {
                    w.u32((self.offset >> 32) as u32);
                }
            },
            |_| {},
        );
    }
}

words! {
    /// Words of the response.
    pub struct ReadResponse {
        /// The command that follows.
        andx: AndX,
        /// Bytes left in a pipe; -1 for files.
        available: u16,
        /// Reserved.
        data_compaction_mode: u16,
        /// Reserved.
        reserved1: Reserved<2>,
        /// Lower half of the number of bytes.
        data_length: u16,
        /// Their offset from the header.
        data_offset: u16,
        /// Upper half of the number of bytes.
        data_length_high: u16,
        /// Reserved.
        reserved2: Reserved<8>,
    }
}

/// Offset of the data in this program's responses that are not chained: header, 12 words, their
/// count, the count of bytes and a byte of padding.
pub const READ_DATA_OFFSET: usize = HEADER_LEN + 1 + 24 + 2 + 1;

impl ReadResponse {
    /// Returns the data of a response.
    ///
    /// # Errors
    /// Truncation, data outside the message.
    pub fn data<'a>(block: &Block<'a>) -> Result<&'a [u8]> {
        let words = Self::read(&mut block.words_exactly(12)?)?;
        let length = usize::from(words.data_length_high) << 16 | usize::from(words.data_length);
        block.payload(usize::from(words.data_offset), length)
    }

    /// Appends the block for `length` bytes of data, which the caller appends.
    pub fn encode_head(available: u16, length: usize, w: &mut Writer<'_>) {
        // Word count, 12 words, count of bytes, padding.
        let data_offset = w.position() + 1 + 24 + 2 + 1;
        let words = Self {
            available,
            data_length: length as u16,
            data_offset: data_offset as u16,
            data_length_high: (length >> 16) as u16,
            ..Self::default()
        };
        write_block_with_payload(w, length, |w| words.write(w), |w| w.u8(0));
    }
}

/// Returns the length in bytes of a block that a client reads as a response with data, so that it
/// can receive the data apart: words are complete and the data begins at their end or later.
///
/// # Errors
/// As [`ReadResponse::data`].
pub fn data_place(head: &[u8]) -> Result<(usize, usize)> {
    let mut reader = Reader::at(head, HEADER_LEN + 1, "READ_ANDX Response");
    let words = ReadResponse::read(&mut reader)?;
    let length = usize::from(words.data_length_high) << 16 | usize::from(words.data_length);
    Ok((usize::from(words.data_offset), length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile;

    #[test]
    fn requests_round_trip() {
        let large = ReadRequest {
            fid: 7,
            offset: 5 << 32 | 9,
            count: 0x0001_F000,
            is_large: true,
            ..ReadRequest::default()
        };
        let small = ReadRequest {
            fid: 7,
            offset: 9,
            count: 4096,
            ..ReadRequest::default()
        };
        hostile::check(
            &[large, small],
            |block| ReadRequest::decode(block).ok(),
            |request, w| request.encode(w),
        );
    }

    #[test]
    fn data_of_any_length_is_found() {
        for length in [0, 1, 61_440, 65_535, 65_536, 100_000] {
            let mut bytes = hostile::message(|w| ReadResponse::encode_head(0xFFFF, length, w));
            assert_eq!(bytes.len(), READ_DATA_OFFSET);
            assert_eq!(data_place(&bytes), Ok((READ_DATA_OFFSET, length)));
            bytes.extend(std::iter::repeat_n(3, length));
            let block = Block::first(&bytes).unwrap();
            assert_eq!(ReadResponse::data(&block).unwrap().len(), length);
            if length > 0 {
                bytes.pop();
                let cut = Block::first(&bytes).and_then(|block| ReadResponse::data(&block).map(<[u8]>::len));
                assert!(cut.is_err());
            }
        }
    }

    #[test]
    fn hostile_bytes_never_panic() {
        let mut bytes = hostile::message(|w| ReadResponse::encode_head(0xFFFF, 40, w));
        bytes.extend([1; 40]);
        hostile::attack(&bytes, HEADER_LEN, |bytes| {
            _ = data_place(bytes);
            Block::first(bytes).is_ok_and(|block| ReadResponse::data(&block).is_ok())
        });
    }
}
