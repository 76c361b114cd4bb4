//! Case-insensitive lookup of paths.
//!
//! Most paths are spelled as on disk, which one call shows. Of most others only the last name is missing,
//! because the request will make it: the folder's index shows that no other spelling exists. The remaining
//! paths are looked up name by name.

use std::os::fd::AsFd;
use std::sync::Arc;

use ropeway_vfs::store::{Resolved, Task};
use ropeway_vfs::{Error, ErrorKind, FileId, Name, Op, RelPath, Result};
use rustix::fs::{AtFlags, OFlags, StatxFlags, statat};
use rustix::io::Errno;

use super::Core;
use super::descriptors::id_of;
use super::index::Begun;
use super::root::{Place, failed, open_fault};
use crate::stat;

/// Size from which a folder is not read while a connection waits: some 25,000 names on ext4, 50,000 on
/// tmpfs, read in 10 ms (a guess).
const LARGE_BYTES: u64 = 1 << 20;

/// The lookup that a path still needs.
enum Question {
    /// None: the path is known.
    None(RelPath),
    /// The last name, in the folder with this path.
    Last(RelPath, Name),
}

/// Returns the path as spelled on disk; see [`ropeway_vfs::store::Store::resolve`].
pub(super) fn resolve(core: &Core, path: &RelPath) -> Result<RelPath> {
    let (question, place) = ask(core, path)?;
    let (Question::Last(dir, last), Some(place)) = (&question, &place) else {
        return Ok(question.path());
    };
    let real = other_case(core, place, last).map_err(|error| failed(Op::Open, path, error))?;
    Ok(dir.join(real.as_ref().unwrap_or(last)))
}

/// As [`resolve`], for a path that was not found a moment ago; leaves a long reading to the caller. See
/// [`ropeway_vfs::store::Store::resolve_soon`].
pub(super) fn resolve_soon(core: &Arc<Core>, path: &RelPath, then: &dyn Fn() -> Task) -> Result<Resolved> {
    let (question, place) = ask_last(core, path)?;
    let (Question::Last(dir, last), Some(place)) = (&question, &place) else {
        return Ok(Resolved::Path(question.path()));
    };
    let failed = |error| failed(Op::Open, path, error);
    // An exact match wins, should there be one by now.
    let is_exact = || statat(place, last.as_bytes(), AtFlags::SYMLINK_NOFOLLOW).is_ok();
    let stat = stat::raw(place, StatxFlags::INO | StatxFlags::SIZE).map_err(failed)?;
    if stat.stx_size >= LARGE_BYTES {
        if is_exact() {
            return Ok(Resolved::Path(dir.join(last)));
        }
        let id = id_of(&stat);
        match core.indexes.begin(place.as_fd(), id, then) {
            Begun::Needless => {}
            Begun::UnderWay => return Ok(Resolved::UnderWay),
            Begun::Read(reading) => {
                // Without a spare descriptor the folder is read below, which closes idle ones first.
                if let Ok(dir) = place.as_fd().try_clone_to_owned() {
                    let core = Arc::clone(core);
                    return Ok(Resolved::After(Box::new(move || {
                        core.indexes.read_for(&reading, dir.as_fd(), id);
                    })));
                }
            }
        }
    }
    let other = find(core, place, id_of(&stat), last).map_err(failed)?;
    let real = other.filter(|other| other != last && !is_exact());
    Ok(Resolved::Path(dir.join(real.as_ref().unwrap_or(last))))
}

impl Question {
    fn path(&self) -> RelPath {
        match self {
            Self::None(path) => path.clone(),
            Self::Last(dir, name) => dir.join(name),
        }
    }
}

/// Returns the lookup that is needed, and the folder for it.
fn ask<'a>(core: &'a Core, path: &RelPath) -> Result<(Question, Option<Place<'a>>)> {
    // A link counts wherever it leads.
    match core.root.open_at(path, OFlags::PATH | OFlags::NOFOLLOW, 0) {
        Ok(_) => Ok((Question::None(path.clone()), None)),
        Err(Errno::NOENT) => ask_last(core, path),
        Err(error) => Err(open_fault(Op::Open, path, error)),
    }
}

/// Returns the folder of a missing path as spelled on disk, and its last name.
fn ask_last<'a>(core: &'a Core, path: &RelPath) -> Result<(Question, Option<Place<'a>>)> {
    let (Some(parent), Some(last)) = (path.parent(), path.file_name()) else {
        // The root is open, whatever is under its name now.
        return Ok((Question::None(path.clone()), None));
    };
    let (dir, place) = match core.root.place(&parent) {
        Ok(place) => (parent, place),
        Err(Errno::NOENT) => walk(core, &parent, path)?,
        Err(error) => return Err(open_fault(Op::Open, path, error)),
    };
    Ok((Question::Last(dir, last), Some(place)))
}

/// Finds a folder name by name.
fn walk<'a>(core: &'a Core, folder: &RelPath, path: &RelPath) -> Result<(RelPath, Place<'a>)> {
    let mut found = RelPath::root();
    let mut place = Place::Root(core.root.fd());
    for name in folder.components() {
        let real = match statat(&place, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => name,
            Err(Errno::NOENT) => other_case(core, &place, &name)
                .map_err(|error| failed(Op::Open, path, error))?
                .ok_or_else(|| Error::new(Op::Open, path, ErrorKind::NotFound))?,
            Err(error) => return Err(failed(Op::Open, path, error)),
        };
        found = found.join(&real);
        // Links to folders are followed as far as they stay beneath the root.
        place = core
            .root
            .place(&found)
            .map_err(|error| open_fault(Op::Open, path, error))?;
    }
    Ok((found, place))
}

/// Returns the name in a folder that differs from `name` in case only.
fn other_case(core: &Core, place: &Place<'_>, name: &Name) -> rustix::io::Result<Option<Name>> {
    let stat = stat::raw(place, StatxFlags::INO)?;
    find(core, place, id_of(&stat), name)
}

fn find(core: &Core, place: &Place<'_>, id: FileId, name: &Name) -> rustix::io::Result<Option<Name>> {
    match core.root.relieved(|| core.indexes.find(place.as_fd(), id, name)) {
        // The folder may be searched but not read: names must be spelled exactly.
        Err(Errno::ACCESS) => Ok(None),
        found => found,
    }
}
