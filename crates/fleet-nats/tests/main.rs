//! Tests against a real server, in a folder and on a port of its own. Without `nats-server` (`cargo xtask tools`
//! builds it) they skip themselves.

#![allow(clippy::unwrap_used, reason = "a failed set-up fails the test")]

mod contract;
