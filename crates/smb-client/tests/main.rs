//! All integration tests of this crate but those that need a process of their own.
//!
//! One program: each more would be linked with everything once more. `cargo xtask ci` runs its modules
//! one by one; `cargo test --test smb_client_tests MODULE::` does so by hand.

#![allow(clippy::unwrap_used, reason = "a failed set-up fails the test")]

mod basics;
mod caching;
#[path = "../../smb-proto/tests/client/chance.rs"]
mod chance;
mod clone;
mod common;
mod connections;
#[cfg(feature = "kerberos")]
mod kerberos;
#[path = "links/main.rs"]
mod links;
mod losses;
mod names;
#[allow(dead_code, reason = "the played server does more than these tests ask of it")]
#[path = "../../smb-proto/tests/client/peer.rs"]
mod peer;
#[path = "played/main.rs"]
mod played;
#[path = "quirks/main.rs"]
mod quirks;
#[path = "../../smb-proto/tests/client/seal.rs"]
mod seal;
#[path = "../../smb-server/tests/hard/serve.rs"]
mod serve;
#[path = "store/main.rs"]
mod store;
#[path = "../../smb-proto/tests/client/ticket.rs"]
mod ticket;
mod tree;

use chance::{Random, content};
use common::log;
