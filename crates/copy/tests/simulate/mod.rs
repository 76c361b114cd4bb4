//! A simulator of whole jobs: trees and journals in memory, virtual time, and everything that goes
//! wrong follows from a seed.

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
