//! Files in the core commands: OPEN ([MS-CIFS] 2.2.4.3), CREATE and CREATE_NEW (2.2.4.4, 2.2.4.16),
//! CREATE_TEMPORARY (2.2.4.15), READ and LOCK_AND_READ (2.2.4.11, 2.2.4.20), WRITE and
//! WRITE_AND_UNLOCK (2.2.4.12, 2.2.4.21), WRITE_AND_CLOSE (2.2.4.40), SEEK (2.2.4.19).
//!
//! Our client does not send them; old clients do.

use ropeway_smb_wire::{DecodeErrorKind, Result, Writer};

use super::open::AccessMode;
use crate::message::{Block, write_block};
use crate::strings::Str;
use crate::words::words;

/// `BufferFormat` of data ([MS-CIFS] 2.2.2.5).
const DATA: u8 = 0x01;

words! {
    /// Words of the OPEN request.
    pub struct OldOpenWords {
        /// Access and sharing.
        access_mode: AccessMode,
        /// Attributes of files that may be opened.
        search_attributes: u16,
    }
}

/// OPEN request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldOpenRequest {
    /// The words.
    pub words: OldOpenWords,
    /// The path in the share.
    pub path: Str,
}

impl OldOpenRequest {
    /// Decodes the block.
    ///
    /// # Errors
    /// Truncation, another number of words than 2.
    pub fn decode(block: &Block<'_>, is_unicode: bool) -> Result<Self> {
        Ok(Self {
            words: OldOpenWords::read(&mut block.words_exactly(2)?)?,
            path: Str::read_formatted(&mut block.bytes(), is_unicode)?,
        })
    }

    /// Appends the block.
    pub fn encode(&self, w: &mut Writer<'_>) {
        write_block(w, |w| self.words.write(w), |w| self.path.write_formatted(w));
    }
}

words! {
    /// OPEN response.
    pub struct OldOpenResponse {
        /// The open file.
        fid: u16,
        /// Attributes.
        file_attributes: u16,
        /// Time of the last write, in seconds since 1970.
        last_write_time: u32,
        /// Length of the content; of longer files the lower 32 bits.
        file_size: u32,
        /// Granted access and sharing.
        access_mode: AccessMode,
    }
}

words! {
    /// Words of the CREATE, CREATE_NEW and CREATE_TEMPORARY requests.
    pub struct OldCreateWords {
        /// Attributes of the new file.
        file_attributes: u16,
        /// Its creation time, in seconds since 1970.
        creation_time: u32,
    }
}

/// CREATE, CREATE_NEW or CREATE_TEMPORARY request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldCreateRequest {
    /// The words.
    pub words: OldCreateWords,
    /// The path of the file, or of the folder for a temporary one.
    pub path: Str,
}

impl OldCreateRequest {
    /// Decodes the block.
    ///
    /// # Errors
    /// Truncation, another number of words than 3.
    pub fn decode(block: &Block<'_>, is_unicode: bool) -> Result<Self> {
        Ok(Self {
            words: OldCreateWords::read(&mut block.words_exactly(3)?)?,
            path: Str::read_formatted(&mut block.bytes(), is_unicode)?,
        })
    }

    /// Appends the block.
    pub fn encode(&self, w: &mut Writer<'_>) {
        write_block(w, |w| self.words.write(w), |w| self.path.write_formatted(w));
    }
}

words! {
    /// READ, LOCK_AND_READ, WRITE and WRITE_AND_UNLOCK requests.
    pub struct OldIoWords {
        /// The open file.
        fid: u16,
        /// Bytes.
        count: u16,
        /// First byte in the file.
        offset: u32,
        /// Estimate of what follows; unused.
        remaining: u16,
    }
}

impl OldIoWords {
    /// Decodes the block of a READ.
    ///
    /// # Errors
    /// Truncation, another number of words than 5.
    pub fn decode(block: &Block<'_>) -> Result<Self> {
        Self::read(&mut block.words_exactly(5)?)
    }

    /// Decodes the block of a WRITE. Returns the words and the data.
    ///
    /// # Errors
    /// Truncation, another number of words than 5.
    pub fn decode_write<'a>(block: &Block<'a>) -> Result<(Self, &'a [u8])> {
        let words = Self::decode(block)?;
        let mut bytes = block.bytes();
        if words.count == 0 && bytes.remaining() < 3 {
            return Ok((words, &[]));
        }
        // Format and length; the count of the words says what counts.
        bytes.skip(3)?;
        Ok((words, bytes.bytes(usize::from(words.count))?))
    }

    /// Appends the block of a READ.
    pub fn encode(&self, w: &mut Writer<'_>) {
        write_block(w, |w| self.write(w), |_| {});
    }

    /// Appends the block of a WRITE.
    pub fn encode_write(&self, data: &[u8], w: &mut Writer<'_>) {
        write_block(w, |w| self.write(w), |w| write_data(data, w));
    }
}

fn write_data(data: &[u8], w: &mut Writer<'_>) {
    w.u8(DATA);
    w.u16(data.len() as u16);
    w.bytes(data);
}

/// Appends the block of a READ or LOCK_AND_READ response.
pub fn encode_read_response(data: &[u8], w: &mut Writer<'_>) {
    write_block(
        w,
        |w| {
            w.u16(data.len() as u16);
            w.zeros(8);
        },
        |w| write_data(data, w),
    );
}

words! {
    /// Words of the WRITE_AND_CLOSE request.
    pub struct WriteAndCloseWords {
        /// The open file.
        fid: u16,
        /// Bytes.
        count: u16,
        /// First byte in the file.
        offset: u32,
        /// Time of the last write to set, in seconds since 1970.
        last_write_time: u32,
    }
}

impl WriteAndCloseWords {
    /// Decodes the block. Returns the words and the data.
    ///
    /// # Errors
    /// Truncation, another number of words than 6 or 12.
    pub fn decode<'a>(block: &Block<'a>) -> Result<(Self, &'a [u8])> {
        let mut reader = block.words();
        if !matches!(block.word_count(), 6 | 12) {
            return Err(reader.error(DecodeErrorKind::Signature));
        }
        let words = Self::read(&mut reader)?;
        let mut bytes = block.bytes();
        bytes.skip(1)?;
        Ok((words, bytes.bytes(usize::from(words.count))?))
    }
}

words! {
    /// SEEK request.
    pub struct SeekRequest {
        /// The open file.
        fid: u16,
        /// From the beginning 0, the position 1, the end 2.
        mode: u16,
        /// Distance.
        offset: i32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile;

    #[test]
    fn requests_round_trip() {
        let open = OldOpenRequest {
            words: OldOpenWords {
                access_mode: AccessMode(0x42),
                search_attributes: 6,
            },
            path: Str::oem(b"\\A.TXT"),
        };
        hostile::check(
            &[open],
            |block| OldOpenRequest::decode(block, false).ok(),
            |request, w| request.encode(w),
        );
        let create = OldCreateRequest {
            words: OldCreateWords {
                file_attributes: 1,
                creation_time: 2,
            },
            path: Str::oem(b"\\A.TXT"),
        };
        hostile::check(
            &[create],
            |block| OldCreateRequest::decode(block, false).ok(),
            |request, w| request.encode(w),
        );
        let io = OldIoWords {
            fid: 1,
            count: 5,
            offset: 6,
            remaining: 0,
        };
        hostile::check(
            &[io],
            |block| OldIoWords::decode(block).ok(),
            |io, w| io.encode(w),
        );
        hostile::check(
            &[(io, b"hello".to_vec())],
            |block| {
                let (words, data) = OldIoWords::decode_write(block).ok()?;
                Some((words, data.to_vec()))
            },
            |(io, data), w| io.encode_write(data, w),
        );
    }

    #[test]
    fn write_and_close_has_a_byte_of_padding() {
        for padding in [0, 12] {
            let bytes = hostile::message(|w| {
                let words = WriteAndCloseWords {
                    fid: 3,
                    count: 2,
                    ..WriteAndCloseWords::default()
                };
                write_block(
                    w,
                    |w| {
                        words.write(w);
                        w.zeros(padding);
                    },
                    |w| w.bytes(b"\0hi"),
                );
            });
            let block = Block::first(&bytes).unwrap();
            let (words, data) = WriteAndCloseWords::decode(&block).unwrap();
            assert_eq!((words.fid, data), (3, &b"hi"[..]));
        }
        let bytes = hostile::message(|w| encode_read_response(b"data", w));
        assert_eq!(&bytes[32 + 1 + 10 + 2..], b"\x01\x04\0data");
    }
}
