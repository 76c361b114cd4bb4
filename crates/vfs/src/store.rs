//! The contract of a file server's back end: [`Store`] and [`Node`].
//!
//! [`Tree`](crate::Tree) is made for moving whole files, many at once; a server answers single questions about open
//! files, on the thread that has read them from the socket. So these calls are synchronous and may block, take `&self`,
//! and are safe to make from many threads at once. Rules that every implementation keeps:
//! * paths are relative to the store's root, in names as the disk has them; nothing ever leads out of the root: a
//!   symbolic link that does is not followed, nor any link whose target is absolute;
//! * what a server keeps of Windows' view (DOS attributes, creation time, streams, security descriptors, extended
//!   attributes) is kept by the store and survives a restart;
//! * names are looked up as they are written; [`Store::resolve`] finds those that differ in case;
//! * a node stays what it was when its name changes or goes: it is known by [`FileId`], not by its path;
//! * `read_at` is short only at the end of the file; `write_at` is never short.

use std::sync::Arc;

use crate::error::{Error, ErrorKind, Op, Result};
use crate::metadata::{FileId, Kind, Owner, Timestamp, Xattr};
use crate::outside::{Observer, Watching};
use crate::path::{Name, RelPath};
use crate::tree::{Extent, Space};

/// What a store can hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFeatures {
    /// Identity of the volume; serial number and object id come from it.
    pub volume: u64,
    /// Longest name in bytes.
    pub name_max: usize,
    /// Bytes of an allocation unit.
    pub unit: u32,
    /// Nothing can be changed.
    pub read_only: bool,
    /// Holes are kept.
    pub sparse: bool,
    /// DOS attributes, creation times, streams, security descriptors can be kept.
    pub windows_metadata: bool,
    /// When the volume was made, as far as known.
    pub created: Timestamp,
}

/// Attributes of a node as a server tells them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeStat {
    /// What it is.
    pub kind: Kind,
    /// Logical size in bytes; of a stream, the stream's.
    pub size: u64,
    /// Bytes allocated.
    pub allocated: u64,
    /// Number of hard links.
    pub links: u64,
    /// Identity; a stream has its file's.
    pub id: FileId,
    /// Permission bits (0o7777).
    pub mode: u32,
    /// Owner and group.
    pub owner: Owner,
    /// Creation: as set, else the birth time, else the earliest of the others.
    pub created: Timestamp,
    /// Last access.
    pub accessed: Timestamp,
    /// Last change of the content.
    pub modified: Timestamp,
    /// Last change of content or attributes.
    pub changed: Timestamp,
    /// DOS attributes ([MS-FSCC] 2.6) as kept; `None` if none were ever set. Neither DIRECTORY, NORMAL nor
    /// REPARSE_POINT is among them: `kind` says so.
    pub dos_attributes: Option<u32>,
}

/// What an open is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Attributes only.
    #[default]
    Attributes,
    /// The content is read.
    Read,
    /// The content is written, and read where it may be (a server copies ranges, looks for data).
    Write,
}

/// A node to make if there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// A folder, else a file.
    pub directory: bool,
    /// Its first DOS attributes; `None` keeps none.
    pub dos_attributes: Option<u32>,
}

/// How to open a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeOpen {
    /// What for.
    pub access: Access,
    /// If `access` is refused, less is taken ([`Node::access`] tells).
    pub less_will_do: bool,
    /// Make it if it is not there.
    pub create: Option<NewNode>,
    /// It must not be there: [`crate::ErrorKind::AlreadyExists`].
    pub exclusive: bool,
    /// A symbolic link is opened itself, else it is followed as long as it stays beneath the root.
    pub link_itself: bool,
}

/// An opened node.
pub struct Opened {
    /// The node.
    pub node: Arc<dyn Node>,
    /// Its attributes right after.
    pub stat: NodeStat,
    /// It was made by this call.
    pub created: bool,
}

/// A stream to open beside a file's or folder's own content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamOpen {
    /// Make it if it is not there.
    pub create: bool,
    /// It must not be there.
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

/// Times and DOS attributes to set; `None` leaves as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeChange {
    /// Creation.
    pub created: Option<Timestamp>,
    /// Last access.
    pub accessed: Option<Timestamp>,
    /// Last change of the content.
    pub modified: Option<Timestamp>,
    /// Last change of content or attributes: told as given until the next change, where a store can.
    pub changed: Option<Timestamp>,
    /// DOS attributes.
    pub dos_attributes: Option<u32>,
}

/// What a range of a file is locked for, as other programs see it (advisory locks, fcntl(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RangeLock {
    /// Nothing: it is unlocked.
    None,
    /// Others may lock it shared, too.
    Shared,
    /// Nobody else may.
    Exclusive,
}

/// Something to run once, on any thread.
pub type Task = Box<dyn FnOnce() + Send>;

/// What [`Store::resolve_soon`] gives.
pub enum Resolved {
    /// The path as on disk.
    Path(RelPath),
    /// The caller is to run this on a thread that may block for seconds. It calls the caller's task at its end, even
    /// when it fails or is dropped; then the path is to be resolved again.
    After(Task),
    /// Somebody reads that folder, and will call the caller's task.
    UnderWay,
}

/// What [`Store::remove_node`] removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// A file or link.
    File,
    /// A file without content, else [`crate::ErrorKind::NotEmpty`].
    EmptyFile,
    /// An empty folder.
    Directory,
}

/// Entries of a folder, in an order that does not change while it is open.
pub trait Entries: Send {
    /// The next entry, `.` and `..` excluded; `None` at the end. An entry that vanishes meanwhile is left out.
    ///
    /// # Errors
    /// The folder cannot be read.
    fn next(&mut self) -> Result<Option<(Name, NodeStat)>>;
}

/// A shared folder and all beneath it.
pub trait Store: Send + Sync {
    /// What it can hold.
    fn features(&self) -> &StoreFeatures;

    /// Room on the volume.
    ///
    /// # Errors
    /// The volume does not answer.
    fn space(&self) -> Result<Space>;

    /// The path under which a node is found whose names are `path`'s, without regard to case: each component as it is
    /// written if there is such a node, else the one that differs in case only. Of a path whose last component does
    /// not exist in any case, the parent's components are as on disk and the last is as given.
    ///
    /// # Errors
    /// [`crate::ErrorKind::NotFound`] if a component before the last is missing, `NotADirectory` if it is none.
    fn resolve(&self, path: &RelPath) -> Result<RelPath>;

    /// As [`Self::resolve`], but where a folder with very many names has to be read first, that is left to the caller,
    /// who may have others to serve meanwhile: `then` gives what is to be called when it has been read.
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
    /// `NotFound`, `AlreadyExists`, `NotADirectory` (a component before the last), `PermissionDenied`, `ReadOnly`,
    /// `SymbolicLink` (one that leads out), `NoSpace`, `NameRefused`.
    fn open(&self, path: &RelPath, how: &NodeOpen) -> Result<Opened>;

    /// Removes a name; a folder must be empty. Streams go with the last name.
    ///
    /// # Errors
    /// `NotFound`, `NotEmpty`, `PermissionDenied`.
    fn remove(&self, path: &RelPath, directory: bool) -> Result<()>;

    /// Removes a name if it is still that of this node: a local program may have put another one there.
    ///
    /// # Errors
    /// `Gone` if it is another's, and as [`Self::remove`].
    fn remove_node(&self, id: FileId, path: &RelPath, what: Removal) -> Result<()>;

    /// Whether [`Self::remove`] of this name would be refused for want of a right, as far as can be told without trying.
    ///
    /// # Errors
    /// `PermissionDenied`, `ReadOnly`.
    fn check_remove(&self, path: &RelPath) -> Result<()> {
        let _ = path;
        Ok(())
    }

    /// Renames; replaces a file (never a folder) if `replace`. A change of case alone is a rename like any other.
    ///
    /// # Errors
    /// `AlreadyExists`, `NotFound`, `IsADirectory`, `CrossDevice`, `PermissionDenied`.
    fn rename(&self, from: &RelPath, to: &RelPath, replace: bool) -> Result<()>;

    /// As [`Self::rename`] if the name is still that of this node.
    ///
    /// # Errors
    /// `Gone` if it is another's, and as [`Self::rename`].
    fn rename_node(&self, id: FileId, from: &RelPath, to: &RelPath, replace: bool) -> Result<()>;

    /// Gives an open file another name, whatever has its first one by now; replaces a file if `replace`.
    ///
    /// # Errors
    /// `Gone` if it has no name any more, `Misuse` for a node of another store, and as [`Self::rename`].
    fn link_node(&self, node: &dyn Node, to: &RelPath, replace: bool) -> Result<()>;

    /// Gives a file another name; replaces a file if `replace`.
    ///
    /// # Errors
    /// As [`Self::rename`].
    fn link(&self, from: &RelPath, to: &RelPath, replace: bool) -> Result<()>;

    /// Makes a symbolic link; `target` is as given, even if it leads out.
    ///
    /// # Errors
    /// `AlreadyExists`, `PermissionDenied`.
    fn symlink(&self, path: &RelPath, target: &[u8]) -> Result<()>;

    /// Whether any node may keep a security descriptor. While none was ever set, nobody has to look for them.
    fn is_guarded(&self) -> bool {
        true
    }

    /// Whom to tell of what others do to watched nodes ([`Node::watch`]), in place of whom was told before.
    fn observe(&self, observer: Arc<dyn Observer>) {
        drop(observer);
    }

    /// Makes all that was acknowledged durable, as well as the volume can.
    ///
    /// # Errors
    /// Write-back failed.
    fn sync(&self) -> Result<()>;
}

/// An open file, folder, link, or stream of one.
pub trait Node: Send + Sync {
    /// What it was opened for, in fact.
    fn access(&self) -> Access;

    /// Attributes now.
    ///
    /// # Errors
    /// The volume does not answer.
    fn stat(&self) -> Result<NodeStat>;

    /// Sets times and DOS attributes.
    ///
    /// # Errors
    /// `Misuse` for a time that the volume does not hold: then nothing is changed. `PermissionDenied`, `ReadOnly`, `NoSpace`.
    fn change(&self, change: &NodeChange) -> Result<()>;

    /// Reads into `buffer`; fewer bytes only at the end.
    ///
    /// # Errors
    /// `IsADirectory`, `DeviceError`.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;

    /// As [`Self::read_at`], but only what is in memory already: `None` where the device would have to be asked, or where
    /// that cannot be told.
    ///
    /// # Errors
    /// As [`Self::read_at`].
    fn read_cached(&self, buffer: &mut [u8], offset: u64) -> Result<Option<usize>>;

    /// Whether no device stands behind it (tmpfs): writing and syncing never wait for one.
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

    /// Makes a range zeros, as a hole where `hole` and the volume can; the length stays.
    ///
    /// # Errors
    /// `NoSpace`, `DeviceError`.
    fn zero(&self, offset: u64, length: u64, hole: bool) -> Result<()>;

    /// The runs of data in a range; at most `max`.
    ///
    /// # Errors
    /// `DeviceError`.
    fn extents(&self, offset: u64, length: u64, max: usize) -> Result<Vec<Extent>>;

    /// Copies a range from another open file of the same store, in the kernel where it can; the count may be short at
    /// the source's end.
    ///
    /// # Errors
    /// As [`Self::write_at`].
    fn copy_from(&self, source: &dyn Node, source_offset: u64, offset: u64, length: u64) -> Result<u64>;

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

    /// Where a symbolic link leads.
    ///
    /// # Errors
    /// `Misuse` if it is none.
    fn link_target(&self) -> Result<Vec<u8>>;

    /// Named streams.
    ///
    /// # Errors
    /// The volume does not answer.
    fn streams(&self) -> Result<Vec<StreamInfo>>;

    /// Opens a named stream, found without regard to case; it reads, writes and has a length like a file. The flag says
    /// whether it was made.
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

    /// The security descriptor as kept, self-relative ([MS-DTYP] 2.4.6); `None` if none was ever set.
    ///
    /// # Errors
    /// The volume does not answer.
    fn security(&self) -> Result<Option<Vec<u8>>>;

    /// Keeps a security descriptor.
    ///
    /// # Errors
    /// `NoSpace`, `Unsupported`.
    fn set_security(&self, descriptor: &[u8]) -> Result<()>;

    /// Extended attributes of OS/2 fame: names without any prefix, neither streams nor what the store keeps for itself.
    ///
    /// # Errors
    /// The volume does not answer.
    fn eas(&self) -> Result<Vec<Xattr>>;

    /// Sets an extended attribute (found without regard to case), or removes it if `value` is empty.
    ///
    /// # Errors
    /// `NoSpace`, `Unsupported`.
    fn set_ea(&self, name: &[u8], value: &[u8]) -> Result<()>;

    /// From now on the store's observer is told what others do to this node; of a folder, to its entries too, and if
    /// `below` to all beneath it. A stream is watched with its file.
    ///
    /// # Errors
    /// `Unsupported` where it would not be heard of, `Exhausted` where too much is watched already.
    fn watch(&self, below: bool) -> Result<Watching> {
        _ = below;
        Err(Error::new(Op::Watch, &RelPath::root(), ErrorKind::Unsupported))
    }

    /// Makes this node's lock of the bytes from `first` to `last` (at most 2^63 - 1) that one, whatever it was, in place of
    /// parts of others too; `false`, and nothing has changed, while another program holds a lock that excludes it. The
    /// locks of two nodes exclude each other like those of two programs. A node that was not opened for writing
    /// locks shared instead of exclusively, one that was not opened for reading locks nothing instead of shared, and one
    /// opened for attributes only locks nothing at all. Unlocking from 0 to 2^63 - 1 gives up what locking took.
    ///
    /// # Errors
    /// `Unsupported` where there are no such locks, `Exhausted` where too many nodes have locks already.
    fn lock_range(&self, first: u64, last: u64, lock: RangeLock) -> Result<bool> {
        _ = (first, last, lock);
        Err(Error::new(Op::Lock, &RelPath::root(), ErrorKind::Unsupported))
    }

    /// Whether another program, or another node, holds a lock of any byte from `first` to `last` (at most 2^63 - 1) that
    /// excludes reading it, or writing it if `write`.
    ///
    /// # Errors
    /// `Unsupported` where there are no such locks.
    fn is_range_locked(&self, first: u64, last: u64, write: bool) -> Result<bool> {
        _ = (first, last, write);
        Ok(false)
    }

    /// For [`Self::copy_from`] to recognize its own kind.
    fn as_any(&self) -> &dyn std::any::Any;
}
