//! The server is hard to break: what hostile, slow and dead clients do to it.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod hostile;
mod raw;
mod samples;
mod serve;
