//! Copy jobs: a plan and two trees, with progress, journal, verification and durability.
//!
//! A [`Job`] copies one or more [`Root`]s into a target tree. It walks while it copies, and keeps a
//! journal so that a later run continues where this one stopped. It counts three things (read,
//! sent, durable), and ends when the data is durable, unless told otherwise ([`Durability`]).
//!
//! ```no_run
//! use std::sync::Arc;
//! use ropeway_copy::{Job, JobSpec, Options};
//! use ropeway_local::{LocalOptions, LocalTree};
//! use ropeway_vfs::RelPath;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let source = LocalTree::open("photos".as_ref(), LocalOptions::default())?;
//! let target = LocalTree::open("/mnt/stick".as_ref(), LocalOptions::default())?;
//! let to = RelPath::parse(b"photos").expect("a plain name");
//! let job = Job::new(JobSpec::whole(source, target, to, Options::default()));
//! let outcome = job.run(Arc::new(|_event| {})).await;
//! println!("{} files, {:?}", outcome.summary.counters.files_done, outcome.status);
//! # Ok(()) }
//! ```
//!
//! The modules follow the way of a file. A step may use the steps to its right, never one to its
//! left:
//!
//! ```text
//!   job -> walk -> transfer -> name -> durable (checkpoints) -> journal
//!             place: where it goes     verify: what was written     sweep, delete: what must go
//! ```

mod block_list;
mod check;
mod clock;
mod delete;
mod durable;
mod job;
mod journal;
#[cfg(feature = "mutations")]
pub mod mutations;
#[cfg(not(feature = "mutations"))]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "public with the feature `mutations` only"
)]
mod mutations;
mod name;
mod place;
mod private;
mod sweep;
mod transfer;
mod verify;
mod walk;

pub use block_list::kept::KeptBlocks;
pub use check::run::{check, check_manifest};
pub use check::spec::{CheckOutcome, CheckSpec, CheckWatch, Difference, DifferenceSink, Side, Tally};
pub use clock::RuntimeClock;
pub use job::blocks::pool_for;
pub use job::environment::{Environment, Randomness, Sizes, WallClock};
pub use job::options::{
    Backup, Changing, Delete, DeltaMode, Options, Root, TEMPORARY_PREFIX, Verification, is_temporary,
};
pub use job::outcome::{Outcome, Status, hint_for};
pub use job::report::EventSink;
pub use job::run::{Handle, Job};
pub use job::spec::JobSpec;
pub use journal::list::{UnfinishedJob, forget_job, unfinished_jobs};
pub use journal::open::{JobKey, JournalSpec, unfinished};
pub use journal::store::{JournalFile, JournalFolder, JournalStore};
pub use private::{private_folder, private_options};
pub use ropeway_plan::Durability;
pub use sweep::removal::Swept;
pub use sweep::report::{JobLeftovers, SweepReport, leftovers_of, sweep_below};
pub use verify::manifest::{ManifestEntry, ManifestError, ManifestReader};
