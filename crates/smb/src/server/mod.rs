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

mod answer;
mod apple;
mod attributes;
mod audit;
mod directory;
mod eas;
mod failures;
mod fsctl;
mod input;
mod mailbox;
mod open;
mod ops;
mod output;
mod pipes;
mod pool;
mod query_file;
mod query_fs;
mod run;
mod security;
mod serving;
mod set_file;
mod share;
mod shared;
mod status;
#[cfg(test)]
mod testing;

pub use audit::{Audit, Record};
pub use run::{Server, ServerHandle, ServerOptions};
pub use share::Share;
pub use shared::Counters;
