//! Paths without regard to case.
//!
//! Most paths are written as they are on disk: one call tells. Of most others only the last name is missing, because it is
//! to be made: the folder's index tells that there is none with another case either. The rest is looked up name by name.

use std::os::fd::AsFd;

use ropeway_vfs::{Error, ErrorKind, Name, Op, RelPath, Result};
use rustix::fs::{AtFlags, OFlags, StatxFlags, statat};
use rustix::io::Errno;

use super::Core;
use super::base::{Place, failed, open_fault};
use super::descriptors::id_of;
use crate::stat;

/// The path as on disk; see [`ropeway_vfs::store::Store::resolve`].
pub(super) fn resolve(core: &Core, path: &RelPath) -> Result<RelPath> {
    let fault = |error| open_fault(Op::Open, path, error);
    // Be it a link that leads anywhere.
    match core.base.open_at(path, OFlags::PATH | OFlags::NOFOLLOW, 0) {
        Ok(_) => return Ok(path.clone()),
        Err(Errno::NOENT) => {}
        Err(error) => return Err(fault(error)),
    }
    let (Some(parent), Some(last)) = (path.parent(), path.file_name()) else {
        // The root is there, whatever is under its name now.
        return Ok(path.clone());
    };
    let (dir, place) = match core.base.place(&parent) {
        Ok(place) => (parent, place),
        Err(Errno::NOENT) => walk(core, &parent, path)?,
        Err(error) => return Err(fault(error)),
    };
    let real = other_case(core, &place, &last).map_err(|error| failed(Op::Open, path, error))?;
    Ok(dir.join(&real.unwrap_or(last)))
}

/// Finds a folder name by name.
fn walk<'a>(core: &'a Core, folder: &RelPath, path: &RelPath) -> Result<(RelPath, Place<'a>)> {
    let mut found = RelPath::root();
    let mut place = Place::Root(core.base.fd());
    for name in folder.components() {
        let real = match statat(&place, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => name,
            Err(Errno::NOENT) => other_case(core, &place, &name)
                .map_err(|error| failed(Op::Open, path, error))?
                .ok_or_else(|| Error::new(Op::Open, path, ErrorKind::NotFound))?,
            Err(error) => return Err(failed(Op::Open, path, error)),
        };
        found = found.join(&real);
        // Links in folders' places are followed as far as they stay beneath the root.
        place = core
            .base
            .place(&found)
            .map_err(|error| open_fault(Op::Open, path, error))?;
    }
    Ok((found, place))
}

/// The name in a folder that differs in case only.
fn other_case(core: &Core, place: &Place<'_>, name: &Name) -> rustix::io::Result<Option<Name>> {
    let stat = stat::raw(place, StatxFlags::INO)?;
    let find = || core.indexes.find(place.as_fd(), id_of(&stat), name);
    match core.base.relieved(find) {
        // A folder that may be passed but not read: names must be known exactly.
        Err(Errno::ACCESS) => Ok(None),
        found => found,
    }
}
