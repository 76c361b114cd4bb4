//! Parts of `ropeway demo`: the tree it makes, and the child processes that it copies with.

pub(crate) mod child;
pub(crate) mod tree;
