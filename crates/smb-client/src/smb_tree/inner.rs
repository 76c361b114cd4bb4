//! State that a tree shares with its open files, listings and watches.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use ropeway_block::Pool;
use ropeway_vfs::{Capabilities, RelPath};
use tokio::sync::Semaphore;

use super::dirty::{ChangedFolders, DirtyFiles};
use super::listing_cache::ListingCache;
use super::open_files::OpenFiles;
use super::paths::Base;
use crate::share::Share;

/// Options for a share as a tree.
#[derive(Clone, Debug, Default)]
pub struct SmbTreeOptions {
    /// Whether to carry security descriptors (owner, group, DACL), as the extended attribute
    /// `user.ropeway.sddl`.
    pub acls: bool,
    /// Name of the tree in messages. Default: the names of share and folder.
    pub description: Option<String>,
    /// Whether names that differ only in case are different files. Servers do not report it
    /// reliably.
    pub case_sensitive: bool,
}

/// State that the tree shares with its open files.
pub(crate) struct Inner {
    pub(crate) share: Share,
    pub(crate) base: Base,
    pub(crate) options: SmbTreeOptions,
    pub(crate) description: String,
    pub(crate) capabilities: Capabilities,
    /// Serial number of the volume, part of every [`ropeway_vfs::FileId`].
    pub(crate) volume: u64,
    /// Whether the share stores named streams.
    pub(crate) has_streams: bool,
    /// Whether the share refused extended attributes although it announced them.
    pub(crate) eas_refused: AtomicBool,
    /// Whether the share can clone ranges.
    pub(crate) may_reflink: bool,
    /// Bytes of a cluster, 0 if the share does not report it.
    pub(crate) cluster: u64,
    /// Whether files may have checksums of their content (ReFS).
    pub(crate) has_integrity: bool,
    /// Whether the share clones whole clusters only, the last one beyond the end of the file.
    pub(crate) clones_by_clusters: AtomicBool,
    /// Folders that are reparse points whose content the server shows (in a cloud, …). Opened as
    /// reparse points they may appear empty.
    pub(crate) content_shown: Mutex<HashSet<RelPath>>,
    pub(crate) scratch: Pool,
    /// Blocks for reads in pieces.
    pub(crate) pieces: Pool,
    /// Small files that go each in its own compound.
    pub(crate) small_alone: Arc<Semaphore>,
    pub(crate) dirty: DirtyFiles,
    pub(crate) changed: ChangedFolders,
    /// Shared with the trees of other folders of the share.
    pub(crate) listing_cache: Arc<ListingCache>,
    /// Held for reading by each file that is being closed.
    pub(crate) pending_closes: Arc<tokio::sync::RwLock<()>>,
    /// The open files. The last task that holds a file closes it.
    pub(crate) open_files: Arc<OpenFiles>,
}
