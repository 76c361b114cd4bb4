//! Decorators: trees around trees.
//!
//! A decorator wraps a tree and is itself a tree. It slows, limits or traces operations, or makes
//! them fail. Listings and open files are wrapped too. All decorators share one body, [`Layered`],
//! which turns every operation into a [`Call`] and hands it to a [`Layer`]. A layer sees all
//! operations in one place, so it cannot forget one.
//!
//! ```text
//!  Traced( Limit( Slow( local ) ) )      the outermost layer sees what the caller asks
//! ```
//!
//! Invariants:
//! * No decorator offers `copy_batch`, reflink or `copy_range`. All data passes through `read_at`
//!   and `write_at`, or through `get_small` and `put_small`. A layer sees these two as one read and
//!   one write of the whole content if it asks for that ([`Layer::WHOLE_SMALL`]), else as their
//!   steps.
//! * `as_any` is the decorator itself. Capabilities and description are those of the inner tree.

pub mod faults;
mod file;
pub mod gentle;
mod layer;
pub mod limit;
pub mod ops;
pub mod relief;
pub mod slow;
#[cfg(test)]
mod test_kit;
mod text;
pub mod trace;
pub mod traced_store;
mod tree;
mod turns;
mod whole;

pub use layer::{Action, Call, Done, Layer, Operation};
pub use text::TextError;
pub use tree::Layered;
