//! SMB 2 and 3 without I/O.
//!
//! Nothing here opens a socket, starts a thread, asks for the time or draws a random number: bytes, time and
//! randomness are arguments, so every behaviour is tested by seed. Peers are hostile until parsed: no decoder panics,
//! none allocates from a length it has not checked, none copies a payload. The messages themselves are in
//! [`ropeway_smb_wire`].

pub mod auth;
pub mod client;
pub mod compression;
pub mod crypto;
pub mod secret;
pub mod server;
#[cfg(test)]
mod testing;
