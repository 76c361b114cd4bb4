//! Makes durable what was written.
//!
//! A *checkpoint* makes durable whatever was written before it began: it flushes the tree, or the
//! open files when nothing else changed. Then the files that waited under temporary names get their
//! final ones, the journal records the moment, and the counters move. Checkpoints run every two
//! seconds, or earlier when dirty data reaches its bound. So write-back starts early, and the last
//! flush is short.
//!
//! The order for every replaced file is data, flush, rename. So a power cut leaves either the old
//! or the new file under the name, never a hole.
//!
//! On a server, a file is flushed through the open that wrote it. Only this open fails if the
//! server has restarted meanwhile and lost what it had not flushed. Such a file is *in doubt*, and
//! is copied once more from where it was last flushed.
//!
//! The rules are in [`ropeway_plan::durability`]; [`control`] is the state of a job, [`checkpoint`]
//! and [`names`] are the steps, [`lost_writes`] records what a device lost.

pub(crate) mod checkpoint;
pub(crate) mod control;
pub(crate) mod lost_writes;
pub(crate) mod names;
