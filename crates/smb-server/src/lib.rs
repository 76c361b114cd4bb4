//! An SMB 2 and 3 server: shares folders behind [`ropeway_vfs::store::Store`] over TCP.
//!
//! ```text
//! server.rs  accepts clients, one thread each
//!    │
//! connection/  the thread of a connection ── smb_proto::server::Connection
//!    │ one request                            (frames, login, signing, credits, compounds)
//!    ▼
//! ops/   CREATE, READ, … ── smb_proto::server::hub::Hub
//!    │                       (share modes, leases, locks, durable handles)
//!    ▼
//! files/   functions of one open or two: queries, listings, security, FSCTLs
//!    │
//!    ▼
//! Store, Node   local files, or any other back end
//! ```
//!
//! `state/` holds the tables that all connections share. `login/` limits clients without a session.
//! `pipes/` answers RPC over IPC$. `accounts.rs`, `sids.rs` and `token.rs` know users and SIDs.
//!
//! Two paths lead from local programs to clients: `ops/external.rs` reports changes of files, and
//! `ops/range_locks.rs` keeps byte-range locks of clients and programs consistent.

mod accounts;
mod audit;
mod connection;
mod files;
mod foreign;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod handle_journal;
mod interfaces;
mod login;
mod ops;
mod options;
mod pipes;
mod recycle_bin;
mod report;
mod server;
mod share;
mod sids;
mod snapshots;
mod state;
#[cfg(any(test, feature = "fuzzing"))]
#[cfg_attr(not(test), allow(dead_code, reason = "fuzz targets need the store only"))]
mod testing;
mod token;

pub use accounts::Directory;
pub use audit::{Audit, Record};
pub use foreign::{ForeignClient, ForeignInfo, ForeignProtocol, ForeignSession, Translation, Translator};
pub use handle_journal::{HandleJournal, HandleJournalError};
pub use options::ServerOptions;
pub use recycle_bin::{RecycleBin, RecycleLimits};
pub use report::{KindReport, OpenReport, ServerReport, SessionReport, ShareReport};
pub use server::{Server, ServerHandle};
pub use share::{Links, Share};
pub use snapshots::ShareSnapshots;
pub use state::Counters;
