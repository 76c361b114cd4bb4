//! An open file as the operations see it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ropeway_smb_proto::server::hub::FileKey;
use ropeway_smb_proto::wire::create::{AccessMask, CreateOptions};
use ropeway_vfs::store::Node;
use ropeway_vfs::{Name, RelPath};

use super::pipes::PipeServer;
use super::share::Share;

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
    /// Where it lies now.
    pub(crate) fn path(&self) -> RelPath {
        self.path.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// It lies elsewhere now.
    pub(crate) fn set_path(&self, path: RelPath) {
        *self.path.lock().unwrap_or_else(PoisonError::into_inner) = path;
    }
}
