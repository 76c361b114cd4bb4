//! What a running process of ropeway does, and the local socket that tells it.
//!
//! ```text
//!   copy, mirror, check, serve, mount, lab …    each adds its parts
//!        │ Part: totals, description, control
//!      Live ──── Handle ────── the web page and /metrics: in the process itself
//!        │
//!      serve     a thread: PID.sock in the user's runtime folder, JSON Lines
//!        │
//!      client    `ropeway top`: scans the folders, watches, controls
//! ```
//!
//! * [`model`]: the figures, one [`Snapshot`](model::Snapshot) for all views; [`history`]: rings of the
//!   last five minutes;
//! * [`protocol`]: requests, replies, and the state of one client; [`redact`]: command lines without
//!   secrets. These are pure;
//! * [`mod@format`]: numbers for people;
//! * `page_cache`: looks at the page cache while somebody watches;
//! * [`folder`]: where sockets are, who may use them, and what dead processes left;
//! * [`Live`]: the parts of this process and their socket; [`client`]: asks other processes.
//!
//! Nothing here may fail or delay the work that is watched: whatever goes wrong with the socket, the
//! process goes on without it. Every queue is bounded, and a client that does not read is dropped.

pub mod client;
pub mod folder;
pub mod format;
pub mod history;
mod live;
pub mod model;
mod page_cache;
pub mod protocol;
pub mod redact;
mod resources;
mod serve;
mod text;

pub use live::{Control, Handle, Live, Messages, OnPartEnd, Part, PartHandle, Response, View};
pub use text::{bounded, clean};
