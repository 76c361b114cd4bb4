//! Clients and servers of shares, on the real binary: `ropeway` with smbd, `ropeway serve` with others.
//!
//! One program: each more would be linked with everything once more. `cargo xtask ci` runs its modules
//! one by one; `cargo test -p ropeway-cli --test share MODULE::` does so by hand.

#![allow(clippy::unwrap_used, reason = "a failed set-up fails the test")]

mod client_suites;
mod compression;
mod dfs_hosts;
mod fleet_workers;
#[cfg(feature = "kerberos")]
mod kerberos;
mod line;
mod login;
#[path = "../../../smb-server/tests/hard/raw.rs"]
mod raw;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../../smb-server/tests/hard/samples.rs"]
mod samples;
mod serve;
mod serve_hard;
mod serve_interop;
mod serve_names;
mod serve_persistent;
mod serve_smb1;
mod share_big;
mod share_faults;
mod share_logins;
mod share_trees;
mod share_watch;
mod shares;
mod smb1;
#[path = "../support/mod.rs"]
mod support;
mod windows_metadata;
