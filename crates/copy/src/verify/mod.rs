//! Verification: hashes taken while files are copied, files read back from the device, manifests.
//!
//! [`hashes`] spools what is hashed, [`read_back`](mod@read_back) compares the device with it,
//! [`repair`](mod@repair) copies again what differs. [`manifest`] is the format for people and
//! later checks.

pub(crate) mod content;
pub(crate) mod hashes;
pub(crate) mod manifest;
pub(crate) mod read_back;
pub(crate) mod repair;
pub(crate) mod skipped;
