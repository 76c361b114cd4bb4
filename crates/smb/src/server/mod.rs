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

pub(crate) mod open;
pub(crate) mod share;
pub(crate) mod status;
