//! Which symbolic links clients may make. The server itself never follows one out of the share; local programs do, and so do
//! other servers of the same folder.
//!
//! A link leads inside if it is relative, climbs (`..`) at its beginning only, and no higher than the share's root. What comes
//! behind may pass links that lie there already: they lead inside by the same rule.

use ropeway_smb_wire::NtStatus;
use ropeway_vfs::store::NodeOpen;
use ropeway_vfs::{Kind, RelPath};

use crate::files::status;
use crate::share::{Links, Share};

/// Whether a link may be made.
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

/// Whether what has the name `from` may get the name `to`: a link that moves leads elsewhere.
///
/// # Errors
/// STATUS_ACCESS_DENIED.
pub(crate) fn check_move(share: &Share, from: &RelPath, to: &RelPath) -> Result<(), NtStatus> {
    if share.links == Links::Any || from.parent() == to.parent() {
        return Ok(());
    }
    // What is gone, or cannot be opened, is not renamed either.
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

/// How many folders up a target begins; none for one that is absolute, or climbs further on.
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

/// How deep the folder of `path` lies beneath the root at least: where the path goes through a link, only what is behind counts.
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
    fn climbing_is_seen_wherever_it_is() {
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
