//! Rules for symbolic links that clients create.
//!
//! The server never follows a link out of the share. Local programs and other servers of the same
//! folder do. A link stays inside if it is relative, has `..` only at its beginning, and does not
//! climb above the root of the share. The rest of its path may pass existing links, which stay
//! inside by the same rule.

use ropeway_smb_wire::NtStatus;
use ropeway_vfs::store::NodeOpen;
use ropeway_vfs::{Kind, RelPath};

use crate::files::status;
use crate::share::{Links, Share};

/// Checks that a client may create a link.
///
/// # Errors
/// STATUS_ACCESS_DENIED.
pub(crate) fn check_new(share: &Share, path: &RelPath, target: &[u8]) -> Result<(), NtStatus> {
    match share.links {
        Links::Refuse => Err(NtStatus::ACCESS_DENIED),
        Links::Inside => check(share, path, target),
        Links::Any => Ok(()),
    }
}

/// Checks that a node may be renamed from `from` to `to`: a link that moves has another target.
///
/// # Errors
/// STATUS_ACCESS_DENIED.
pub(crate) fn check_move(share: &Share, from: &RelPath, to: &RelPath) -> Result<(), NtStatus> {
    if share.links == Links::Any || from.parent() == to.parent() {
        return Ok(());
    }
    // If it is gone or cannot be opened, the rename fails too.
    let Ok(opened) = share.store.open(from, &itself()) else {
        return Ok(());
    };
    if opened.stat.kind != Kind::Symlink {
        return Ok(());
    }
    let target = opened.node.link_target().map_err(|error| status::of(&error))?;
    check(share, to, &target)
}

fn check(share: &Share, path: &RelPath, target: &[u8]) -> Result<(), NtStatus> {
    let climbs = climbs(target).ok_or(NtStatus::ACCESS_DENIED)?;
    if climbs > 0 && climbs > depth(share, path)? {
        return Err(NtStatus::ACCESS_DENIED);
    }
    Ok(())
}

/// Returns the number of leading `..` in a target; `None` if it is absolute or has `..` elsewhere.
fn climbs(target: &[u8]) -> Option<usize> {
    if target.first() == Some(&b'/') {
        return None;
    }
    let names = target.split(|byte| *byte == b'/');
    let mut names = names.filter(|name| !name.is_empty() && *name != b".").peekable();
    let mut climbs = 0;
    while names.next_if(|name| *name == b"..").is_some() {
        climbs += 1;
    }
    names.all(|name| name != b"..").then_some(climbs)
}

/// Returns a lower bound of the depth of `path`'s folder below the root. After a link on the path,
/// the count starts again at 0.
fn depth(share: &Share, path: &RelPath) -> Result<usize, NtStatus> {
    let mut depth = 0;
    let mut folder = RelPath::root();
    let parent = path.parent().unwrap_or_default();
    for name in parent.components() {
        folder = folder.join(&name);
        let opened = share.store.open(&folder, &itself());
        let stat = opened.map_err(|error| status::of(&error))?.stat;
        depth = match stat.kind {
            Kind::Symlink => 0,
            _ => depth + 1,
        };
    }
    Ok(depth)
}

fn itself() -> NodeOpen {
    NodeOpen {
        link_itself: true,
        ..NodeOpen::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn climbing_targets_are_recognized() {
        for (target, expected) in [
            ("a", Some(0)),
            ("a/b/c", Some(0)),
            ("./a", Some(0)),
            (".", Some(0)),
            ("..", Some(1)),
            ("..//./../a", Some(2)),
            ("...", Some(0)),
            ("a/..", None),
            ("../a/../b", None),
            ("/", None),
            ("/a", None),
            ("//a", None),
        ] {
            assert_eq!(climbs(target.as_bytes()), expected, "{target}");
        }
    }
}
