//! The wire codec: one file per command, both sides.
//!
//! Every message has `decode` and `encode`. Offsets in SMB 2 count from the message's header, so [`Reader`] and
//! [`Writer`] always span one whole message, header included ([MS-SMB2] 2.2.1). Fixed parts are little-endian structs
//! that begin with their own `StructureSize`; variable parts are borrowed from the message when decoded.
//! Bulk payloads (READ replies, WRITE requests) are never part of an encoded head: the head says where they follow.

mod cursor;
pub(crate) mod flags;
mod ids;
mod text;

pub use cursor::{Fault, Malformed, Reader, Result, Writer};
pub use ids::{AsyncId, FileId, Guid, LeaseKey, MessageId, SessionId, TreeId};
pub use text::Text;
