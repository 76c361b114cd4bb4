//! Access checks against a security descriptor ([MS-DTYP] 2.5.3.2).

use ropeway_smb_proto::server::rules::create::generic_to_specific;
use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::create::AccessMask;
use ropeway_smb_wire::security::{Ace, AceFlags, AceKind, Acl, SecurityDescriptor, Sid};
use ropeway_vfs::store::Access;

use crate::sids::sid;
use crate::token::Token;

/// Rights that the parent folder adds to those of a file ([MS-FSA] 2.1.5.1.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ParentGrants {
    /// DELETE_CHILD: the file can be deleted.
    pub(crate) delete_child: bool,
    /// LIST_DIRECTORY: attributes that a listing shows can be read.
    pub(crate) list: bool,
}

impl ParentGrants {
    /// Derives them from the rights to the folder.
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

/// Returns the rights to a node without a descriptor in a folder without one: what the server
/// itself has.
pub(crate) fn default_rights(access: Access, read_only: bool) -> AccessMask {
    if access == Access::Write && !read_only {
        AccessMask::FILE_ALL
    } else {
        AccessMask::FILE_GENERIC_READ | AccessMask::FILE_GENERIC_EXECUTE
    }
}

/// Returns all rights to a node, given its descriptor ([`super::effective_descriptor`]). They never
/// exceed what the server and the share allow.
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

/// Removes the rights that READONLY denies on a file ([MS-FSA] 2.1.5.1.2.1). READONLY has no effect
/// on folders.
pub(crate) fn without_write_rights(allowed: AccessMask) -> AccessMask {
    let writing = AccessMask::WRITE_DATA | AccessMask::APPEND_DATA | AccessMask::DELETE_CHILD;
    allowed.difference(writing)
}

/// Returns the rights that a CREATE gets.
///
/// # Errors
/// STATUS_ACCESS_DENIED if one is not allowed; STATUS_PRIVILEGE_NOT_HELD for
/// ACCESS_SYSTEM_SECURITY, which requires a privilege that no user has here.
pub(crate) fn access_check(
    descriptor: &SecurityDescriptor,
    token: &Token,
    desired: AccessMask,
    parent: ParentGrants,
) -> Result<AccessMask, NtStatus> {
    granted(maximal_access(descriptor, token, parent), desired)
}

/// Returns the granted rights for `desired`, of those that are `allowed`.
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

/// Returns all rights that a descriptor grants to a token.
pub(crate) fn maximal_access(
    descriptor: &SecurityDescriptor,
    token: &Token,
    parent: ParentGrants,
) -> AccessMask {
    let Some(dacl) = &descriptor.dacl else {
        // No DACL or a NULL one forbids nothing.
        return AccessMask::FILE_ALL;
    };
    let is_owner = descriptor
        .owner
        .as_ref()
        .is_some_and(|owner| is_held(token, owner));
    let mut rights = rights_from_dacl(dacl, token, is_owner);
    // [MS-DTYP] 2.5.3.2: the owner can always change the DACL, unless that has an entry for OWNER
    // RIGHTS.
    if is_owner && !has_owner_rights(dacl) {
        rights |= AccessMask::READ_CONTROL | AccessMask::WRITE_DAC;
    }
    rights | parent.rights()
}

/// Returns the rights that a DACL grants; for each right, the first entry that mentions it decides.
fn rights_from_dacl(dacl: &Acl, token: &Token, is_owner: bool) -> AccessMask {
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

/// Returns a list whose effective entries name specific rights instead of generic ones, as a list is
/// stored ([MS-DTYP] 2.5.3.4.7, PostProcessACL). Entries that are only inherited keep theirs: they
/// are mapped when they are inherited.
pub(super) fn with_specific_rights(mut list: Acl) -> Acl {
    for ace in &mut list.aces {
        if let Ace::Basic { flags, mask, .. } = ace
            && !flags.contains(AceFlags::INHERIT_ONLY)
        {
            *mask = generic_to_specific(*mask);
        }
    }
    list
}

/// Returns the SID OWNER RIGHTS ([MS-DTYP] 2.4.2.4).
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
