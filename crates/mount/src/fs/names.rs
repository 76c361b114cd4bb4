//! Names: make, remove, rename, link, list.

use std::sync::Arc;

use fuser::{FileAttr, FileType};
use parking_lot::Mutex;
use ropeway_vfs::posix::{NewKind, NewPosix, RenameMode};
use ropeway_vfs::store::{Access, NodeStat};
use ropeway_vfs::{ErrorKind, Kind, Name};
use rustix::io::Errno;

use super::{Asked, Caller, Fs, OpenFolder, answer};
use crate::errno::{self, Answer};
use crate::inodes::ROOT;
use crate::listing::Listing;
use crate::view::file_type;

/// Positions of `.` and `..`; entries of the store follow.
const DOTS: u64 = 2;

/// A node to make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Creation<'a> {
    pub(crate) parent: u64,
    pub(crate) name: &'a [u8],
    pub(crate) kind: NewKind<'a>,
    pub(crate) mode: u32,
    pub(crate) umask: u32,
}

/// A rename.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renaming<'a> {
    pub(crate) from: (u64, &'a [u8]),
    pub(crate) to: (u64, &'a [u8]),
    pub(crate) mode: RenameMode,
}

/// An entry of a listing.
pub(crate) struct Entry<'a> {
    pub(crate) ino: u64,
    /// Position of the entry after this one.
    pub(crate) next: u64,
    pub(crate) kind: FileType,
    pub(crate) name: &'a [u8],
    /// Attributes, if they were asked for; not of `.` and `..`.
    pub(crate) attributes: Option<FileAttr>,
}

impl Fs {
    /// Makes a node and closes it.
    pub(crate) fn make(&self, caller: Caller, creation: &Creation<'_>) -> Answer<FileAttr> {
        self.figures.count(Asked::Change);
        self.make_open(caller, creation, Access::Attributes)
            .map(|(attributes, ..)| attributes)
    }

    fn make_open(
        &self,
        caller: Caller,
        creation: &Creation<'_>,
        access: Access,
    ) -> Answer<(FileAttr, Arc<dyn ropeway_vfs::store::Node>)> {
        let name = self.name(creation.name)?;
        let _still = self.folders_move.read();
        let path = self.path_in(creation.parent, &name)?;
        let new = NewPosix {
            kind: creation.kind,
            mode: creation.mode & 0o7777,
            umask: creation.umask,
            owner: self.owner_for(caller),
            access,
        };
        let made = answer(self.store.make(&path, &new))?;
        let attributes = self.entry(creation.parent, &name, &path, &made.stat)?;
        Ok((attributes, made.node))
    }

    /// Makes a file and opens it; returns the handle.
    pub(crate) fn create(
        &self,
        caller: Caller,
        creation: &Creation<'_>,
        access: Access,
        is_exclusive: bool,
    ) -> Answer<(FileAttr, u64)> {
        self.figures.count(Asked::Open);
        let (attributes, node) = match self.make_open(caller, creation, access) {
            // Made by somebody behind the mount since the kernel looked.
            Err(Errno::EXIST) if !is_exclusive => {
                let attributes = self.lookup(creation.parent, creation.name)?;
                let opened = self.open_node(attributes.ino.0, access);
                let opened = opened.inspect_err(|_| self.forget(attributes.ino.0, 1));
                (attributes, opened?.0)
            }
            made => made?,
        };
        let ino = attributes.ino.0;
        let handle = self.next_handle();
        self.enter(ino, handle, node, None);
        Ok((attributes, handle))
    }

    /// Removes a name.
    pub(crate) fn remove(&self, parent: u64, name: &[u8], is_folder: bool) -> Answer<()> {
        self.figures.count(Asked::Change);
        let name = self.name(name)?;
        let _still = self.folders_move.read();
        let path = self.path_in(parent, &name)?;
        let _changing = self.inodes.changing();
        let result = self.store.remove(&path, is_folder);
        if result.is_ok()
            || result
                .as_ref()
                .is_err_and(|error| error.kind == ErrorKind::NotFound)
        {
            self.inodes.removed(parent, &name);
        }
        answer(result)
    }

    /// Renames.
    pub(crate) fn rename(&self, renaming: &Renaming<'_>) -> Answer<()> {
        self.figures.count(Asked::Change);
        let (from, to) = (self.name(renaming.from.1)?, self.name(renaming.to.1)?);
        let (old, new) = ((renaming.from.0, &from), (renaming.to.0, &to));
        let is_file = |at: (u64, &Name)| matches!(self.inodes.kind_at(at.0, at.1), Some(kind) if kind != Kind::Directory);
        if is_file(old) && (renaming.mode != RenameMode::Exchange || is_file(new)) {
            let _still = self.folders_move.read();
            self.rename_still(old, new, renaming.mode)
        } else {
            let _alone = self.folders_move.write();
            self.rename_still(old, new, renaming.mode)
        }
    }

    fn rename_still(&self, from: (u64, &Name), to: (u64, &Name), mode: RenameMode) -> Answer<()> {
        let old = self.path_in(from.0, from.1)?;
        let new = self.path_in(to.0, to.1)?;
        let _changing = self.inodes.changing();
        let mut result = self.store.rename_posix(&old, &new, mode);
        let in_the_way = |kind| matches!(kind, ErrorKind::AlreadyExists | ErrorKind::IsADirectory);
        if mode == RenameMode::Replace
            && result.as_ref().is_err_and(|error| in_the_way(error.kind))
            && self.inodes.kind_at(from.0, from.1) == Some(Kind::Directory)
            && self.store.remove(&new, true).is_ok()
        {
            // A store that cannot replace an empty folder in one step.
            result = self.store.rename_posix(&old, &new, RenameMode::Keep);
        }
        answer(result)?;
        match mode {
            RenameMode::Exchange => self.inodes.exchanged(from, to),
            RenameMode::Keep | RenameMode::Replace => self.inodes.renamed(from, to),
        }
        Ok(())
    }

    /// Gives a node another name.
    pub(crate) fn link(&self, ino: u64, parent: u64, name: &[u8]) -> Answer<FileAttr> {
        self.figures.count(Asked::Change);
        let name = self.name(name)?;
        let _still = self.folders_move.read();
        let path = self.path_in(parent, &name)?;
        let linked = match self.inodes.place(ino) {
            Some(place) => self.store.link(&place.path, &path, false),
            None => {
                // No name left, but open: some stores can link it again.
                let node = self
                    .inodes
                    .open_node(ino, Access::Attributes)
                    .ok_or(Errno::NOENT)?;
                self.store.link_node(&*node, &path, false)
            }
        };
        answer(linked)?;
        let stat = answer(self.store.look(&path))?;
        self.entry(parent, &name, &path, &stat)
    }

    /// Returns the target of a symbolic link.
    pub(crate) fn read_link(&self, ino: u64) -> Answer<Vec<u8>> {
        answer(self.node(ino, Access::Attributes)?.link_target())
    }

    /// Opens a folder for listing; returns the handle.
    pub(crate) fn open_folder(&self, ino: u64) -> Answer<u64> {
        let (node, _) = self.open_node(ino, Access::Read)?;
        let handle = self.next_handle();
        self.inodes.opened(ino, handle, &node);
        let folder = OpenFolder {
            ino,
            parent: self.inodes.parent(ino).unwrap_or(ROOT),
            node,
            listing: Mutex::new(Listing::default()),
        };
        self.folders.write().insert(handle, Arc::new(folder));
        Ok(handle)
    }

    /// Closes a folder.
    pub(crate) fn close_folder(&self, handle: u64) {
        let folder = self.folders.write().remove(&handle);
        if let Some(folder) = folder {
            self.inodes.closed(folder.ino, handle);
        }
    }

    /// Lists a folder from a position. `add` returns `true` if the entry did not fit. With
    /// attributes each entry counts as looked up.
    pub(crate) fn list(
        &self,
        handle: u64,
        position: u64,
        with_attributes: bool,
        mut add: impl FnMut(&Entry<'_>) -> bool,
    ) -> Answer<()> {
        self.figures.count(Asked::List);
        let folder = self.folder(handle)?;
        let mut listing = folder.listing.lock();
        for (dot, ino) in [(0, folder.ino), (1, folder.parent)] {
            let name: &[u8] = if dot == 0 { b"." } else { b".." };
            let entry = Entry {
                ino,
                next: dot + 1,
                kind: FileType::Directory,
                name,
                attributes: None,
            };
            if position <= dot && add(&entry) {
                return Ok(());
            }
        }
        let mut at = position.saturating_sub(DOTS);
        answer(listing.seek(&*folder.node, at))?;
        while let Some((name, stat)) = answer(listing.at(at))? {
            let attributes = match with_attributes {
                true => Some(self.listed(folder.ino, name, stat)),
                false => None,
            };
            let ino = attributes.map_or_else(|| self.inodes.expected(stat.id), |known| known.ino.0);
            let entry = Entry {
                ino,
                next: at + 1 + DOTS,
                kind: file_type(stat.kind),
                name: name.as_bytes(),
                attributes,
            };
            if add(&entry) {
                if with_attributes {
                    self.forget(ino, 1);
                }
                break;
            }
            at += 1;
        }
        Ok(())
    }

    /// Records an entry of a listing as looked up.
    fn listed(&self, parent: u64, name: &Name, stat: &NodeStat) -> FileAttr {
        let device = match stat.kind.is_device() {
            true => self.device_of(parent, name),
            false => None,
        };
        let ino = self.inodes.looked_up(parent, name, stat);
        self.view.attributes(ino, stat, device)
    }

    fn device_of(&self, parent: u64, name: &Name) -> Option<(u32, u32)> {
        let path = self.path_in(parent, name).ok()?;
        let opened = self.store.open_itself(&path, Access::Attributes).ok()?;
        opened.node.device().ok().flatten()
    }

    /// Makes a folder's names durable.
    pub(crate) fn sync_folder(&self, handle: u64) -> Answer<()> {
        self.folder(handle)?
            .node
            .sync()
            .map_err(|error| errno::of(&error))
    }
}
