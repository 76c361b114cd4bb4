//! Mounted shares, the cache before them, and the gateway, on the real binary.
//!
//! One program: each more would be linked with everything once more. `cargo xtask ci` runs its modules
//! one by one; `cargo test -p ropeway-cli --test mount MODULE::` does so by hand.

#![allow(clippy::unwrap_used, reason = "a failed set-up fails the test")]

mod boost_test;
mod gateway;
mod gateway_offline;
mod late_requests;
mod line;
mod mount;
mod mount_boost;
mod mount_boost_devices;
mod mount_hogs;
mod mount_model;
mod mount_programs;
mod mount_record;
mod mount_share;
mod mount_suites;
#[path = "../support/mod.rs"]
mod support;
mod write_back;
