//! SMB 1, dialect NT LM 0.12, without I/O: codec, names in OEM code pages, signing, the responses of
//! old logins, and the states of a client and of a server.
//!
//! SMB 1 is obsolete and unsafe. This crate exists for machines that speak nothing else. No other
//! crate's SMB 2 code uses it, and programs use it only if they are told to.
//!
//! ```text
//! client::Connection   server::Connection       states without I/O
//!       │
//!    signing  auth                               MD5 and sequence numbers; NTLMv2, LMv2, older ones
//!       │
//!     wire: one file for each group of commands  ── message, header, strings: what they consist of
//! ```
//!
//! A peer is hostile until parsed: no decoder panics or allocates from an unchecked length. Sources:
//! [MS-CIFS], [MS-SMB], [MS-RAP].

pub mod auth;
pub mod client;
pub mod code_page;
pub mod dos_error;
pub mod dos_time;
mod header;
#[cfg(test)]
mod hostile;
mod message;
pub mod server;
pub mod signing;
mod strings;
pub mod wire;
mod words;

pub use header::{Command, Flags, Flags2, HEADER_LEN, Header, SIGNATURE_OFFSET};
pub use message::{AndX, Block, Chain, ChainLinks, write_block, write_block_with_payload};
pub use strings::Str;
