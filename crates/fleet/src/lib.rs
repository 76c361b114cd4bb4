//! One copy spread over many machines.
//!
//! Workers take tasks from a queue. What is done is decided by a catalog beside the target: it is
//! append-only, needs no service, and survives whatever the queue and the workers do.
//!
//! ```text
//!   queue ──task──> run ──steps──> worker ── partition (the walk) ── cut (huge folders)
//!   (share, memory)  │
//!                    ├──> run::mover     copies a slice into the stage of the claim (copy engine)
//!                    └──> store          claims, segments, what is done: the fence is here
//!                           └─ catalog   formats and replay, pure
//!   coordinator      what the job needs next: the same answer for every worker that asks
//! ```
//!
//! Pure, without input and output and without a clock: [`task`], [`partition`], [`cut`], [`parts`],
//! [`claim`], [`catalog`], [`coordinator`], [`worker`], [`late`], [`outlook`], [`health`]. Everything else works on any
//! [`Tree`](ropeway_vfs::Tree) and [`Clock`](ropeway_vfs::Clock), so a whole fleet runs in virtual
//! time (`tests/simulate`).
//!
//! The invariant: **each entry of the source belongs to exactly one task at any time, and each task
//! to at most one claim that can still commit.** [`store`] says how a claim that was taken over is
//! kept from doing anything.

pub mod budget;
pub mod catalog;
pub mod claim;
mod codec;
pub mod coordinator;
pub mod cut;
pub mod error;
mod files;
pub mod health;
pub mod job;
pub mod late;
pub mod mutations;
pub mod outlook;
pub mod pace;
pub mod partition;
pub mod parts;
pub mod queue;
pub mod run;
pub mod source_mark;
pub mod status;
pub mod store;
pub mod task;
pub mod worker;
pub mod workers;
