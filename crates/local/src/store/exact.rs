//! Removes, renames and links exactly the node that was opened, although another program may put another
//! file under its name at any moment.
//!
//! A link is made from the descriptor. No system call removes a name only if a certain file has it, so a
//! file is removed in two steps: it is moved to a temporary name, examined there, and then removed or moved
//! back.

use ropeway_vfs::store::Removal;
use ropeway_vfs::{Error, ErrorKind, FileId, Kind, Op, RelPath, Result};
use rustix::fs::{AtFlags, CWD, StatxFlags, linkat, statx, unlinkat};
use rustix::io::Errno;

use super::Core;
use super::descriptors::id_of;
use super::names::{self, Spot};
use super::node::LocalNode;
use super::root::failed;

/// Number of tries to find a free temporary name (a guess).
const NAME_TRIES: usize = 8;

/// Removes a name if it belongs to the node.
///
/// # Errors
/// `Gone` if another node has the name.
pub(super) fn remove(core: &Core, id: FileId, path: &RelPath, what: Removal) -> Result<()> {
    let spot = Spot::find(core, Op::Remove, path)?;
    check(&spot, Op::Remove, id, path)?;
    if what == Removal::Directory {
        // Only an empty folder can go.
        return names::remove(core, path, true);
    }
    let pinned = core.descriptors.pin(path);
    let outcome = {
        // Opens by path wait, so that they never miss a file that is moved back.
        let _renaming = core.descriptors.renaming();
        remove_file(&spot, id, path, what)
    };
    match outcome {
        Ok(()) => core.descriptors.forget_path(path, pinned),
        Err(error) => {
            pinned.release();
            return Err(error);
        }
    }
    Ok(())
}

fn remove_file(spot: &Spot<'_>, id: FileId, path: &RelPath, what: Removal) -> Result<()> {
    let temporary = move_to_temporary_name(spot).map_err(|error| failed(Op::Remove, path, error))?;
    let outcome = match look(spot, temporary.as_bytes()) {
        Err(error) => Err(failed(Op::Remove, path, error)),
        Ok((found, _)) if found != id => Err(gone(Op::Remove, path)),
        Ok((_, size)) if what == Removal::EmptyFile && size > 0 => {
            Err(Error::new(Op::Remove, path, ErrorKind::NotEmpty))
        }
        Ok(_) => unlinkat(&spot.place, temporary.as_bytes(), AtFlags::empty())
            .map_err(|error| failed(Op::Remove, path, error)),
    };
    if outcome.is_err()
        && let Err(error) = crate::names::rename_new(
            &spot.place,
            temporary.as_bytes(),
            &spot.place,
            spot.name.as_bytes(),
        )
    {
        tracing::warn!(%path, temporary, %error, "a file that was not to be removed keeps a name of the server's");
    }
    outcome
}

/// Moves the file to a temporary name and returns that.
fn move_to_temporary_name(spot: &Spot<'_>) -> rustix::io::Result<String> {
    for _ in 0..NAME_TRIES {
        let temporary = names::temporary_name();
        match crate::names::rename_new(
            &spot.place,
            spot.name.as_bytes(),
            &spot.place,
            temporary.as_bytes(),
        ) {
            Err(Errno::EXIST) => {}
            result => return result.map(|()| temporary),
        }
    }
    Err(Errno::EXIST)
}

/// Renames if the name belongs to the node. Another program may replace the file between the check and
/// the rename: then its file is renamed, and nothing is lost.
pub(super) fn rename(core: &Core, id: FileId, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
    check(&Spot::find(core, Op::Rename, from)?, Op::Rename, id, from)?;
    names::rename(core, from, to, replace)
}

/// Makes another name for the node; replaces an existing file if `replace`.
pub(super) fn link(core: &Core, node: &LocalNode, to: &RelPath, replace: bool) -> Result<()> {
    let from = node.handle.path();
    if node.kind == Kind::Directory {
        return Err(Error::new(Op::Link, &from, ErrorKind::IsADirectory));
    }
    let fd = node.handle.fd(Op::Link)?;
    let target = Spot::find(core, Op::Link, to)?;
    let make = |name: &[u8]| match linkat(&fd, c"", &target.place, name, AtFlags::EMPTY_PATH) {
        // Without CAP_DAC_READ_SEARCH before Linux 6.10 (open(2), linkat(2)): link the magic link's
        // target. A node without any name is not found this way either.
        Err(Errno::NOENT) => {
            let magic = crate::xattr::proc_path(&fd);
            linkat(CWD, magic, &target.place, name, AtFlags::SYMLINK_FOLLOW)
        }
        result => result,
    };
    let fault = |error| match error {
        Errno::NOENT => gone(Op::Link, &from),
        error => failed(Op::Link, to, error),
    };
    names::put_link(core, &target, to, replace, make, fault)
}

fn check(spot: &Spot<'_>, op: Op, id: FileId, path: &RelPath) -> Result<()> {
    match look(spot, spot.name.as_bytes()) {
        Ok((found, _)) if found == id => Ok(()),
        Ok(_) => Err(gone(op, path)),
        Err(error) => Err(failed(op, path, error)),
    }
}

/// Returns the node that has a name in the spot's folder, and its size.
fn look(spot: &Spot<'_>, name: &[u8]) -> rustix::io::Result<(FileId, u64)> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let stat = statx(&spot.place, name, flags, StatxFlags::INO | StatxFlags::SIZE)?;
    Ok((id_of(&stat), stat.stx_size))
}

fn gone(op: Op, path: &RelPath) -> Error {
    Error::new(op, path, ErrorKind::Gone)
}
