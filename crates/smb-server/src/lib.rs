//! An SMB 2 and 3 server: folders behind [`ropeway_vfs::store::Store`] for clients over TCP.
//!
//! ```text
//! socket ── connection thread ── smb_proto::server::Connection (frames, logins, signing, credits, compounds)
//!                │ one message
//!                ▼
//!             ops/ (CREATE, READ, …) ── smb_proto::server::Hub (share modes, leases, locks, durable handles; one mutex)
//!                │
//!                ▼
//!             Store, Node (local files, or any other) ── what others do there: outside.rs ── Hub
//!                                                     ── what is locked there: posix.rs
//! ```
//!
//! What needs an open file (or two) and nobody else is in plain functions that the operations call:
//! ```text
//! attributes.rs   NodeStat -> attributes, sizes, numbers     answer.rs      cut to the room that there is
//! query_file.rs   QUERY_INFO of files                        query_fs.rs    … of volumes
//! set_file.rs     SET_INFO of both                           eas.rs         extended attributes in both
//! directory.rs    QUERY_DIRECTORY                            short_name.rs  8.3
//! security/       descriptors: made up, inherited, checked   apple.rs       AAPL
//! fsctl/          IOCTL                                      pipes/         IPC$: srvsvc, lsarpc, …
//! names.rs        SIDs by name, names by SID
//! ```

mod answer;
mod apple;
mod attributes;
mod audit;
mod directory;
mod eas;
mod failures;
mod fsctl;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod guests;
#[cfg(test)]
mod hostile_tests;
mod input;
mod interfaces;
mod links;
mod mailbox;
mod names;
mod open;
mod ops;
mod output;
mod outside;
mod pipes;
mod pool;
mod posix;
mod query_file;
mod query_fs;
mod run;
mod security;
mod serving;
mod set_file;
mod share;
mod shared;
mod short_name;
mod status;
#[cfg(any(test, feature = "fuzzing"))]
#[cfg_attr(not(test), allow(dead_code, reason = "fuzz targets need the store only"))]
mod testing;

pub use audit::{Audit, Record};
pub use links::Links;
pub use names::Directory;
pub use run::{Server, ServerHandle, ServerOptions};
pub use share::Share;
pub use shared::Counters;
