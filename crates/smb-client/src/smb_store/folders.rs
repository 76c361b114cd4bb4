//! Leases on folders ([MS-SMB2] 3.3.5.9.11): while one is held, the listing of the folder and the
//! attributes of its entries are valid without a time-out.
//!
//! The open of a listing asks for the lease. If the server grants one, the store keeps the folder
//! open. The server breaks the lease when an entry is added, removed or changed, also by this
//! store. Then the folder is closed, and the next listing asks again.

use std::sync::{Arc, Weak};

use ropeway_smb_wire::LeaseKey;
use ropeway_smb_wire::create_context::LeaseState;
use ropeway_vfs::RelPath;

use super::node_cache::{FolderLease, Validity};
use super::shared::Shared;
use crate::caching::{BrokenLease, LeaseHolder};
use crate::reopen::HandleInner;

/// Takes the breaks of the lease on one folder.
struct FolderBreak {
    store: Weak<Shared>,
    dir: RelPath,
}

impl LeaseHolder for FolderBreak {
    fn broke(&self, mut broken: BrokenLease) {
        let Some(store) = self.store.upgrade() else { return };
        store.acknowledge(&mut broken);
        // Without the right to keep it open, or to keep what was listed, it is of no use.
        if !broken
            .left
            .contains(LeaseState::READ_CACHING | LeaseState::HANDLE_CACHING)
        {
            store.close_folders(|at| *at == self.dir);
        }
    }

    /// A folder's handle is not durable.
    fn suspended(&self) {
        if let Some(store) = self.store.upgrade() {
            store.close_folders(|at| *at == self.dir);
        }
    }
}

impl Shared {
    /// Keeps a listed folder open if its lease is held. Returns how long the listing is valid.
    pub(super) fn keep_folder(
        self: &Arc<Self>,
        dir: &RelPath,
        handle: Option<&Arc<HandleInner>>,
    ) -> Validity {
        let mut validity = self.validity();
        let Some((handle, lease)) = handle.and_then(|handle| Some((handle, handle.lease()?))) else {
            return validity;
        };
        lease.set_holder(Some(Arc::new(FolderBreak {
            store: Arc::downgrade(self),
            dir: dir.clone(),
        })));
        // A break before that was acknowledged without this store.
        if !lease.may_cache_reads() {
            return validity;
        }
        validity = Validity::leased(Arc::clone(lease));
        let closed = self.folders.keep(dir, Arc::clone(handle));
        self.close_handles(closed);
        if !lease.may_cache_reads() {
            // Broken meanwhile, when it was not in the list yet.
            self.close_folders(|at| at == dir);
        }
        validity
    }

    /// Returns the lease that covers a name, which a question that is asked now may rely on.
    pub(super) fn lease_on_folder_of(&self, path: &RelPath) -> Option<FolderLease> {
        self.folders.lease(&path.parent()?)
    }

    /// Returns the key of the lease that covers a name, for opens that change it.
    pub(super) fn lease_key_for(&self, path: &RelPath) -> Option<LeaseKey> {
        self.folders.lease_key(&path.parent()?)
    }

    /// Closes the folders at a path and beneath it, which would be in the way of removing or
    /// renaming it.
    pub(super) fn close_folders_below(&self, path: &RelPath) {
        self.close_folders(|at| at.strip_prefix(path).is_some());
    }

    fn close_folders(&self, matches: impl Fn(&RelPath) -> bool) {
        let closed = self.folders.remove(matches);
        self.close_handles(closed);
    }

    fn close_handles(&self, handles: Vec<Arc<HandleInner>>) {
        let _runtime = self.runtime.enter();
        drop(handles);
    }
}
