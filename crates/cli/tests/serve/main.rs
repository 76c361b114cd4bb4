//! `ropeway serve` as its user sees it: the real binary, on loopback, with smbclient.

#![allow(clippy::unwrap_used, reason = "a failed set-up fails the test")]

mod basics;
mod server;
mod snapshots;
#[path = "../support/mod.rs"]
mod support;
mod watched;
