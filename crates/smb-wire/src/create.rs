//! SMB2 CREATE: opens a file, directory or pipe, making it if asked ([MS-SMB2] 2.2.13, 2.2.14).

mod access;
mod fields;
#[cfg(test)]
mod tests;

pub use access::AccessMask;
pub use fields::{
    CreateAction, CreateDisposition, CreateOptions, CreateResponseFlags, ImpersonationLevel, OplockLevel,
    ShareAccess,
};

use super::body::{pad_empty, window};
use super::create_context::{RequestContext, ResponseContext, decode_chain, encode_chain};
use super::lengths::{len_u16, len_u32, named, place};
use super::{Fault, FileAttributes, FileId, FileTime, Reader, Result, Text, Writer};

/// Bytes of a request's fixed part.
const REQUEST_FIXED_LEN: usize = 56;

/// SMB2 CREATE Request ([MS-SMB2] 2.2.13).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateRequest<'a> {
    /// The oplock wanted; `LEASE` together with a lease context.
    pub oplock_level: OplockLevel,
    /// How far the server may act as the user.
    pub impersonation_level: ImpersonationLevel,
    /// What the open is for.
    pub desired_access: AccessMask,
    /// Of a file that is made or replaced.
    pub file_attributes: FileAttributes,
    /// What others may do meanwhile.
    pub share_access: ShareAccess,
    /// What to do if the file exists, or does not.
    pub disposition: CreateDisposition,
    /// How to open.
    pub options: CreateOptions,
    /// Path from the share's root, with `\` between and none in front; empty: the root.
    pub name: Text,
    /// Extensions, in order.
    pub contexts: Vec<RequestContext<'a>>,
}

impl<'a> CreateRequest<'a> {
    /// Reads the body.
    ///
    /// # Errors
    /// A wrong `StructureSize`, truncation, values without meaning, name or contexts outside the message, malformed
    /// contexts.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        let mut reader = named(reader, "SMB2 CREATE Request");
        reader.structure_size(57)?;
        // SecurityFlags: reserved.
        reader.skip(1)?;
        let oplock_level = OplockLevel::from_wire(reader.u8()?).ok_or(reader.fault(Fault::Value))?;
        let impersonation_level = ImpersonationLevel(reader.u32()?);
        // SmbCreateFlags and Reserved.
        reader.skip(16)?;
        let desired_access = AccessMask::from_bits_retain(reader.u32()?);
        let file_attributes = FileAttributes::from_bits_retain(reader.u32()?);
        let share_access = ShareAccess::from_bits_retain(reader.u32()?);
        let disposition = CreateDisposition::from_wire(reader.u32()?).ok_or(reader.fault(Fault::Value))?;
        let options = CreateOptions::from_bits_retain(reader.u32()?);
        let name_offset = usize::from(reader.u16()?);
        let name_length = usize::from(reader.u16()?);
        let contexts_offset = place(reader.u32()?);
        let contexts_length = place(reader.u32()?);
        let name = reader.slice(name_offset, name_length)?;
        let name = Text::from_le_bytes(name).ok_or(reader.fault(Fault::Value))?;
        let contexts = contexts(&reader, contexts_offset, contexts_length, RequestContext::parse)?;
        Ok(Self {
            oplock_level,
            impersonation_level,
            desired_access,
            file_attributes,
            share_access,
            disposition,
            options,
            name,
            contexts,
        })
    }

    /// Appends the body.
    ///
    /// # Panics
    /// If the name is longer than 65535 bytes.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let buffer = w.position() + REQUEST_FIXED_LEN;
        w.u16(57);
        w.u8(0);
        w.u8(self.oplock_level.to_wire());
        w.u32(self.impersonation_level.0);
        w.zeros(16);
        w.u32(self.desired_access.bits());
        w.u32(self.file_attributes.bits());
        w.u32(self.share_access.bits());
        w.u32(self.disposition.to_wire());
        w.u32(self.options.bits());
        w.u16(len_u16(buffer));
        w.u16(len_u16(self.name.wire_len()));
        let contexts_fields = w.position();
        w.zeros(8);
        self.name.write(w);
        pad_empty(w, buffer);
        let chain = self.contexts.iter().map(|context| (context.name(), context));
        encode_contexts(w, contexts_fields, chain, |context, w| context.encode_data(w));
    }
}

/// SMB2 CREATE Response ([MS-SMB2] 2.2.14).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateResponse<'a> {
    /// The oplock granted.
    pub oplock_level: OplockLevel,
    /// What the last part of the path is (3.x).
    pub flags: CreateResponseFlags,
    /// What happened.
    pub create_action: CreateAction,
    /// When the file was created.
    pub creation_time: FileTime,
    /// When it was last read.
    pub last_access_time: FileTime,
    /// When its data was last written.
    pub last_write_time: FileTime,
    /// When anything about it last changed.
    pub change_time: FileTime,
    /// Bytes taken on disk.
    pub allocation_size: u64,
    /// Length in bytes.
    pub end_of_file: u64,
    /// What the file is.
    pub file_attributes: FileAttributes,
    /// The open.
    pub file_id: FileId,
    /// Answers to the request's contexts.
    pub contexts: Vec<ResponseContext<'a>>,
}

impl<'a> CreateResponse<'a> {
    /// Reads the body.
    ///
    /// # Errors
    /// A wrong `StructureSize`, truncation, an unknown oplock level, contexts outside the message, malformed contexts.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        let mut reader = named(reader, "SMB2 CREATE Response");
        reader.structure_size(89)?;
        let oplock_level = OplockLevel::from_wire(reader.u8()?).ok_or(reader.fault(Fault::Value))?;
        let flags = CreateResponseFlags::from_bits_retain(reader.u8()?);
        let create_action = CreateAction(reader.u32()?);
        let creation_time = FileTime(reader.u64()?);
        let last_access_time = FileTime(reader.u64()?);
        let last_write_time = FileTime(reader.u64()?);
        let change_time = FileTime(reader.u64()?);
        let allocation_size = reader.u64()?;
        let end_of_file = reader.u64()?;
        let file_attributes = FileAttributes::from_bits_retain(reader.u32()?);
        reader.skip(4)?;
        let file_id = FileId::decode(&mut reader)?;
        let contexts_offset = place(reader.u32()?);
        let contexts_length = place(reader.u32()?);
        let contexts = contexts(&reader, contexts_offset, contexts_length, ResponseContext::parse)?;
        Ok(Self {
            oplock_level,
            flags,
            create_action,
            creation_time,
            last_access_time,
            last_write_time,
            change_time,
            allocation_size,
            end_of_file,
            file_attributes,
            file_id,
            contexts,
        })
    }

    /// Appends the body.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(89);
        w.u8(self.oplock_level.to_wire());
        w.u8(self.flags.bits());
        w.u32(self.create_action.0);
        w.u64(self.creation_time.0);
        w.u64(self.last_access_time.0);
        w.u64(self.last_write_time.0);
        w.u64(self.change_time.0);
        w.u64(self.allocation_size);
        w.u64(self.end_of_file);
        w.u32(self.file_attributes.bits());
        w.zeros(4);
        self.file_id.encode(w);
        let contexts_fields = w.position();
        w.zeros(8);
        let chain = self.contexts.iter().map(|context| (context.name(), context));
        encode_contexts(w, contexts_fields, chain, |context, w| context.encode_data(w));
    }
}

/// Reads the chain at `offset`, if it has any bytes.
fn contexts<'a, T>(
    reader: &Reader<'a>,
    offset: usize,
    length: usize,
    parse: impl Fn(&'a [u8], &'a [u8]) -> Result<T>,
) -> Result<Vec<T>> {
    if length == 0 {
        return Ok(Vec::new());
    }
    decode_chain(window(reader, offset, length, "SMB2_CREATE_CONTEXT")?, parse)
}

/// Appends the chain, 8-byte aligned from the header, and patches offset and length in at `fields`; they stay 0 if
/// there is none.
fn encode_contexts<'a, T>(
    w: &mut Writer<'_>,
    fields: usize,
    chain: impl ExactSizeIterator<Item = (&'a [u8], T)>,
    encode_data: impl Fn(T, &mut Writer<'_>),
) {
    if chain.len() == 0 {
        return;
    }
    w.align(8);
    let start = w.position();
    encode_chain(w, chain, encode_data);
    w.patch_u32(fields, len_u32(start));
    w.patch_u32(fields + 4, len_u32(w.position() - start));
}
