//! Leases on folders end with the listing that they cover ([MS-SMB2] 3.3.4.7).

use ropeway_smb_proto::server::hub::OpenId;
use ropeway_vfs::RelPath;
use ropeway_vfs::store::NodeOpen;

use super::name;
use crate::share::Share;
use crate::state::SharedState;

/// Breaks the leases on the folder of a path: its listing is not that of now. `by` made the change.
pub(super) fn break_at(shared: &SharedState, share: &Share, path: &RelPath, by: Option<OpenId>) {
    // Only these leases need the folder's identity. The folder is opened without the hub's lock.
    if !shared.hub().has_folder_leases() {
        return;
    }
    let Some(parent) = path.parent() else { return };
    if let Ok(folder) = share.store.open(&parent, &NodeOpen::default()) {
        let now = shared.uptime();
        let key = name::key_of(&folder.stat, None);
        shared.hub().break_folder_leases(now, by, &key);
    }
}
