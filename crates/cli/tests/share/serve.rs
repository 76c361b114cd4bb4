//! `ropeway serve` as its user sees it: the real binary, on loopback, with smbclient.

mod basics;
mod server;
mod snapshots;
mod watched;
