//! Attributes of nodes and of the volume.

use fuser::FileAttr;
use ropeway_vfs::posix::{Permissions, XattrSet};
use ropeway_vfs::store::{Access, Node, NodeChange, NodeStat};
use ropeway_vfs::{ErrorKind, Timestamp};
use rustix::io::Errno;

use super::content::kill_set_ids;
use super::{Asked, Caller, Fs, answer};
use crate::errno::{self, Answer};

/// Attributes to set; `None` leaves a value unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Change {
    pub(crate) mode: Option<u32>,
    pub(crate) user: Option<u32>,
    pub(crate) group: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) accessed: Option<Timestamp>,
    pub(crate) modified: Option<Timestamp>,
}

/// Space of the volume, in units of `unit` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    pub(crate) unit: u32,
    pub(crate) total: u64,
    pub(crate) available: u64,
    pub(crate) nodes: u64,
    pub(crate) name_max: u32,
}

impl Fs {
    /// Returns the attributes of a node.
    pub(crate) fn attributes(&self, ino: u64, handle: Option<u64>) -> Answer<FileAttr> {
        self.figures.count(Asked::Query);
        let open = match handle.and_then(|handle| self.file(handle).ok()) {
            Some(file) => Some(std::sync::Arc::clone(&file.node)),
            None => self.inodes.open_node(ino, Access::Attributes),
        };
        match open {
            Some(node) => self.attributes_of(ino, &*node),
            None => {
                let stat = self.by_path(ino, |path| self.store.look(path).map(|stat| (stat, stat)))?;
                if stat.kind.is_device() {
                    return self.attributes_of(ino, &*self.node(ino, Access::Attributes)?);
                }
                Ok(self.show(ino, &stat, None))
            }
        }
    }

    fn attributes_of(&self, ino: u64, node: &dyn Node) -> Answer<FileAttr> {
        let stat = answer(node.stat())?;
        let device = match stat.kind.is_device() {
            true => answer(node.device())?,
            false => None,
        };
        Ok(self.show(ino, &stat, device))
    }

    fn show(&self, ino: u64, stat: &NodeStat, device: Option<(u32, u32)>) -> FileAttr {
        self.view.attributes(ino, stat, device)
    }

    /// Sets attributes and returns them all.
    pub(crate) fn change(
        &self,
        caller: Caller,
        ino: u64,
        handle: Option<u64>,
        change: &Change,
    ) -> Answer<FileAttr> {
        self.figures.count(Asked::Change);
        let open = handle.and_then(|handle| self.file(handle).ok());
        let least = match change.size {
            Some(_) => Access::Write,
            None => Access::Attributes,
        };
        let node = match open {
            Some(file) if file.node.access() >= least => std::sync::Arc::clone(&file.node),
            _ => self.node(ino, least)?,
        };
        if let Some(size) = change.size {
            answer(node.set_len(size))?;
            if caller.user != 0 {
                // Root keeps them (CAP_FSETID).
                kill_set_ids(&*node)?;
            }
        }
        self.change_permissions(&*node, change)?;
        if change.accessed.is_some() || change.modified.is_some() {
            answer(node.change(&NodeChange {
                accessed: change.accessed,
                modified: change.modified,
                ..NodeChange::default()
            }))?;
        }
        self.attributes_of(ino, &*node)
    }

    fn change_permissions(&self, node: &dyn Node, change: &Change) -> Answer<()> {
        // Where all nodes show one owner, it cannot be changed.
        let asked = |wanted: Option<u32>, shown: Option<u32>| match (wanted, shown) {
            (Some(wanted), Some(shown)) if wanted != shown => Err(Errno::PERM),
            (_, Some(_)) => Ok(None),
            (wanted, None) => Ok(wanted),
        };
        let permissions = Permissions {
            mode: change.mode.map(|mode| mode & 0o7777),
            user: asked(change.user, self.view.user)?,
            group: asked(change.group, self.view.group)?,
        };
        if permissions == Permissions::default() {
            return Ok(());
        }
        match node.set_permissions(&permissions) {
            // A store without modes ignores them, as FAT does: many programs set them in passing.
            Err(error) if error.kind == ErrorKind::Unsupported && change.user.or(change.group).is_none() => {
                Ok(())
            }
            Err(error) if error.kind == ErrorKind::Unsupported => Err(Errno::PERM),
            result => answer(result),
        }
    }

    /// Returns the space of the volume.
    pub(crate) fn space(&self) -> Answer<Space> {
        let space = answer(self.store.space())?;
        let features = self.store.features();
        let unit = features.unit.max(512);
        Ok(Space {
            unit,
            total: space.total / u64::from(unit),
            available: space.available / u64::from(unit),
            nodes: space.nodes_available.unwrap_or(0),
            name_max: u32::try_from(features.name_max).unwrap_or(255),
        })
    }

    /// Returns the value of an extended attribute.
    pub(crate) fn xattr(&self, ino: u64, name: &[u8]) -> Answer<Vec<u8>> {
        self.figures.count(Asked::Query);
        if !self.store.may_have_xattrs() {
            // `ls -l` asks for the ACL of each file: an open each would cost a round trip.
            return Err(if is_acl(name) {
                Errno::NODATA
            } else {
                Errno::OPNOTSUPP
            });
        }
        match self.node(ino, Access::Attributes)?.xattr(name) {
            // The kernel asks for the ACL to check permissions. Nodes without attributes have none.
            Err(error) if error.kind == ErrorKind::Unsupported && is_acl(name) => Err(Errno::NODATA),
            Err(error) => Err(errno::of_xattr(&error)),
            Ok(value) => value.ok_or(Errno::NODATA),
        }
    }

    /// Returns the names of the extended attributes, each with a NUL byte.
    pub(crate) fn xattr_names(&self, ino: u64) -> Answer<Vec<u8>> {
        if !self.store.may_have_xattrs() {
            return Ok(Vec::new());
        }
        let names = match self.node(ino, Access::Attributes)?.xattr_names() {
            Err(error) if error.kind == ErrorKind::Unsupported => Vec::new(),
            names => answer(names)?,
        };
        let terminated = names.into_iter().flat_map(|mut name| {
            name.push(0);
            name
        });
        Ok(terminated.collect())
    }

    /// Sets an extended attribute.
    pub(crate) fn set_xattr(&self, ino: u64, name: &[u8], value: &[u8], how: XattrSet) -> Answer<()> {
        self.figures.count(Asked::Change);
        let node = self.node(ino, Access::Attributes)?;
        node.set_xattr(name, value, how)
            .map_err(|error| errno::of_xattr(&error))
    }

    /// Removes an extended attribute.
    pub(crate) fn remove_xattr(&self, ino: u64, name: &[u8]) -> Answer<()> {
        let node = self.node(ino, Access::Attributes)?;
        node.remove_xattr(name).map_err(|error| errno::of_xattr(&error))
    }
}

/// Whether an extended attribute is a POSIX ACL (acl(5)).
fn is_acl(name: &[u8]) -> bool {
    name == b"system.posix_acl_access" || name == b"system.posix_acl_default"
}
