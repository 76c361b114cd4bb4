//! Attacks on the promises of "When it is safe" in the README, on the real binary.
//!
//! Each test is a case in which an earlier version lost, mixed or stranded data, or made a false
//! claim. They run as part of `cargo test`, and on a release build by `cargo xtask attack`.
//! `ROPEWAY_PROGRAM=/path/to/ropeway` selects another binary. A case that lacks root, loop devices
//! or a file system prints `skipped:`.

/// What "durable" depends on: failed flushes, names that others know, versions of a source.
mod durable;
/// Unusual sources and targets, comparison, configuration.
mod ends;
/// Temporary names of running and of dead jobs.
mod leftovers;
/// Deletions by a mirror, a backup, a move or a watch.
mod mirror;
