//! Deletions: what a mirror removes from its target, and what a move removes from its source.
//!
//! [`mirror`] begins deletions, [`pass`] finds what the source does not have, [`remove`] removes it
//! or moves it to the backup, except what [`protection`] names. [`clear`] and [`unseen`] remove
//! what no user ever saw. [`extra_files`] remembers what will be removed.
//! [`moved`] removes the sources of a move. [`batch`] says how much is removed at a time.
//!
//! Invariants:
//! * The guard is asked before a pass and before each node.
//! * Nothing is deleted on the target if something failed before: a file that was renamed and could
//!   not be read would be gone under both names.
//! * No deletion follows a link, or leaves the volume.

pub(crate) mod above;
mod batch;
pub(crate) mod clear;
pub(crate) mod copied_nodes;
pub(crate) mod extra_files;
pub(crate) mod guard;
pub(crate) mod mirror;
pub(crate) mod moved;
pub(crate) mod nodes;
pub(crate) mod pass;
pub(crate) mod protection;
pub(crate) mod remove;
pub(crate) mod times;
pub(crate) mod unseen;
