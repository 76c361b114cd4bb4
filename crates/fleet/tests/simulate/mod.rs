//! A whole fleet in virtual time on one thread: workers that die, stall and lose their connections,
//! and queues with every fault. The same seed gives the same run.
//!
//! The code that runs is that of real workers; only the copy engine is replaced by plain reads and
//! writes. Files of the source hold their path and a version, which grows while the fleet works. A
//! layer around the target watches every rename:
//!
//! * no file is ever replaced by an older version of it (no stale commit);
//! * at the end every file is there, under each of its names (nothing lost);
//! * files are copied again at most as often as slices of claims were cut off.

#![allow(clippy::unwrap_used, reason = "a failed set-up fails the run")]

mod chaos;
mod world;

pub(crate) use world::{Totals, run};
