//! Trees around trees.
//!
//! Each decorator takes a tree and is a tree: what passes through is counted, slowed, limited, repeated, traced or
//! made to fail; listings and open files are wrapped too. They share one body, [`Layered`], which turns every
//! operation into a [`Call`] and hands it to a [`Layer`]; a layer sees all operations in one place, so none can be
//! forgotten. [`DryRun`](dry_run::DryRun) stands alone, since it answers in place of the tree.
//!
//! ```text
//!  Traced( Retry( Limit( Slow( local ) ) ) )      outermost sees the caller's view
//! ```
//!
//! Invariants: no decorator offers `copy_batch`, reflink or `copy_range`, so that all data passes through `read_at`
//! and `write_at`, or through `get_small` and `put_small`, which count as a read and a write of the whole content where
//! a layer takes them so, and as their steps elsewhere; `as_any` is the decorator itself; capabilities and description are those of the inner tree.

pub mod dry_run;
pub mod faults;
mod file;
mod layer;
pub mod limit;
pub mod meter;
pub mod retry;
mod settle;
pub mod slow;
#[cfg(test)]
mod test_kit;
mod text;
pub mod trace;
mod tree;
mod whole;

pub use layer::{Action, Call, Done, Layer};
pub use text::TextError;
pub use tree::Layered;
