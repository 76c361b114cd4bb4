//! The client's end of one connection, without I/O.

mod chain;
mod config;
mod connection;
mod error;
mod session;

pub use chain::{Chain, DropReason, Event, Operation, Part, Receive, Reply, Ticket, Transmit};
pub use config::{Compression, Config, CreditState, Encryption, Negotiated, Signing};
pub use connection::Connection;
pub use error::{EndReason, LoginError, Misuse, PeerMisbehaved};
pub use session::SessionSecret;

/// The most chains that wait or are in flight: more than any window's worth of small files. A guess.
pub const CHAINS_MAX: usize = 16_384;
/// The most operations of one chain. A guess: a small file takes six.
pub const OPERATIONS_MAX: usize = 64;
