//! Raw attributes between two local folders: both ends keep Windows metadata in the same form, so that it is copied
//! without being understood. Forms of earlier releases are replaced on the way.

use ropeway_vfs::Xattr;

use super::{legacy, security};
use crate::xattr::Node;

/// Replaces forms of earlier releases among a node's attributes by the present one.
pub(crate) fn renew(node: &Node<'_>, xattrs: &mut Vec<Xattr>) {
    let is_old = |name: &[u8]| [legacy::BINARY, legacy::TEXT, legacy::MARKER].contains(&name);
    if !xattrs.iter().any(|xattr| is_old(&xattr.name)) {
        return;
    }
    let has_new = [security::NAME, security::NAME_FALLBACK]
        .iter()
        .any(|new| xattrs.iter().any(|xattr| xattr.name == *new));
    // The server's form counts before the copy engine's, as `security::read` has it.
    let old = [legacy::BINARY, legacy::TEXT]
        .iter()
        .find_map(|old| xattrs.iter().find(|xattr| xattr.name == *old));
    let renewed = old
        .filter(|_| !has_new)
        .and_then(|old| security::renewed(node, &old.name, old.value.clone()));
    xattrs.retain(|xattr| !is_old(&xattr.name));
    xattrs.extend(renewed.map(|(name, value)| Xattr {
        name: name.to_vec(),
        value,
    }));
    xattrs.sort_unstable();
}
