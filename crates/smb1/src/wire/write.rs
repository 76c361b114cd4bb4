//! WRITE_ANDX ([MS-CIFS] 2.2.4.43, [MS-SMB] 2.2.4.3).

use bitflags::bitflags;
use ropeway_smb_wire::{Result, Writer};

use crate::message::{AndX, Block, write_block, write_block_with_payload};
use crate::words::{Reserved, flag_fields, words};

bitflags! {
    /// `WriteMode`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct WriteMode: u16 {
        /// To the disk before the response.
        const WRITE_THROUGH = 0x0001;
        /// `Available` of the response is wanted (pipes).
        const READ_BYTES_AVAILABLE = 0x0002;
        /// A message to a pipe begins with its length.
        const RAW_PIPE = 0x0004;
        /// The first part of a message to a pipe.
        const MESSAGE_START = 0x0008;
        const _ = !0;
    }
}

flag_fields!(WriteMode: u16);

words! {
    /// The 12 words that every request has.
    struct RequestWords {
        andx: AndX,
        fid: u16,
        offset_low: u32,
        timeout: u32,
        mode: WriteMode,
        remaining: u16,
        data_length_high: u16,
        data_length: u16,
        data_offset: u16,
    }
}

/// WRITE_ANDX request, without its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteRequest {
    /// The command that follows.
    pub andx: AndX,
    /// The open file.
    pub fid: u16,
    /// First byte in the file.
    pub offset: u64,
    /// How to write.
    pub mode: WriteMode,
    /// Bytes of data.
    pub length: usize,
    /// Whether the offset has 64 bits on the wire.
    pub is_large: bool,
}

impl WriteRequest {
    /// Decodes the block. Returns the request and the data.
    ///
    /// # Errors
    /// Truncation, another number of words than 12 or 14, data outside the message.
    pub fn decode<'a>(block: &Block<'a>) -> Result<(Self, &'a [u8])> {
        let is_large = block.word_count() != 12;
        let mut reader = match is_large {
            true => block.words_exactly(14)?,
            false => block.words(),
        };
        let words = RequestWords::read(&mut reader)?;
        let high = match is_large {
            true => reader.u32()?,
            false => 0,
        };
        let length = usize::from(words.data_length_high) << 16 | usize::from(words.data_length);
        let data = block.payload(usize::from(words.data_offset), length)?;
        let request = Self {
            andx: words.andx,
            fid: words.fid,
            offset: u64::from(high) << 32 | u64::from(words.offset_low),
            mode: words.mode,
            length,
            is_large,
        };
        Ok((request, data))
    }

    /// Appends the block up to the data, which the caller appends. The data is aligned to four
    /// bytes. Without [`Self::is_large`] the upper half of the offset is dropped.
    pub fn encode_head(&self, w: &mut Writer<'_>) {
        let words_len = if self.is_large { 28 } else { 24 };
        let start = w.position() + 1 + words_len + 2;
        let data_offset = (start + 1).next_multiple_of(4);
        let words = RequestWords {
            andx: self.andx,
            fid: self.fid,
            offset_low: self.offset as u32,
            timeout: 0,
            mode: self.mode,
            remaining: 0,
            data_length_high: (self.length >> 16) as u16,
            data_length: self.length as u16,
            data_offset: data_offset as u16,
        };
        write_block_with_payload(
            w,
            self.length,
            |w| {
                words.write(w);
                if self.is_large {
                    w.u32((self.offset >> 32) as u32);
                }
            },
            |w| w.zeros(data_offset - start),
        );
    }
}

words! {
    /// Words of the response.
    struct ResponseWords {
        andx: AndX,
        count: u16,
        available: u16,
        count_high: u16,
        reserved: Reserved<2>,
    }
}

/// WRITE_ANDX response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteResponse {
    /// The command that follows.
    pub andx: AndX,
    /// Bytes written.
    pub count: u32,
    /// Bytes to read in a pipe; -1 for files.
    pub available: u16,
}

impl WriteResponse {
    /// Decodes the block.
    ///
    /// # Errors
    /// Truncation.
    pub fn decode(block: &Block<'_>) -> Result<Self> {
        let words = ResponseWords::read(&mut block.words())?;
        Ok(Self {
            andx: words.andx,
            count: u32::from(words.count_high) << 16 | u32::from(words.count),
            available: words.available,
        })
    }

    /// Appends the block.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let words = ResponseWords {
            andx: self.andx,
            count: self.count as u16,
            available: self.available,
            count_high: (self.count >> 16) as u16,
            reserved: Reserved,
        };
        write_block(w, |w| words.write(w), |_| {});
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::HEADER_LEN;
    use crate::hostile;

    #[test]
    fn requests_round_trip_with_data_of_any_length() {
        for (length, is_large) in [
            (0, true),
            (1, false),
            (61_440, true),
            (65_536, true),
            (130_000, true),
        ] {
            let request = WriteRequest {
                fid: 9,
                offset: if is_large { 6 << 32 | 1 } else { 1 },
                mode: WriteMode::WRITE_THROUGH,
                length,
                is_large,
                ..WriteRequest::default()
            };
            let mut bytes = hostile::message(|w| request.encode_head(w));
            assert!(bytes.len().is_multiple_of(4));
            bytes.extend(std::iter::repeat_n(5, length));
            let block = Block::first(&bytes).unwrap();
            let (decoded, data) = WriteRequest::decode(&block).unwrap();
            assert_eq!((decoded, data.len()), (request, length));
        }
    }

    #[test]
    fn responses_round_trip() {
        let response = WriteResponse {
            count: 130_000,
            available: 0xFFFF,
            ..WriteResponse::default()
        };
        hostile::check(
            &[response],
            |block| WriteResponse::decode(block).ok(),
            |response, w| response.encode(w),
        );
    }

    #[test]
    fn hostile_bytes_never_panic() {
        let request = WriteRequest {
            length: 30,
            is_large: true,
            ..WriteRequest::default()
        };
        let mut bytes = hostile::message(|w| request.encode_head(w));
        bytes.extend([1; 30]);
        hostile::attack(&bytes, HEADER_LEN, |bytes| {
            Block::first(bytes).is_ok_and(|block| WriteRequest::decode(&block).is_ok())
        });
    }
}
