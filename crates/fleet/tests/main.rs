//! All integration tests of this crate but those that need a process of their own.
//!
//! One program: each more would be linked with everything once more. `cargo xtask ci` runs its modules
//! one by one; `cargo test --test fleet_tests MODULE::` does so by hand.

#![allow(clippy::unwrap_used, reason = "a failed set-up fails the test")]

mod deletions;
mod engine;
mod full;
mod large;
mod simulate;
mod simulations;
