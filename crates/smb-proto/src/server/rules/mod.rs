//! Decisions of a server that need no disk, as functions of the request and of what is known of the file.
//!
//! ```text
//! create.rs   which CREATE requests are valid; what a disposition does to a file that exists, or does not
//! info.rs     the access right and the buffer length that each class of QUERY_INFO and SET_INFO needs
//! lock.rs     whether the sequence number of a LOCK is verified
//! notify.rs   which completion filter reports which change
//! ```
//!
//! What spans several opens (share modes, leases, conflicts of locks, watches) is decided by the [`hub`](super::hub).

pub mod create;
pub mod info;
pub mod lock;
pub mod notify;
