//! Attacks on what "When it is safe" in the README promises, on the real binary.
//!
//! Each test is a case in which an earlier version lost, mixed or stranded data, or claimed what was not so. They run as
//! part of `cargo test`, and by `cargo xtask attack` on a release build. `ROPEWAY_PROGRAM=/path/to/ropeway` runs them on
//! another binary. Cases that need root, loop devices or a file system that is missing say `skipped:`.

#![allow(clippy::unwrap_used, reason = "a failed set-up fails the test")]

#[path = "../support/mod.rs"]
mod support;

/// Failed flushes, names that others know, versions of a source, clocks: what "durable" rests on.
mod durable;
/// Ends of odd kinds, comparison, configuration.
mod ends;
/// Temporary names of running and of dead jobs.
mod leftovers;
/// What a mirror, a backup, a move or a watch deletes.
mod mirror;
