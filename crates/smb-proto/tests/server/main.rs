//! The server's connection against our own client's, in memory, and against messages made by hand.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod by_hand;
mod compressed;
mod line;
mod logins;
mod sealed;
mod ways;
mod world;
