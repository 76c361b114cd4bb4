//! File operations of any program, as Process Monitor showed them.
//!
//! ```text
//!   bpf ────┐
//!   tracefs ┼─> RawEvent ──> Decoder (descriptors -> paths, positions -> offsets) ──> vfs::trace::Record
//!   ptrace ─┘
//!   fanotify (a whole volume) ────────────────────────────────────────────────────> vfs::trace::Record
//! ```
//!
//! What a mechanism passes on is parsed and decoded by pure code ([`call`], [`catalogue`], [`decode`],
//! [`btf`]). A recording never holds more than its tables: open files, processes, and the kernel's
//! buffer. What does not fit is counted, never silently dropped.

mod bpf;
pub mod btf;
pub mod call;
pub mod catalogue;
pub mod decode;
pub mod fanotify;
mod mechanism;
mod proc;
mod ptrace;
mod session;
mod sys;
pub mod tracefs;

pub use fanotify::Volume;
pub use mechanism::{Losses, Mechanism};
pub use session::{Chosen, Error, Outcome, Recorder, Target};
