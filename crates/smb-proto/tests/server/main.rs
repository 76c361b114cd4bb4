//! Tests of the server connection against our own client, in memory, and against hand-made
//! messages.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod by_hand;
mod compressed;
mod line;
mod logins;
mod sealed;
mod ways;
mod world;
