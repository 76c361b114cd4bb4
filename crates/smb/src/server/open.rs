//! An open file as the operations see it.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex};

use ropeway_smb_proto::wire::create::{AccessMask, CreateOptions};
use ropeway_vfs::store::{Node, NodeChange};
use ropeway_vfs::{Name, RelPath};

use super::directory::Scan;
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
    /// The listing under way, if it is a folder that is being listed.
    pub(crate) scan: Mutex<Option<Scan>>,
    /// What only questions about it and changes of it need; [`Default`] at first.
    pub(crate) state: OpenState,
}

/// What an open remembers between requests beside its position.
#[derive(Debug)]
pub(crate) struct OpenState {
    /// `Mode` as set ([MS-FSCC] 2.4.31); [`OpenState::MODE_OF_OPTIONS`] until then.
    pub(crate) mode: AtomicU32,
    /// The extended attribute that the next listing of them begins with.
    pub(crate) ea_index: AtomicU32,
    /// Which times operations through this open do not change any more: bits of `set_file`.
    pub(crate) frozen: AtomicU8,
    /// What those times are.
    pub(crate) frozen_times: Mutex<NodeChange>,
}

impl OpenState {
    /// `mode`: what the options of CREATE say.
    pub(crate) const MODE_OF_OPTIONS: u32 = u32::MAX;
}

impl Default for OpenState {
    fn default() -> Self {
        Self {
            mode: AtomicU32::new(Self::MODE_OF_OPTIONS),
            ea_index: AtomicU32::new(0),
            frozen: AtomicU8::new(0),
            frozen_times: Mutex::new(NodeChange::default()),
        }
    }
}
