//! Robustness of the server against hostile, slow and dead clients.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod bombs;
mod breaks;
mod dissected;
mod escapes;
mod external_changes;
mod get_files;
mod hostile;
mod integrity;
mod large_folders;
mod limits;
mod memory;
mod microsoft;
mod names;
mod persistent;
mod private;
mod put_files;
mod range_locks;
mod raw;
mod replaced_files;
mod replaced_sessions;
mod reporting;
mod same_files;
mod samples;
mod serve;
mod slow_clients;

/// Shows the server's log if `RUST_LOG` is set.
fn log() {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_test_writer()
        .try_init();
}
