//! Copy policy without I/O: what to move, in what order, how deep, and what to do when it fails.
//!
//! Nothing here opens a file, starts a thread or asks for the time. Everything is a function of its arguments or a small
//! state machine that a driver (`ropeway-copy`) asks what to do next, so every decision is tested without a disk, and
//! every run can be replayed by its seed.
//!
//! ```text
//!  a node found by the walk
//!    │
//!    ▼
//!  filter ──► names ──► decide ──────────────► transfer ◄── engine, tuner, bandwidth
//!  takes      can the   create, replace,       extents, reads and writes
//!  part?      target    skip, attributes,      of one file's data
//!             hold it?  compare, conflict        │
//!    │                     ▲                     ▼
//!  guard                 resume                eta          retry
//!  may the mirror        how much of an        how long     when to try
//!  delete it?            unfinished copy       still?       again
//!                        is there?
//! ```
//!
//! To understand a copy, read in this order:
//! 1. [`mod@decide`]: what happens to one node, from the metadata of both ends; [`grain`]: when times are equal;
//! 2. [`transfer`]: how the data of one file moves, as a machine of steps; [`engine`] says which machines there are,
//!    [`tuner`] adapts ours to what it measures;
//! 3. [`resume`]: what may be trusted after a crash;
//! 4. [`filter`], [`names`], [`guard`]: what takes part, under which name, and what a mirror must not delete;
//!    [`temporary`]: what a node is called until it is complete;
//! 5. [`bandwidth`], [`eta`], [`retry`]: how fast, how long, and how often.

pub mod bandwidth;
pub mod decide;
pub mod engine;
pub mod eta;
pub mod filter;
pub mod grain;
pub mod guard;
pub mod names;
pub mod resume;
pub mod retry;
pub mod temporary;
#[cfg(test)]
mod test_support;
pub mod transfer;
pub mod tuner;

pub use bandwidth::Schedule;
pub use decide::{Decision, KeepReason, Rules, attributes_differ, decide};
pub use engine::{Engine, EngineCache};
pub use eta::EtaEstimator;
pub use filter::{Filter, FilterError, FilterSpec};
pub use grain::Grain;
pub use guard::{DeleteGuard, MaxDelete};
pub use names::{FolderNames, NameMap, NamePolicy};
pub use resume::{JournalFacts, Trust, Version};
pub use retry::Backoff;
pub use temporary::{Nonce, Temporary};
pub use transfer::{Step, Transfer, TransferLimits, io_list};
pub use tuner::Tuner;
