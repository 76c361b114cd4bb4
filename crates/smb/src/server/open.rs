//! An open file as the operations see it.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use ropeway_smb_proto::wire::create::{AccessMask, CreateOptions};
use ropeway_vfs::store::Node;
use ropeway_vfs::{Name, RelPath};

use super::share::Share;

/// An open file, folder, link or stream. What spans opens (share modes, leases, locks, pending deletion) is the hub's.
pub(crate) struct Open {
    /// The hub's number; both halves of the file id on the wire.
    pub(crate) id: u64,
    /// Where it lies.
    pub(crate) share: Arc<Share>,
    /// What it is.
    pub(crate) node: Arc<dyn Node>,
    /// The named stream that `node` is, if it is one.
    pub(crate) stream: Option<Name>,
    /// A folder.
    pub(crate) directory: bool,
    /// What was granted.
    pub(crate) access: AccessMask,
    /// How it was opened.
    pub(crate) options: CreateOptions,
    /// Path as on disk; renames change it.
    pub(crate) path: Mutex<RelPath>,
    /// `CurrentByteOffset`; kept for clients, used by nobody ([MS-FSCC] 2.4.40).
    pub(crate) position: AtomicU64,
}
