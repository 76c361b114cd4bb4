//! Parts of `ropeway demo`: the tree that it creates, its child processes, and the WAN measurement.

pub(crate) mod child;
pub(crate) mod tree;
pub(crate) mod wan;
