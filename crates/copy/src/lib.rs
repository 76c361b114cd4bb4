//! Copy jobs: a plan and two trees, with progress, journal, verification and durability.
//!
//! A [`Job`] copies one or more [`Root`]s into a target tree. It walks while it copies, keeps a journal so
//! that a later run goes on where this one stopped, counts three things (read, sent, durable), and ends when
//! the data is durable unless told otherwise ([`Durability`]).
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

mod ahead;
mod backup;
mod blocks;
mod changing;
mod check;
mod clock;
mod compare;
mod context;
mod count;
mod crossing;
mod delete;
mod durable;
mod environment;
mod file;
mod folder;
mod job;
mod journal;
mod kernel;
mod leftovers;
mod links;
mod moving;
#[cfg(feature = "mutations")]
pub mod mutations;
#[cfg(not(feature = "mutations"))]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "public with the feature `mutations` only"
)]
mod mutations;
mod naming;
mod options;
mod private;
mod progress;
mod repair;
mod resume;
mod small;
mod source;
mod special;
mod stall;
mod status;
mod stream;
mod verify;
mod walk;
mod watch;
mod windows;

pub use blocks::pool_for;
pub use changing::Changing;
pub use check::{CheckOutcome, CheckSpec, check, check_manifest};
pub use clock::RuntimeClock;
pub use context::EventSink;
pub use environment::{Environment, Randomness, Sizes, WallClock};
pub use job::{Handle, Job, JobSpec};
pub use journal::{
    JobKey, JournalFile, JournalFolder, JournalSpec, JournalStore, UnfinishedJob, forget_job, unfinished,
    unfinished_jobs,
};
pub use leftovers::{JobLeftovers, SweepReport, Swept, leftovers_of, sweep_below};
pub use options::{Backup, Delete, Durability, Options, Root, TEMPORARY_PREFIX, Verification, is_temporary};
pub use private::{private_folder, private_options};
pub use status::{Outcome, Status, hint_for};
pub use verify::{ManifestEntry, ManifestError, ManifestReader};
