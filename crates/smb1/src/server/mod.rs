//! The server end of one connection, without I/O: what is admitted, sessions, signatures,
//! transactions in several messages. Nothing here knows files.
//!
//! ```text
//! receive(message) → Admitted ── negotiate, decode_setup, log_in, log_off
//!                       │  all other commands: the owner executes them, with these helpers
//!                       │     Transactions   requests and responses in several messages
//!                       │     Ids            tables of trees, files and searches
//!                       ▼
//!                  reply(…), finish(message)
//! ```

mod config;
mod connection;
mod ids;
mod proof;
mod transactions;

pub use config::{Config, Signing};
pub use connection::{Admitted, ClientLimits, Connection, MESSAGE_LEN_MAX, Offer, PeerMisbehaved};
pub use ids::Ids;
pub use proof::{ProofClient, ProofServer};
pub use transactions::{Answer, Transaction, Transactions};
