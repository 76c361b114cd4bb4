//! `ropeway lab`, on the real binary.
//!
//! One program: each more would be linked with everything once more. `cargo xtask ci` runs its modules
//! one by one; `cargo test -p ropeway-cli --test lab MODULE::` does so by hand.

#![allow(clippy::unwrap_used, reason = "a failed set-up fails the test")]

mod lab;
mod lab_documents;
mod lab_local;
mod lab_predict;
mod lab_run;
#[path = "../support/mod.rs"]
mod support;
