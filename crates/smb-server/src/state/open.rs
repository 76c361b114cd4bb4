//! Open files and pipes as the operations see them.

use parking_lot::{Mutex, RwLock};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use ropeway_smb_proto::compression::CompressionSampler;
use ropeway_smb_proto::server::hub::{FileKey, OpenId};
use ropeway_smb_wire::create::{AccessMask, CreateAction, CreateOptions};
use ropeway_smb_wire::{SessionId, Text, TreeId};
use ropeway_vfs::external::Watching;
use ropeway_vfs::store::Node;
use ropeway_vfs::{FileId, Name, RelPath, Timestamp};

use crate::pipes::PipeServer;
use crate::share::Share;
use crate::state::cache_watch::CacheWatch;
use crate::state::scan::Scan;

/// An open file, folder, link or stream. The hub keeps what spans opens: share modes, leases,
/// locks, pending deletions.
pub(crate) struct Open {
    /// The hub's number, which is both halves of the file id on the wire.
    pub(crate) id: u64,
    /// The session it belongs to. A durable open may move to another session of the same user.
    pub(crate) session: AtomicU64,
    /// The tree it was opened in.
    pub(crate) tree: AtomicU32,
    /// The share it is in.
    pub(crate) share: Arc<Share>,
    /// The hub's key of the file.
    pub(crate) file: FileKey,
    /// The open node.
    pub(crate) node: Arc<dyn Node>,
    /// The file that `node` is a stream of, if it is one.
    pub(crate) base: Option<Arc<dyn Node>>,
    /// The name of the stream, if `node` is one.
    pub(crate) stream: Option<Name>,
    /// The short name by which it was opened, if it was.
    pub(crate) short_name: Option<Text>,
    /// Whether it is a folder.
    pub(crate) directory: bool,
    /// The granted access.
    pub(crate) access: AccessMask,
    /// Whether the user may change existing bytes of the file, even if this open was not granted
    /// that.
    pub(crate) may_overwrite: bool,
    /// The options of the CREATE.
    pub(crate) options: CreateOptions,
    /// What the CREATE did.
    pub(crate) action: CreateAction,
    /// Path on disk; renames change it.
    pub(crate) path: Mutex<RelPath>,
    /// `CurrentByteOffset`. Clients may read it; the server does not use it ([MS-FSCC] 2.4.40).
    pub(crate) position: AtomicU64,
    /// The listing in progress, for a folder.
    pub(crate) scan: Mutex<Option<Scan>>,
    /// State for queries and changes; [`Default`] at first.
    pub(crate) state: OpenState,
}

/// State of an open that lasts from request to request.
#[derive(Debug)]
pub(crate) struct OpenState {
    /// `Mode` as set ([MS-FSCC] 2.4.31), or [`OpenState::MODE_OF_OPTIONS`].
    pub(crate) mode: AtomicU32,
    /// Index of the extended attribute that the next listing of them begins with.
    pub(crate) ea_index: AtomicU32,
    /// Times that operations through this open no longer change: bits of `set_file`.
    pub(crate) frozen: AtomicU8,
    /// Held while the content changes: together where no time is kept, alone where one is, or is set.
    pub(crate) changes: RwLock<()>,
    /// Watch for changes by local programs, while the client may cache the file.
    pub(crate) caching: OnceLock<CacheWatch>,
    /// Watch for changes by local programs in the folder, while the client watches it; `None`
    /// inside if that is impossible.
    pub(crate) watching: OnceLock<Option<Watching>>,
    /// Decides whether data are worth compressing.
    pub(crate) sampler: CompressionSampler,
    /// Whether the open has, or may have, POSIX locks.
    pub(crate) posix_locks: AtomicBool,
    /// Identity of the symbolic link that replaced the node through this open.
    pub(crate) replaced: OnceLock<FileId>,
    /// When a persistent open's file was made, where the volume says so.
    pub(crate) birth: OnceLock<Option<Timestamp>>,
}

impl OpenState {
    /// `mode` is what the options of CREATE say.
    pub(crate) const MODE_OF_OPTIONS: u32 = u32::MAX;
}

impl Default for OpenState {
    fn default() -> Self {
        Self {
            mode: AtomicU32::new(Self::MODE_OF_OPTIONS),
            ea_index: AtomicU32::new(0),
            frozen: AtomicU8::new(0),
            changes: RwLock::default(),
            caching: OnceLock::new(),
            watching: OnceLock::new(),
            sampler: CompressionSampler::default(),
            posix_locks: AtomicBool::new(false),
            replaced: OnceLock::new(),
            birth: OnceLock::new(),
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

/// What a file id refers to.
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
    /// Returns the hub's number.
    pub(crate) fn hub_id(&self) -> OpenId {
        OpenId::new(self.id)
    }

    /// Returns the identity of the node that should have the name: the opened one, or the link that
    /// replaced it. A local program may have changed that.
    pub(crate) fn named_node(&self) -> FileId {
        self.state.replaced.get().copied().unwrap_or(FileId {
            volume: self.file.share_volume,
            index: self.file.index,
        })
    }

    /// Moves the open to a tree of a session.
    pub(crate) fn set_owner(&self, session: SessionId, tree: TreeId) {
        self.session.store(session.0, Ordering::Relaxed);
        self.tree.store(tree.0, Ordering::Relaxed);
    }

    /// Returns the current path.
    pub(crate) fn path(&self) -> RelPath {
        self.path.lock().clone()
    }

    /// Sets the path after a rename.
    pub(crate) fn set_path(&self, path: RelPath) {
        *self.path.lock() = path;
    }
}
