//! What a [`Store`] and its nodes are asked with and answer with.

use std::sync::Arc;
use std::time::Duration;

use super::{Node, Store};
use crate::error::Result;
use crate::metadata::{FileId, Kind, Owner, Timestamp};
use crate::path::{Name, RelPath};

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

/// How the versions of a file are told apart ([`Store::versioning`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versioning {
    /// The present time of the clock that stamps changes, or an earlier time.
    pub now: Timestamp,
    /// How long after its change time a file may still change without getting another one: the
    /// granularity of the volume's times, and delayed stamps.
    pub settle: Duration,
    /// Longest time for which the store returns data or attributes that it got earlier.
    pub memory: Duration,
    /// Whether a write that returned is visible to every other program, in content and attributes.
    pub writes_at_once: bool,
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

/// The result of [`Store::resolve_soon`](super::Store::resolve_soon).
pub enum Resolved {
    /// The path as on disk.
    Path(RelPath),
    /// A task that may block for seconds. Run it on a thread that may wait. At its end it calls the
    /// caller's task, even when it fails or is dropped; then resolve the path again.
    After(Task),
    /// Another caller is reading that folder; the caller's task is called at its end.
    UnderWay,
}

/// What [`Store::remove_node`](super::Store::remove_node) removes.
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

/// Earlier states of a store, such as the snapshots of its file system.
pub trait Snapshots: Send + Sync {
    /// Returns their times in seconds since 1970 (UTC), the newest first. No two are equal.
    ///
    /// # Errors
    /// They cannot be listed.
    fn times(&self) -> Result<Vec<i64>>;

    /// Opens the state of a time that [`Self::times`] returns. Nothing can be changed in it.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) if there is none of that time, or the folder did not
    /// exist then; other errors of opening it.
    fn open(&self, time: i64) -> Result<Arc<dyn Store>>;
}
