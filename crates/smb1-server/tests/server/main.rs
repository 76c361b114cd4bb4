//! The server with a client that sends whatever it is told to: what SMB 1 and SMB 2 clients see of
//! each other, and hostile messages.

#![allow(clippy::unwrap_used, reason = "a failed set-up fails the test")]

mod hostile;
mod old;
#[path = "../../../smb-server/tests/hard/raw.rs"]
mod raw;
#[path = "../../../smb-server/tests/hard/serve.rs"]
mod serve;
mod together;

/// The other crate's tests log; these do not.
fn log() {}
