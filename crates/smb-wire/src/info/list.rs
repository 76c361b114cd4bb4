//! Lists in one buffer: each entry says how far away the next one is.

use super::{FileInfoClass, FileInformation, Information};
use crate::{Fault, Malformed, Reader, Result, Text, Writer};

/// Walks a list whose entries begin with `NextEntryOffset`: gives the place and the bytes of each, so that nothing of
/// one entry can reach into the next.
///
/// Forward only: an offset must pass the entry's fixed part, so the buffer's length bounds the number of entries. That
/// offsets are aligned is not asked of peers. Ends after the first fault.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    buffer: &'a [u8],
    /// Where the next entry begins; `None` after the last.
    next: Option<usize>,
    /// Bytes of an entry's fixed part.
    fixed: usize,
    structure: &'static str,
}

impl<'a> Entries<'a> {
    /// Entries of at least `fixed` bytes; an empty buffer has none. Faults will name `structure`.
    pub fn new(buffer: &'a [u8], fixed: usize, structure: &'static str) -> Self {
        assert!(fixed >= 4, "an entry begins with its offset");
        Self {
            buffer,
            next: (!buffer.is_empty()).then_some(0),
            fixed,
            structure,
        }
    }

    /// A reader over the buffer up to the entry's end, past `NextEntryOffset`.
    fn entry(&mut self, at: usize) -> Result<Reader<'a>> {
        let mut reader = Reader::at(self.buffer, at, self.structure);
        let chain = reader.fault(Fault::Chain);
        let offset = usize::try_from(reader.u32()?).unwrap_or(usize::MAX);
        let end = match offset {
            0 => self.buffer.len(),
            _ if offset < self.fixed => return Err(chain),
            _ => at.checked_add(offset).ok_or(chain)?,
        };
        // What follows must be there: at least its own offset.
        let bytes = self.buffer.get(..end).ok_or(chain)?;
        if offset != 0 {
            if end == self.buffer.len() {
                return Err(chain);
            }
            self.next = Some(end);
        }
        Ok(Reader::at(bytes, at + 4, self.structure))
    }

    /// Gives no more entries: one was not what it should be.
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

/// Appends entries of a list, each aligned, and links them.
#[derive(Debug)]
pub(super) struct Chain {
    /// The list's and the last entry's start in the writer.
    start: usize,
    last: Option<usize>,
    alignment: usize,
}

impl Chain {
    pub(super) fn new(writer: &Writer<'_>, alignment: usize) -> Self {
        Self {
            start: writer.position(),
            last: None,
            alignment,
        }
    }

    /// Bytes since the list's start that the next entry begins at.
    pub(super) fn next_at(&self, writer: &Writer<'_>) -> usize {
        (writer.position() - self.start).next_multiple_of(self.alignment)
    }

    /// Aligns, links the entry before, and writes the new entry's `NextEntryOffset` of 0.
    pub(super) fn begin(&mut self, writer: &mut Writer<'_>) {
        let entry = self.start + self.next_at(writer);
        writer.zeros(entry - writer.position());
        if let Some(last) = self.last.replace(entry) {
            writer.patch_u32(last, u32::try_from(entry - last).expect("entries are short"));
        }
        writer.u32(0);
    }
}

/// One stream of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamEntry {
    /// As the wire has it: `::$DATA` is the content, `:name:$DATA` a named stream.
    pub name: Text,
    /// Bytes of content.
    pub size: u64,
    /// Bytes allocated on the volume.
    pub allocation_size: u64,
}

/// `FileStreamInformation` ([MS-FSCC] 2.4.49): all streams of a file. Directories may have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileStreamInformation {
    /// In the server's order.
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
                let fault = entry.fault(Fault::Value);
                let name = Text::from_le_bytes(entry.bytes(length)?).ok_or(fault)?;
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
        let mut chain = Chain::new(writer, 8);
        for stream in &self.streams {
            chain.begin(writer);
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

/// One extended attribute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FullEa {
    /// Whether the file is of no use to who does not understand this attribute (`FILE_NEED_EA`).
    pub need_ea: bool,
    /// The name: 1 to 254 bytes of ASCII without NUL ([MS-FSCC] 2.4.16).
    pub name: Vec<u8>,
    /// The value, at most 65,535 bytes; to set an empty one deletes the attribute.
    pub value: Vec<u8>,
}

/// `FileFullEaInformation` ([MS-FSCC] 2.4.16): extended attributes, to ask and to set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileFullEaInformation {
    /// In the server's order.
    pub attributes: Vec<FullEa>,
}

/// `FILE_NEED_EA` ([MS-FSCC] 2.4.16).
const NEED_EA: u8 = 0x80;

fn read_ea(mut entry: Reader<'_>) -> Result<FullEa> {
    let flags = entry.u8()?;
    let name_length = usize::from(entry.u8()?);
    let value_length = usize::from(entry.u16()?);
    let fault: Malformed = entry.fault(Fault::Value);
    let name = entry.bytes(name_length)?;
    if entry.u8()? != 0 || name.contains(&0) {
        return Err(fault);
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
        let mut chain = Chain::new(writer, 4);
        for attribute in &self.attributes {
            assert!(
                !attribute.name.contains(&0),
                "names of extended attributes hold no NUL"
            );
            chain.begin(writer);
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
