//! Parts that do not depend on the version of SMB, for the client of SMB 1: sockets, errors, names,
//! times and metadata.

pub use crate::login::random;
pub use crate::smb_tree::dirty::DirtyFiles;
pub use crate::smb_tree::errors::{tree_error, with_message};
pub use crate::smb_tree::links::Special;
pub use crate::smb_tree::map::{basic, change, id, kind, losses};
pub use crate::smb_tree::paths::{Base, name_of, pattern_of, shown_name, wire_name};
pub use crate::socket::{Connected, connect};
pub use crate::times::{file_time, known, timestamp};
