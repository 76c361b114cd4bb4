//! The interface of a decorator: each operation is a [`Call`] that passes a [`Layer`].

use std::future::Future;

use crate::{Op, Pending, RelPath, Result};

/// The method of [`Tree`](crate::Tree), [`File`](crate::File) or [`Listing`](crate::Listing) that
/// is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// `metadata` of a tree or file, and one name of a `lookup` (see [`Layer::ITEMWISE`]).
    Stat,
    /// `lookup` of several names.
    Lookup,
    /// `list`.
    List,
    /// `Listing::next`.
    ListNext,
    /// `folder_digest`.
    FolderDigest,
    /// `open` of an existing file.
    Open,
    /// `open` that may create.
    Create,
    /// `make_dir`.
    MakeDir,
    /// `make_symlink`.
    Symlink,
    /// `make_hard_link`.
    HardLink,
    /// `make_special`.
    Special,
    /// `read_link`.
    ReadLink,
    /// `remove_file`.
    RemoveFile,
    /// `remove_dir`.
    RemoveDir,
    /// `rename` (and each pair of `rename_in`).
    Rename,
    /// `set_metadata` of a tree or file.
    SetAttributes,
    /// `xattrs` of a tree or file.
    Xattrs,
    /// `space`.
    Space,
    /// `Tree::sync`.
    SyncTree,
    /// `sync_dir`.
    SyncDir,
    /// `watch`.
    Watch,
    /// `read_at`.
    Read,
    /// `write_at`.
    Write,
    /// `get_small`: a whole file read in one call (see [`Layer::WHOLE_SMALL`]).
    GetSmall,
    /// `put_small`: a whole file written in one call.
    PutSmall,
    /// `next_extent`.
    Extents,
    /// `set_len`.
    SetLength,
    /// `allocate`.
    Allocate,
    /// `punch_hole`.
    PunchHole,
    /// `start_writeback`.
    StartWriteback,
    /// `wait_writeback`.
    WaitWriteback,
    /// `File::sync`.
    SyncFile,
    /// `drop_cache`.
    DropCache,
    /// `cached`.
    Cached,
}

impl Action {
    /// Returns the operation as errors name it.
    pub fn op(self) -> Op {
        match self {
            Self::Stat | Self::Lookup | Self::ReadLink | Self::Space | Self::Cached => Op::Stat,
            Self::List | Self::ListNext | Self::FolderDigest => Op::List,
            Self::Open => Op::Open,
            Self::Create => Op::Create,
            Self::MakeDir => Op::MakeDir,
            Self::Symlink | Self::HardLink | Self::Special => Op::Link,
            Self::RemoveFile | Self::RemoveDir => Op::Remove,
            Self::Rename => Op::Rename,
            Self::SetAttributes => Op::SetAttributes,
            Self::Xattrs => Op::Xattr,
            Self::SyncTree
            | Self::SyncDir
            | Self::SyncFile
            | Self::StartWriteback
            | Self::WaitWriteback
            | Self::DropCache => Op::Sync,
            Self::Watch => Op::Watch,
            Self::Read | Self::GetSmall => Op::Read,
            Self::Write | Self::PutSmall => Op::Write,
            Self::Extents => Op::Extents,
            Self::SetLength | Self::Allocate | Self::PunchHole => Op::SetLength,
        }
    }

    /// Returns the word for traces and counters: that of [`Op`], or a finer one where the trace
    /// format has it.
    pub fn word(self) -> &'static str {
        match self {
            Self::StartWriteback | Self::WaitWriteback => "writeback",
            Self::DropCache => "drop_cache",
            other => match other.op() {
                Op::Open => "open",
                Op::Create => "create",
                Op::Read => "read",
                Op::Write => "write",
                Op::Sync => "sync",
                Op::Stat => "stat",
                Op::SetAttributes => "set_attributes",
                Op::List => "list",
                Op::MakeDir => "make_dir",
                Op::Remove => "remove",
                Op::Rename => "rename",
                Op::Link => "link",
                Op::CopyRange => "copy_range",
                Op::Extents => "extents",
                Op::SetLength => "set_length",
                Op::Watch => "watch",
                Op::Xattr => "xattr",
                Op::Lock => "lock",
            },
        }
    }
}

/// One operation on its way through a layer.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The method.
    pub action: Action,
    /// The node: for a file the path it was opened by, for links and renames the new name.
    pub path: &'a RelPath,
    /// The other node of a rename (the old name) or hard link (the existing file).
    pub other: Option<&'a RelPath>,
    /// Byte offset; 0 where it has no meaning.
    pub offset: u64,
    /// Bytes asked for, or names or entries; 0 where it has no meaning.
    pub length: u64,
    /// Whether the file was opened for direct I/O.
    pub direct: bool,
}

impl<'a> Call<'a> {
    /// Makes a call that concerns a whole node.
    pub(super) fn new(action: Action, path: &'a RelPath) -> Self {
        Self {
            action,
            path,
            other: None,
            offset: 0,
            length: 0,
            direct: false,
        }
    }

    /// Adds the range that the call touches.
    pub(super) fn range(self, offset: u64, length: u64) -> Self {
        Self {
            offset,
            length,
            ..self
        }
    }
}

/// A result and the amount done: bytes of a read or write, entries of a listing, otherwise 0.
#[derive(Clone, Copy, Debug)]
pub struct Done<T> {
    /// The operation's result.
    pub value: T,
    /// Bytes or entries.
    pub amount: u64,
}

/// An operation that has not begun. Boxed, so that layers are compiled for each kind of result, not
/// for each method.
pub type Operation<'a, T> = Box<dyn FnOnce() -> Pending<'a, Result<Done<T>>> + Send + 'a>;

/// Defines what a decorator does with each operation.
pub trait Layer: Send + Sync + 'static {
    /// Whether each name of a `lookup`, and the metadata of each listed entry, passes as a [`Call`]
    /// of its own ([`Action::Stat`]), after the `lookup` or `next` as a whole.
    const ITEMWISE: bool = false;

    /// Whether a small file written or read in one call passes as one [`Call`]
    /// ([`Action::PutSmall`], [`Action::GetSmall`]) and so stays one round trip. Otherwise its
    /// steps pass one by one.
    const WHOLE_SMALL: bool = false;

    /// Whether the layer only bounds the rate at which contents pass. What a far end tells about a
    /// content ([`File::far_content`](crate::File::far_content)) then passes it by, and so do reads
    /// whose bytes stay at their end ([`File::examine_at`](crate::File::examine_at)).
    const BOUNDS_RATE: bool = false;

    /// Carries out one operation by calling `operation`, or fails without calling it.
    fn around<'a, T: Send + 'a>(
        &'a self,
        call: Call<'a>,
        operation: Operation<'a, T>,
    ) -> impl Future<Output = Result<Done<T>>> + Send + 'a;
}
