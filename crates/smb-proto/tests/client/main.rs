//! Tests of the client connection against a server played in memory.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod chance;
mod downgrade;
mod hostile;
mod jobs;
mod layout;
mod life;
mod login;
mod pays;
mod peer;
mod seal;
mod sim;
mod ticket;
mod tickets;
mod world;

use chance::{Random, content};
