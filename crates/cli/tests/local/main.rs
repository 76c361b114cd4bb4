//! Local copies and mirrors, and what every command has in common, on the real binary.
//!
//! One program: each more would be linked with everything once more. `cargo xtask ci` runs its modules
//! one by one; `cargo test -p ropeway-cli --test local MODULE::` does so by hand.

#![allow(clippy::unwrap_used, reason = "a failed set-up fails the test")]

mod attack;
mod bench;
mod delta;
mod devices;
mod dirty;
mod faults;
mod fidelity;
mod filters;
mod fleet;
mod fleet_left;
mod fleet_storm;
mod fleet_views;
mod followed_links;
mod mirror;
mod moves;
mod names_and_links;
mod nodes;
mod observe;
mod page;
mod power;
mod private;
mod resume;
mod says;
mod scale;
mod semantics;
#[path = "../support/mod.rs"]
mod support;
mod top;
mod trace_run;
mod trees;
mod usage;
mod volumes;
mod watch;
