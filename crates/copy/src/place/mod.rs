//! Where nodes go on the target.
//!
//! [`folder`] is a folder while it is filled, [`task`] a node to copy, [`destination`] the path to
//! which it is written until it is complete. The rule is in [`ropeway_plan::placement`].

pub(crate) mod destination;
pub(crate) mod early_xattrs;
pub(crate) mod failure;
pub(crate) mod folder;
pub(crate) mod foreign_links;
pub(crate) mod mark;
pub(crate) mod task;
