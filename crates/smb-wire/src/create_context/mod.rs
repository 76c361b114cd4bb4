//! Create contexts: extensions of CREATE ([MS-SMB2] 2.2.13.2, 2.2.14.2).
//!
//! A list of named blobs, 8-byte aligned. Requests and responses use the same names for different
//! contents, so there are two enums. A context with an unknown name is kept as it is, in `Unknown`.
//! A known name with malformed contents makes the whole message malformed, as on Windows.
//!
//! Invariant: the name and data of a context lie inside its own entry, and a list has at most
//! [`CONTEXTS_MAX`] entries.

mod app_instance;
mod apple;
mod durable;
mod lease;
mod posix;
mod private;
mod query;
#[cfg(test)]
pub(super) mod tests;

pub use app_instance::{AppInstanceId, AppInstanceVersion};
pub use apple::{AppleReply, AppleReplyMap, AppleServerCaps, AppleServerQuery, AppleVolumeCaps};
pub use durable::{
    DurableHandleV2Flags, DurableReconnect, DurableReconnectV2, DurableRequestV2, DurableResponseV2,
};
pub use lease::{Lease, LeaseFlags, LeaseState, LeaseV2};
pub use posix::PosixResponse;
pub use private::{PrivateQuery, PrivateReply};
pub use query::{MaximalAccess, OnDiskId};

use super::lengths::{len_u16, len_u32, place};
use super::{DecodeErrorKind, FileTime, Reader, Result, Writer};

/// Most contexts of one message. A guess: three times the number of contexts that exist.
pub const CONTEXTS_MAX: usize = 64;

/// Length in bytes of the shortest names of requests ([MS-SMB2] 2.2.13.2).
const NAME_MIN: usize = 4;

/// Length in bytes of what precedes a context's name.
const ENTRY_FIXED_LEN: usize = 16;

/// Alignment of entries, names and data ([MS-SMB2] 2.2.13.2).
const ALIGNMENT: usize = 8;

/// Names of contexts ([MS-SMB2] 2.2.13.2).
pub mod name {
    /// SMB2_CREATE_EA_BUFFER.
    pub const EA_BUFFER: &[u8] = b"ExtA";
    /// SMB2_CREATE_SD_BUFFER.
    pub const SD_BUFFER: &[u8] = b"SecD";
    /// SMB2_CREATE_DURABLE_HANDLE_REQUEST and its response.
    pub const DURABLE_HANDLE_REQUEST: &[u8] = b"DHnQ";
    /// SMB2_CREATE_DURABLE_HANDLE_RECONNECT.
    pub const DURABLE_HANDLE_RECONNECT: &[u8] = b"DHnC";
    /// SMB2_CREATE_DURABLE_HANDLE_REQUEST_V2 and its response.
    pub const DURABLE_HANDLE_REQUEST_V2: &[u8] = b"DH2Q";
    /// SMB2_CREATE_DURABLE_HANDLE_RECONNECT_V2.
    pub const DURABLE_HANDLE_RECONNECT_V2: &[u8] = b"DH2C";
    /// SMB2_CREATE_QUERY_MAXIMAL_ACCESS.
    pub const QUERY_MAXIMAL_ACCESS: &[u8] = b"MxAc";
    /// SMB2_CREATE_ALLOCATION_SIZE.
    pub const ALLOCATION_SIZE: &[u8] = b"AlSi";
    /// SMB2_CREATE_TIMEWARP_TOKEN.
    pub const TIMEWARP_TOKEN: &[u8] = b"TWrp";
    /// SMB2_CREATE_QUERY_ON_DISK_ID.
    pub const QUERY_ON_DISK_ID: &[u8] = b"QFid";
    /// SMB2_CREATE_REQUEST_LEASE, both versions.
    pub const REQUEST_LEASE: &[u8] = b"RqLs";
    /// SMB2_CREATE_APP_INSTANCE_ID.
    pub const APP_INSTANCE_ID: &[u8] = b"\x45\xBC\xA6\x6A\xEF\xA7\xF7\x4A\x90\x08\xFA\x46\x2E\x14\x4D\x74";
    /// SMB2_CREATE_APP_INSTANCE_VERSION.
    pub const APP_INSTANCE_VERSION: &[u8] =
        b"\xB9\x82\xD0\xB7\x3B\x56\x07\x4F\xA0\x7B\x52\x4A\x81\x16\xA0\x10";
    /// Apple's extensions.
    pub const APPLE: &[u8] = b"AAPL";
    /// SMB2_CREATE_POSIX: the bytes of 5025AD93-B49C-E711-B423-83DE968BCD7C as the POSIX extensions
    /// write them.
    pub const POSIX: &[u8] = b"\x93\xAD\x25\x50\x9C\xB4\x11\xE7\xB4\x23\x83\xDE\x96\x8B\xCD\x7C";
    /// This project's private controls: FDCCB8BC-1B89-477E-9C3A-F8CA65D79E0F.
    pub const PRIVATE: &[u8] = b"\xBC\xB8\xCC\xFD\x89\x1B\x7E\x47\x9C\x3A\xF8\xCA\x65\xD7\x9E\x0F";
}

/// A context of a request ([MS-SMB2] 2.2.13.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestContext<'a> {
    /// `ExtA`: extended attributes of a created file, a list of FILE_FULL_EA_INFORMATION.
    EaBuffer(&'a [u8]),
    /// `SecD`: security descriptor of a created file.
    SecurityDescriptor(&'a [u8]),
    /// `DHnQ`: asks for a durable handle.
    DurableRequest,
    /// `DHnC`: reconnects to a durable handle.
    DurableReconnect(DurableReconnect),
    /// `DH2Q`: asks for a durable handle v2 (3.x).
    DurableRequestV2(DurableRequestV2),
    /// `DH2C`: reconnects to a durable handle v2 (3.x).
    DurableReconnectV2(DurableReconnectV2),
    /// `MxAc`: asks for the user's maximal access; with a time, only if the file changed since.
    QueryMaximalAccess(Option<FileTime>),
    /// `AlSi`: bytes to allocate for a created file.
    AllocationSize(u64),
    /// `TWrp`: opens the file as it was at this time.
    TimewarpToken(FileTime),
    /// `QFid`: asks for the file's id on disk.
    QueryOnDiskId,
    /// `RqLs` of 32 bytes: asks for a lease (2.1).
    Lease(Lease),
    /// `RqLs` of 52 bytes: asks for a lease with a parent (3.x).
    LeaseV2(LeaseV2),
    /// Names the application instance that opens the file (3.x).
    AppInstanceId(AppInstanceId),
    /// The version of that instance (3.1.1).
    AppInstanceVersion(AppInstanceVersion),
    /// `AAPL`: asks for the server's capabilities for Macs.
    Apple(AppleServerQuery),
    /// POSIX extensions: permissions of a created file.
    Posix {
        /// Permission bits.
        mode: u32,
    },
    /// Asks for this project's private controls.
    Private(PrivateQuery),
    /// Any other context.
    Unknown {
        /// Name, of any length.
        name: &'a [u8],
        /// Data.
        data: &'a [u8],
    },
}

impl<'a> RequestContext<'a> {
    /// Decodes a context from its name and data.
    ///
    /// # Errors
    /// The data does not fit a known name, or the name is shorter than any of the specification
    /// (smb2.create.blob).
    pub fn parse(name: &'a [u8], data: &'a [u8]) -> Result<Self> {
        if name.len() < NAME_MIN {
            return Err(Reader::new(name, "SMB2_CREATE_CONTEXT").error(DecodeErrorKind::Value));
        }
        Ok(match name {
            name::EA_BUFFER => Self::EaBuffer(data),
            name::SD_BUFFER => Self::SecurityDescriptor(data),
            name::DURABLE_HANDLE_REQUEST => {
                Reader::new(data, "SMB2_CREATE_DURABLE_HANDLE_REQUEST").skip(16)?;
                Self::DurableRequest
            }
            name::DURABLE_HANDLE_RECONNECT => Self::DurableReconnect(DurableReconnect::decode(data)?),
            name::DURABLE_HANDLE_REQUEST_V2 => Self::DurableRequestV2(DurableRequestV2::decode(data)?),
            name::DURABLE_HANDLE_RECONNECT_V2 => Self::DurableReconnectV2(DurableReconnectV2::decode(data)?),
            name::QUERY_MAXIMAL_ACCESS if data.is_empty() => Self::QueryMaximalAccess(None),
            name::QUERY_MAXIMAL_ACCESS => Self::QueryMaximalAccess(Some(FileTime(number(
                data,
                "SMB2_CREATE_QUERY_MAXIMAL_ACCESS_REQUEST",
            )?))),
            name::ALLOCATION_SIZE => Self::AllocationSize(number(data, "SMB2_CREATE_ALLOCATION_SIZE")?),
            name::TIMEWARP_TOKEN => {
                Self::TimewarpToken(FileTime(number(data, "SMB2_CREATE_TIMEWARP_TOKEN")?))
            }
            name::QUERY_ON_DISK_ID => Self::QueryOnDiskId,
            name::REQUEST_LEASE if data.len() < LeaseV2::LEN => Self::Lease(Lease::decode(data)?),
            name::REQUEST_LEASE => Self::LeaseV2(LeaseV2::decode(data)?),
            name::APP_INSTANCE_ID => Self::AppInstanceId(AppInstanceId::decode(data)?),
            name::APP_INSTANCE_VERSION => Self::AppInstanceVersion(AppInstanceVersion::decode(data)?),
            name::APPLE => match AppleServerQuery::decode(data)? {
                Some(query) => Self::Apple(query),
                None => Self::Unknown { name, data },
            },
            name::POSIX => Self::Posix {
                mode: Reader::new(data, "SMB2_CREATE_POSIX").u32()?,
            },
            name::PRIVATE => Self::Private(PrivateQuery::decode(data)?),
            _ => Self::Unknown { name, data },
        })
    }

    /// Returns the name on the wire.
    pub fn name(&self) -> &'a [u8] {
        match self {
            Self::EaBuffer(_) => name::EA_BUFFER,
            Self::SecurityDescriptor(_) => name::SD_BUFFER,
            Self::DurableRequest => name::DURABLE_HANDLE_REQUEST,
            Self::DurableReconnect(_) => name::DURABLE_HANDLE_RECONNECT,
            Self::DurableRequestV2(_) => name::DURABLE_HANDLE_REQUEST_V2,
            Self::DurableReconnectV2(_) => name::DURABLE_HANDLE_RECONNECT_V2,
            Self::QueryMaximalAccess(_) => name::QUERY_MAXIMAL_ACCESS,
            Self::AllocationSize(_) => name::ALLOCATION_SIZE,
            Self::TimewarpToken(_) => name::TIMEWARP_TOKEN,
            Self::QueryOnDiskId => name::QUERY_ON_DISK_ID,
            Self::Lease(_) | Self::LeaseV2(_) => name::REQUEST_LEASE,
            Self::AppInstanceId(_) => name::APP_INSTANCE_ID,
            Self::AppInstanceVersion(_) => name::APP_INSTANCE_VERSION,
            Self::Apple(_) => name::APPLE,
            Self::Posix { .. } => name::POSIX,
            Self::Private(_) => name::PRIVATE,
            Self::Unknown { name, .. } => name,
        }
    }

    /// Appends the data.
    pub fn encode_data(&self, w: &mut Writer<'_>) {
        match self {
            Self::EaBuffer(data) | Self::SecurityDescriptor(data) | Self::Unknown { data, .. } => {
                w.bytes(data)
            }
            Self::DurableRequest => w.zeros(16),
            Self::DurableReconnect(context) => context.encode(w),
            Self::DurableRequestV2(context) => context.encode(w),
            Self::DurableReconnectV2(context) => context.encode(w),
            Self::QueryMaximalAccess(None) | Self::QueryOnDiskId => {}
            Self::QueryMaximalAccess(Some(time)) | Self::TimewarpToken(time) => w.u64(time.0),
            Self::AllocationSize(size) => w.u64(*size),
            Self::Lease(lease) => lease.encode(w),
            Self::LeaseV2(lease) => lease.encode(w),
            Self::AppInstanceId(id) => id.encode(w),
            Self::AppInstanceVersion(version) => version.encode(w),
            Self::Apple(query) => query.encode(w),
            Self::Posix { mode } => w.u32(*mode),
            Self::Private(query) => query.encode(w),
        }
    }
}

/// A context of a response ([MS-SMB2] 2.2.14.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResponseContext<'a> {
    /// `DHnQ`: the handle is durable.
    Durable,
    /// `DH2Q`: the handle is durable, version 2 (3.x).
    DurableV2(DurableResponseV2),
    /// `MxAc`: the user's maximal access.
    MaximalAccess(MaximalAccess),
    /// `QFid`: the file's id on disk.
    OnDiskId(OnDiskId),
    /// `RqLs` of 32 bytes: granted lease.
    Lease(Lease),
    /// `RqLs` of 52 bytes: granted lease (3.x).
    LeaseV2(LeaseV2),
    /// `AAPL`: the server's capabilities for Macs.
    Apple(AppleReply),
    /// POSIX extensions: the file's POSIX attributes.
    Posix(PosixResponse<'a>),
    /// The private controls that the share supports.
    Private(PrivateReply),
    /// Any other context.
    Unknown {
        /// Name, of any length.
        name: &'a [u8],
        /// Data.
        data: &'a [u8],
    },
}

impl<'a> ResponseContext<'a> {
    /// Decodes a context from its name and data.
    ///
    /// # Errors
    /// The data does not fit a known name.
    pub fn parse(name: &'a [u8], data: &'a [u8]) -> Result<Self> {
        Ok(match name {
            // 8 reserved bytes, which are ignored.
            name::DURABLE_HANDLE_REQUEST => Self::Durable,
            name::DURABLE_HANDLE_REQUEST_V2 => Self::DurableV2(DurableResponseV2::decode(data)?),
            name::QUERY_MAXIMAL_ACCESS => Self::MaximalAccess(MaximalAccess::decode(data)?),
            name::QUERY_ON_DISK_ID => Self::OnDiskId(OnDiskId::decode(data)?),
            name::REQUEST_LEASE if data.len() < LeaseV2::LEN => Self::Lease(Lease::decode(data)?),
            name::REQUEST_LEASE => Self::LeaseV2(LeaseV2::decode(data)?),
            name::APPLE => match AppleReply::decode(data)? {
                Some(reply) => Self::Apple(reply),
                None => Self::Unknown { name, data },
            },
            name::POSIX => Self::Posix(PosixResponse::decode(data)?),
            name::PRIVATE => Self::Private(PrivateReply::decode(data)?),
            _ => Self::Unknown { name, data },
        })
    }

    /// Returns the name on the wire.
    pub fn name(&self) -> &'a [u8] {
        match self {
            Self::Durable => name::DURABLE_HANDLE_REQUEST,
            Self::DurableV2(_) => name::DURABLE_HANDLE_REQUEST_V2,
            Self::MaximalAccess(_) => name::QUERY_MAXIMAL_ACCESS,
            Self::OnDiskId(_) => name::QUERY_ON_DISK_ID,
            Self::Lease(_) | Self::LeaseV2(_) => name::REQUEST_LEASE,
            Self::Apple(_) => name::APPLE,
            Self::Posix(_) => name::POSIX,
            Self::Private(_) => name::PRIVATE,
            Self::Unknown { name, .. } => name,
        }
    }

    /// Appends the data.
    pub fn encode_data(&self, w: &mut Writer<'_>) {
        match self {
            Self::Durable => w.zeros(8),
            Self::DurableV2(context) => context.encode(w),
            Self::MaximalAccess(context) => context.encode(w),
            Self::OnDiskId(context) => context.encode(w),
            Self::Lease(lease) => lease.encode(w),
            Self::LeaseV2(lease) => lease.encode(w),
            Self::Apple(reply) => reply.encode(w),
            Self::Posix(context) => context.encode(w),
            Self::Private(reply) => reply.encode(w),
            Self::Unknown { data, .. } => w.bytes(data),
        }
    }
}

/// Decodes data that is a single number of 8 bytes.
fn number(data: &[u8], structure: &'static str) -> Result<u64> {
    Reader::new(data, structure).u64()
}

/// Decodes the contexts from `reader`'s position to its message's end. `parse` gets name and data
/// of each.
///
/// # Errors
/// An entry that is truncated, misaligned, or does not lie forward; a name or data outside its
/// entry; more than [`CONTEXTS_MAX`] entries; an error of `parse`.
pub fn decode_list<'a, T>(
    mut reader: Reader<'a>,
    parse: impl Fn(&'a [u8], &'a [u8]) -> Result<T>,
) -> Result<Vec<T>> {
    let mut contexts = Vec::new();
    loop {
        let start = reader.position();
        let next = place(reader.u32()?);
        let name_offset = usize::from(reader.u16()?);
        let name_length = usize::from(reader.u16()?);
        reader.skip(2)?;
        let data_offset = usize::from(reader.u16()?);
        let data_length = place(reader.u32()?);
        let next_error = reader.error(DecodeErrorKind::NextEntry);
        let target = start.checked_add(next).ok_or(next_error)?;
        if next != 0 && (next < ENTRY_FIXED_LEN || !next.is_multiple_of(ALIGNMENT)) {
            return Err(next_error);
        }
        let end = if next == 0 { reader.message().len() } else { target };
        let message = reader.message().get(..end).ok_or(next_error)?;
        let entry = Reader::at(message, reader.position(), "SMB2_CREATE_CONTEXT");
        // `start` is inside the message and offsets have 16 bits, so the sums cannot overflow.
        let name = entry.slice(start + name_offset, name_length)?;
        let data = entry.slice(start + data_offset, data_length)?;
        if contexts.len() == CONTEXTS_MAX {
            return Err(next_error);
        }
        contexts.push(parse(name, data)?);
        if next == 0 {
            return Ok(contexts);
        }
        reader.seek(target)?;
    }
}

/// Encodes contexts. `w`'s position must be a multiple of 8 from the header.
///
/// # Panics
/// Panics if a name is longer than some 65,500 bytes, or there are more than [`CONTEXTS_MAX`]
/// contexts.
pub fn encode_list<'a, T>(
    w: &mut Writer<'_>,
    contexts: impl ExactSizeIterator<Item = (&'a [u8], T)>,
    encode_data: impl Fn(T, &mut Writer<'_>),
) {
    let count = contexts.len();
    assert!(count <= CONTEXTS_MAX, "the caller keeps the bound");
    assert!(w.position().is_multiple_of(ALIGNMENT), "a list is aligned");
    for (number, (name, context)) in contexts.enumerate() {
        let start = w.position();
        w.u32(0);
        w.u16(len_u16(ENTRY_FIXED_LEN));
        w.u16(len_u16(name.len()));
        w.u16(0);
        w.u16(0);
        w.u32(0);
        w.bytes(name);
        w.align(ALIGNMENT);
        let data_start = w.position();
        encode_data(context, w);
        let data_length = w.position() - data_start;
        if data_length > 0 {
            w.patch_u16(start + 10, len_u16(data_start - start));
            w.patch_u32(start + 12, len_u32(data_length));
        }
        if number + 1 < count {
            w.align(ALIGNMENT);
            w.patch_u32(start, len_u32(w.position() - start));
        }
    }
}
