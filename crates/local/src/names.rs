//! Makes, removes and renames names of a tree; [`rename_new`] serves stores too.

use std::os::fd::AsFd;
use std::sync::Arc;

use ropeway_vfs::{Error, ErrorKind, Kind, Metadata, Name, Op, RelPath, Result};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, RenameFlags, chmodat, linkat, makedev, mkdirat, mknodat, readlinkat,
    renameat, renameat_with, symlinkat, unlinkat,
};
use rustix::io::Errno;

use crate::attributes;
use crate::beneath::{Root, fault};
use crate::executor::mode_is_masked;
use crate::stat;
use crate::tree::Inner;
use crate::xattr::proc_path;

/// Mode of special nodes whose mode is unknown: private.
const PRIVATE: u32 = 0o600;

pub(crate) fn make_dir(root: &Root, path: &RelPath, mode: u32) -> Result<()> {
    let (place, name) = root.parent(Op::MakeDir, path)?;
    mkdirat(&place, name.as_bytes(), Mode::from_raw_mode(mode & 0o7777))
        .map_err(|error| fault(Op::MakeDir, path, error))?;
    restore_masked_mode(root, Op::MakeDir, path, mode)
}

pub(crate) fn make_symlink(root: &Root, path: &RelPath, text: &[u8]) -> Result<()> {
    let (place, name) = root.parent(Op::Link, path)?;
    symlinkat(text, &place, name.as_bytes()).map_err(|error| fault(Op::Link, path, error))
}

pub(crate) fn make_hard_link(root: &Root, existing: &RelPath, new: &RelPath) -> Result<()> {
    let (from, old_name) = root.parent(Op::Link, existing)?;
    let (to, new_name) = root.parent(Op::Link, new)?;
    // Without AT_SYMLINK_FOLLOW a link is linked itself and not followed.
    linkat(
        &from,
        old_name.as_bytes(),
        &to,
        new_name.as_bytes(),
        AtFlags::empty(),
    )
    .map_err(|error| fault(Op::Link, new, error))
}

pub(crate) fn make_special(root: &Root, path: &RelPath, metadata: &Metadata) -> Result<()> {
    let kind = match metadata.kind {
        Kind::Fifo => FileType::Fifo,
        Kind::CharDevice => FileType::CharacterDevice,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::Socket => FileType::Socket,
        Kind::File | Kind::Directory | Kind::Symlink => {
            return Err(Error::new(Op::Link, path, ErrorKind::Misuse));
        }
    };
    let (place, name) = root.parent(Op::Link, path)?;
    let (major, minor) = metadata.device.unwrap_or((0, 0));
    let mode = metadata.mode.unwrap_or(PRIVATE);
    mknodat(
        &place,
        name.as_bytes(),
        kind,
        Mode::from_raw_mode(mode & 0o7777),
        makedev(major, minor),
    )
    .map_err(|error| fault(Op::Link, path, error))?;
    restore_masked_mode(root, Op::Link, path, mode)
}

pub(crate) fn read_link(root: &Root, path: &RelPath) -> Result<Vec<u8>> {
    let (place, name) = root.parent(Op::Stat, path)?;
    readlinkat(&place, name.as_bytes(), Vec::new())
        .map(std::ffi::CString::into_bytes)
        .map_err(|error| fault(Op::Stat, path, error))
}

pub(crate) fn remove(root: &Root, path: &RelPath, is_dir: bool) -> Result<()> {
    let (place, name) = root.parent(Op::Remove, path)?;
    let flags = if is_dir {
        AtFlags::REMOVEDIR
    } else {
        AtFlags::empty()
    };
    unlinkat(&place, name.as_bytes(), flags).map_err(|error| fault(Op::Remove, path, error))
}

/// Renames one node. `fragile`: the volume may change its times.
pub(crate) fn rename(root: &Root, fragile: bool, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
    let (source, old_name) = root.parent(Op::Rename, from)?;
    let (target, new_name) = root.parent(Op::Rename, to)?;
    let (old, new) = (old_name.as_bytes(), new_name.as_bytes());
    let before = fragile.then(|| stat::name(&source, old).ok()).flatten();
    let result = if replace {
        renameat(&source, old, &target, new)
    } else {
        rename_new(&source, old, &target, new)
    };
    // ENOENT is about the old name; every other error about the new one.
    let blamed = |error| if matches!(error, Errno::NOENT) { from } else { to };
    result.map_err(|error| fault(Op::Rename, blamed(error), error))?;
    match before {
        Some(before) => attributes::restore_times(&target, new, &before)
            .map_err(|error| fault(Op::SetAttributes, to, error)),
        None => Ok(()),
    }
}

/// Renames pairs of names inside one folder and replaces existing files; one result for each pair.
pub(crate) fn rename_in(tree: &Arc<Inner>, dir: &RelPath, pairs: &[(Name, Name)]) -> Vec<Result<()>> {
    let place = match tree.root.place(Op::Rename, dir) {
        Ok(place) => place,
        Err(error) => {
            return pairs
                .iter()
                .map(|(from, _)| Err(again(&error, dir.join(from))))
                .collect();
        }
    };
    let fragile = !tree.capabilities.folder_renames;
    let rename = |(from, to): &(Name, Name)| {
        let started = tree.trace.start();
        let result = rename_fragile(&place, fragile, from.as_bytes(), to.as_bytes());
        if tree.trace.on() {
            let value = result.map_or_else(|error| -i64::from(error.raw_os_error()), |()| 0);
            tree.trace.end(started, "rename", &dir.join(from), (0, 0), value);
        }
        result.map_err(|error| fault(Op::Rename, &dir.join(from), error))
    };
    pairs.iter().map(rename).collect()
}

/// Renames inside one folder and replaces an existing file. `fragile`: the volume may change the
/// node's times.
pub(crate) fn rename_fragile(
    dir: impl AsFd,
    fragile: bool,
    from: &[u8],
    to: &[u8],
) -> rustix::io::Result<()> {
    let before = if fragile {
        Some(stat::name(&dir, from)?)
    } else {
        None
    };
    renameat(&dir, from, &dir, to)?;
    before.map_or(Ok(()), |before| attributes::restore_times(&dir, to, &before))
}

/// Returns a copy of an error for another node. Errors hold system causes, which cannot be cloned.
pub(crate) fn again(error: &Error, path: RelPath) -> Error {
    let code = error.source.as_ref().and_then(std::io::Error::raw_os_error);
    let source = code.map(std::io::Error::from_raw_os_error);
    Error {
        op: error.op,
        path,
        kind: error.kind,
        source,
    }
}

/// Renames between two open folders; `EEXIST` if the new name is taken.
pub(crate) fn rename_new(
    source: impl AsFd,
    old: &[u8],
    target: impl AsFd,
    new: &[u8],
) -> rustix::io::Result<()> {
    match renameat_with(&source, old, &target, new, RenameFlags::NOREPLACE) {
        // The volume does not know the flag; or a folder is moved into itself, which the fallback refuses too.
        Err(Errno::INVAL | Errno::NOSYS) => {}
        result => return result,
    }
    // A link never replaces anything.
    match linkat(&source, old, &target, new, AtFlags::empty()) {
        Ok(()) => return unlinkat(&source, old, AtFlags::empty()),
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK) => {}
        Err(error) => return Err(error),
    }
    // Not atomic, but such volumes (FAT through FUSE) offer nothing better.
    match stat::name(&target, new) {
        Ok(_) => Err(Errno::EXIST),
        Err(Errno::NOENT) => renameat(&source, old, &target, new),
        Err(error) => Err(error),
    }
}

/// Sets the mode of a new node again if this thread's umask removed bits.
fn restore_masked_mode(root: &Root, op: Op, path: &RelPath, mode: u32) -> Result<()> {
    if !mode_is_masked(mode) {
        return Ok(());
    }
    let node = root.node(op, path)?;
    chmodat(
        CWD,
        proc_path(&node),
        Mode::from_raw_mode(mode & 0o7777),
        AtFlags::empty(),
    )
    .map_err(|error| fault(op, path, error))
}
