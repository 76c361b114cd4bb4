//! A client of SMB 1 (NT LM 0.12), for machines that speak nothing newer.
//!
//! SMB 1 is obsolete and unsafe. Nothing in this program negotiates it: a program that wants it names
//! it. Start with [`Smb1Client::connect`], then [`Smb1Tree::open`].
//!
//! ```text
//! Smb1Client ── Link (one server, one login; reconnects)       client, link, options
//!   │             └─ Channel ── Driver (a task)                channel, driver, frames
//!   │                             └─ ropeway_smb1::client::Connection ── socket
//!   ├─ shares()                                                shares
//!   └─ Share (one tree; connects again)                        share, calls
//!        ├─ OpenFile (opened again by path)                    open_file
//!        ├─ Listing                                            listing
//!        └─ Smb1Tree: a folder as vfs::Tree                    tree
//!             └─ Smb1Store: the same as vfs::store::Store, read-only   store
//! ```
//! You may drop any future of this crate at any time: the driver keeps what the request needs until
//! the server has answered, and closes what it opened.
//!
//! # When the connection is lost
//! As with the client of SMB 2: the next request reconnects, with growing pauses, until
//! [`Smb1Options::timeout`]. Requests that may run twice are sent again; others fail with
//! `LostReason::OutcomeUnknown` if they had been sent. A file is opened again by its path, if it is
//! still the same file.

mod calls;
mod channel;
mod client;
mod driver;
mod frames;
mod link;
mod listing;
mod open_file;
mod options;
mod share;
mod shares;
mod store;
mod tree;

pub use client::Smb1Client;
pub use options::{Pace, Smb1Options};
pub use ropeway_smb1::auth::WeakAuth;
pub use ropeway_smb1::code_page::CodePage;
pub use share::Share;
pub use store::Smb1Store;
pub use tree::{Smb1Tree, Smb1TreeOptions};
