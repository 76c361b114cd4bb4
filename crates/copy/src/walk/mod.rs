//! Walks the source and hands out its nodes.
//!
//! [`walker`] lists folder by folder, [`entries`] chooses and maps what takes part, [`decision`]
//! decides on each node, [`dispatch`] hands it out, [`make_folder`] makes the folders of the
//! target. [`count`] is the walk for the totals; it lists ahead of the copying walk into the
//! [`listing_cache`]. Folders of a distant tree are listed before their turn ([`list_ahead`]), and what
//! stands on the target is found in such a listing ([`standing`]). A folder that is equal to its [`twin`] on this
//! machine is not listed.

pub(crate) mod balance;
pub(crate) mod count;
pub(crate) mod decision;
pub(crate) mod dispatch;
pub(crate) mod entries;
pub(crate) mod leftover;
pub(crate) mod list_ahead;
pub(crate) mod listed;
pub(crate) mod listing_cache;
pub(crate) mod make_folder;
pub(crate) mod standing;
mod steps;
pub(crate) mod twin;
pub(crate) mod walker;
pub(crate) mod xattrs;
