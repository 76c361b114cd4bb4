//! SMB 2 and 3 without I/O: authentication, cryptography, and the state machines of client and
//! server. The messages are in [`ropeway_smb_wire`].
//!
//! Nothing here opens a socket, starts a thread, reads a clock or draws a random number. Bytes,
//! time and randomness are arguments, so a seed reproduces every behaviour.
//!
//! Time has two forms, the same everywhere. `now: Duration` is monotonic: the time since a start
//! that the owner chooses. All calls on one state machine use the same start. `wall_time: FileTime`
//! is the time of day, for fields on the wire.
//!
//! A peer is hostile until its messages are parsed. No decoder panics, allocates from an unchecked
//! length, or copies a payload.
//!
//! Errors are named by whose they are. `PeerMisbehaved`: the peer violated the protocol and the
//! connection ends. `Misuse`: the caller asked for something impossible. `…Error`: an operation
//! failed. `…Fault`: what is wrong with a parsed input. `…Reason`: why something ended; no error by
//! itself.

pub mod auth;
pub mod client;
pub mod compression;
pub mod crypto;
pub mod secret;
pub mod server;
#[cfg(test)]
mod testing;
