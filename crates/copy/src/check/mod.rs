//! Comparison without copying: two trees, or a tree and a manifest.
//!
//! [`run`] starts a comparison, [`folders`] matches both trees folder by folder, [`content`]
//! compares what is in the files, [`reasons`] says why nodes differ. Nothing is ever written to
//! either end.

pub(crate) mod content;
pub(crate) mod folders;
mod reasons;
pub(crate) mod run;
pub(crate) mod spec;
