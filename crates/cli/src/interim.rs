//! Until the tree of shares is merged.
use ropeway_vfs::trace::{End, SharedObserver};
#[derive(Default)]
pub(crate) struct SmbTreeOptions { pub(crate) observer: Option<(SharedObserver, End)> }
