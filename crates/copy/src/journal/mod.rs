//! The journal of a job: what a later run needs to go on where this one stopped.
//!
//! One file in the job's folder, to which [`record`]s are appended as they happen:
//!
//! * `Begin`: a run started: boot id and wall-clock time, the nonce of all temporary names, and
//!   what the job copies. Each run is an *epoch*.
//! * `Place`: temporary names are made in a folder that users see.
//! * `File`: the transfer of a file larger than one batch began (token, version of its source,
//!   identity of its target); or a backup was made of the file that this target replaces.
//! * `Folder`: a folder was made under a temporary name.
//! * `Written`: every byte of that file below an offset was handed to the target.
//! * `Durable`: at the moment `before` (wall clock, taken before the flush) everything was durable,
//!   and of the open files the bytes below the given offsets.
//! * `Closed`: a file is finished, or a folder has its own name.
//! * `Lost`: a flush failed. The kernel reports that once, so only this record tells later runs.
//! * `Links`: names of files with several names are made or removed, which changes the change time
//!   of data that the run did not write.
//! * `ClockStepped`: the wall clock was set back, so change times tell nothing.
//!
//! [`memory`] concludes from the records. A journal that cannot be read stands for a run of which
//! nothing is known: nothing on the target is trusted then. The folder is locked (flock) while a
//! job runs, and removed when the job is finished.

pub(crate) mod begin;
pub(crate) mod list;
pub(crate) mod memory;
pub(crate) mod open;
pub(crate) mod record;
pub(crate) mod store;
pub(crate) mod token;
