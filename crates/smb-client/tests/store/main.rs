//! Tests a share as a store: the contract of stores, random operations with cut connections,
//! restarted servers, two clients.
#![allow(clippy::unwrap_used, reason = "tests")]

mod ahead;
mod bench;
mod coherence;
mod contract;
mod creation;
mod faulty;
mod leases;
mod losses;
#[path = "../../../smb-server/tests/hard/serve.rs"]
mod serve;
mod speed;
mod way;
mod write_back;

/// Turns on the log, filtered by `RUST_LOG`.
fn log() {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_test_writer()
        .try_init();
}
