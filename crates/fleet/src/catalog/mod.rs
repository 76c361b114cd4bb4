//! The catalog: what is known of a job, beside its target.
//!
//! A queue may lose and repeat messages, and processes may die. The catalog decides what is done.
//! It only grows: nothing in it is changed, and every file appears whole or not at all.
//!
//! ```text
//!   .ropeway-fleet-NAME/run.N.TOKEN/
//!     job                    what the job is asked to do
//!     tasks/TASK             a task that is not done
//!     claims/TASK.EPOCH/     a claim: the segments that it is about to publish
//!     stage/TASK.EPOCH/      its files, until they get their names
//!     large/FILE             a large file that several workers write
//!     graves/                nodes that are being removed
//!     segments/TA/TASK.EPOCH.N  what a claim committed: records, and tasks that it gave away
//!     done/TASK              a task that is done: its sums, and the tasks that it gave away
//!     workers/WORKER         signs of life
//!     rounds/N               tasks that a resume added
//!     tmp/                   files until they are complete
//! ```
//!
//! [`record`] says what is kept of a file, [`segment`] how that is stored, [`replay`] what follows
//! from it. These modules are pure; `crate::store` does the input and output.

pub mod done;
pub mod losses;
pub mod record;
pub mod replay;
pub mod segment;

pub use done::{Done, Sums};
pub use losses::Losses;
pub use record::{Record, State};
pub use replay::Replay;
pub use segment::{Block, SegmentId, SegmentReader, Tail, encode, encode_given, encode_lost};
