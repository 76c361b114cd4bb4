//! The codec of SMB 2 and 3: one file per command, for both ends, and the codec of the RPC services behind `IPC$`.
//!
//! Nothing here opens a socket or keeps a state. A peer is hostile until parsed: no decoder panics, none allocates from a
//! length it has not checked, none copies a payload. Beside the messages: file names ([`names`]), UNC paths ([`unc`]),
//! upper case as NTFS has it ([`upcase`]) and wildcards ([`wildcard`]).
//!
//! Every message has `decode` and `encode`. Offsets in SMB 2 count from the message's header, so [`Reader`] and
//! [`Writer`] always span one whole message, header included ([MS-SMB2] 2.2.1). Fixed parts are little-endian structs
//! that begin with their own `StructureSize`; variable parts are borrowed from the message when decoded.
//! Bulk payloads (READ replies, WRITE requests) are never part of an encoded head: the head says where they follow.

pub mod bare;
mod body;
pub mod change_notify;
pub mod close;
pub(crate) mod codes;
pub mod compression;
pub mod create;
pub mod create_context;
mod cursor;
pub mod error;
mod file_attributes;
pub mod flush;
pub mod frame;
pub mod fsctl;
pub mod header;
#[cfg(test)]
mod hostile;
mod ids;
pub mod info;
pub mod ioctl;
mod lengths;
pub mod lock;
pub mod names;
pub mod negotiate;
pub mod negotiate_context;
pub mod oplock_break;
pub mod query_directory;
pub mod query_info;
pub mod read;
pub mod rpc;
pub mod security;
pub mod session_setup;
pub mod set_info;
pub mod smb1_negotiate;
pub mod status;
mod text;
mod time;
pub mod transform;
pub mod tree_connect;
pub mod unc;
pub mod upcase;
pub mod wildcard;
pub mod write;

pub use body::Payload;
pub use cursor::{Fault, Malformed, Reader, Result, Writer};
pub use file_attributes::FileAttributes;
pub use ids::{AsyncId, FileId, Guid, LeaseKey, MessageId, SessionId, TreeId};
pub use status::NtStatus;
pub use text::Text;
pub use time::FileTime;
