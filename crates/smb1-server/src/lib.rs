//! A server of SMB 1 (NT LM 0.12), for machines that speak nothing newer: each request of a client
//! becomes requests of SMB 2.1, which the SMB 2 server in the same process executes.
//!
//! ```text
//! client.rs        messages from and to the client's socket
//! conversation.rs  the thread of one client ── smb1::server::Connection (sessions, signatures)
//!    │ one command
//!    ▼
//! login, trees, open, io, locks, paths, attributes, transact → find, info, set_info, volume, pipes
//!    │ calls.rs
//!    ▼
//! line.rs ── SMB 2.1 ── smb-server (logins, shares, opens, share modes, leases of others, locks)
//! ```
//!
//! So there is one table of opens, one check of paths and rights, and one limit of logins for all
//! clients. Requests of a client are executed one after the other. No oplocks are granted.

mod attributes;
mod calls;
mod client;
mod conversation;
mod find;
mod info;
mod io;
mod line;
mod locks;
mod login;
mod open;
mod paths;
mod pipes;
mod protocol;
mod set_info;
mod tables;
mod transact;
mod trees;
mod volume;

pub use protocol::{OnClient, Smb1Server};
