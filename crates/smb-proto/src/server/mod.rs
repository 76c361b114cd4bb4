//! The server end of an SMB connection, without I/O.
//!
//! ```text
//!            +------------------------- Connection --------------------------+
//! frame ---> | open (unseal, decompress) -> admit (ids, credits, signature,  | ---> Request
//!            |                                session, tree)                 |
//! frame <--- | finish (sign, seal)       <- ReplyFrame                       | <--- reply
//!            +---------------------------------------------------------------+
//!              Sessions: logins and trees, on all connections
//!              Hub: opens, share modes, leases, locks, durable handles, change notification
//! ```
//!
//! The connection handles NEGOTIATE, SESSION_SETUP, LOGOFF and ECHO itself
//! ([`Connection::run_connection_command`]). The owner executes all other requests and consults the
//! [`hub`] about conflicts with other opens. Before a login succeeds, a connection keeps nothing
//! but logins in progress, and accepts short frames only.

mod channel;
mod compound;
mod config;
mod connection;
pub mod hub;
mod login;
mod negotiate;
mod reply;
pub mod rules;
mod sessions;
mod window;

pub use compound::CompoundState;
pub use config::{Accounts, Config, Mechanisms, Random, Sealing};
pub use connection::{Admitted, Cancel, Connection, ConnectionOutcome, OpenedFrame, PeerMisbehaved, Request};
pub use hub::ConnectionId;
pub use negotiate::{DIALECTS_MAX, Negotiated};
pub use reply::ReplyFrame;
pub use sessions::{Scope, Session, SessionSnapshot, Sessions, Tree};
