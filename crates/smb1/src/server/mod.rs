//! The server end of one connection, without I/O.
//!
//! ```text
//! receive(message) → Admitted ── negotiate, set_up_session, log_in, log_off
//!                       │  all other commands: the owner executes them, with these helpers
//!                       │     Transactions, Answer   requests and responses in several messages
//!                       │     Ids                    tables of trees, files and searches
//!                       │     PidLocks, modes, paths what SMB 1 has and SMB 2 has not
//!                       ▼
//!                   finish(response)
//! ```
//! Nothing here knows files. Time and random numbers are arguments or come from the settings.

mod answer;
mod config;
mod connection;
mod ids;
mod login;
pub mod modes;
pub mod paths;
mod pid_locks;
mod transactions;

pub use answer::Answer;
pub use config::{Config, Signing};
pub use connection::{Admitted, ClientLimits, Connection, MESSAGE_LEN_MAX, PeerMisbehaved};
pub use ids::Ids;
pub use login::{LoggedIn, LoginOutcome};
pub use pid_locks::PidLocks;
pub use transactions::{Transaction, Transactions};
