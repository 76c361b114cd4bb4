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

/// What a lease says of a node's content (its bytes and its length).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContentLease {
    /// There is no lease: the content may change at any time.
    #[default]
    None,
    /// There was one, and its break was announced: somebody else changes the content, or is about to.
    Broken,
    /// Nobody else changes the content without a break of the lease, which waits for this side.
    Held {
        /// Differs between any two leases of one process, and is higher after each loss: content
        /// that was read under another number may be old.
        epoch: u64,
    },
    /// The connection is lost. The content was valid until then; it is again if the lease is `Held`
    /// with the same number later.
    Suspended {
        /// As in [`ContentLease::Held`].
        epoch: u64,
    },
}

impl ContentLease {
    /// Whether the lease was held `before` and others have broken it since. A lease that went with its
    /// connection does not count.
    pub fn is_broken_since(self, before: Self) -> bool {
        self == Self::Broken && matches!(before, Self::Held { .. } | Self::Suspended { .. })
    }
}

/// What is left of a lease after a break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseLeft {
    /// Nothing: the content may change.
    Nothing,
    /// The content stays as it is, but the node must not be kept open without need: somebody wants
    /// to rename or remove it, or open it for himself.
    Read,
}

/// Maximum time that a store waits for [`Observer::breaking`]. The server of a share waits 35 s for
/// an acknowledgment ([MS-SMB2] 3.3.6.5).
pub const BREAK_MAX: std::time::Duration = std::time::Duration::from_secs(30);

/// Receives the changes.
pub trait Observer: Send + Sync {
    /// Reports changes by other programs, in order. Called from a thread of the store; later
    /// changes wait until it returns.
    fn changed(&self, changes: &[ExternalChange]);

    /// Reports that a lease on a watched node's content is about to be given up, because another
    /// client wants to use the node. That client waits until this returns, at most [`BREAK_MAX`].
    /// An observer whose own clients cache the node takes this from them, and writes to the node
    /// what they have not written yet; the store then sends it on before it gives up the lease.
    /// Calls for different nodes come at the same time, from threads of the store.
    fn breaking(&self, id: FileId, left: LeaseLeft) {
        _ = (id, left);
    }
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
