//! Security descriptors ([MS-DTYP] 2.4.6, 2.5.3): stored by the store, derived from POSIX
//! permissions, inherited, and checked.
//!
//! Files without a descriptor are accessible as far as the share allows, with the server's own
//! rights. So a share on which no one ever set permissions stores no descriptors; see
//! [`access::default_rights`].

mod access;
mod inherit;
mod mode;

use ropeway_smb_wire::create::AccessMask;
use ropeway_smb_wire::query_info::SecurityInformation;
use ropeway_smb_wire::security::{Acl, ControlFlags, SecurityDescriptor, Sid};
use ropeway_smb_wire::{DecodeError, NtStatus};
use ropeway_vfs::store::{Access, Node, NodeOpen, NodeStat};
use ropeway_vfs::{ErrorKind, RelPath};

use crate::files::status;
use crate::share::Share;
use crate::state::open::Open;
use crate::token::Token;

pub(crate) use access::{
    ParentGrants, access_check, allowed, default_rights, granted, maximal_access, without_write_rights,
};
pub(crate) use inherit::{explicit, for_new};
pub(crate) use mode::from_mode;

/// Longest accepted descriptor in bytes: what a Linux extended attribute can hold (XATTR_SIZE_MAX).
const LEN_MAX: usize = 64 << 10;

/// Returns the stored descriptor of a node; `None` if none was ever set. An unreadable descriptor
/// grants nothing, except that the owner may set another one.
///
/// # Errors
/// Errors of the store.
pub(crate) fn stored(node: &dyn Node, stat: &NodeStat) -> Result<Option<SecurityDescriptor>, NtStatus> {
    let bytes = match node.security() {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(None),
        Err(error) if error.kind == ErrorKind::Unsupported => return Ok(None),
        Err(error) => return Err(status::of(&error)),
    };
    Ok(Some(SecurityDescriptor::decode(&bytes).unwrap_or_else(|_| {
        SecurityDescriptor {
            dacl: Some(Acl::default()),
            ..from_mode(stat)
        }
    })))
}

/// Returns the stored descriptor of a node, or one derived from its mode and owner.
///
/// # Errors
/// Errors of the store.
pub(crate) fn descriptor(node: &dyn Node, stat: &NodeStat) -> Result<SecurityDescriptor, NtStatus> {
    Ok(stored(node, stat)?.unwrap_or_else(|| from_mode(stat)))
}

/// Returns the descriptor that decides about access to a node: its own, or what it would have
/// inherited from its folder if it had been created through the server. `parent` is the folder's
/// stored descriptor. `None` means [`access::default_rights`].
///
/// # Errors
/// Errors of the store.
pub(crate) fn effective_descriptor(
    node: &dyn Node,
    stat: &NodeStat,
    parent: Option<&SecurityDescriptor>,
) -> Result<Option<SecurityDescriptor>, NtStatus> {
    let own = stored(node, stat)?;
    Ok(own.or_else(|| inherit::as_if_inherited(parent?, stat)))
}

/// Returns all rights of a user to a node of a share.
///
/// # Errors
/// Errors of the store.
pub(crate) fn rights(
    share: &Share,
    token: &Token,
    node: &dyn Node,
    stat: &NodeStat,
    path: &RelPath,
) -> Result<AccessMask, NtStatus> {
    let read_only = !share.access().contains(AccessMask::WRITE_DATA);
    if !evaluates(share) {
        return Ok(default_rights(Access::Write, read_only));
    }
    let folder = parent_descriptor(share, path)?;
    let parent = match &folder {
        Some(folder) => ParentGrants::of(maximal_access(folder, token, ParentGrants::default())),
        None => ParentGrants::of(default_rights(Access::Write, read_only)),
    };
    let guard = effective_descriptor(node, stat, folder.as_ref())?;
    Ok(allowed(guard.as_ref(), token, parent, Access::Write, read_only))
}

/// Whether descriptors decide about access here. Those of a far server name its own users, and it
/// checks them itself.
fn evaluates(share: &Share) -> bool {
    !share.far && share.store.may_hold_security()
}

/// Returns the stored descriptor of a path's folder.
///
/// # Errors
/// Errors of the store.
pub(crate) fn parent_descriptor(
    share: &Share,
    path: &RelPath,
) -> Result<Option<SecurityDescriptor>, NtStatus> {
    let Some(parent) = path.parent().filter(|_| evaluates(share)) else {
        return Ok(None);
    };
    match share.store.folder_security(&parent) {
        Ok(None) => return Ok(None),
        Ok(Some(bytes)) => {
            if let Ok(descriptor) = SecurityDescriptor::decode(&bytes) {
                return Ok(Some(descriptor));
            }
        }
        Err(error) if error.kind == ErrorKind::Unsupported => return Ok(None),
        Err(error) => return Err(status::of(&error)),
    }
    // What stands for an unreadable descriptor follows from the folder's owner and mode.
    let opened = share.store.open(&parent, &NodeOpen::default());
    let opened = opened.map_err(|error| status::of(&error))?;
    stored(&*opened.node, &opened.stat)
}

/// Checks that a user may create a file or folder at a path, or move one there ([MS-FSA]
/// 2.1.5.1.1). Returns the folder's stored descriptor.
///
/// # Errors
/// STATUS_ACCESS_DENIED, and errors of the store.
pub(crate) fn check_adding(
    share: &Share,
    token: &Token,
    path: &RelPath,
    directory: bool,
) -> Result<Option<SecurityDescriptor>, NtStatus> {
    let folder = parent_descriptor(share, path)?;
    check_adding_to(folder.as_ref(), token, directory)?;
    Ok(folder)
}

/// Checks that a user may create a file or folder in a folder with this descriptor ([MS-FSA] 2.1.5.1.1).
///
/// # Errors
/// STATUS_ACCESS_DENIED.
pub(crate) fn check_adding_to(
    folder: Option<&SecurityDescriptor>,
    token: &Token,
    directory: bool,
) -> Result<(), NtStatus> {
    let Some(folder) = folder else {
        return Ok(());
    };
    let needed = if directory {
        AccessMask::ADD_SUBDIRECTORY
    } else {
        AccessMask::ADD_FILE
    };
    access_check(folder, token, needed, ParentGrants::default()).map(drop)
}

/// Stores a descriptor.
///
/// # Errors
/// STATUS_INVALID_SECURITY_DESCR if it is too long, and errors of the store.
pub(crate) fn store(node: &dyn Node, descriptor: &SecurityDescriptor) -> Result<(), NtStatus> {
    let bytes = descriptor.to_bytes();
    if bytes.len() > LEN_MAX {
        return Err(NtStatus::INVALID_SECURITY_DESCR);
    }
    node.set_security(&bytes).map_err(|error| status::of(&error))
}

/// Why QUERY_INFO returns no descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueryFault {
    /// STATUS_BUFFER_TOO_SMALL; its ERROR response contains the required number of bytes ([MS-SMB2]
    /// 2.2.2.2).
    TooSmall(u32),
    /// Another status.
    Status(NtStatus),
}

/// Answers QUERY_INFO for parts of a descriptor ([MS-SMB2] 3.3.5.20.3).
///
/// # Errors
/// [`QueryFault`].
pub(crate) fn query(
    open: &Open,
    parts: SecurityInformation,
    length_max: usize,
) -> Result<Vec<u8>, QueryFault> {
    if !open.access.contains(needed_to_query(parts)) {
        return Err(QueryFault::Status(NtStatus::ACCESS_DENIED));
    }
    let stat = open
        .node
        .stat()
        .map_err(|error| QueryFault::Status(status::of(&error)))?;
    let whole = descriptor(&*open.node, &stat).map_err(QueryFault::Status)?;
    let bytes = select_parts(whole, parts).to_bytes();
    if bytes.len() > length_max {
        let needed = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        return Err(QueryFault::TooSmall(needed));
    }
    Ok(bytes)
}

/// Returns the access that a query of these parts requires ([MS-SMB2] 3.3.5.20.3).
fn needed_to_query(parts: SecurityInformation) -> AccessMask {
    let readable = SecurityInformation::OWNER
        | SecurityInformation::GROUP
        | SecurityInformation::DACL
        | SecurityInformation::LABEL;
    let mut needed = AccessMask::default();
    if parts.intersects(readable) {
        needed |= AccessMask::READ_CONTROL;
    }
    if parts.intersects(SecurityInformation::SACL | SecurityInformation::BACKUP) {
        needed |= AccessMask::ACCESS_SYSTEM_SECURITY;
    }
    needed
}

/// Control bits that belong to the DACL, and those of the SACL.
const DACL_CONTROL: ControlFlags = ControlFlags::from_bits_retain(
    ControlFlags::DACL_PRESENT.bits()
        | ControlFlags::DACL_DEFAULTED.bits()
        | ControlFlags::DACL_TRUSTED.bits()
        | ControlFlags::DACL_AUTO_INHERIT_REQ.bits()
        | ControlFlags::DACL_AUTO_INHERITED.bits()
        | ControlFlags::DACL_PROTECTED.bits(),
);
const SACL_CONTROL: ControlFlags = ControlFlags::from_bits_retain(
    ControlFlags::SACL_PRESENT.bits()
        | ControlFlags::SACL_DEFAULTED.bits()
        | ControlFlags::SACL_AUTO_INHERIT_REQ.bits()
        | ControlFlags::SACL_AUTO_INHERITED.bits()
        | ControlFlags::SACL_PROTECTED.bits(),
);

/// Removes all parts of a descriptor that were not asked for.
fn select_parts(mut descriptor: SecurityDescriptor, parts: SecurityInformation) -> SecurityDescriptor {
    if !parts.contains(SecurityInformation::OWNER) {
        descriptor.owner = None;
        descriptor.control = descriptor.control.difference(ControlFlags::OWNER_DEFAULTED);
    }
    if !parts.contains(SecurityInformation::GROUP) {
        descriptor.group = None;
        descriptor.control = descriptor.control.difference(ControlFlags::GROUP_DEFAULTED);
    }
    if !parts.contains(SecurityInformation::DACL) {
        descriptor.dacl = None;
        descriptor.control = descriptor.control.difference(DACL_CONTROL);
    }
    if !parts.contains(SecurityInformation::SACL) {
        descriptor.sacl = None;
        descriptor.control = descriptor.control.difference(SACL_CONTROL);
    }
    descriptor
}

/// Executes SET_INFO for parts of a descriptor ([MS-SMB2] 3.3.5.21.3). They replace those of the
/// stored descriptor, or of the one derived from the mode.
///
/// # Errors
/// STATUS_ACCESS_DENIED, STATUS_INVALID_SECURITY_DESCR, STATUS_INVALID_OWNER, and errors of the
/// store.
pub(crate) fn set(
    open: &Open,
    token: &Token,
    parts: SecurityInformation,
    bytes: &[u8],
) -> Result<(), NtStatus> {
    if !open.access.contains(needed_to_set(parts)) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    if bytes.len() > LEN_MAX {
        return Err(NtStatus::INVALID_SECURITY_DESCR);
    }
    let new = SecurityDescriptor::decode(bytes).map_err(|_: DecodeError| NtStatus::INVALID_SECURITY_DESCR)?;
    let stat = open.node.stat().map_err(|error| status::of(&error))?;
    let old = descriptor(&*open.node, &stat)?;
    let owner_before = old.owner.clone();
    let may_own = |owner: &Sid| {
        // Giving a file to another user requires a privilege that no user has here. A far server
        // decides that itself.
        open.share.far || owner_before.as_ref() == Some(owner) || access::is_held(token, owner)
    };
    store(&*open.node, &merged(old, new, parts, may_own)?)
}

/// Returns the access that a change of these parts requires ([MS-SMB2] 3.3.5.21.3).
fn needed_to_set(parts: SecurityInformation) -> AccessMask {
    let mut needed = AccessMask::default();
    let owners = SecurityInformation::OWNER | SecurityInformation::GROUP | SecurityInformation::LABEL;
    if parts.intersects(owners) {
        needed |= AccessMask::WRITE_OWNER;
    }
    if parts.contains(SecurityInformation::DACL) {
        needed |= AccessMask::WRITE_DAC;
    }
    if parts.intersects(SecurityInformation::SACL | SecurityInformation::BACKUP) {
        needed |= AccessMask::ACCESS_SYSTEM_SECURITY;
    }
    needed
}

/// Returns `old` with parts of `new` ([MS-DTYP] 2.5.3.4, SetSecurityDescriptor).
fn merged(
    mut old: SecurityDescriptor,
    new: SecurityDescriptor,
    parts: SecurityInformation,
    may_own: impl Fn(&Sid) -> bool,
) -> Result<SecurityDescriptor, NtStatus> {
    if parts.contains(SecurityInformation::OWNER) {
        let owner = new.owner.ok_or(NtStatus::INVALID_OWNER)?;
        if !may_own(&owner) {
            return Err(NtStatus::INVALID_OWNER);
        }
        old.owner = Some(owner);
    }
    if parts.contains(SecurityInformation::GROUP) {
        old.group = Some(new.group.ok_or(NtStatus::INVALID_PRIMARY_GROUP)?);
    }
    if parts.contains(SecurityInformation::DACL) {
        old.control = old.control.difference(DACL_CONTROL) | dacl_control(new.control);
        old.dacl = new.dacl.map(access::with_specific_rights);
    }
    if parts.contains(SecurityInformation::SACL) {
        old.control = old.control.difference(SACL_CONTROL) | sacl_control(new.control);
        old.sacl = new.sacl.map(access::with_specific_rights);
    }
    Ok(old)
}

/// Returns the DACL's control bits to store. AUTO_INHERITED is kept only if AUTO_INHERIT_REQ was
/// set too (smb2.acls observes this on Windows).
fn dacl_control(new: ControlFlags) -> ControlFlags {
    let keep = ControlFlags::DACL_PRESENT | ControlFlags::DACL_PROTECTED | ControlFlags::DACL_DEFAULTED;
    let both = ControlFlags::DACL_AUTO_INHERITED | ControlFlags::DACL_AUTO_INHERIT_REQ;
    let inherited = match new.contains(both) {
        true => ControlFlags::DACL_AUTO_INHERITED,
        false => ControlFlags::default(),
    };
    (new & keep) | inherited | ControlFlags::DACL_PRESENT
}

/// Returns the SACL's control bits to store, as [`dacl_control`] does.
fn sacl_control(new: ControlFlags) -> ControlFlags {
    let keep = ControlFlags::SACL_PRESENT | ControlFlags::SACL_PROTECTED | ControlFlags::SACL_DEFAULTED;
    let both = ControlFlags::SACL_AUTO_INHERITED | ControlFlags::SACL_AUTO_INHERIT_REQ;
    let inherited = match new.contains(both) {
        true => ControlFlags::SACL_AUTO_INHERITED,
        false => ControlFlags::default(),
    };
    (new & keep) | inherited
}

#[cfg(test)]
mod tests;
