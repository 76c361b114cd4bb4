//! Requests that come in one frame ([MS-SMB2] 3.3.5.2.7).

use ropeway_smb_wire::{FileId, NtStatus, SessionId, TreeId};

/// What requests of one compound take over from one another ([MS-SMB2] 3.3.5.2.7.2).
#[derive(Clone, Debug)]
pub struct Compound {
    /// The session whose key opened the frame.
    pub sealed: Option<SessionId>,
    /// The file that the request before named or opened.
    pub file: Option<FileId>,
    /// The outcome of the request before.
    pub status: NtStatus,
    pub(super) session: SessionId,
    pub(super) tree: TreeId,
    pub(super) count: usize,
    pub(super) is_lost: bool,
}

impl Compound {
    /// Before its first request.
    pub fn new(sealed: Option<SessionId>) -> Self {
        Self {
            sealed,
            file: None,
            status: NtStatus::SUCCESS,
            session: SessionId::default(),
            tree: TreeId::default(),
            count: 0,
            is_lost: false,
        }
    }

    /// The file that a request means: that of the request before it, whatever a related one names. One that is not related
    /// has none before it.
    pub fn file(&self, named: FileId) -> FileId {
        self.file.unwrap_or(named)
    }

    /// The tree that a TREE_CONNECT made, for what follows in the compound.
    pub fn set_tree(&mut self, tree: TreeId) {
        self.tree = tree;
    }

    /// How many requests it had so far.
    pub fn count(&self) -> usize {
        self.count
    }
}
