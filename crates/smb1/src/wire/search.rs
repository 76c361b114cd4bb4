//! SEARCH, FIND, FIND_UNIQUE and FIND_CLOSE ([MS-CIFS] 2.2.4.58 to 2.2.4.61): listings with short
//! names, for clients of DOS.

use ropeway_smb_wire::{Result, Writer};

use crate::dos_time::DosTime;
use crate::message::{Block, write_block};
use crate::strings::Str;
use crate::words::{Field as _, words};

/// `BufferFormat` of a variable block ([MS-CIFS] 2.2.2.5).
const VARIABLE: u8 = 0x05;

/// Length of a resume key in bytes (SMB_Resume_Key).
pub const RESUME_KEY_LEN: usize = 21;

/// Length of an entry in bytes.
pub const ENTRY_LEN: usize = RESUME_KEY_LEN + 22;

/// Where a search goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResumeKey {
    /// The server's part.
    pub server: [u8; 17],
    /// The client's part, which the server repeats.
    pub client: [u8; 4],
}

/// SEARCH, FIND, FIND_UNIQUE or FIND_CLOSE request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchRequest {
    /// Entries wanted.
    pub max_count: u16,
    /// Attributes of entries that are shown besides ordinary files.
    pub search_attributes: u16,
    /// Folder and pattern.
    pub path: Str,
    /// Where to go on; `None` for a new search.
    pub resume_key: Option<ResumeKey>,
}

words! {
    struct RequestWords {
        max_count: u16,
        search_attributes: u16,
    }
}

impl SearchRequest {
    /// Decodes the block.
    ///
    /// # Errors
    /// Truncation, another number of words than 2.
    pub fn decode(block: &Block<'_>, is_unicode: bool) -> Result<Self> {
        let words = RequestWords::read(&mut block.words_exactly(2)?)?;
        let mut bytes = block.bytes();
        let path = Str::read_formatted(&mut bytes, is_unicode)?;
        bytes.skip(1)?;
        let resume_key = match usize::from(bytes.u16()?) {
            0 => None,
            _ => Some(ResumeKey::read(&mut bytes)?),
        };
        Ok(Self {
            max_count: words.max_count,
            search_attributes: words.search_attributes,
            path,
            resume_key,
        })
    }

    /// Appends the block.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let words = RequestWords {
            max_count: self.max_count,
            search_attributes: self.search_attributes,
        };
        write_block(
            w,
            |w| words.write(w),
            |w| {
                self.path.write_formatted(w);
                w.u8(VARIABLE);
                match &self.resume_key {
                    None => w.u16(0),
                    Some(key) => {
                        w.u16(RESUME_KEY_LEN as u16);
                        key.write(w);
                    }
                }
            },
        );
    }
}

impl ResumeKey {
    fn read(reader: &mut ropeway_smb_wire::Reader<'_>) -> Result<Self> {
        Ok(Self {
            server: reader.array()?,
            client: reader.array()?,
        })
    }

    fn write(&self, w: &mut Writer<'_>) {
        w.bytes(&self.server);
        w.bytes(&self.client);
    }
}

/// One entry (SMB_Directory_Information).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchEntry {
    /// Where the search goes on after it.
    pub resume_key: ResumeKey,
    /// Attributes.
    pub file_attributes: u8,
    /// Time of the last write; in the entry the time precedes the date.
    pub last_write: DosTime,
    /// Length of the content; of longer files the lower 32 bits.
    pub file_size: u32,
    /// Short name with its zero, padded with spaces.
    pub name: [u8; 13],
}

impl SearchEntry {
    fn read(reader: &mut ropeway_smb_wire::Reader<'_>) -> Result<Self> {
        let resume_key = ResumeKey::read(reader)?;
        let file_attributes = reader.u8()?;
        let time = u16::read(reader)?;
        Ok(Self {
            resume_key,
            file_attributes,
            last_write: DosTime {
                date: u16::read(reader)?,
                time,
            },
            file_size: reader.u32()?,
            name: reader.array()?,
        })
    }

    fn write(&self, w: &mut Writer<'_>) {
        self.resume_key.write(w);
        w.u8(self.file_attributes);
        w.u16(self.last_write.time);
        w.u16(self.last_write.date);
        w.u32(self.file_size);
        w.bytes(&self.name);
    }
}

/// SEARCH, FIND, FIND_UNIQUE or FIND_CLOSE response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchResponse {
    /// The entries.
    pub entries: Vec<SearchEntry>,
}

impl SearchResponse {
    /// Decodes the block.
    ///
    /// # Errors
    /// Truncation.
    pub fn decode(block: &Block<'_>) -> Result<Self> {
        let count = block.words_exactly(1)?.u16()?;
        let mut bytes = block.bytes();
        bytes.skip(3)?;
        let mut entries = Vec::new();
        for _ in 0..count {
            entries.push(SearchEntry::read(&mut bytes)?);
        }
        Ok(Self { entries })
    }

    /// Appends the block.
    ///
    /// # Panics
    /// If there are more entries than 65,535 bytes hold.
    pub fn encode(&self, w: &mut Writer<'_>) {
        write_block(
            w,
            |w| w.u16(self.entries.len() as u16),
            |w| {
                w.u8(VARIABLE);
                w.u16((self.entries.len() * ENTRY_LEN) as u16);
                for entry in &self.entries {
                    entry.write(w);
                }
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile;

    #[test]
    fn requests_and_responses_round_trip() {
        let new = SearchRequest {
            max_count: 9,
            search_attributes: 0x16,
            path: Str::oem(b"\\DIR\\????????.???"),
            resume_key: None,
        };
        let key = ResumeKey {
            server: [1; 17],
            client: [2; 4],
        };
        let next = SearchRequest {
            path: Str::oem(b""),
            resume_key: Some(key),
            ..new.clone()
        };
        hostile::check(
            &[new, next],
            |block| SearchRequest::decode(block, false).ok(),
            |request, w| request.encode(w),
        );
        let entry = SearchEntry {
            resume_key: key,
            file_size: 5,
            last_write: DosTime { date: 3, time: 4 },
            ..SearchEntry::default()
        };
        let bytes = hostile::structure(|w| entry.write(w));
        assert_eq!(bytes.len(), ENTRY_LEN);
        hostile::check(
            &[
                SearchResponse {
                    entries: vec![entry; 3],
                },
                SearchResponse::default(),
            ],
            |block| SearchResponse::decode(block).ok(),
            |response, w| response.encode(w),
        );
    }
}
