//! The client end of one connection, without I/O.
//!
//! ```text
//! new ─ NEGOTIATE ─ SESSION_SETUP (one round, or as many as SPNEGO needs) ─ Event::Ready
//!                                                     │
//!            submit(Request) → Ticket ── poll_transmit() ──> server
//!            poll_event() ← Replied(ticket) <── receive(message)
//! ```
//! The owner passes whole messages, without the length that frames them, and sends what
//! [`Connection::poll_transmit`] returns. Time and random numbers are arguments.

mod config;
mod connection;
mod error;
mod login;
mod request;

pub use config::{Config, Entropy, Identity, Negotiated};
pub use connection::{Connection, Event, MESSAGE_LEN_MAX, Part, Reply, Ticket, TransactionReply};
pub use error::{EndReason, LoginError, Misuse, PeerMisbehaved};
pub use request::Request;
