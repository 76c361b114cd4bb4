//! The contract of a file server's back end: [`Store`] and [`Node`].
//!
//! A [`Tree`](crate::Tree) moves whole files, many at once. A server instead answers single
//! questions about open files, on the thread that read them from the socket. Calls here are
//! therefore synchronous and may block. They take `&self` and are safe to make from many threads at
//! once. Every implementation keeps these rules:
//! * Paths are relative to the store's root, in names as the disk has them. Nothing leads out of
//!   the root: a symbolic link that does is not followed, nor is any link with an absolute target.
//! * The store keeps what Windows knows of a node (DOS attributes, creation time, streams, security
//!   descriptor, extended attributes), and it survives a restart.
//! * Names are looked up exactly; [`Store::resolve`] finds names that differ in case.
//! * A node is known by its [`FileId`], not by its path. It stays the same when its name changes or
//!   is removed.
//! * `read_at` is short only at the end of the file; `write_at` is never short.

use std::sync::Arc;

use crate::error::{Error, ErrorKind, Op, Result};
use crate::external::{Observer, Watching};
use crate::metadata::{FileId, Kind, Owner, Timestamp, Xattr};
use crate::path::{Name, RelPath};
use crate::tree::{Extent, Space};

/// What a store can hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFeatures {
    /// Identity of the volume. The volume's serial number and object id are derived from it.
    pub volume: u64,
    /// Longest name in bytes.
    pub name_max: usize,
    /// Size of an allocation unit in bytes.
    pub unit: u32,
    /// Whether nothing can be changed.
    pub read_only: bool,
    /// Whether holes are kept.
    pub sparse: bool,
    /// Whether DOS attributes, creation times, streams and security descriptors can be kept.
    pub windows_metadata: bool,
    /// When the volume was made, if known.
    pub created: Timestamp,
}

/// Attributes of a node as a server reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeStat {
    /// Kind of the node.
    pub kind: Kind,
    /// Logical size in bytes; for a stream, that of the stream.
    pub size: u64,
    /// Allocated bytes.
    pub allocated: u64,
    /// Number of hard links.
    pub links: u64,
    /// Identity; a stream has that of its file.
    pub id: FileId,
    /// Permission bits (0o7777).
    pub mode: u32,
    /// Owner and group.
    pub owner: Owner,
    /// Creation time: as set, else the birth time, else the earliest of the other times.
    pub created: Timestamp,
    /// Last access.
    pub accessed: Timestamp,
    /// Last change of the content.
    pub modified: Timestamp,
    /// Last change of content or attributes.
    pub changed: Timestamp,
    /// DOS attributes ([MS-FSCC] 2.6) as kept; `None` if none were ever set. DIRECTORY, NORMAL and
    /// REPARSE_POINT are never included, since they follow from `kind`.
    pub dos_attributes: Option<u32>,
}

/// The access that an open asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Attributes only.
    #[default]
    Attributes,
    /// The content is read.
    Read,
    /// The content is written, and read where permitted: a server copies ranges and looks for data.
    Write,
}

/// A node to make if it does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// Whether to make a folder rather than a file.
    pub directory: bool,
    /// Its initial DOS attributes; `None` keeps none.
    pub dos_attributes: Option<u32>,
}

/// How to open a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeOpen {
    /// The access wanted.
    pub access: Access,
    /// Whether to accept less access where `access` is refused; [`Node::access`] returns what was
    /// granted.
    pub allow_less_access: bool,
    /// The node to make if the path does not exist.
    pub create: Option<NewNode>,
    /// Whether the path must not exist; otherwise the open fails with
    /// [`crate::ErrorKind::AlreadyExists`].
    pub exclusive: bool,
    /// Whether to open a symbolic link itself. Otherwise it is followed, if it stays beneath the
    /// root.
    pub link_itself: bool,
}

/// An opened node.
pub struct Opened {
    /// The node.
    pub node: Arc<dyn Node>,
    /// Its attributes right after the open.
    pub stat: NodeStat,
    /// Whether this call made it.
    pub created: bool,
}

/// How to open a named stream of a file or folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamOpen {
    /// Whether to make it if it does not exist.
    pub create: bool,
    /// Whether it must not exist.
    pub exclusive: bool,
}

/// A named stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// Name without colons and type, UTF-8.
    pub name: Name,
    /// Length in bytes.
    pub size: u64,
}

/// Times and DOS attributes to set; `None` leaves a value unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeChange {
    /// Creation time.
    pub created: Option<Timestamp>,
    /// Last access.
    pub accessed: Option<Timestamp>,
    /// Last change of the content.
    pub modified: Option<Timestamp>,
    /// Last change of content or attributes. The store reports it as given until the next change,
    /// where it can.
    pub changed: Option<Timestamp>,
    /// DOS attributes.
    pub dos_attributes: Option<u32>,
}

/// How a range of a file is locked, as other programs see it (advisory locks, fcntl(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RangeLock {
    /// Unlocked.
    None,
    /// Others may take a shared lock too.
    Shared,
    /// Nobody else may take a lock.
    Exclusive,
}

/// Work to run once, on any thread.
pub type Task = Box<dyn FnOnce() + Send>;

/// The result of [`Store::resolve_soon`].
pub enum Resolved {
    /// The path as on disk.
    Path(RelPath),
    /// A task that may block for seconds. Run it on a thread that may wait. At its end it calls the
    /// caller's task, even when it fails or is dropped; then resolve the path again.
    After(Task),
    /// Another caller is reading that folder; the caller's task is called at its end.
    UnderWay,
}

/// What [`Store::remove_node`] removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// A file or link.
    File,
    /// An empty file; others fail with [`crate::ErrorKind::NotEmpty`].
    EmptyFile,
    /// An empty folder.
    Directory,
}

/// A stream over a folder's entries, in an order that does not change while it is open.
pub trait Entries: Send {
    /// Returns the next entry, `.` and `..` excluded; `None` at the end. An entry that vanishes
    /// meanwhile is left out.
    ///
    /// # Errors
    /// The folder cannot be read.
    fn next(&mut self) -> Result<Option<(Name, NodeStat)>>;
}

/// A shared folder and everything beneath it.
pub trait Store: Send + Sync {
    /// Returns what this store can hold.
    fn features(&self) -> &StoreFeatures;

    /// Returns the size and free space of the volume.
    ///
    /// # Errors
    /// The volume does not answer.
    fn space(&self) -> Result<Space>;

    /// Finds the node whose names match `path` without regard to case, and returns its path as on
    /// disk. An exact match of a component wins over one that differs in case. If the last
    /// component does not exist in any case, the parent's components are as on disk and the last is
    /// as given.
    ///
    /// # Errors
    /// [`crate::ErrorKind::NotFound`] if a component before the last is missing; `NotADirectory` if
    /// it is not a folder.
    fn resolve(&self, path: &RelPath) -> Result<RelPath>;

    /// Works like [`Self::resolve`], except that reading a folder with very many names is left to
    /// the caller, which may have other clients to serve meanwhile. `then` makes the task to call
    /// once the folder has been read.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    fn resolve_soon(&self, path: &RelPath, then: &dyn Fn() -> Task) -> Result<Resolved> {
        let _ = then;
        self.resolve(path).map(Resolved::Path)
    }

    /// Opens or makes a node by its path as on disk.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists`, `NotADirectory` (a component before the last),
    /// `PermissionDenied`, `ReadOnly`, `SymbolicLink` (one that leads out of the root), `NoSpace`,
    /// `NameRefused`.
    fn open(&self, path: &RelPath, how: &NodeOpen) -> Result<Opened>;

    /// Removes a name. A folder must be empty. Streams are removed with the last name.
    ///
    /// # Errors
    /// `NotFound`, `NotEmpty`, `PermissionDenied`.
    fn remove(&self, path: &RelPath, directory: bool) -> Result<()>;

    /// Removes a name if it still belongs to this node: a local program may have put another one
    /// there.
    ///
    /// # Errors
    /// `Gone` if the name belongs to another node; otherwise as [`Self::remove`].
    fn remove_node(&self, id: FileId, path: &RelPath, what: Removal) -> Result<()>;

    /// Checks whether permissions allow [`Self::remove`] of this name, as far as that is known
    /// without trying.
    ///
    /// # Errors
    /// `PermissionDenied`, `ReadOnly`.
    fn check_remove(&self, path: &RelPath) -> Result<()> {
        let _ = path;
        Ok(())
    }

    /// Renames a node. Replaces a file (never a folder) if `replace`. A change of case alone is a
    /// rename like any other.
    ///
    /// # Errors
    /// `AlreadyExists`, `NotFound`, `IsADirectory`, `CrossDevice`, `PermissionDenied`.
    fn rename(&self, from: &RelPath, to: &RelPath, replace: bool) -> Result<()>;

    /// Renames like [`Self::rename`] if the name still belongs to this node.
    ///
    /// # Errors
    /// `Gone` if the name belongs to another node; otherwise as [`Self::rename`].
    fn rename_node(&self, id: FileId, from: &RelPath, to: &RelPath, replace: bool) -> Result<()>;

    /// Gives an open file another name, whatever holds its first name by now. Replaces a file if
    /// `replace`.
    ///
    /// # Errors
    /// `Gone` if the file has no name any more, `Misuse` for a node of another store, otherwise as
    /// [`Self::rename`].
    fn link_node(&self, node: &dyn Node, to: &RelPath, replace: bool) -> Result<()>;

    /// Gives a file another name. Replaces a file if `replace`.
    ///
    /// # Errors
    /// As [`Self::rename`].
    fn link(&self, from: &RelPath, to: &RelPath, replace: bool) -> Result<()>;

    /// Makes a symbolic link. `target` is stored as given, even if it leads out of the root.
    ///
    /// # Errors
    /// `AlreadyExists`, `PermissionDenied`.
    fn symlink(&self, path: &RelPath, target: &[u8]) -> Result<()>;

    /// Whether any node may hold a security descriptor. While none was ever set, a server need not
    /// look for them.
    fn may_hold_security(&self) -> bool {
        true
    }

    /// Sets the observer of changes that other programs make to watched nodes ([`Node::watch`]). It
    /// replaces the previous one.
    fn observe(&self, observer: Arc<dyn Observer>) {
        drop(observer);
    }

    /// Makes everything acknowledged durable, as well as the volume can.
    ///
    /// # Errors
    /// Write-back failed.
    fn sync(&self) -> Result<()>;
}

/// An open file, folder, link or stream.
pub trait Node: Send + Sync {
    /// Returns the access that was granted.
    fn access(&self) -> Access;

    /// Reads the current attributes.
    ///
    /// # Errors
    /// The volume does not answer.
    fn stat(&self) -> Result<NodeStat>;

    /// Sets times and DOS attributes.
    ///
    /// # Errors
    /// `Misuse` for a time that the volume cannot hold; then nothing is changed.
    /// `PermissionDenied`, `ReadOnly`, `NoSpace`.
    fn change(&self, change: &NodeChange) -> Result<()>;

    /// Reads into `buffer`; returns fewer bytes only at the end.
    ///
    /// # Errors
    /// `IsADirectory`, `DeviceError`.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;

    /// Reads like [`Self::read_at`], but only from memory. Returns `None` where the device would
    /// have to be asked, or where that is not known.
    ///
    /// # Errors
    /// As [`Self::read_at`].
    fn read_cached(&self, buffer: &mut [u8], offset: u64) -> Result<Option<usize>>;

    /// Whether the node has no device behind it (tmpfs), so that writing and syncing never wait for
    /// one.
    fn in_memory(&self) -> bool {
        false
    }

    /// Writes all of `data`.
    ///
    /// # Errors
    /// `NoSpace`, `FileTooLarge`, `DeviceError`.
    fn write_at(&self, data: &[u8], offset: u64) -> Result<()>;

    /// Sets the length.
    ///
    /// # Errors
    /// `NoSpace`, `FileTooLarge`.
    fn set_len(&self, length: u64) -> Result<()>;

    /// Reserves space for the first `length` bytes without changing the length.
    ///
    /// # Errors
    /// `NoSpace`, `Unsupported`.
    fn allocate(&self, length: u64) -> Result<()>;

    /// Writes zeroes over a range, as a hole if `hole` is set and the volume can. The length does
    /// not change.
    ///
    /// # Errors
    /// `NoSpace`, `DeviceError`.
    fn zero(&self, offset: u64, length: u64, hole: bool) -> Result<()>;

    /// Returns the runs of data in a range, at most `max`.
    ///
    /// # Errors
    /// `DeviceError`.
    fn extents(&self, offset: u64, length: u64, max: usize) -> Result<Vec<Extent>>;

    /// Copies a range from another open file of the same store, in the kernel where it can. Returns
    /// the bytes copied, fewer at the source's end.
    ///
    /// # Errors
    /// As [`Self::write_at`].
    fn copy_from(&self, source: &dyn Node, source_offset: u64, offset: u64, length: u64) -> Result<u64>;

    /// Waits until everything written is where other programs see it, without making it durable. A
    /// program that closes a file learns from it whether its writes succeeded. Stores that write at
    /// once have nothing to do.
    ///
    /// # Errors
    /// A write that was acknowledged earlier has failed since; it is reported once, here or by
    /// [`Self::sync`].
    fn write_out(&self) -> Result<()> {
        Ok(())
    }

    /// Makes content and metadata durable.
    ///
    /// # Errors
    /// Write-back failed.
    fn sync(&self) -> Result<()>;

    /// Lists a folder from its beginning.
    ///
    /// # Errors
    /// `NotADirectory`, `PermissionDenied`.
    fn entries(&self) -> Result<Box<dyn Entries>>;

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// `Misuse` if the node is not a link.
    fn link_target(&self) -> Result<Vec<u8>>;

    /// Lists the named streams.
    ///
    /// # Errors
    /// The volume does not answer.
    fn streams(&self) -> Result<Vec<StreamInfo>>;

    /// Opens a named stream, found without regard to case. It reads, writes and has a length like a
    /// file. The flag reports whether it was made.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists`, `NoSpace`, `Unsupported`.
    fn open_stream(&self, name: &Name, how: &StreamOpen) -> Result<(Arc<dyn Node>, bool)>;

    /// Removes a named stream.
    ///
    /// # Errors
    /// `NotFound`.
    fn remove_stream(&self, name: &Name) -> Result<()>;

    /// Renames a named stream.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists`.
    fn rename_stream(&self, name: &Name, to: &Name, replace: bool) -> Result<()>;

    /// Returns the security descriptor as kept, self-relative ([MS-DTYP] 2.4.6); `None` if none was
    /// ever set.
    ///
    /// # Errors
    /// The volume does not answer.
    fn security(&self) -> Result<Option<Vec<u8>>>;

    /// Stores a security descriptor.
    ///
    /// # Errors
    /// `NoSpace`, `Unsupported`.
    fn set_security(&self, descriptor: &[u8]) -> Result<()>;

    /// Returns the extended attributes of OS/2 kind, by names without a prefix. Streams and the
    /// store's own bookkeeping are not included.
    ///
    /// # Errors
    /// The volume does not answer.
    fn eas(&self) -> Result<Vec<Xattr>>;

    /// Sets an extended attribute (found without regard to case), or removes it if `value` is
    /// empty.
    ///
    /// # Errors
    /// `NoSpace`, `Unsupported`.
    fn set_ea(&self, name: &[u8], value: &[u8]) -> Result<()>;

    /// Watches this node: from now on the store's observer receives what other programs do to it,
    /// to the entries of a folder and, with `below`, to everything beneath it. A stream is watched
    /// with its file.
    ///
    /// # Errors
    /// `Unsupported` where changes are not reported, `Exhausted` where too many nodes are watched
    /// already.
    fn watch(&self, below: bool) -> Result<Watching> {
        _ = below;
        Err(Error::new(Op::Watch, &RelPath::root(), ErrorKind::Unsupported))
    }

    /// Sets this node's lock of the bytes from `first` to `last` (at most 2^63 - 1). It replaces
    /// any lock this node holds there, also parts of larger ones. Returns `false` and changes
    /// nothing while another program holds a lock that excludes it. Locks of two nodes exclude each
    /// other like those of two programs.
    ///
    /// The node's access limits the lock: without write access an exclusive lock becomes shared,
    /// without read access a shared lock becomes none, and a node opened for attributes only locks
    /// nothing. Unlocking from 0 to 2^63 - 1 releases the resources that locking took.
    ///
    /// # Errors
    /// `Unsupported` where such locks do not exist, `Exhausted` where too many nodes hold locks
    /// already.
    fn lock_range(&self, first: u64, last: u64, lock: RangeLock) -> Result<bool> {
        _ = (first, last, lock);
        Err(Error::new(Op::Lock, &RelPath::root(), ErrorKind::Unsupported))
    }

    /// Whether another program or another node holds a lock on any byte from `first` to `last` (at
    /// most 2^63 - 1) that excludes reading, or writing if `write`.
    ///
    /// # Errors
    /// `Unsupported` where such locks do not exist.
    fn is_range_locked(&self, first: u64, last: u64, write: bool) -> Result<bool> {
        _ = (first, last, write);
        Ok(false)
    }

    /// For downcasts: [`Self::copy_from`] must recognise a node of its own store.
    fn as_any(&self) -> &dyn std::any::Any;
}
