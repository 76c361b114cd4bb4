//! What others do beneath a store's root: local programs, other servers.
//!
//! A server lets clients cache what it would hear of. It asks a node to be watched ([`crate::store::Node::watch`]) before
//! it lets anybody cache it, and the store tells its [`Observer`] what others than itself do to it from then on, soon after
//! they did it. What the store does itself (whoever asked for it) is not told.

use std::fmt;

use crate::metadata::FileId;
use crate::path::RelPath;

/// Something that others did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outside {
    /// The content, length, attributes or a name of a watched node changed; of a folder, also its entries or what is
    /// told of them in a listing. For whoever caches it.
    Node(FileId),
    /// Something happened to an entry of a watched folder.
    Entry {
        /// From the store's root.
        path: RelPath,
        /// What.
        what: EntryChange,
        /// It is a folder.
        directory: bool,
    },
    /// An entry of a watched folder is another's now, by the same name or another.
    Renamed {
        /// From the store's root.
        from: RelPath,
        /// From the store's root.
        to: RelPath,
        /// It is a folder.
        directory: bool,
    },
    /// There was more than could be told: anything may have changed in the watched folders. Watched nodes are told of
    /// one by one.
    Lost,
}

/// What happened to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryChange {
    /// It is there now.
    Added,
    /// It is gone.
    Removed,
    /// Its content or length changed.
    Content,
    /// Something else that is known of it changed: times, permissions, extended attributes, number of names.
    Attributes,
}

/// Whom a store tells.
pub trait Observer: Send + Sync {
    /// Others did this, in that order. Called from a thread of the store's own; while it runs, what happens next waits.
    fn changed(&self, changes: &[Outside]);
}

/// As long as it lives, a node is watched.
pub struct Watching(#[expect(dead_code, reason = "its drop is what counts")] Option<Box<dyn Send + Sync>>);

impl Watching {
    /// Ends when `guard` is dropped.
    pub fn new(guard: impl Send + Sync + 'static) -> Self {
        Self(Some(Box::new(guard)))
    }

    /// Of a store that nobody else can change.
    pub fn needless() -> Self {
        Self(None)
    }
}

impl fmt::Debug for Watching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watching")
    }
}
