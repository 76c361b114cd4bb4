//! Security descriptors derived from a file's mode and owner.

use ropeway_smb_wire::create::AccessMask;
use ropeway_smb_wire::security::{Ace, AceFlags, AceKind, Acl, ControlFlags, SecurityDescriptor, Sid};
use ropeway_vfs::Kind;
use ropeway_vfs::store::NodeStat;

use crate::sids::{group_sid, owner_sid, sid};

/// Returns the descriptor of a file that stores none. The owner has full access, since it can
/// change the mode anyway. Group and Everyone have what the mode grants. SYSTEM has full access, as
/// on Windows.
pub(crate) fn from_mode(stat: &NodeStat) -> SecurityDescriptor {
    let owner = owner_sid(stat.owner.user);
    let group = group_sid(stat.owner.group);
    let directory = stat.kind == Kind::Directory;
    let entries = [
        (owner.clone(), AccessMask::FILE_ALL),
        (group.clone(), rights(stat.mode >> 3, directory)),
        // Everyone ([MS-DTYP] 2.4.2.4).
        (sid(1, &[0]), rights(stat.mode, directory)),
        // SYSTEM.
        (sid(5, &[18]), AccessMask::FILE_ALL),
    ];
    let aces = entries
        .into_iter()
        .filter(|(_, mask)| !mask.is_empty())
        .map(|(sid, mask)| allow(sid, mask, AceFlags::default()))
        .collect();
    SecurityDescriptor {
        control: ControlFlags::DACL_PRESENT,
        owner: Some(owner),
        group: Some(group),
        dacl: Some(Acl::new(aces)),
        ..SecurityDescriptor::default()
    }
}

/// Returns an entry that allows access.
pub(super) fn allow(sid: Sid, mask: AccessMask, flags: AceFlags) -> Ace {
    Ace::Basic {
        kind: AceKind::Allowed,
        flags,
        mask,
        sid,
    }
}

/// Converts three bits of a mode. Write and search permission on a folder include deleting its
/// entries.
fn rights(bits: u32, directory: bool) -> AccessMask {
    let mut mask = AccessMask::default();
    if bits & 4 != 0 {
        mask |= AccessMask::FILE_GENERIC_READ;
    }
    if bits & 2 != 0 {
        mask |= AccessMask::FILE_GENERIC_WRITE;
    }
    if bits & 1 != 0 {
        mask |= AccessMask::FILE_GENERIC_EXECUTE;
    }
    if directory && bits & 3 == 3 {
        mask |= AccessMask::DELETE_CHILD;
    }
    mask
}
