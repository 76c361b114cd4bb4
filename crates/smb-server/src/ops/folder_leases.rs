//! Leases on folders end with the listing that they cover ([MS-SMB2] 3.3.4.7).

use ropeway_smb_wire::LeaseKey;
use ropeway_vfs::RelPath;
use ropeway_vfs::store::NodeOpen;

use super::name;
use crate::share::Share;
use crate::state::SharedState;
use crate::state::open::Open;

/// Breaks the leases on the folder of a path: its listing is not that of now. The holder of the lease
/// `known_to` made the change.
pub(super) fn break_at(shared: &SharedState, share: &Share, path: &RelPath, known_to: Option<LeaseKey>) {
    // Only these leases need the folder's identity. The folder is opened without the hub's lock.
    if !shared.hub().has_folder_leases() {
        return;
    }
    let Some(parent) = path.parent() else { return };
    if let Ok(folder) = share.store.open(&parent, &NodeOpen::default()) {
        let now = shared.uptime();
        let key = name::key_of(&folder.stat, None);
        shared.hub().break_folder_leases(now, known_to, &key);
    }
}

/// Does the same for the folder of an open that has changed something now.
pub(super) fn break_above(shared: &SharedState, open: &Open) {
    // Each WRITE comes here.
    if shared.hub().has_folder_leases() {
        break_at(shared, &open.share, &open.path(), lease_above(shared, open));
    }
}

/// Returns the lease on its parent folder that an open has named.
pub(super) fn lease_above(shared: &SharedState, open: &Open) -> Option<LeaseKey> {
    let hub = shared.hub();
    hub.info(open.hub_id()).and_then(|info| info.parent_lease)
}
