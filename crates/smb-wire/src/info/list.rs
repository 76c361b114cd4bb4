//! Lists in one buffer, in which each entry has the distance to the next one.

use super::{FileInfoClass, FileInformation, Information};
use crate::{DecodeError, DecodeErrorKind, Reader, Result, Text, Writer};

/// Iterates over a list whose entries begin with `NextEntryOffset`. Returns the position and a
/// reader of each entry, so that nothing in one entry can reach into the next.
///
/// The iteration only moves forward: an offset must lead past the entry's fixed part, so the
/// buffer's length bounds the number of entries. Offsets of peers need not be aligned. The
/// iteration ends after the first error.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    buffer: &'a [u8],
    /// Start of the next entry; `None` after the last.
    next: Option<usize>,
    /// Length of an entry's fixed part in bytes.
    fixed: usize,
    structure: &'static str,
}

impl<'a> Entries<'a> {
    /// Iterates over entries of at least `fixed` bytes. An empty buffer has none. Errors will name
    /// `structure`.
    pub fn new(buffer: &'a [u8], fixed: usize, structure: &'static str) -> Self {
        assert!(fixed >= 4, "an entry begins with its offset");
        Self {
            buffer,
            next: (!buffer.is_empty()).then_some(0),
            fixed,
            structure,
        }
    }

    /// Returns a reader at the entry's content after `NextEntryOffset`, limited to the entry.
    fn entry(&mut self, at: usize) -> Result<Reader<'a>> {
        let mut reader = Reader::at(self.buffer, at, self.structure);
        let error = reader.error(DecodeErrorKind::NextEntry);
        let offset = usize::try_from(reader.u32()?).unwrap_or(usize::MAX);
        let end = match offset {
            0 => self.buffer.len(),
            _ if offset < self.fixed => return Err(error),
            _ => at.checked_add(offset).ok_or(error)?,
        };
        // The next entry must have at least its own offset.
        let bytes = self.buffer.get(..end).ok_or(error)?;
        if offset != 0 {
            if end == self.buffer.len() {
                return Err(error);
            }
            self.next = Some(end);
        }
        Ok(Reader::at(bytes, at + 4, self.structure))
    }

    /// Ends the iteration after a malformed entry.
    pub(super) fn stop(&mut self) {
        self.next = None;
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Reader<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.next.take()?;
        Some(self.entry(at))
    }
}

/// Writes entries of a list: aligns each and links it to the one before.
#[derive(Debug)]
pub(super) struct ListWriter {
    /// Start of the list and of the last entry, in the writer.
    start: usize,
    last: Option<usize>,
    alignment: usize,
}

impl ListWriter {
    pub(super) fn new(writer: &Writer<'_>, alignment: usize) -> Self {
        Self {
            start: writer.position(),
            last: None,
            alignment,
        }
    }

    /// Returns the distance in bytes from the list's start to the next entry.
    pub(super) fn next_at(&self, writer: &Writer<'_>) -> usize {
        (writer.position() - self.start).next_multiple_of(self.alignment)
    }

    /// Begins an entry: aligns it, links the one before to it, and writes its `NextEntryOffset` of
    /// 0.
    pub(super) fn begin(&mut self, writer: &mut Writer<'_>) {
        let entry = self.start + self.next_at(writer);
        writer.zeros(entry - writer.position());
        if let Some(last) = self.last.replace(entry) {
            writer.patch_u32(last, u32::try_from(entry - last).expect("entries are short"));
        }
        writer.u32(0);
    }
}

/// A stream of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamEntry {
    /// Name as on the wire: `::$DATA` is the content, `:name:$DATA` a named stream.
    pub name: Text,
    /// Length of the content in bytes.
    pub size: u64,
    /// Bytes allocated on the volume.
    pub allocation_size: u64,
}

/// `FileStreamInformation` ([MS-FSCC] 2.4.49): all streams of a file. Directories may have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileStreamInformation {
    /// Streams, in the server's order.
    pub streams: Vec<StreamEntry>,
}

impl Information for FileStreamInformation {
    const NAME: &'static str = "FileStreamInformation";

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let streams = Entries::new(reader.rest(), 24, Self::NAME)
            .map(|entry| {
                let mut entry = entry?;
                let length = usize::try_from(entry.u32()?).unwrap_or(usize::MAX);
                let size = entry.u64()?;
                let allocation_size = entry.u64()?;
                let error = entry.error(DecodeErrorKind::Value);
                let name = Text::from_le_bytes(entry.bytes(length)?).ok_or(error)?;
                Ok(StreamEntry {
                    name,
                    size,
                    allocation_size,
                })
            })
            .collect::<Result<_>>()?;
        Ok(Self { streams })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        let mut list = ListWriter::new(writer, 8);
        for stream in &self.streams {
            list.begin(writer);
            writer.u32(u32::try_from(stream.name.wire_len()).expect("names are short"));
            writer.u64(stream.size);
            writer.u64(stream.allocation_size);
            stream.name.write(writer);
        }
    }
}

impl FileInformation for FileStreamInformation {
    const CLASS: FileInfoClass = FileInfoClass::Stream;
}

/// An extended attribute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FullEa {
    /// Whether programs that do not understand the attribute must not use the file
    /// (`FILE_NEED_EA`).
    pub need_ea: bool,
    /// Name: 1 to 254 bytes of ASCII without NUL ([MS-FSCC] 2.4.16).
    pub name: Vec<u8>,
    /// Value of at most 65,535 bytes. Setting an empty value deletes the attribute.
    pub value: Vec<u8>,
}

/// `FileFullEaInformation` ([MS-FSCC] 2.4.16): extended attributes, to query and to set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileFullEaInformation {
    /// Attributes, in the server's order.
    pub attributes: Vec<FullEa>,
}

/// `FILE_NEED_EA` ([MS-FSCC] 2.4.16).
const NEED_EA: u8 = 0x80;

fn read_ea(mut entry: Reader<'_>) -> Result<FullEa> {
    let flags = entry.u8()?;
    let name_length = usize::from(entry.u8()?);
    let value_length = usize::from(entry.u16()?);
    let error: DecodeError = entry.error(DecodeErrorKind::Value);
    let name = entry.bytes(name_length)?;
    if entry.u8()? != 0 || name.contains(&0) {
        return Err(error);
    }
    // Copied: attributes are small and outlive the message.
    Ok(FullEa {
        need_ea: flags & NEED_EA != 0,
        name: name.to_vec(),
        value: entry.bytes(value_length)?.to_vec(),
    })
}

impl Information for FileFullEaInformation {
    const NAME: &'static str = "FileFullEaInformation";

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let attributes = Entries::new(reader.rest(), 9, Self::NAME)
            .map(|entry| read_ea(entry?))
            .collect::<Result<_>>()?;
        Ok(Self { attributes })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        let mut list = ListWriter::new(writer, 4);
        for attribute in &self.attributes {
            assert!(
                !attribute.name.contains(&0),
                "names of extended attributes hold no NUL"
            );
            list.begin(writer);
            writer.u8(if attribute.need_ea { NEED_EA } else { 0 });
            writer.u8(u8::try_from(attribute.name.len()).expect("at most 255 bytes"));
            writer.u16(u16::try_from(attribute.value.len()).expect("at most 65,535 bytes"));
            writer.bytes(&attribute.name);
            writer.u8(0);
            writer.bytes(&attribute.value);
        }
    }
}

impl FileInformation for FileFullEaInformation {
    const CLASS: FileInfoClass = FileInfoClass::FullEa;
}
