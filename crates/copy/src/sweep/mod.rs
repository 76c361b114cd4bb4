//! Temporary names: those of this job end with it, those of dead jobs are swept, those of living
//! ones stay.
//!
//! ```text
//!   place         notes where this job makes temporary names, in claims (own_claims)
//!   claim_record  what a claim says
//!   fate          whether the job behind a name lives
//!   begin, others, end   what a job sweeps before, during and after the copy
//!   removal       removes what a dead job left
//!   search        looks for it where no claim tells
//!   report        a sweep from outside of a job
//! ```
//!
//! A claim is a file in the topmost folder of the target that a job works in. While the job lives
//! it is held; after its death it tells whoever finds it where its temporary names are
//! ([`ropeway_vfs::claim`]). It outlives the journal, which may lie on another machine. A name
//! whose claim is nowhere to be seen may be a living job's, whose claim lies higher up than this
//! one sees: it stays. The rules are in [`ropeway_plan::sweep`].

pub(crate) mod account;
pub(crate) mod begin;
pub(crate) mod claim_record;
pub(crate) mod end;
pub(crate) mod fate;
pub(crate) mod others;
pub(crate) mod own_claims;
pub(crate) mod place;
pub(crate) mod removal;
pub(crate) mod report;
pub(crate) mod search;
pub(crate) mod temporaries;
pub(crate) mod vanished;
