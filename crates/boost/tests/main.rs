//! All integration tests of this crate but those that need a process of their own.
//!
//! One program: each more would be linked with everything once more. `cargo xtask ci` runs its modules
//! one by one; `cargo test --test boost_tests MODULE::` does so by hand.

#![allow(clippy::unwrap_used, reason = "a failed set-up fails the test")]

mod ahead;
mod contract;
mod offline;
#[path = "../../smb-server/tests/hard/serve.rs"]
mod serve;
mod shares;
mod support;

/// `serve` logs nothing here.
fn log() {}
