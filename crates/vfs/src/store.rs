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

mod model;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Op, Result};
use crate::external::{ContentLease, Observer, Watching};
use crate::metadata::{FileId, Timestamp, Xattr};
use crate::path::{Name, RelPath};
use crate::patience::Reachability;
use crate::posix::{NewKind, NewPosix, Permissions, RenameMode, XattrSet};
use crate::tree::{Extent, Space};

pub use self::model::{
    Access, Entries, NewNode, NodeChange, NodeOpen, NodeStat, Opened, RangeLock, Removal, Resolved,
    Snapshots, StoreFeatures, StreamInfo, StreamOpen, Task, Versioning,
};

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

    /// Works like [`Self::resolve`] for a path that is probably missing, except that reading a folder
    /// with very many names is left to the caller, which may have other clients to serve meanwhile.
    /// `then` makes the task to call once the folder has been read.
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

    /// Returns the security descriptor of the folder at a path as kept ([`Node::security`]), without
    /// the cost of opening it for other uses.
    ///
    /// # Errors
    /// As [`Self::open`] and [`Node::security`].
    fn folder_security(&self, path: &RelPath) -> Result<Option<Vec<u8>>> {
        self.open(path, &NodeOpen::default())?.node.security()
    }

    /// Whether any node may have extended attributes by full name ([`Node::xattr`]). Where none may, a
    /// mount answers questions about them without opening the node.
    fn may_have_xattrs(&self) -> bool {
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

    /// Returns how long a caller may keep names and attributes without asking again. Others may
    /// change the store meanwhile.
    fn attribute_lifetime(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Returns how the versions of a file are told apart, if they can be: every file has an id that
    /// is its own (0: none), and every change of its content gives it a new change time by one clock
    /// that no program can set back. Caches that outlive the store rely on it.
    fn versioning(&self) -> Option<Versioning> {
        None
    }

    /// Returns whether the source of this store answers; `None` if it cannot be lost, such as a local
    /// folder. Asking sends no request and does not wait.
    fn reachability(&self) -> Option<Reachability> {
        None
    }

    /// Returns the attributes of a node of any kind. A symbolic link is not followed.
    ///
    /// # Errors
    /// As [`Self::open`].
    fn look(&self, path: &RelPath) -> Result<NodeStat> {
        self.open_itself(path, Access::Attributes)
            .map(|opened| opened.stat)
    }

    /// Opens an existing node of any kind. A symbolic link is not followed. Links and special nodes
    /// open with [`Access::Attributes`] only.
    ///
    /// # Errors
    /// As [`Self::open`].
    fn open_itself(&self, path: &RelPath, access: Access) -> Result<Opened> {
        let how = NodeOpen {
            access,
            link_itself: true,
            ..NodeOpen::default()
        };
        self.open(path, &how)
    }

    /// Opens a file to read it without asking the source, if its attributes are known. The source is
    /// asked at the first read, which then also returns the errors of the open. For caches in front of
    /// a store, which read most of it elsewhere.
    fn open_known(&self, path: &RelPath) -> Option<Opened> {
        let _ = path;
        None
    }

    /// The entries of a folder will probably be asked for soon. A store that keeps attributes true, as
    /// long as a lease lasts, lists the folder in the background. Does not wait, and cannot fail.
    fn list_soon(&self, dir: &RelPath) {
        let _ = dir;
    }

    /// The calling thread works ahead of programs from now on: its requests may wait for all others.
    /// May be called again. Cannot fail.
    fn work_in_background(&self) {}

    /// Makes a node that does not exist yet. A store without modes and owners ignores them.
    ///
    /// # Errors
    /// `Unsupported` for kinds that the store cannot hold; otherwise as [`Self::open`].
    fn make(&self, path: &RelPath, new: &NewPosix<'_>) -> Result<Opened> {
        let directory = match new.kind {
            NewKind::File => false,
            NewKind::Directory => true,
            NewKind::Symlink(target) => {
                self.symlink(path, target)?;
                return self.open_itself(path, Access::Attributes);
            }
            _ => return Err(Error::new(Op::Create, path, ErrorKind::Unsupported)),
        };
        let create = NewNode {
            directory,
            dos_attributes: None,
        };
        let how = NodeOpen {
            access: new.access,
            create: Some(create),
            exclusive: true,
            ..NodeOpen::default()
        };
        self.open(path, &how)
    }

    /// Renames as rename(2) does. A store that cannot replace an empty folder in one step fails
    /// with `IsADirectory` or `AlreadyExists`.
    ///
    /// # Errors
    /// `NotEmpty` for a folder in the way that is not empty, `Unsupported` for an exchange that the
    /// store cannot make; otherwise as [`Self::rename`].
    fn rename_posix(&self, from: &RelPath, to: &RelPath, mode: RenameMode) -> Result<()> {
        match mode {
            RenameMode::Keep => self.rename(from, to, false),
            RenameMode::Replace => self.rename(from, to, true),
            RenameMode::Exchange => Err(Error::new(Op::Rename, to, ErrorKind::Unsupported)),
        }
    }
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

    /// Reads the attributes as they are now: unlike [`Self::stat`], never from what the store keeps.
    ///
    /// # Errors
    /// As [`Self::stat`].
    fn stat_now(&self) -> Result<NodeStat> {
        self.stat()
    }

    /// Reads when the file was made, as the volume records it; `None` if it does not. Nobody can set it.
    ///
    /// # Errors
    /// As [`Self::stat`].
    fn birth(&self) -> Result<Option<Timestamp>> {
        Ok(None)
    }

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

    /// Begins to write the content to the device, where [`Self::sync`] will wait for it: of several
    /// files, the device then gets all at once.
    ///
    /// # Errors
    /// Write-back failed. [`Self::sync`] need not report that again.
    fn begin_sync(&self) -> Result<()> {
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

    /// Returns the lease on this node's content. Whoever keeps content asks before reading it and
    /// afterwards: what was read between two equal answers is valid for that epoch. Asking sends no
    /// request. An epoch means nothing in another process.
    fn lease(&self) -> ContentLease {
        ContentLease::None
    }

    /// Sets this node's advisory lock of the bytes from `first` to `last` (at most 2^63 - 1): it
    /// excludes other locks, and no reads or writes through this store. It replaces
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

    /// Makes the content durable, and as much metadata as reading it needs (fdatasync(2)).
    ///
    /// # Errors
    /// Write-back failed.
    fn sync_data(&self) -> Result<()> {
        self.sync()
    }

    /// Sets permission bits and owner.
    ///
    /// # Errors
    /// `PermissionDenied`, `ReadOnly`, `Unsupported` where nodes have none.
    fn set_permissions(&self, permissions: &Permissions) -> Result<()> {
        _ = permissions;
        unsupported(Op::SetAttributes)
    }

    /// Returns the device number (major, minor) of a device node.
    ///
    /// # Errors
    /// The volume does not answer.
    fn device(&self) -> Result<Option<(u32, u32)>> {
        Ok(None)
    }

    /// Reserves space for a range without changing the length.
    ///
    /// # Errors
    /// `NoSpace`, `Unsupported`.
    fn reserve(&self, offset: u64, length: u64) -> Result<()> {
        _ = (offset, length);
        unsupported(Op::SetLength)
    }

    /// Returns the full names of the extended attributes, without the store's own bookkeeping.
    ///
    /// # Errors
    /// `Unsupported` where nodes have none.
    fn xattr_names(&self) -> Result<Vec<Vec<u8>>> {
        unsupported(Op::Xattr)
    }

    /// Returns the value of an extended attribute by its full name; `None` if there is none.
    ///
    /// # Errors
    /// `Unsupported` where nodes have none, or none in that name space.
    fn xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        _ = name;
        unsupported(Op::Xattr)
    }

    /// Sets an extended attribute by its full name.
    ///
    /// # Errors
    /// `AlreadyExists` and `NotFound` as `how` says, `NoSpace`, `PermissionDenied` for the store's
    /// own bookkeeping, `Unsupported` where nodes have none, or none in that name space.
    fn set_xattr(&self, name: &[u8], value: &[u8], how: XattrSet) -> Result<()> {
        _ = (name, value, how);
        unsupported(Op::Xattr)
    }

    /// Removes an extended attribute by its full name.
    ///
    /// # Errors
    /// `NotFound`; otherwise as [`Self::set_xattr`].
    fn remove_xattr(&self, name: &[u8]) -> Result<()> {
        _ = name;
        unsupported(Op::Xattr)
    }

    /// Returns a descriptor whose content is this node's at every moment, if reading and writing it
    /// does the same as [`Self::read_at`] and [`Self::write_at`]. `None` for a store that does more,
    /// or has no descriptors.
    fn content_descriptor(&self) -> Option<Arc<OwnedFd>> {
        None
    }

    /// Returns the bytes of the content that are in this machine's memory only; `None` where that is
    /// not known.
    fn unflushed_bytes(&self) -> Option<u64> {
        None
    }

    /// For downcasts: [`Self::copy_from`] must recognise a node of its own store.
    fn as_any(&self) -> &dyn std::any::Any;
}

fn unsupported<T>(op: Op) -> Result<T> {
    Err(Error::new(op, &RelPath::root(), ErrorKind::Unsupported))
}
