//! The client's end of one connection, without I/O.
//!
//! ```text
//!                 +-------------------------- Connection --------------------------+
//! Chain  -------> | queue -> credits -> frame (sign | compress | seal) -> Transmit | -----> socket
//! Event  <------- | table <- dispatch <- (open | decompress | verify) <- Receive   | <----- socket
//!                 +----------------------------------------------------------------+
//!                    negotiate, login, validate, life (ECHO, LOGOFF): the connection's own requests
//! ```
//!
//! With [`Config::jobs`], big frames are signed, verified, sealed and opened by jobs that the owner runs where it likes:
//!
//! ```text
//! WRITE in its block ── CryptoJob ── run ── CryptoDone ── Transmit, perhaps behind frames with later message ids
//! READ in its block  ── CryptoJob ── run ── CryptoDone ── dispatch, as if it had been received only then
//! ```
//!
//! A chain is one request or a compound. Its ticket is answered once ([`Event::Replied`]) or dropped once
//! ([`Event::Dropped`]), and its blocks come back with that. Payloads are not copied: a READ's data is received into its
//! block, a WRITE's block is sent with its head in the headroom; signing and sealing work in place.
//!
//! Invariants: credits are never overdrawn, message ids never used twice; a message that is not protected
//! as it must be changes nothing; whatever the server sends, there is an error and no panic.

mod chain;
mod config;
mod connection;
mod credits;
mod dispatch;
mod error;
mod frame;
mod jobs;
mod landing;
mod life;
mod loans;
mod login;
mod negotiate;
mod reading;
mod receive;
mod session;
mod table;
mod transmit;
mod validate;

pub use chain::{Chain, DropReason, Event, Operation, Part, Receive, Reply, Ticket, Transmit};
pub use config::{ChannelSequence, Compression, Config, CreditState, Encryption, Jobs, Negotiated, Signing};
pub use connection::Connection;
pub use error::{EndReason, LoginError, Misuse, PeerMisbehaved};
pub use jobs::{CryptoDone, CryptoJob};
pub use session::SessionSecret;

/// The most chains that wait or are in flight: more than any window's worth of small files. A guess.
pub const CHAINS_MAX: usize = 16_384;
/// The most operations of one chain. A guess: a small file takes six.
pub const OPERATIONS_MAX: usize = 64;
