//! Commands: one file for each group of them.
//!
//! Every structure has `decode`, which reads a [`Block`](crate::Block), and `encode`, which appends
//! the block of one message. Strings stay as they are on the wire ([`Str`](crate::Str)), because
//! only the connection knows the code page. Bulk data is never copied: a structure gives its place.

pub mod assembly;
pub mod close;
pub mod core_files;
pub mod create;
pub mod echo;
pub mod file_info;
pub mod find;
pub mod fs_info;
pub mod locking;
pub mod negotiate;
pub mod nt_transact;
pub mod old_info;
pub mod open;
pub mod path;
pub mod rap;
pub mod read;
pub mod search;
pub mod session_setup;
pub mod trans2;
pub mod transaction;
pub mod tree_connect;
pub mod write;
