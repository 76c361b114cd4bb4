//! Parts of `ropeway demo`: the tree it makes, the child processes that it copies with, and the WAN.

pub(crate) mod child;
pub(crate) mod tree;
pub(crate) mod wan;
