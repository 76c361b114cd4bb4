//! SMB2 CHANGE_NOTIFY: reports changes in a directory ([MS-SMB2] 2.2.35, 2.2.36; [MS-FSCC] 2.7.1).

use super::body::{decode_output, encode_output};
use super::codes::codes;
use super::lengths::{len_u32, named, place};
use super::{Fault, FileId, Reader, Result, Text, Writer};
use bitflags::bitflags;

bitflags! {
    /// `Flags` of CHANGE_NOTIFY ([MS-SMB2] 2.2.35).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct ChangeNotifyFlags: u16 {
        /// Watches everything below the directory, not only its own entries.
        const WATCH_TREE = 0x0001;
        const _ = !0;
    }
}

bitflags! {
    /// `CompletionFilter`: the changes to report ([MS-SMB2] 2.2.35).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct CompletionFilter: u32 {
        /// A file is created, deleted or renamed.
        const FILE_NAME = 0x0000_0001;
        /// A directory is created, deleted or renamed.
        const DIR_NAME = 0x0000_0002;
        /// Attributes change.
        const ATTRIBUTES = 0x0000_0004;
        /// A length changes.
        const SIZE = 0x0000_0008;
        /// The time of the last write changes.
        const LAST_WRITE = 0x0000_0010;
        /// The time of the last access changes.
        const LAST_ACCESS = 0x0000_0020;
        /// The time of creation changes.
        const CREATION = 0x0000_0040;
        /// Extended attributes change.
        const EA = 0x0000_0080;
        /// The security descriptor changes.
        const SECURITY = 0x0000_0100;
        /// A named stream is created, deleted or renamed.
        const STREAM_NAME = 0x0000_0200;
        /// The length of a named stream changes.
        const STREAM_SIZE = 0x0000_0400;
        /// A named stream is written.
        const STREAM_WRITE = 0x0000_0800;
        const _ = !0;
    }
}

/// SMB2 CHANGE_NOTIFY Request ([MS-SMB2] 2.2.35). The server responds once, after the first change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeNotifyRequest {
    /// Depth of the watch.
    pub flags: ChangeNotifyFlags,
    /// Most bytes of changes that the response may carry.
    pub output_buffer_length: u32,
    /// The open directory.
    pub file_id: FileId,
    /// Changes to report.
    pub completion_filter: CompletionFilter,
}

impl ChangeNotifyRequest {
    /// Reads the body.
    ///
    /// # Errors
    /// A wrong `StructureSize`, truncation.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let mut reader = named(reader, "SMB2 CHANGE_NOTIFY Request");
        reader.structure_size(32)?;
        let flags = ChangeNotifyFlags::from_bits_retain(reader.u16()?);
        let output_buffer_length = reader.u32()?;
        let file_id = FileId::decode(&mut reader)?;
        let completion_filter = CompletionFilter::from_bits_retain(reader.u32()?);
        reader.skip(4)?;
        Ok(Self {
            flags,
            output_buffer_length,
            file_id,
            completion_filter,
        })
    }

    /// Appends the body.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(32);
        w.u16(self.flags.bits());
        w.u32(self.output_buffer_length);
        self.file_id.encode(w);
        w.u32(self.completion_filter.bits());
        w.zeros(4);
    }
}

/// SMB2 CHANGE_NOTIFY Response ([MS-SMB2] 2.2.36). Empty with STATUS_NOTIFY_ENUM_DIR if there were
/// too many changes; the client must list the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeNotifyResponse<'a> {
    /// List of changes, see [`decode_changes`].
    pub output: &'a [u8],
}

impl<'a> ChangeNotifyResponse<'a> {
    /// Reads the body.
    ///
    /// # Errors
    /// A wrong `StructureSize`, truncation, changes outside the message.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        let output = decode_output(reader, "SMB2 CHANGE_NOTIFY Response")?;
        Ok(Self { output })
    }

    /// Appends the body.
    pub fn encode(&self, w: &mut Writer<'_>) {
        encode_output(w, self.output);
    }
}

codes! {
    /// Kind of a change ([MS-FSCC] 2.7.1 `Action`).
    pub struct Action(u32) {
        /// Created.
        ADDED = 1;
        /// Deleted.
        REMOVED = 2;
        /// Data or attributes changed.
        MODIFIED = 3;
        /// Renamed; this is the old name, and the new name follows.
        RENAMED_OLD_NAME = 4;
        /// Renamed; this is the new name.
        RENAMED_NEW_NAME = 5;
        /// A named stream was created.
        ADDED_STREAM = 6;
        /// A named stream was deleted.
        REMOVED_STREAM = 7;
        /// A named stream changed.
        MODIFIED_STREAM = 8;
        /// The file was deleted, and its object id with it.
        REMOVED_BY_DELETE = 9;
        /// The object id could not be kept when the file moved.
        ID_NOT_TUNNELLED = 10;
        /// The object id was kept, but had been reassigned meanwhile.
        TUNNELLED_ID_COLLISION = 11;
    }
}

/// FILE_NOTIFY_INFORMATION ([MS-FSCC] 2.7.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileNotifyInformation {
    /// Kind of the change.
    pub action: Action,
    /// Name relative to the watched directory.
    pub file_name: Text,
}

/// Entries are 4-byte aligned ([MS-FSCC] 2.7.1).
const ALIGNMENT: usize = 4;

/// Decodes a list of changes. Each entry takes at least 12 bytes, so the bytes bound the list.
///
/// # Errors
/// Truncation, an entry that does not move forward or is misaligned, a name with half a unit.
pub fn decode_changes(output: &[u8]) -> Result<Vec<FileNotifyInformation>> {
    let mut changes = Vec::new();
    let mut reader = Reader::new(output, "FILE_NOTIFY_INFORMATION");
    while reader.remaining() > 0 {
        let start = reader.position();
        let next = place(reader.u32()?);
        let action = Action(reader.u32()?);
        let name_length = place(reader.u32()?);
        let name = reader.bytes(name_length)?;
        let file_name = Text::from_le_bytes(name).ok_or(reader.fault(Fault::Value))?;
        changes.push(FileNotifyInformation { action, file_name });
        if next == 0 {
            break;
        }
        let target = start.checked_add(next).ok_or(reader.fault(Fault::Chain))?;
        if target < reader.position() || !next.is_multiple_of(ALIGNMENT) {
            return Err(reader.fault(Fault::Chain));
        }
        reader.seek(target)?;
    }
    Ok(changes)
}

/// Encodes a list of changes.
pub fn encode_changes(changes: &[FileNotifyInformation], w: &mut Writer<'_>) {
    let base = w.position();
    for (number, change) in changes.iter().enumerate() {
        let start = w.position();
        w.u32(0);
        w.u32(change.action.0);
        w.u32(len_u32(change.file_name.wire_len()));
        change.file_name.write(w);
        if number + 1 < changes.len() {
            let written = w.position() - base;
            w.zeros(written.next_multiple_of(ALIGNMENT) - written);
            w.patch_u32(start, len_u32(w.position() - start));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::{attack, attack_body, body, message, structure};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(
            flags: u16, output_buffer_length: u32, ids: (u64, u64), filter: u32,
            changes in proptest::collection::vec(
                (any::<u32>(), proptest::collection::vec(any::<u16>(), 0..20)), 0..8,
            ),
        ) {
            let request = ChangeNotifyRequest {
                flags: ChangeNotifyFlags::from_bits_retain(flags),
                output_buffer_length,
                file_id: FileId { persistent: ids.0, volatile: ids.1 },
                completion_filter: CompletionFilter::from_bits_retain(filter),
            };
            let bytes = message(|w| request.encode(w));
            prop_assert_eq!(bytes.len(), 64 + 32);
            prop_assert_eq!(ChangeNotifyRequest::decode(&mut body(&bytes)), Ok(request));
            let changes: Vec<_> = changes
                .into_iter()
                .map(|(action, name)| FileNotifyInformation {
                    action: Action(action),
                    file_name: Text::from_units(name),
                })
                .collect();
            let output = structure(|w| encode_changes(&changes, w));
            let bytes = message(|w| ChangeNotifyResponse { output: &output }.encode(w));
            let response = ChangeNotifyResponse::decode(&mut body(&bytes)).unwrap();
            prop_assert_eq!(decode_changes(response.output), Ok(changes));
        }
    }

    #[test]
    fn a_chain_must_move_forward_aligned() {
        let change = FileNotifyInformation {
            action: Action::ADDED,
            file_name: "abc".into(),
        };
        let mut output = structure(|w| encode_changes(&[change.clone(), change], w));
        assert_eq!(output[0], 20);
        for wrong in [4, 16, 21] {
            output[0] = wrong;
            assert_eq!(
                decode_changes(&output).unwrap_err().fault,
                Fault::Chain,
                "{wrong}"
            );
        }
    }

    #[test]
    fn hostile_bytes_never_panic() {
        let changes: Vec<_> = ["a", "folder\\file", ""]
            .map(|name| FileNotifyInformation {
                action: Action::MODIFIED,
                file_name: name.into(),
            })
            .into();
        let output = structure(|w| encode_changes(&changes, w));
        attack(&output, 0, |bytes| decode_changes(bytes).is_ok());
        let bytes = message(|w| ChangeNotifyResponse { output: &output }.encode(w));
        attack_body(&bytes, |reader| ChangeNotifyResponse::decode(reader).is_ok());
        attack_body(&bytes, |reader| ChangeNotifyRequest::decode(reader).is_ok());
    }
}
