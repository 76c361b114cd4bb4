//! The server is hard to break: what hostile, slow and dead clients do to it.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod bombs;
mod breaks;
mod escapes;
mod hostile;
mod kept;
mod large;
mod locked;
mod many;
mod memory;
mod names;
mod outside;
mod raw;
mod samples;
mod serve;
mod slow;
mod swapped;
mod told;

/// What the server says of itself, with `RUST_LOG`.
fn log() {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_test_writer()
        .try_init();
}
