//! The client end of one SMB connection, without I/O.
//!
//! ```text
//!                    +-------------------------- Connection --------------------------+
//! Compound  -------> | queue -> credits -> frame (sign | compress | seal) -> Transmit | ---> socket
//! Event     <------- | table <- dispatch <- (open | decompress | verify) <- Receive   | <--- socket
//!                    +----------------------------------------------------------------+
//!                       the connection's own requests: negotiate, login, validate, liveness
//! ```
//!
//! With [`Config::jobs`], the signing, verifying, sealing and opening of large frames becomes jobs.
//! The owner runs them on any thread:
//!
//! ```text
//! WRITE: block -> CryptoJob -> run -> CryptoDone -> Transmit; later frames may overtake it
//! READ:  block -> CryptoJob -> run -> CryptoDone -> dispatch, as if it had just been received
//! ```
//!
//! A [`Compound`] is one request, or several in one frame. Its ticket is answered once
//! ([`Event::Replied`]) or dropped once ([`Event::Dropped`]); either event returns its blocks.
//! Payloads are not copied: a READ's data is received into its block, and a WRITE's block is sent
//! with its header in the headroom. Signing and sealing work in place.
//!
//! Invariants: credits are never overdrawn. A message id is never used twice. A message without its
//! required protection changes no state. Whatever the server sends, the result is an error at
//! worst, never a panic.

mod compound;
mod config;
mod connection;
mod control;
mod credits;
mod crypto_job;
mod dispatch;
mod error;
mod frame;
mod input;
mod jobs;
mod liveness;
mod loans;
mod login;
mod login_state;
mod negotiate;
mod read_reply;
mod receive;
mod sealed_read;
mod session;
mod table;
mod transmit;
mod validate;

pub use compound::{Compound, DropReason, Event, Operation, Part, Receive, Reply, Ticket, Transmit};
pub use config::{
    ChannelSequence, CompressionOffer, Config, CreditState, Encryption, Jobs, Negotiated, Signing,
};
pub use connection::Connection;
pub use crypto_job::{CryptoDone, CryptoJob};
pub use error::{EndReason, LoginError, Misuse, PeerMisbehaved};
pub use session::SessionSecret;

/// Maximum number of compounds queued or in flight. A guess: more small files than any credit
/// window holds.
pub const COMPOUNDS_MAX: usize = 16_384;
/// Maximum number of operations in one compound. A guess: a small file takes six.
pub const OPERATIONS_MAX: usize = 64;
