//! The contract for trees that are copied: [`Tree`] and [`File`].
//!
//! Every implementation keeps these rules, and the contract suite tests them:
//! * Paths are relative to the root. No operation follows a symbolic link, in any component.
//! * `rename` replaces a file or an empty folder only if asked to.
//! * Dropping a future orphans its operation. Buffers and descriptors live until the system has
//!   answered. A write is then finished or unknown, never undone.
//! * `read_at` is short only at the end of the file; `write_at` is never short.

use std::any::Any;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use ropeway_block::{Block, BlockMut};

use crate::chunks::{Chunk, Cutter};
use crate::claim::{self, Claim, ClaimAbove};
use crate::content_hash::{ContentHash, HashAlgorithm};
use crate::descent::Origin;
use crate::error::{EndError, Error, ErrorKind, Op, Result};
use crate::folder_digest::FolderDigest;
use crate::metadata::{Capabilities, DirEntry, Loss, Metadata, MetadataChange, Preserve, Xattr};
use crate::path::{Name, RelPath};
use crate::small::{self, GetSmall, GotSmall, PutDone, PutSmall};

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
    /// Cached I/O that leaves the cache as it was.
    Leave,
    /// Direct I/O; falls back to `Leave` where the system refuses it.
    Direct,
}

/// Whether opening a file creates it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Create {
    /// The file must exist.
    #[default]
    No,
    /// The file must not exist; it is created.
    New,
    /// An existing file is opened with its content; otherwise the file is created.
    IfMissing,
    /// An existing file is emptied; otherwise the file is created.
    Truncate,
}

/// How to open a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// Whether the file is opened for writing as well as reading.
    pub write: bool,
    /// Whether to create it.
    pub create: Create,
    /// Permission bits of a new file, not masked by the umask.
    pub mode: u32,
    /// How to use the page cache.
    pub cache: CacheMode,
    /// Whether nobody else may have it open for writing, now and as long as it is open. Only trees of servers
    /// can promise that for all clients of the server ([`Capabilities::remote`](crate::Capabilities::remote));
    /// others ignore it. [`ErrorKind::Busy`] if somebody has.
    pub alone: bool,
}

impl OpenOptions {
    /// Options for reading.
    pub fn read(cache: CacheMode) -> Self {
        Self {
            cache,
            ..Self::default()
        }
    }

    /// Options for writing. A new file is private (0600) until its attributes are set.
    pub fn write(create: Create, cache: CacheMode) -> Self {
        Self {
            write: true,
            create,
            mode: 0o600,
            cache,
            alone: false,
        }
    }

    /// The same, with nobody else who writes.
    #[must_use]
    pub fn alone(self) -> Self {
        Self { alone: true, ..self }
    }
}

/// A run of data in a file. The space between extents is a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

/// Size and free space of a volume, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Size of the volume.
    pub total: u64,
    /// Bytes free for this user.
    pub available: u64,
    /// Free nodes (inodes), where their number is limited.
    pub nodes_available: Option<u64>,
}

/// A range to copy between two files of one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyPiece {
    /// First byte in the source.
    pub from: u64,
    /// First byte in the target.
    pub to: u64,
    /// Length in bytes.
    pub length: u64,
}

/// What a far end tells about the content of an open file without sending it. All of it is a hint:
/// the far end may be wrong, or the file may change.
pub trait FarContent: Send + Sync {
    /// Cuts a range into chunks. Returns those of the first part of the range at least, and none at
    /// the end of the file.
    fn chunks(&self, range: Range<u64>, cutter: Cutter) -> Pending<'_, Result<Vec<Chunk>>>;

    /// Returns the BLAKE3 hash of a range, and the number of bytes hashed: fewer at the end of the
    /// file, or where the far end wants to be asked in parts.
    fn hash(&self, range: Range<u64>) -> Pending<'_, Result<(u64, ContentHash)>>;
}

/// A stream over a folder's entries.
pub trait Listing: Send {
    /// Returns up to `max` further entries with metadata, `.` and `..` excluded. An empty list
    /// marks the end.
    fn next(&mut self, max: usize) -> Pending<'_, Result<Vec<DirEntry>>>;

    /// Returns the identity of this folder and of its parent, once the first entries have arrived;
    /// `None` where the tree does not report them.
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
    /// Name to rename it to when complete, replacing a file there; `None` leaves it under `target`.
    pub rename_to: Option<Name>,
    /// Whether `target` must be new.
    pub create: Create,
    /// The source's metadata from the walk.
    pub metadata: Metadata,
}

/// Small files of one folder to copy inside one end with one call.
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
    /// How to use the page cache.
    pub cache: CacheMode,
    /// How to hash each content; `None`: not at all.
    pub hash: Option<HashAlgorithm>,
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
    /// Attributes that the target could not keep.
    pub losses: Vec<Loss>,
    /// Hash of the content, if asked for.
    pub hash: Option<ContentHash>,
    /// Whether the source changed while it was read, or differs from what the walk saw. The file
    /// was then not renamed to [`BatchItem::rename_to`], and must be copied again.
    pub source_changed: bool,
}

/// Result of one file of a batch.
pub type BatchResult = std::result::Result<BatchDone, EndError>;

/// Small files of two folders to compare pair by pair.
#[derive(Clone, Debug)]
pub struct CompareBatch {
    /// Folder in this tree.
    pub dir: RelPath,
    /// Folder in the other tree.
    pub other_dir: RelPath,
    /// Name here, name there, and the listed metadata of the file here.
    pub pairs: Vec<(Name, Name, Metadata)>,
}

/// Whether two files hold the same bytes. In an error, [`End::Source`](crate::End) is this tree
/// and [`End::Target`](crate::End) the other.
pub type CompareResult = std::result::Result<bool, EndError>;

/// A tree of files.
pub trait Tree: Send + Sync + 'static {
    /// For downcasts: a copy inside one end must recognise its peer.
    fn as_any(&self) -> &dyn Any;

    /// Returns the root as a path or URL, for messages.
    fn describe(&self) -> String;

    /// Returns what this tree can hold.
    fn capabilities(&self) -> &Capabilities;

    /// Returns the number of bytes that should be in flight now to keep the path to this tree full; 0
    /// where only [`Capabilities::blocks_in_flight`] says so. A long line that loses segments needs more.
    fn bytes_in_flight(&self) -> u64 {
        0
    }

    /// Reads the metadata of a node itself; a link is not followed.
    fn metadata<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<Metadata>>;

    /// Reads the metadata of several nodes of one folder; `Ok(None)` for a name that does not
    /// exist.
    fn lookup<'a>(
        &'a self,
        dir: &'a RelPath,
        names: &'a [Name],
    ) -> Pending<'a, Result<Vec<Result<Option<Metadata>>>>>;

    /// Starts listing a folder.
    fn list<'a>(&'a self, dir: &'a RelPath) -> Pending<'a, Result<Box<dyn Listing>>>;

    /// Asks for a digest of a folder. `None` where the tree has none, or none that stands for the
    /// listing: list the folder then.
    fn folder_digest<'a>(&'a self, dir: &'a RelPath) -> Pending<'a, Result<Option<Box<dyn FolderDigest>>>> {
        let _ = dir;
        Box::pin(async { Ok(None) })
    }

    /// Opens a regular file.
    fn open<'a>(&'a self, path: &'a RelPath, options: OpenOptions) -> Pending<'a, Result<Arc<dyn File>>>;

    /// Makes one folder; fails if the name is taken.
    fn make_dir<'a>(&'a self, path: &'a RelPath, mode: u32) -> Pending<'a, Result<()>>;

    /// Makes a symbolic link with the given target text.
    fn make_symlink<'a>(&'a self, path: &'a RelPath, text: &'a [u8]) -> Pending<'a, Result<()>>;

    /// Makes the hard link `new` to the existing file `existing`.
    fn make_hard_link<'a>(&'a self, existing: &'a RelPath, new: &'a RelPath) -> Pending<'a, Result<()>>;

    /// Makes a FIFO or device.
    fn make_special<'a>(&'a self, path: &'a RelPath, metadata: &'a Metadata) -> Pending<'a, Result<()>>;

    /// Reads the target text of a symbolic link.
    fn read_link<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<Vec<u8>>>;

    /// Removes a file, link or special node.
    fn remove_file<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<()>>;

    /// Removes an empty folder.
    fn remove_dir<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<()>>;

    /// Renames a node. An existing file (or empty folder, for a folder) is replaced only if
    /// `replace`.
    fn rename<'a>(&'a self, from: &'a RelPath, to: &'a RelPath, replace: bool) -> Pending<'a, Result<()>>;

    /// Renames several nodes inside one folder, replacing what is there. Returns one result each,
    /// in order.
    fn rename_in<'a>(&'a self, dir: &'a RelPath, pairs: &'a [(Name, Name)]) -> Pending<'a, Vec<Result<()>>> {
        Box::pin(async move {
            let mut results = Vec::with_capacity(pairs.len());
            for (from, to) in pairs {
                results.push(self.rename(&dir.join(from), &dir.join(to), true).await);
            }
            results
        })
    }

    /// Sets attributes of a node itself. Returns what could not be kept.
    fn set_metadata<'a>(
        &'a self,
        path: &'a RelPath,
        change: &'a MetadataChange,
    ) -> Pending<'a, Result<Vec<Loss>>>;

    /// Reads all extended attributes of a node itself, sorted by name.
    fn xattrs<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<Vec<Xattr>>>;

    /// Finishes a folder that was filled: sets its attributes, then renames it to its final name,
    /// which must be free. This is one round trip where the tree can. Returns the result of each
    /// step; the rename happens even if the attributes were refused.
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

    /// Returns the size and free space of the volume.
    fn space(&self) -> Pending<'_, Result<Space>>;

    /// Makes everything written so far durable (`syncfs`, FLUSH of the share). Reports write-back
    /// errors since the tree was opened.
    fn sync(&self) -> Pending<'_, Result<()>>;

    /// Makes the entries of one folder durable.
    fn sync_dir<'a>(&'a self, dir: &'a RelPath) -> Pending<'a, Result<()>>;

    /// Copies small files from `source` inside one end (both local, or one server), without blocks.
    /// `Err` returns the batch where the two trees cannot do this.
    fn copy_batch<'a>(
        &'a self,
        source: &'a dyn Tree,
        batch: Batch,
    ) -> std::result::Result<Pending<'a, Vec<BatchResult>>, Batch> {
        let _ = source;
        Err(batch)
    }

    /// Compares the content of small files with those of `other`, one result each, in order. `None`
    /// where these trees compare many files no faster than one by one.
    fn compare_batch<'a>(
        &'a self,
        other: &'a dyn Tree,
        batch: CompareBatch,
    ) -> Option<Pending<'a, Vec<CompareResult>>> {
        let _ = (other, batch);
        None
    }

    /// Whether files of `source` may be copied here without passing through this machine, by
    /// [`reflink_from`](File::reflink_from) or [`copy_range_from`](File::copy_range_from). This
    /// holds when both trees are on one server.
    fn copies_inside(&self, source: &dyn Tree) -> bool {
        let _ = source;
        false
    }

    /// Writes a whole small file with its attributes and final name, in one round trip where the
    /// tree can.
    ///
    /// After an error, part of a file may exist under [`PutSmall::path`]. A file under
    /// [`PutSmall::rename_to`] is the old one or the whole new one.
    fn put_small(&self, put: PutSmall) -> Pending<'_, Result<PutDone>> {
        Box::pin(small::put_by_steps(self, put))
    }

    /// Reads a whole small file into `block` with its attributes, in one round trip where the tree
    /// can. Returns the block on success and on error.
    fn get_small(&self, get: GetSmall, block: BlockMut) -> Pending<'_, (BlockMut, Result<GotSmall>)> {
        Box::pin(small::get_by_steps(self, get, block))
    }

    /// Lists the names in a folder that begin with `prefix`, without metadata. This is cheaper than
    /// a listing where the folder is large. A tree that ignores case may return names that differ
    /// from `prefix` in case.
    fn names_with_prefix<'a>(&'a self, dir: &'a RelPath, prefix: &'a [u8]) -> Pending<'a, Result<Vec<Name>>> {
        Box::pin(claim::names_by_listing(self, dir, prefix))
    }

    /// Takes the claim `path`: a file that other jobs see as held while the [`Claim`] lives. After
    /// the holder was killed the claim is free again. Fails with [`ErrorKind::Busy`] while another
    /// holds it, and with [`ErrorKind::Unsupported`] where others would not see it. With `create` a
    /// missing file is made; otherwise that is [`ErrorKind::NotFound`].
    fn claim<'a>(&'a self, path: &'a RelPath, create: bool) -> Pending<'a, Result<Box<dyn Claim>>> {
        let _ = create;
        Box::pin(async move { Err(Error::new(Op::Open, path, ErrorKind::Unsupported)) })
    }

    /// Looks for a claim of this name in the folders above the tree's own root, as far as the
    /// volume or share reaches, and reports whether it is held.
    fn claim_above<'a>(&'a self, name: &'a Name) -> Pending<'a, Result<ClaimAbove>> {
        let _ = name;
        Box::pin(async { Ok(ClaimAbove::Absent) })
    }

    /// Opens the folder that holds this tree's root as a tree, to find what a job left next to a
    /// root that did not exist yet. `None` if there is no such folder or it may not be opened.
    fn above(&self) -> Option<Arc<dyn Tree>> {
        None
    }

    /// Starts a stream of changed paths below the root (for `--watch`); read it with
    /// [`Watch::next`].
    fn watch(&self) -> Pending<'_, Result<Box<dyn Watch>>> {
        Box::pin(async { Err(Error::new(Op::Watch, &RelPath::root(), ErrorKind::Unsupported)) })
    }
}

/// A change seen by a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// This node was created, changed, removed or renamed.
    Path(RelPath),
    /// Events were lost: examine everything again.
    Overflow,
}

/// A stream of changes.
pub trait Watch: Send {
    /// Waits for the next changes; returns at least one.
    fn next(&mut self) -> Pending<'_, Result<Vec<Change>>>;
}

/// An open file.
pub trait File: Send + Sync + 'static {
    /// For downcasts.
    fn as_any(&self) -> &dyn Any;

    /// Returns the path under which the file was opened.
    fn path(&self) -> &RelPath;

    /// Reads the current metadata of the open file.
    fn metadata(&self) -> Pending<'_, Result<Metadata>>;

    /// Returns the metadata as of the open (except the number of links), where the open reported
    /// it. Right after the open this is as good as [`metadata`](Self::metadata).
    fn at_open(&self) -> Option<Metadata> {
        None
    }

    /// Whether the size in the metadata is the size of the content. Files that the kernel generates
    /// on reading (in /proc, /sys) report 0 or a page.
    fn reports_size(&self) -> bool {
        true
    }

    /// Reads up to `length` bytes at `offset` into `block` and sets the block's length to the bytes
    /// read. Short only at the end of the file. Returns the block on success and on error.
    ///
    /// # Panics
    /// If `length` exceeds the block's capacity.
    fn read_at(&self, block: BlockMut, offset: u64, length: usize) -> Pending<'_, (BlockMut, Result<()>)>;

    /// Reads as [`read_at`](Self::read_at) does, to look at the content without passing it on: a
    /// bound for the rate of a copy does not count it.
    fn examine_at(&self, block: BlockMut, offset: u64, length: usize) -> Pending<'_, (BlockMut, Result<()>)> {
        self.read_at(block, offset, length)
    }

    /// Writes the whole block at `offset`.
    fn write_at(&self, block: Block, offset: u64) -> Pending<'_, Result<()>>;

    /// Returns the first run of data at or after `offset`; `None` when only a hole remains. A tree
    /// without holes reports one run.
    fn next_extent(&self, offset: u64) -> Pending<'_, Result<Option<Extent>>>;

    /// Sets the length; new bytes are a hole.
    fn set_len(&self, length: u64) -> Pending<'_, Result<()>>;

    /// Reserves space without changing the length, where the volume can.
    fn allocate(&self, length: u64) -> Pending<'_, Result<()>>;

    /// Makes a range a hole, or zeroes where holes are not kept.
    fn punch_hole(&self, offset: u64, length: u64) -> Pending<'_, Result<()>>;

    /// Shares the whole content of `source` (reflink). `Ok(false)` where that is impossible.
    fn reflink_from<'a>(&'a self, source: &'a dyn File) -> Pending<'a, Result<bool>> {
        let _ = source;
        Box::pin(async { Ok(false) })
    }

    /// Copies a range from `source` to the same offset without passing through this process.
    /// Returns the bytes copied (short at the source's end), or `Ok(None)` where that is
    /// impossible.
    fn copy_range_from<'a>(
        &'a self,
        source: &'a dyn File,
        offset: u64,
        length: u64,
    ) -> Pending<'a, Result<Option<u64>>> {
        let _ = (source, offset, length);
        Box::pin(async { Ok(None) })
    }

    /// Copies ranges from `source`, which may be anywhere in both files, without passing them
    /// through this process. Returns `false` where that is impossible, or if a range is not all
    /// there; some ranges may be copied then.
    fn copy_pieces_from<'a>(
        &'a self,
        source: &'a dyn File,
        pieces: &'a [CopyPiece],
    ) -> Pending<'a, Result<bool>> {
        let _ = (source, pieces);
        Box::pin(async { Ok(false) })
    }

    /// Returns what the far end tells about the content; `None` if there is no far end, or if it
    /// does not tell.
    fn far_content(&self) -> Option<&dyn FarContent> {
        None
    }

    /// Starts write-back of a range without waiting for it.
    fn start_writeback(&self, offset: u64, length: u64) -> Pending<'_, Result<()>>;

    /// Waits until the data of a range is written back. Metadata is not included, so the range may
    /// still be lost in a crash.
    fn wait_writeback(&self, offset: u64, length: u64) -> Pending<'_, Result<()>>;

    /// Makes the file durable: its data only, or data and attributes.
    fn sync(&self, data_only: bool) -> Pending<'_, Result<()>>;

    /// Drops clean cached pages of a range, so that the next read comes from the device.
    fn drop_cache(&self, offset: u64, length: u64) -> Pending<'_, Result<()>>;

    /// Returns the bytes of a range that are in the page cache now; `None` where the system does
    /// not report it.
    fn cached(&self, offset: u64, length: u64) -> Pending<'_, Result<Option<u64>>>;

    /// Sets attributes; returns what could not be kept.
    fn set_metadata<'a>(&'a self, change: &'a MetadataChange) -> Pending<'a, Result<Vec<Loss>>>;

    /// Finishes a file that was written: sets its attributes and, with `sync`, makes all of it
    /// durable. This is one round trip where the file can.
    fn finish<'a>(&'a self, change: &'a MetadataChange, sync: bool) -> Pending<'a, Result<Vec<Loss>>> {
        Box::pin(async move {
            let losses = self.set_metadata(change).await?;
            if sync {
                self.sync(false).await?;
            }
            Ok(losses)
        })
    }

    /// Reads all extended attributes, sorted by name.
    fn xattrs(&self) -> Pending<'_, Result<Vec<Xattr>>>;
}
