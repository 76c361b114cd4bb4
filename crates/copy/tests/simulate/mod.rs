//! Simulates whole jobs. Trees and journals are in memory, time is virtual, and a seed decides
//! everything that goes wrong.

#![allow(
    clippy::unwrap_used,
    dead_code,
    missing_docs,
    unreachable_pub,
    unused_imports,
    reason = "a test, which the example shares"
)]

pub mod history;
pub mod journals;
pub mod judge;
pub mod scenario;
pub mod snapshot;
pub mod tree;
pub mod world;

pub use history::run;
