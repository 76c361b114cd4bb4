//! The contract: [`Tree`] and [`File`].
//!
//! Rules that every implementation keeps (and the contract suite tests):
//! * paths are relative to the root; no operation follows a symbolic link, in any component;
//! * `rename` replaces a file or an empty folder only when asked to;
//! * a future that is dropped orphans its operation: buffers and descriptors live until the system
//!   has answered; a write is finished or unknown, never undone;
//! * `read_at` is short only at the end of the file; `write_at` is never short.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use ropeway_block::{Block, BlockMut};

use crate::claim::{self, Claim, ClaimAbove};
use crate::descent::Origin;
use crate::error::{Error, ErrorKind, Op, Result};
use crate::metadata::{Capabilities, DirEntry, Loss, Metadata, MetadataChange, Preserve, Xattr};
use crate::path::{Name, RelPath};
use crate::small::{self, GetSmall, GotSmall, PutSmall};

/// A boxed future.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// How an open file treats the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheMode {
    /// The implementation chooses by size and measurement.
    #[default]
    Auto,
    /// Ordinary cached I/O.
    Keep,
    /// Cached I/O that leaves the cache as it found it.
    Leave,
    /// Direct I/O (falls back to `Leave` where refused).
    Direct,
}

/// Whether an open creates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Create {
    /// The file must exist.
    #[default]
    No,
    /// The file must not exist.
    New,
    /// Opened if it exists (content kept), else created.
    IfMissing,
    /// Created, or emptied if it exists.
    Truncate,
}

/// How to open a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// For writing too.
    pub write: bool,
    /// Whether to create.
    pub create: Create,
    /// Permission bits of a new file (not masked).
    pub mode: u32,
    /// Page cache manners.
    pub cache: CacheMode,
}

impl OpenOptions {
    /// For reading.
    pub fn read(cache: CacheMode) -> Self {
        Self {
            cache,
            ..Self::default()
        }
    }

    /// For writing; new files are private (0600) until their attributes are set.
    pub fn write(create: Create, cache: CacheMode) -> Self {
        Self {
            write: true,
            create,
            mode: 0o600,
            cache,
        }
    }
}

/// A run of data in a file; what lies between extents is a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

/// Room on a volume, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Size of the volume.
    pub total: u64,
    /// Free for this user.
    pub available: u64,
    /// Free nodes (inodes), where limited.
    pub nodes_available: Option<u64>,
}

/// A stream over a folder's entries.
pub trait Listing: Send {
    /// Up to `max` further entries (`.` and `..` excluded) with metadata; empty at the end.
    fn next(&mut self, max: usize) -> Pending<'_, Result<Vec<DirEntry>>>;

    /// Which folder this is, and which one holds it, once the first entries are there; `None` where it is not told.
    fn origin(&self) -> Option<Origin> {
        None
    }
}

/// One file of a [`Batch`].
#[derive(Clone, Debug)]
pub struct BatchItem {
    /// Name in the source folder.
    pub name: Name,
    /// Name to create in the target folder.
    pub target: Name,
    /// Where to rename it when complete, replacing; `None` leaves it under `target`.
    pub rename_to: Option<Name>,
    /// Whether `target` must be new.
    pub create: Create,
    /// The source's metadata from the walk.
    pub metadata: Metadata,
}

/// Small files of one folder to copy inside one side in one go.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Folder in the source tree.
    pub source_dir: RelPath,
    /// Folder in the target tree.
    pub target_dir: RelPath,
    /// The files.
    pub items: Vec<BatchItem>,
    /// Attributes to keep.
    pub preserve: Preserve,
    /// Page cache manners.
    pub cache: CacheMode,
    /// Whether to take BLAKE3 of each content.
    pub hash: bool,
    /// Whether to fsync each file before it appears under its final name.
    pub sync_each: bool,
}

/// One finished file of a batch.
#[derive(Clone, Debug, Default)]
pub struct BatchDone {
    /// Bytes read from the source.
    pub read: u64,
    /// Payload bytes written (0 for reflinks).
    pub sent: u64,
    /// Final logical size.
    pub size: u64,
    /// What could not be kept.
    pub losses: Vec<Loss>,
    /// BLAKE3 of the content, if asked for.
    pub hash: Option<[u8; 32]>,
    /// Whether the source changed while it was read, or is not what the walk saw. Then the file did not get the name of
    /// [`BatchItem::rename_to`], and is to be copied once more.
    pub source_changed: bool,
}

/// Outcome of one file: done, or the error and whether it struck on the source's side.
pub type BatchResult = std::result::Result<BatchDone, (Error, bool)>;

/// Small files of two folders to be compared, pair by pair.
#[derive(Clone, Debug)]
pub struct CompareBatch {
    /// Their folder in this tree.
    pub dir: RelPath,
    /// Their folder in the other tree.
    pub other_dir: RelPath,
    /// Name here, name there, and what a listing said of the file here.
    pub pairs: Vec<(Name, Name, Metadata)>,
}

/// Whether two files hold the same bytes, or what failed; `true`: in the other tree.
pub type CompareResult = std::result::Result<bool, (Error, bool)>;

/// A tree of files.
pub trait Tree: Send + Sync + 'static {
    /// For downcasts: same-side copies need to know their peer.
    fn as_any(&self) -> &dyn Any;

    /// The root for people: a path or URL.
    fn describe(&self) -> String;

    /// What this tree can hold.
    fn capabilities(&self) -> &Capabilities;

    /// Metadata of a node itself (a link is not followed).
    fn metadata<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<Metadata>>;

    /// Metadata of several nodes of one folder; `Ok(None)` where there is none.
    fn lookup<'a>(
        &'a self,
        dir: &'a RelPath,
        names: &'a [Name],
    ) -> Pending<'a, Result<Vec<Result<Option<Metadata>>>>>;

    /// Begins to list a folder.
    fn list<'a>(&'a self, dir: &'a RelPath) -> Pending<'a, Result<Box<dyn Listing>>>;

    /// Opens a regular file.
    fn open<'a>(&'a self, path: &'a RelPath, options: OpenOptions) -> Pending<'a, Result<Arc<dyn File>>>;

    /// Makes one folder; fails if the name is taken.
    fn make_dir<'a>(&'a self, path: &'a RelPath, mode: u32) -> Pending<'a, Result<()>>;

    /// Makes a symbolic link with the given text.
    fn make_symlink<'a>(&'a self, path: &'a RelPath, text: &'a [u8]) -> Pending<'a, Result<()>>;

    /// Makes a hard link `new` to the existing file `existing`.
    fn make_hard_link<'a>(&'a self, existing: &'a RelPath, new: &'a RelPath) -> Pending<'a, Result<()>>;

    /// Makes a FIFO or device.
    fn make_special<'a>(&'a self, path: &'a RelPath, metadata: &'a Metadata) -> Pending<'a, Result<()>>;

    /// The text of a symbolic link.
    fn read_link<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<Vec<u8>>>;

    /// Removes a file, link or special node.
    fn remove_file<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<()>>;

    /// Removes an empty folder.
    fn remove_dir<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<()>>;

    /// Renames; an existing target file (or empty folder, for a folder) is replaced only if `replace`.
    fn rename<'a>(&'a self, from: &'a RelPath, to: &'a RelPath, replace: bool) -> Pending<'a, Result<()>>;

    /// Renames several nodes inside one folder, replacing; one result each, in order.
    fn rename_in<'a>(&'a self, dir: &'a RelPath, pairs: &'a [(Name, Name)]) -> Pending<'a, Vec<Result<()>>> {
        Box::pin(async move {
            let mut results = Vec::with_capacity(pairs.len());
            for (from, to) in pairs {
                results.push(self.rename(&dir.join(from), &dir.join(to), true).await);
            }
            results
        })
    }

    /// Sets attributes of a node itself; returns what could not be kept.
    fn set_metadata<'a>(
        &'a self,
        path: &'a RelPath,
        change: &'a MetadataChange,
    ) -> Pending<'a, Result<Vec<Loss>>>;

    /// All extended attributes of a node itself, sorted by name.
    fn xattrs<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<Vec<Xattr>>>;

    /// The last steps of a folder that was filled: its attributes, then its final name, where nothing may stand. One
    /// round trip where the tree can. What came of each: the name is given also where the attributes were refused.
    fn finish_dir<'a>(
        &'a self,
        path: &'a RelPath,
        change: &'a MetadataChange,
        rename_to: &'a RelPath,
    ) -> Pending<'a, (Result<Vec<Loss>>, Result<()>)> {
        Box::pin(async move {
            let set = self.set_metadata(path, change).await;
            (set, self.rename(path, rename_to, false).await)
        })
    }

    /// Room left.
    fn space(&self) -> Pending<'_, Result<Space>>;

    /// Makes everything written so far durable (`syncfs`, FLUSH of the share). Reports write-back errors since the
    /// tree was opened.
    fn sync(&self) -> Pending<'_, Result<()>>;

    /// Makes the entries of one folder durable.
    fn sync_dir<'a>(&'a self, dir: &'a RelPath) -> Pending<'a, Result<()>>;

    /// Copies small files from `source` inside one side (both local, or one server), without blocks. `Err` gives the
    /// batch back where the two trees have no such way.
    fn copy_batch<'a>(
        &'a self,
        source: &'a dyn Tree,
        batch: Batch,
    ) -> std::result::Result<Pending<'a, Vec<BatchResult>>, Batch> {
        let _ = source;
        Err(batch)
    }

    /// Compares the content of small files with those of `other`, one result each, in order; `None` where the trees have no
    /// quicker way for many than one by one.
    fn compare_batch<'a>(
        &'a self,
        other: &'a dyn Tree,
        batch: CompareBatch,
    ) -> Option<Pending<'a, Vec<CompareResult>>> {
        let _ = (other, batch);
        None
    }

    /// Whether files of `source` may be copied here without passing through this machine, by
    /// [`reflink_from`](File::reflink_from) or [`copy_range_from`](File::copy_range_from): both lie on one server.
    fn copies_inside(&self, source: &dyn Tree) -> bool {
        let _ = source;
        false
    }

    /// Writes a small file whole, attributes and final name included: one round trip where the tree can. Returns what
    /// could not be kept.
    ///
    /// After an error, part of a file may stand under [`PutSmall::path`]; a file under [`PutSmall::rename_to`] is the
    /// old one or the whole new one.
    fn put_small(&self, put: PutSmall) -> Pending<'_, Result<Vec<Loss>>> {
        Box::pin(small::put_by_steps(self, put))
    }

    /// Reads a small file whole into `block`, with its attributes: one round trip where the tree can. The block comes
    /// back in both cases.
    fn get_small(&self, get: GetSmall, block: BlockMut) -> Pending<'_, (BlockMut, Result<GotSmall>)> {
        Box::pin(small::get_by_steps(self, get, block))
    }

    /// Names in a folder that begin with `prefix`, without their metadata: cheaper than a listing where the folder is
    /// large. A tree whose names do not differ by case may give names that differ from `prefix` in that.
    fn names_with_prefix<'a>(&'a self, dir: &'a RelPath, prefix: &'a [u8]) -> Pending<'a, Result<Vec<Name>>> {
        Box::pin(claim::names_by_listing(self, dir, prefix))
    }

    /// Takes the claim `path`: a file that others see held for as long as the [`Claim`] lives, also after the holder was
    /// killed. [`ErrorKind::Busy`] while somebody holds it, [`ErrorKind::Unsupported`] where others would not see it.
    /// `create`: the file is made if there is none; else [`ErrorKind::NotFound`].
    fn claim<'a>(&'a self, path: &'a RelPath, create: bool) -> Pending<'a, Result<Box<dyn Claim>>> {
        let _ = create;
        Box::pin(async move { Err(Error::new(Op::Open, path, ErrorKind::Unsupported)) })
    }

    /// Whether a claim of this name lies in a folder above the tree's own root, as far as the volume or share reaches,
    /// and is held.
    fn claim_above<'a>(&'a self, name: &'a Name) -> Pending<'a, Result<ClaimAbove>> {
        let _ = name;
        Box::pin(async { Ok(ClaimAbove::Absent) })
    }

    /// The folder that holds this tree's root, as a tree of its own: for what a job left beside a root that was not there
    /// yet. `None`: there is none, or it may not be opened.
    fn above(&self) -> Option<Arc<dyn Tree>> {
        None
    }

    /// A stream of changed paths below the root (for `--watch`); [`Watch::next`] gives them.
    fn watch(&self) -> Pending<'_, Result<Box<dyn Watch>>> {
        Box::pin(async { Err(Error::new(Op::Watch, &RelPath::root(), ErrorKind::Unsupported)) })
    }
}

/// A change seen by a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// This node was created, changed, removed or renamed.
    Path(RelPath),
    /// Events were lost: look at everything again.
    Overflow,
}

/// A stream of changes.
pub trait Watch: Send {
    /// Waits for the next changes (at least one).
    fn next(&mut self) -> Pending<'_, Result<Vec<Change>>>;
}

/// An open file.
pub trait File: Send + Sync + 'static {
    /// For downcasts.
    fn as_any(&self) -> &dyn Any;

    /// Where it was opened.
    fn path(&self) -> &RelPath;

    /// Current metadata of the open file.
    fn metadata(&self) -> Pending<'_, Result<Metadata>>;

    /// Metadata as of the open (but for the number of links), where the open told it by the way: as good as
    /// [`metadata`](Self::metadata) for whoever has just opened it.
    fn at_open(&self) -> Option<Metadata> {
        None
    }

    /// Whether the size in the metadata is that of the content. Files that the kernel makes up as they are read say 0 or
    /// a page.
    fn tells_size(&self) -> bool {
        true
    }

    /// Reads up to `length` bytes at `offset` into `block` (its length is set to what was read); short only at the
    /// end of the file. The block comes back in both cases.
    ///
    /// # Panics
    /// If `length` exceeds the block's capacity.
    fn read_at(&self, block: BlockMut, offset: u64, length: usize) -> Pending<'_, (BlockMut, Result<()>)>;

    /// Writes the whole block at `offset`.
    fn write_at(&self, block: Block, offset: u64) -> Pending<'_, Result<()>>;

    /// The first run of data at or after `offset`; `None` when only a hole remains. Trees without holes say one run.
    fn next_extent(&self, offset: u64) -> Pending<'_, Result<Option<Extent>>>;

    /// Sets the length; new bytes are a hole.
    fn set_len(&self, length: u64) -> Pending<'_, Result<()>>;

    /// Reserves space without changing the length; best effort.
    fn allocate(&self, length: u64) -> Pending<'_, Result<()>>;

    /// Makes a range a hole (or zeroes).
    fn punch_hole(&self, offset: u64, length: u64) -> Pending<'_, Result<()>>;

    /// Shares the whole content of `source` (reflink). `Ok(false)` where that is impossible.
    fn reflink_from<'a>(&'a self, source: &'a dyn File) -> Pending<'a, Result<bool>> {
        let _ = source;
        Box::pin(async { Ok(false) })
    }

    /// Copies a range from `source` to the same offset without passing through this process. `Ok(None)` where that
    /// is impossible; else bytes copied (short at the source's end).
    fn copy_range_from<'a>(
        &'a self,
        source: &'a dyn File,
        offset: u64,
        length: u64,
    ) -> Pending<'a, Result<Option<u64>>> {
        let _ = (source, offset, length);
        Box::pin(async { Ok(None) })
    }

    /// Starts write-back of a range and does not wait for it.
    fn start_writeback(&self, offset: u64, length: u64) -> Pending<'_, Result<()>>;

    /// Waits until a range is written back (data only, no metadata: not yet durable after a crash).
    fn wait_writeback(&self, offset: u64, length: u64) -> Pending<'_, Result<()>>;

    /// Makes the file durable; its data only, or data and attributes.
    fn sync(&self, data_only: bool) -> Pending<'_, Result<()>>;

    /// Drops clean cached pages of a range, so that the next read comes from the device.
    fn drop_cache(&self, offset: u64, length: u64) -> Pending<'_, Result<()>>;

    /// Bytes of a range in the page cache now, where that can be told.
    fn cached(&self, offset: u64, length: u64) -> Pending<'_, Result<Option<u64>>>;

    /// Sets attributes; returns what could not be kept.
    fn set_metadata<'a>(&'a self, change: &'a MetadataChange) -> Pending<'a, Result<Vec<Loss>>>;

    /// The last steps of a file that was written: its attributes, and with `sync` all of it made durable. One round trip
    /// where the file can.
    fn finish<'a>(&'a self, change: &'a MetadataChange, sync: bool) -> Pending<'a, Result<Vec<Loss>>> {
        Box::pin(async move {
            let losses = self.set_metadata(change).await?;
            if sync {
                self.sync(false).await?;
            }
            Ok(losses)
        })
    }

    /// All extended attributes, sorted by name.
    fn xattrs(&self) -> Pending<'_, Result<Vec<Xattr>>>;
}
