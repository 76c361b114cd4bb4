//! Gives complete nodes their final names, and keeps what they replace.
//!
//! [`rename`](mod@rename) renames, and finds out whether a call without a reply was carried out.
//! [`backup`] keeps what is replaced. [`finish`] sets the attributes of a full folder and names it,
//! from the leaves up.

pub(crate) mod backup;
pub(crate) mod finish;
pub(crate) mod folder;
pub(crate) mod kept_versions;
pub(crate) mod rename;
