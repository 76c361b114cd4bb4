//! What a mode and an owner stand for, as a security descriptor.

use ropeway_smb_wire::create::AccessMask;
use ropeway_smb_wire::security::{Ace, AceFlags, AceKind, Acl, ControlFlags, SecurityDescriptor, Sid};
use ropeway_vfs::Kind;
use ropeway_vfs::store::NodeStat;

use crate::sids::{group_sid, owner_sid, sid};

/// The descriptor of a file that keeps none. The owner may do anything, as it may change the mode anyway; group and
/// everyone what the mode gives them; the system anything, as Windows' own files say.
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

/// An entry that allows.
pub(super) fn allow(sid: Sid, mask: AccessMask, flags: AceFlags) -> Ace {
    Ace::Basic {
        kind: AceKind::Allowed,
        flags,
        mask,
        sid,
    }
}

/// Three bits of a mode. Who may write and search a folder may delete what is in it.
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
