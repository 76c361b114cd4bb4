//! Whether a descriptor allows something ([MS-DTYP] 2.5.3.2).

use ropeway_smb_proto::server::rules::create::generic_to_specific;
use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::create::AccessMask;
use ropeway_smb_wire::security::{Ace, AceFlags, AceKind, Acl, SecurityDescriptor, Sid};
use ropeway_vfs::store::Access;

use crate::sids::sid;
use crate::token::Token;

/// What the folder that a file is in adds to the file's own rights ([MS-FSA] 2.1.5.1.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ParentGrants {
    /// DELETE_CHILD: the file can be deleted.
    pub(crate) delete_child: bool,
    /// LIST_DIRECTORY: what a listing tells, the file tells too.
    pub(crate) list: bool,
}

impl ParentGrants {
    /// Of the rights to the folder.
    pub(crate) fn of(folder: AccessMask) -> Self {
        Self {
            delete_child: folder.contains(AccessMask::DELETE_CHILD),
            list: folder.contains(AccessMask::LIST_DIRECTORY),
        }
    }

    fn rights(self) -> AccessMask {
        let mut rights = AccessMask::default();
        if self.delete_child {
            rights |= AccessMask::DELETE;
        }
        if self.list {
            rights |= AccessMask::READ_ATTRIBUTES;
        }
        rights
    }
}

/// Rights to a node that keeps no descriptor, in a folder that keeps none: what the server itself has.
pub(crate) fn default_rights(access: Access, read_only: bool) -> AccessMask {
    if access == Access::Write && !read_only {
        AccessMask::FILE_ALL
    } else {
        AccessMask::FILE_GENERIC_READ | AccessMask::FILE_GENERIC_EXECUTE
    }
}

/// All rights to a node, by the descriptor that guards it, if one does ([`super::guard`]). What the server or the share
/// cannot give is not given, whatever the descriptor says.
pub(crate) fn allowed(
    guard: Option<&SecurityDescriptor>,
    token: &Token,
    parent: ParentGrants,
    access: Access,
    read_only: bool,
) -> AccessMask {
    let possible = default_rights(access, read_only);
    match guard {
        None => possible,
        Some(guard) if read_only => maximal_access(guard, token, parent) & possible,
        Some(guard) => maximal_access(guard, token, parent),
    }
}

/// What is left of the rights to a file that is READONLY ([MS-FSA] 2.1.5.1.2.1); folders may be, without effect.
pub(crate) fn without_write_rights(allowed: AccessMask) -> AccessMask {
    let writing = AccessMask::WRITE_DATA | AccessMask::APPEND_DATA | AccessMask::DELETE_CHILD;
    allowed.difference(writing)
}

/// The rights that a CREATE gets.
///
/// # Errors
/// STATUS_ACCESS_DENIED if one is not allowed; STATUS_PRIVILEGE_NOT_HELD for ACCESS_SYSTEM_SECURITY, which takes a
/// privilege that nobody has here.
pub(crate) fn access_check(
    descriptor: &SecurityDescriptor,
    token: &Token,
    desired: AccessMask,
    parent: ParentGrants,
) -> Result<AccessMask, NtStatus> {
    granted(maximal_access(descriptor, token, parent), desired)
}

/// What `desired` is, if `allowed` is all that is allowed.
///
/// # Errors
/// As [`access_check`].
pub(crate) fn granted(allowed: AccessMask, desired: AccessMask) -> Result<AccessMask, NtStatus> {
    let specific = generic_to_specific(desired);
    let mut rights = specific.difference(AccessMask::MAXIMUM_ALLOWED);
    if rights.contains(AccessMask::ACCESS_SYSTEM_SECURITY) {
        return Err(NtStatus::PRIVILEGE_NOT_HELD);
    }
    if !allowed.contains(rights) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    if specific.contains(AccessMask::MAXIMUM_ALLOWED) {
        rights |= allowed;
    }
    Ok(rights)
}

/// All rights that a descriptor gives to a token.
pub(crate) fn maximal_access(
    descriptor: &SecurityDescriptor,
    token: &Token,
    parent: ParentGrants,
) -> AccessMask {
    let Some(dacl) = &descriptor.dacl else {
        // No list, or a NULL one: nothing is forbidden.
        return AccessMask::FILE_ALL;
    };
    let is_owner = descriptor
        .owner
        .as_ref()
        .is_some_and(|owner| is_held(token, owner));
    let mut rights = of_list(dacl, token, is_owner);
    // [MS-DTYP] 2.5.3.2: the owner can always mend the list, unless the list says what owners can.
    if is_owner && !has_owner_rights(dacl) {
        rights |= AccessMask::READ_CONTROL | AccessMask::WRITE_DAC;
    }
    rights | parent.rights()
}

/// The first entry that decides about a right wins.
fn of_list(dacl: &Acl, token: &Token, is_owner: bool) -> AccessMask {
    let owner_rights = owner_rights();
    let mut decided = AccessMask::default();
    let mut granted = AccessMask::default();
    for ace in &dacl.aces {
        let Ace::Basic {
            kind,
            flags,
            mask,
            sid,
        } = ace
        else {
            continue;
        };
        let concerns = !flags.contains(AceFlags::INHERIT_ONLY)
            && (is_held(token, sid) || (is_owner && *sid == owner_rights));
        if !concerns {
            continue;
        }
        let new = generic_to_specific(*mask).difference(decided) & AccessMask::FILE_ALL;
        match kind {
            AceKind::Allowed => granted |= new,
            AceKind::Denied => {}
            AceKind::Audit => continue,
        }
        decided |= new;
    }
    granted
}

/// OWNER RIGHTS ([MS-DTYP] 2.4.2.4).
fn owner_rights() -> Sid {
    sid(3, &[4])
}

fn has_owner_rights(dacl: &Acl) -> bool {
    let owner_rights = owner_rights();
    dacl.aces.iter().any(|ace| match ace {
        Ace::Basic { flags, sid, .. } => !flags.contains(AceFlags::INHERIT_ONLY) && *sid == owner_rights,
        Ace::Opaque { .. } => false,
    })
}

/// Whether a token has a SID.
pub(super) fn is_held(token: &Token, sid: &Sid) -> bool {
    token.user == *sid || token.group == *sid || token.groups.contains(sid)
}
