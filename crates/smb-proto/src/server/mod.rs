//! The server's end, without I/O.
//!
//! ```text
//!            +------------------------- Connection --------------------------+
//! frame ---> | open (unseal, decompress) -> admit (ids, credits, signature,  | ---> Request: the owner executes it
//!            |                                session, tree)                 |
//! frame <--- | finish (sign, seal)       <- ReplyFrame                       | <--- its reply
//!            +---------------------------------------------------------------+
//!              Sessions: logins and trees, on all connections
//!              Hub: opens, share modes, leases, locks, durable handles, changes of folders
//! ```
//!
//! NEGOTIATE, SESSION_SETUP, LOGOFF and ECHO are the connection's own ([`Connection::run_own`]); all else is executed
//! by the owner, who asks the [`hub`] what others permit. Before anybody has logged in, a connection keeps nothing but
//! logins under way, and takes short frames only.

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

pub use compound::Compound;
pub use config::{Accounts, Config, Mechanisms, Random, Sealing};
pub use connection::{Admitted, Cancel, Connection, Hangup, OpenedFrame, Own, Request};
pub use hub::ConnectionId;
pub use negotiate::Negotiated;
pub use reply::ReplyFrame;
pub use sessions::{Session, Sessions, Tree};
