//! An open file as the operations see it.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use ropeway_smb_proto::compression::CompressionSampler;
use ropeway_smb_proto::server::hub::{FileKey, OpenId};
use ropeway_smb_wire::create::{AccessMask, CreateAction, CreateOptions};
use ropeway_smb_wire::{SessionId, TreeId};
use ropeway_vfs::external::Watching;
use ropeway_vfs::store::{Node, NodeChange};
use ropeway_vfs::{FileId, Name, RelPath};

use crate::pipes::PipeServer;
use crate::share::Share;
use crate::state::cache_watch::CacheWatch;
use crate::state::scan::Scan;

/// An open file, folder, link or stream. What spans opens (share modes, leases, locks, pending deletion) is the hub's.
pub(crate) struct Open {
    /// The hub's number; both halves of the file id on the wire.
    pub(crate) id: u64,
    /// Whose it is; a durable handle may come to another session of the same user.
    pub(crate) session: AtomicU64,
    /// The tree that it was opened in.
    pub(crate) tree: AtomicU32,
    /// Where it lies.
    pub(crate) share: Arc<Share>,
    /// What the hub knows the file by.
    pub(crate) file: FileKey,
    /// What it is.
    pub(crate) node: Arc<dyn Node>,
    /// The file whose stream `node` is, if it is one.
    pub(crate) base: Option<Arc<dyn Node>>,
    /// The named stream that `node` is, if it is one.
    pub(crate) stream: Option<Name>,
    /// A folder.
    pub(crate) directory: bool,
    /// What was granted.
    pub(crate) access: AccessMask,
    /// How it was opened.
    pub(crate) options: CreateOptions,
    /// What opening it did.
    pub(crate) action: CreateAction,
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
    /// Changes by others are heard of, as the client was let cache the file.
    pub(crate) caching: OnceLock<CacheWatch>,
    /// Changes by others in the folder are heard of, as the client watches it; `None` inside where they cannot be.
    pub(crate) watching: OnceLock<Option<Watching>>,
    /// Whether what is read is worth compressing.
    pub(crate) sampler: CompressionSampler,
    /// It has locks that local programs see, or may have.
    pub(crate) posix_locks: AtomicBool,
    /// The symbolic link that took the place of the node, by this open.
    pub(crate) replaced: OnceLock<FileId>,
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
            caching: OnceLock::new(),
            watching: OnceLock::new(),
            sampler: CompressionSampler::default(),
            posix_locks: AtomicBool::new(false),
            replaced: OnceLock::new(),
        }
    }
}

/// An open named pipe of IPC$.
pub(crate) struct PipeOpen {
    /// The hub's number.
    pub(crate) id: u64,
    pub(crate) session: u64,
    pub(crate) tree: u32,
    /// The service behind it.
    pub(crate) server: Mutex<PipeServer>,
}

/// What a file id stands for.
#[derive(Clone)]
pub(crate) enum Handle {
    File(Arc<Open>),
    Pipe(Arc<PipeOpen>),
}

impl Handle {
    pub(crate) fn file(&self) -> Option<&Arc<Open>> {
        match self {
            Self::File(open) => Some(open),
            Self::Pipe(_) => None,
        }
    }

    /// Whether it was opened in this tree of this session.
    pub(crate) fn belongs_to(&self, session: u64, tree: u32) -> bool {
        match self {
            Self::File(open) => {
                open.session.load(Ordering::Relaxed) == session && open.tree.load(Ordering::Relaxed) == tree
            }
            Self::Pipe(pipe) => pipe.session == session && pipe.tree == tree,
        }
    }
}

impl Open {
    /// What the hub knows it by.
    pub(crate) fn hub_id(&self) -> OpenId {
        OpenId::new(self.id)
    }

    /// Which node has its name, unless a local program has changed that: the one that was opened, or the link made of it.
    pub(crate) fn named_node(&self) -> FileId {
        self.state.replaced.get().copied().unwrap_or(FileId {
            volume: self.file.share_volume,
            index: self.file.index,
        })
    }

    /// It is this tree's now, of this session.
    pub(crate) fn set_owner(&self, session: SessionId, tree: TreeId) {
        self.session.store(session.0, Ordering::Relaxed);
        self.tree.store(tree.0, Ordering::Relaxed);
    }

    /// Where it lies now.
    pub(crate) fn path(&self) -> RelPath {
        self.path.lock().clone()
    }

    /// It lies elsewhere now.
    pub(crate) fn set_path(&self, path: RelPath) {
        *self.path.lock() = path;
    }
}
