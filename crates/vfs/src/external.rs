//! Changes that other programs make beneath a store's root: local programs, other servers.
//!
//! A server lets clients cache only what it learns about changes to. It watches a node
//! ([`crate::store::Node::watch`]) before it grants caching. From then on the store reports to its
//! [`Observer`] what other programs do to the node, soon after they do it. Changes through the
//! store itself are not reported.

use std::fmt;

use crate::metadata::FileId;
use crate::path::RelPath;

/// A change made by another program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExternalChange {
    /// The content, length, attributes or a name of a watched node changed; of a folder, also its
    /// entries or their listed attributes. For clients that cache it.
    Node(FileId),
    /// An entry of a watched folder changed.
    Entry {
        /// Path from the store's root.
        path: RelPath,
        /// What changed.
        what: EntryChange,
        /// Whether the entry is a folder.
        directory: bool,
    },
    /// An entry of a watched folder was renamed, or a name now belongs to another node.
    Renamed {
        /// Old path from the store's root.
        from: RelPath,
        /// New path from the store's root.
        to: RelPath,
        /// Whether the entry is a folder.
        directory: bool,
    },
    /// Events were lost: anything may have changed in the watched folders. Watched nodes are still
    /// reported one by one.
    Lost,
}

/// The change of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryChange {
    /// It was added.
    Added,
    /// It was removed.
    Removed,
    /// Its content or length changed.
    Content,
    /// Other attributes changed: times, permissions, extended attributes, number of links.
    Attributes,
}

/// Receives the changes.
pub trait Observer: Send + Sync {
    /// Reports changes by other programs, in order. Called from a thread of the store; later
    /// changes wait until it returns.
    fn changed(&self, changes: &[ExternalChange]);
}

/// Keeps a node watched until it is dropped.
pub struct Watching(#[expect(dead_code, reason = "its drop is what counts")] Option<Box<dyn Send + Sync>>);

impl Watching {
    /// Makes a watch that ends when `guard` is dropped.
    pub fn new(guard: impl Send + Sync + 'static) -> Self {
        Self(Some(Box::new(guard)))
    }

    /// Makes an empty watch, for a store that no other program can change.
    pub fn needless() -> Self {
        Self(None)
    }
}

impl fmt::Debug for Watching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watching")
    }
}
