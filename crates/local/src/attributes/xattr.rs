//! Extended attributes as a copy handles them, with POSIX ACLs and capabilities.
//!
//! Managed are the name spaces that any volume with attributes can restore: `user.*`, `security.*`,
//! `trusted.*` (as root) and the two POSIX ACLs. Others (`btrfs.*`, `system.nfs4_acl`, …) belong to one
//! kind of volume and are left alone. `security.selinux` follows from the place of a file: it is set if
//! given, but neither read nor removed.

use ropeway_vfs::{Loss, SDDL_XATTR, Xattr};
use rustix::io::Errno;

use crate::winmeta::{self, raw, security};
pub(crate) use crate::xattr::{Node, get, list, remove, set};
use ropeway_smb_wire::security::SecurityDescriptor;

/// The access ACL.
pub(crate) const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// The ACL that new entries of a folder get.
pub(crate) const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";
const SELINUX: &[u8] = b"security.selinux";

/// How Windows metadata appears among a node's extended attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// As the model has it: streams and the security descriptor as attributes of the model, no bookkeeping.
    Model,
    /// As stored.
    Raw,
}

/// Reads all managed attributes, sorted by name; none on volumes without attributes.
pub(crate) fn read(node: &Node<'_>, view: View) -> rustix::io::Result<Vec<Xattr>> {
    let mut found = Vec::new();
    let mut has_bookkeeping = false;
    for name in names(node)? {
        if view == View::Model && winmeta::is_bookkeeping(&name) {
            has_bookkeeping = true;
            continue;
        }
        // `None`: removed since it was listed.
        if let Some(value) = get(node, &name)? {
            found.push(Xattr { name, value });
        }
    }
    if view == View::Raw {
        raw::renew(node, &mut found);
    }
    if has_bookkeeping && let Some(descriptor) = security::read(node)? {
        found.push(Xattr {
            name: SDDL_XATTR.to_vec(),
            // Empty: there is one, and it cannot be read.
            value: security::to_text(&descriptor).unwrap_or_default(),
        });
    }
    found.sort_unstable();
    Ok(found)
}

/// Makes `wanted` the whole set of managed attributes; adds to `losses` what could not be kept.
pub(crate) fn write(
    node: &Node<'_>,
    wanted: &[Xattr],
    view: View,
    losses: &mut Vec<Loss>,
) -> rustix::io::Result<()> {
    // Attributes of the model that are bookkeeping on disk cannot be set by their name.
    let hidden = |name: &[u8]| view == View::Model && winmeta::is_bookkeeping(name);
    for name in names(node)? {
        if hidden(&name) || wanted.iter().any(|xattr| xattr.name == name) {
            continue;
        }
        match remove(node, &name) {
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            Err(error) => lose(&name, error, losses)?,
        }
    }
    for xattr in wanted {
        if hidden(&xattr.name) {
            if xattr.name != SDDL_XATTR {
                super::lose(losses, Loss::of_xattr(&xattr.name));
            }
        } else if let Err(error) = set(node, &xattr.name, &xattr.value) {
            lose(&xattr.name, error, losses)?;
        }
    }
    if view == View::Raw {
        return Ok(());
    }
    let text = wanted.iter().find(|xattr| xattr.name == SDDL_XATTR);
    let result = match text.map(|text| SecurityDescriptor::from_text(&text.value)) {
        Some(Some(descriptor)) => security::write(node, &descriptor.to_bytes()),
        Some(None) => Err(Errno::INVAL),
        None => security::remove(node),
    };
    result.or_else(|error| lose(SDDL_XATTR, error, losses))
}

/// Names of the managed attributes of a node.
fn names(node: &Node<'_>) -> rustix::io::Result<Vec<Vec<u8>>> {
    let mut names = list(node)?;
    names.retain(|name| is_managed(name));
    Ok(names)
}

fn is_managed(name: &[u8]) -> bool {
    if name == SELINUX {
        return false;
    }
    name.starts_with(b"user.")
        || name.starts_with(b"security.")
        || (name.starts_with(b"trusted.") && rustix::process::geteuid().is_root())
        || name == ACL_ACCESS
        || name == ACL_DEFAULT
}

/// Records an attribute that could not be kept as a loss; passes on failures of the device or volume.
pub(crate) fn lose(name: &[u8], error: Errno, losses: &mut Vec<Loss>) -> rustix::io::Result<()> {
    match error {
        // NOSPC and DQUOT-like answers of ext4 mean that the attributes do not fit the inode's one extra block.
        Errno::PERM
        | Errno::ACCESS
        | Errno::OPNOTSUPP
        | Errno::NOSYS
        | Errno::INVAL
        | Errno::RANGE
        | Errno::TOOBIG
        | Errno::NOSPC
        | Errno::NODATA => {
            super::lose(losses, Loss::of_xattr(name));
            Ok(())
        }
        error => Err(error),
    }
}
