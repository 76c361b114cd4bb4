//! Copy policy without I/O: what to move, in what order, how many blocks deep, and what to do on
//! failure.
//!
//! Nothing here opens a file, starts a thread or reads a clock. Every decision is a function of its
//! arguments, or a small state machine that a driver (`ropeway-copy`) polls for the next step. So
//! every decision is tested without a disk, and a seed replays every run.
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
//!  may the mirror        how much of an        time left    when to try
//!  delete it?            unfinished copy                    again
//!                        can be trusted?
//! ```
//!
//! To understand a copy, read in this order:
//! 1. [`mod@decide`]: what happens to one node, from the metadata of both ends; [`granularity`]:
//!    when two times count as equal; [`delta`]: what of a changed file must be sent;
//! 2. [`transfer`]: how the data of one file moves, as a state machine; [`engine`]: the machines
//!    there are; [`era`]: what their systems sent to servers; [`tuner`]: how ours adapts to what it measures;
//! 3. [`placement`] and [`durability`]: where a new node goes until it is complete, what is durable,
//!    and when the node gets its name; [`resume`]: what may be trusted after a crash; [`sweep`]: which
//!    leftovers of dead jobs may be removed;
//! 4. [`filter`], [`names`], [`guard`]: what takes part, under which name, and what a mirror must
//!    not delete; [`temporary`]: the name of a node until it is complete;
//! 5. [`bandwidth`], [`eta`], [`retry`]: how fast, how long, and how often.

pub mod bandwidth;
pub mod decide;
pub mod delta;
pub mod durability;
pub mod engine;
pub mod era;
pub mod eta;
pub mod filter;
pub mod granularity;
pub mod guard;
pub mod names;
pub mod placement;
pub mod resume;
pub mod retry;
pub mod sweep;
pub mod temporary;
#[cfg(test)]
mod test_support;
pub mod transfer;
pub mod tuner;

pub use bandwidth::Schedule;
pub use decide::{
    AttributesDiffer, Decision, KeepReason, Rules, attributes_differ, changed_since_copy, decide,
    differing_attributes,
};
pub use durability::{ClockWatch, Durability, DurabilityPolicy, DurabilityTracker, Naming};
pub use engine::{Engine, EngineCache, Locality};
pub use era::{Compounds, Era, Protocol};
pub use eta::EtaEstimator;
pub use filter::{Filter, FilterError, FilterSpec};
pub use granularity::TimeGranularity;
pub use guard::{DeleteGuard, MaxDelete};
pub use names::{FolderNames, NameMap, NamePolicy};
pub use placement::{Spot, Visibility};
pub use resume::{JournalFacts, MadeNode, Start, Trust, Version};
pub use retry::Backoff;
pub use temporary::{Nonce, Temporary};
pub use transfer::{Step, Transfer, TransferLimits, io_list};
pub use tuner::Tuner;
