//! TRANS2_FIND_FIRST2 ([MS-CIFS] 2.2.6.2), TRANS2_FIND_NEXT2 (2.2.6.3), and the entries of listings
//! (2.2.8.1, [MS-SMB] 2.2.8.1).

use bitflags::bitflags;
use ropeway_smb_wire::{DecodeErrorKind, FileTime, Reader, Result, Writer};

use super::trans2::Level;
use crate::dos_time::{DosTime, Zone};
use crate::strings::Str;
use crate::words::{Field as _, flag_fields, words};

bitflags! {
    /// `Flags` of both requests.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct FindFlags: u16 {
        /// The search ends after this response.
        const CLOSE_AFTER_REQUEST = 0x0001;
        /// The search ends with its last entry.
        const CLOSE_AT_EOS = 0x0002;
        /// Entries of the old levels begin with a resume key.
        const RETURN_RESUME_KEYS = 0x0004;
        /// The search goes on where it stopped, not at the given name.
        const CONTINUE_FROM_LAST = 0x0008;
        /// The client uses the right to back up.
        const WITH_BACKUP_INTENT = 0x0010;
        const _ = !0;
    }
}

flag_fields!(FindFlags: u16);

/// Levels of listings.
pub mod level {
    use super::Level;

    /// SMB_INFO_STANDARD.
    pub const STANDARD: Level = Level(0x0001);
    /// SMB_INFO_QUERY_EA_SIZE.
    pub const EA_SIZE: Level = Level(0x0002);
    /// SMB_FIND_FILE_DIRECTORY_INFO.
    pub const DIRECTORY: Level = Level(0x0101);
    /// SMB_FIND_FILE_FULL_DIRECTORY_INFO.
    pub const FULL_DIRECTORY: Level = Level(0x0102);
    /// SMB_FIND_FILE_NAMES_INFO.
    pub const NAMES: Level = Level(0x0103);
    /// SMB_FIND_FILE_BOTH_DIRECTORY_INFO.
    pub const BOTH_DIRECTORY: Level = Level(0x0104);
    /// SMB_FIND_FILE_ID_FULL_DIRECTORY_INFO.
    pub const ID_FULL_DIRECTORY: Level = Level(0x0105);
    /// SMB_FIND_FILE_ID_BOTH_DIRECTORY_INFO.
    pub const ID_BOTH_DIRECTORY: Level = Level(0x0106);
}

/// TRANS2_FIND_FIRST2 parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FindFirst {
    /// Attributes of entries that are shown besides ordinary files.
    pub search_attributes: u16,
    /// Maximum number of entries.
    pub count: u16,
    /// How to search.
    pub flags: FindFlags,
    /// Layout of the entries.
    pub level: Level,
    /// Folder and pattern.
    pub pattern: Str,
}

impl FindFirst {
    /// Decodes the parameters.
    ///
    /// # Errors
    /// Truncation.
    pub fn decode(parameters: &[u8], is_unicode: bool) -> Result<Self> {
        let mut reader = Reader::new(parameters, "TRANS2_FIND_FIRST2");
        let search_attributes = reader.u16()?;
        let count = reader.u16()?;
        let flags = FindFlags::from_bits_retain(reader.u16()?);
        let level = Level(reader.u16()?);
        reader.skip(4)?;
        Ok(Self {
            search_attributes,
            count,
            flags,
            level,
            pattern: Str::read_z(&mut reader, is_unicode)?,
        })
    }

    /// Returns the parameters.
    pub fn to_bytes(&self) -> Vec<u8> {
        super::trans2::to_bytes(|w| {
            w.u16(self.search_attributes);
            w.u16(self.count);
            w.u16(self.flags.bits());
            w.u16(self.level.0);
            w.u32(0);
            self.pattern.write_z(w);
        })
    }
}

/// TRANS2_FIND_NEXT2 parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FindNext {
    /// The search.
    pub sid: u16,
    /// Maximum number of entries.
    pub count: u16,
    /// Layout of the entries.
    pub level: Level,
    /// Resume key of the last entry.
    pub resume_key: u32,
    /// How to go on.
    pub flags: FindFlags,
    /// Name of the last entry.
    pub name: Str,
}

impl FindNext {
    /// Decodes the parameters.
    ///
    /// # Errors
    /// Truncation.
    pub fn decode(parameters: &[u8], is_unicode: bool) -> Result<Self> {
        let mut reader = Reader::new(parameters, "TRANS2_FIND_NEXT2");
        Ok(Self {
            sid: reader.u16()?,
            count: reader.u16()?,
            level: Level(reader.u16()?),
            resume_key: reader.u32()?,
            flags: FindFlags::from_bits_retain(reader.u16()?),
            name: Str::read_z(&mut reader, is_unicode)?,
        })
    }

    /// Returns the parameters.
    pub fn to_bytes(&self) -> Vec<u8> {
        super::trans2::to_bytes(|w| {
            w.u16(self.sid);
            w.u16(self.count);
            w.u16(self.level.0);
            w.u32(self.resume_key);
            w.u16(self.flags.bits());
            self.name.write_z(w);
        })
    }
}

words! {
    /// Parameters of the TRANS2_FIND_NEXT2 response; those of TRANS2_FIND_FIRST2 have the SID in
    /// front.
    pub struct FindResponse {
        /// Number of entries.
        count: u16,
        /// 1 after the last entry.
        end_of_search: u16,
        /// Offset of the extended attribute that is wrong.
        ea_error_offset: u16,
        /// Offset of the last entry in the data.
        last_name_offset: u16,
    }
}

/// One entry of a listing. Fields that its level lacks are zero or empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Resume key, or index.
    pub index: u32,
    /// Time of creation.
    pub creation_time: FileTime,
    /// Time of the last access.
    pub last_access_time: FileTime,
    /// Time of the last change of the content.
    pub last_write_time: FileTime,
    /// Time of the last change of content or attributes.
    pub change_time: FileTime,
    /// Length of the content in bytes.
    pub end_of_file: u64,
    /// Allocated bytes.
    pub allocation_size: u64,
    /// Attributes.
    pub attributes: u32,
    /// Bytes of the extended attributes; of a reparse point its tag.
    pub ea_size: u32,
    /// Short name in UTF-16, as bytes.
    pub short_name: Vec<u8>,
    /// Identity of the file on its volume.
    pub file_id: u64,
    /// Name.
    pub name: Str,
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            index: 0,
            creation_time: FileTime::KEEP,
            last_access_time: FileTime::KEEP,
            last_write_time: FileTime::KEEP,
            change_time: FileTime::KEEP,
            end_of_file: 0,
            allocation_size: 0,
            attributes: 0,
            ea_size: 0,
            short_name: Vec::new(),
            file_id: 0,
            name: Str::default(),
        }
    }
}

/// Layout of entries, with what it depends on besides its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The level.
    pub level: Level,
    /// Whether names are UTF-16.
    pub is_unicode: bool,
    /// Whether entries of the old levels begin with a resume key.
    pub has_keys: bool,
    /// The server's zone, for the times of the old levels.
    pub zone: Zone,
}

/// Alignment of entries in bytes ([MS-FSCC] 2.4).
const ALIGNMENT: usize = 8;

impl Layout {
    /// Returns whether this is a level that entries can have.
    pub fn is_known(&self) -> bool {
        matches!(self.level.0, 1 | 2 | 0x0101..=0x0106)
    }

    fn is_old(&self) -> bool {
        self.level.0 < 0x0100
    }

    /// Decodes at most `count` entries. An entry that is malformed ends the list with an error.
    ///
    /// # Errors
    /// Truncation, entries that do not lead forward.
    pub fn decode(&self, data: &[u8], count: usize) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        let mut at = 0;
        while entries.len() < count {
            let mut reader = Reader::at(data, at, "SMB_FIND");
            if self.is_old() {
                entries.push(self.read_old(&mut reader)?);
                at = reader.position();
                continue;
            }
            let next = usize::try_from(reader.u32()?).unwrap_or(usize::MAX);
            entries.push(self.read(&mut reader)?);
            if next == 0 {
                break;
            }
            let end = reader.position();
            at = at.saturating_add(next);
            if at < end {
                return Err(reader.error(DecodeErrorKind::NextEntry));
            }
        }
        Ok(entries)
    }

    fn read_old(&self, reader: &mut Reader<'_>) -> Result<Entry> {
        let index = if self.has_keys { reader.u32()? } else { 0 };
        let mut time = || DosTime::read(reader).map(|time| time.to_file_time(self.zone));
        let (creation_time, last_access_time, last_write_time) = (time()?, time()?, time()?);
        let end_of_file = u64::from(reader.u32()?);
        let allocation_size = u64::from(reader.u32()?);
        let attributes = u32::from(reader.u16()?);
        let ea_size = match self.level {
            level::EA_SIZE => reader.u32()?,
            _ => 0,
        };
        let length = usize::from(reader.u8()?);
        let name = Str::read(reader, self.is_unicode, length)?;
        // Its zero, which the length does not cover.
        let zero = if self.is_unicode { 2 } else { 1 };
        reader.skip(zero.min(reader.remaining()))?;
        Ok(Entry {
            index,
            creation_time,
            last_access_time,
            last_write_time,
            end_of_file,
            allocation_size,
            attributes,
            ea_size,
            name,
            ..Entry::default()
        })
    }

    /// Reads an entry after `NextEntryOffset`.
    fn read(&self, reader: &mut Reader<'_>) -> Result<Entry> {
        let mut entry = Entry {
            index: reader.u32()?,
            ..Entry::default()
        };
        if self.level != level::NAMES {
            entry.creation_time = FileTime::read(reader)?;
            entry.last_access_time = FileTime::read(reader)?;
            entry.last_write_time = FileTime::read(reader)?;
            entry.change_time = FileTime::read(reader)?;
            entry.end_of_file = reader.u64()?;
            entry.allocation_size = reader.u64()?;
            entry.attributes = reader.u32()?;
        }
        let length = usize::try_from(reader.u32()?).unwrap_or(usize::MAX);
        if !matches!(self.level, level::NAMES | level::DIRECTORY) {
            entry.ea_size = reader.u32()?;
        }
        if self.has_short_name() {
            let length = usize::from(reader.u8()?).min(24);
            reader.skip(1)?;
            entry.short_name = reader.bytes(24)?[..length].to_vec();
        }
        match self.level {
            level::ID_BOTH_DIRECTORY => {
                reader.skip(2)?;
                entry.file_id = reader.u64()?;
            }
            level::ID_FULL_DIRECTORY => {
                reader.skip(4)?;
                entry.file_id = reader.u64()?;
            }
            _ => {}
        }
        // Here names are not aligned: every layout ends at an even offset.
        let bytes = reader.bytes(length)?;
        entry.name = trimmed(bytes, self.is_unicode);
        Ok(entry)
    }

    fn has_short_name(&self) -> bool {
        matches!(self.level, level::BOTH_DIRECTORY | level::ID_BOTH_DIRECTORY)
    }

    /// Appends an entry to `out` if the whole then has at most `max` bytes. `last` is the offset of
    /// the entry before it, which then leads to this one. Returns the offset of the entry.
    pub fn push(&self, entry: &Entry, out: &mut Vec<u8>, last: Option<usize>, max: usize) -> Option<usize> {
        let before = out.len();
        if !self.is_old() {
            out.resize(before.next_multiple_of(ALIGNMENT), 0);
        }
        let start = out.len();
        let mut w = Writer::within(out, 0);
        match self.is_old() {
            true => self.write_old(entry, &mut w),
            false => self.write(entry, &mut w),
        }
        if out.len() > max {
            out.truncate(before);
            return None;
        }
        if let Some(last) = last.filter(|_| !self.is_old()) {
            let next = (start - last) as u32;
            out[last..last + 4].copy_from_slice(&next.to_le_bytes());
        }
        Some(start)
    }

    fn write_old(&self, entry: &Entry, w: &mut Writer<'_>) {
        if self.has_keys {
            w.u32(entry.index);
        }
        for time in [entry.creation_time, entry.last_access_time, entry.last_write_time] {
            DosTime::of(time, self.zone).write(w);
        }
        w.u32(entry.end_of_file as u32);
        w.u32(entry.allocation_size as u32);
        w.u16(entry.attributes as u16);
        if self.level == level::EA_SIZE {
            w.u32(entry.ea_size);
        }
        // The length has 8 bits. No name that these levels can hold is longer.
        let most = if self.is_unicode { 254 } else { 255 };
        let bytes = entry.name.as_bytes();
        let name = trimmed(&bytes[..bytes.len().min(most)], self.is_unicode);
        w.u8(name.as_bytes().len() as u8);
        name.write_z(w);
    }

    fn write(&self, entry: &Entry, w: &mut Writer<'_>) {
        w.u32(0);
        w.u32(entry.index);
        if self.level != level::NAMES {
            for time in [
                entry.creation_time,
                entry.last_access_time,
                entry.last_write_time,
                entry.change_time,
            ] {
                time.write(w);
            }
            w.u64(entry.end_of_file);
            w.u64(entry.allocation_size);
            w.u32(entry.attributes);
        }
        w.u32(entry.name.as_bytes().len() as u32);
        if !matches!(self.level, level::NAMES | level::DIRECTORY) {
            w.u32(entry.ea_size);
        }
        if self.has_short_name() {
            let length = entry.short_name.len().min(24);
            w.u8(length as u8);
            w.u8(0);
            w.bytes(&entry.short_name[..length]);
            w.zeros(24 - length);
        }
        match self.level {
            level::ID_BOTH_DIRECTORY => {
                w.zeros(2);
                w.u64(entry.file_id);
            }
            level::ID_FULL_DIRECTORY => {
                w.zeros(4);
                w.u64(entry.file_id);
            }
            _ => {}
        }
        w.bytes(entry.name.as_bytes());
    }
}

/// Returns a name without a zero at its end, which some servers count.
fn trimmed(bytes: &[u8], is_unicode: bool) -> Str {
    let string = match is_unicode {
        true => Str::read(&mut Reader::new(bytes, "name"), true, bytes.len() & !1),
        false => Ok(Str::oem(bytes)),
    };
    let string = string.unwrap_or_default();
    let bytes = string.as_bytes();
    let shorter = match is_unicode {
        true => bytes
            .strip_suffix(&[0, 0])
            .filter(|rest| rest.len().is_multiple_of(2)),
        false => bytes.strip_suffix(&[0]),
    };
    match shorter {
        Some(rest) if is_unicode => {
            Str::read(&mut Reader::new(rest, "name"), true, rest.len()).unwrap_or_default()
        }
        Some(rest) => Str::oem(rest),
        None => string,
    }
}

#[cfg(test)]
#[path = "find_tests.rs"]
mod tests;
