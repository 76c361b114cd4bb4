//! An SMB 2 and 3 server: folders behind [`ropeway_vfs::store::Store`] for clients over TCP.
//!
//! ```text
//! socket ── connection thread ── smb_proto::server::Connection (frames, logins, signing, credits, compounds)
//!                │ one message
//!                ▼
//!             ops/ (CREATE, READ, …) ── smb_proto::server::Hub (share modes, leases, locks, durable handles; one mutex)
//!                │
//!                ▼
//!             Store, Node (local files, or any other)
//! ```
//!
//! What needs an open file (or two) and nobody else is in plain functions that the operations call:
//! ```text
//! attributes.rs   NodeStat -> attributes, sizes, numbers     answer.rs      cut to the room that there is
//! query_file.rs   QUERY_INFO of files                        query_fs.rs    … of volumes
//! set_file.rs     SET_INFO of both                           eas.rs         extended attributes in both
//! directory.rs    QUERY_DIRECTORY                            short_name.rs  8.3
//! security/       descriptors: made up, inherited, checked   apple.rs       AAPL
//! fsctl/          IOCTL                                      pipes.rs       IPC$: srvsvc, wkssvc
//! ```

#[allow(dead_code, reason = "used by the operations")]
pub(crate) mod answer;
#[allow(dead_code, reason = "used by the operations")]
pub(crate) mod apple;
#[allow(dead_code, reason = "used by the operations")]
pub(crate) mod attributes;
#[allow(dead_code, reason = "used by the operations")]
pub(crate) mod directory;
#[allow(dead_code, reason = "used by the operations")]
pub(crate) mod eas;
#[allow(dead_code, unused_imports, reason = "used by the operations")]
pub(crate) mod fsctl;
#[cfg(test)]
mod hostile_tests;
pub(crate) mod open;
#[allow(dead_code, reason = "used by the operations")]
pub(crate) mod pipes;
#[allow(dead_code, reason = "used by the operations")]
pub(crate) mod query_file;
#[allow(dead_code, reason = "used by the operations")]
pub(crate) mod query_fs;
#[allow(dead_code, unused_imports, reason = "used by the operations")]
pub(crate) mod security;
#[allow(dead_code, reason = "used by the operations")]
pub(crate) mod set_file;
#[allow(dead_code, unreachable_pub, reason = "used by the operations")]
pub(crate) mod share;
#[allow(dead_code, reason = "used by the operations")]
pub(crate) mod short_name;
pub(crate) mod status;
#[cfg(test)]
pub(crate) mod testing;
