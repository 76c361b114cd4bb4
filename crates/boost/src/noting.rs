//! Notes what others change at the source, on the way to the observer.

use std::sync::{Arc, Weak};

use ropeway_vfs::FileId;
use ropeway_vfs::external::{ExternalChange, LeaseLeft, Observer};

use crate::store::StoreShared;

/// The observer of a source.
pub(crate) struct Noting {
    pub(crate) store: Weak<StoreShared>,
    pub(crate) observer: Arc<dyn Observer>,
}

impl Observer for Noting {
    fn changed(&self, changes: &[ExternalChange]) {
        if let Some(store) = self.store.upgrade() {
            for change in changes {
                store.changed_by_others(change);
            }
        }
        self.observer.changed(changes);
    }

    fn breaking(&self, id: FileId, left: LeaseLeft) {
        if let Some(store) = self.store.upgrade()
            && left == LeaseLeft::Nothing
        {
            store.changed_by_others(&ExternalChange::Node(id));
        }
        self.observer.breaking(id, left);
    }
}

impl StoreShared {
    /// Forgets what was known of what has changed, so that it is not said again while the source is
    /// lost.
    fn changed_by_others(&self, change: &ExternalChange) {
        match change {
            ExternalChange::Node(id) => {
                if let Some(file) = self.files.get(*id) {
                    file.coherence.lock().attributes_changed(self.files.ask());
                }
            }
            ExternalChange::Entry { path, .. } => self.names_changed(&[path]),
            ExternalChange::Renamed { from, to, .. } => self.names_changed(&[from, to]),
            // Also said when the connection is lost, which is when the answers are needed.
            ExternalChange::Lost => {}
        }
    }
}
