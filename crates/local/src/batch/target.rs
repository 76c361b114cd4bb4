//! Target side of a batch: makes files with the right owner and mode in few calls.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ropeway_vfs::{Batch, BatchItem, Create, Loss, Metadata, Owner, Xattr};
use rustix::fs::{AtFlags, Mode, OFlags, fstat, fsync, ftruncate, openat, unlinkat};
use rustix::io::Errno;

use crate::attributes::{self, Node, lose, xattr};
use crate::executor::{self, mode_is_masked};
use crate::names;
use crate::tree::Inner;

/// Unit in which holes are looked for: the block size of nearly every volume.
const HOLE_BYTES: usize = 4096;

/// The folder files are made in.
pub(super) struct Targets<'a> {
    tree: &'a Inner,
    batch: &'a Batch,
    dir: Arc<OwnedFd>,
    /// Whether new files get an ACL from the folder.
    inherits_acl: bool,
    /// Owner and mode that creation gives, learned from the first file.
    creation: Option<Creation>,
    /// The usual owner of new files.
    own: Owner,
}

#[derive(Clone, Copy)]
struct Creation {
    owner: Owner,
    mode: u32,
    /// Whether the mode asked for was given.
    exact: bool,
}

/// A file being made.
pub(super) struct Made {
    pub(super) fd: OwnedFd,
    owner: Owner,
    /// Its permission bits, where known.
    mode: Option<u32>,
    /// The mode that a volume without modes shows.
    fixed_mode: u32,
}

impl<'a> Targets<'a> {
    pub(super) fn new(tree: &'a Inner, batch: &'a Batch, dir: Arc<OwnedFd>) -> Self {
        let inherits_acl = tree.capabilities.xattrs
            && matches!(
                xattr::get(&Node::Path(dir.as_fd()), xattr::ACL_DEFAULT),
                Ok(Some(_))
            );
        let own = Owner {
            user: rustix::process::geteuid().as_raw(),
            group: rustix::process::getegid().as_raw(),
        };
        Self {
            tree,
            batch,
            dir,
            inherits_acl,
            creation: None,
            own,
        }
    }

    /// Makes or empties the target file. Until owner and ACL are right, its mode lets nobody in whom the
    /// final ones keep out.
    pub(super) fn make(
        &mut self,
        item: &BatchItem,
        metadata: &Metadata,
        xattrs: &[Xattr],
    ) -> rustix::io::Result<Made> {
        let guess = Creation {
            owner: self.own,
            mode: 0,
            exact: false,
        };
        let creation = self.creation.unwrap_or(guess);
        let wanted = self.wanted_mode(metadata);
        let other_owner = self
            .wanted_owner(metadata)
            .is_some_and(|owner| owner != creation.owner);
        let has_acl = xattrs.iter().any(|xattr| xattr.name == xattr::ACL_ACCESS);
        // The group may be wrong for now: it gets no more than others.
        let unequal = wanted >> 3 & 7 != wanted & 7;
        let asked = if has_acl || (other_owner && unequal) {
            wanted & 0o700
        } else {
            wanted & 0o777
        };
        let mut flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        flags |= match item.create {
            Create::New => OFlags::CREATE | OFlags::EXCL,
            Create::IfMissing | Create::Truncate => OFlags::CREATE | OFlags::TRUNC,
            Create::No => OFlags::TRUNC,
        };
        let fd = openat(
            &self.dir,
            item.target.as_bytes(),
            flags,
            Mode::from_raw_mode(asked),
        )?;
        if item.create != Create::New {
            return existing(fd);
        }
        let creation = match self.creation {
            Some(creation) => creation,
            None => {
                let stat = fstat(&fd)?;
                let owner = Owner {
                    user: stat.st_uid,
                    group: stat.st_gid,
                };
                let mode = stat.st_mode & 0o7777;
                *self.creation.insert(Creation {
                    owner,
                    mode,
                    exact: mode == asked,
                })
            }
        };
        let known = creation.exact && !self.inherits_acl && !mode_is_masked(asked);
        let mode = known.then_some(asked);
        Ok(Made {
            fd,
            owner: creation.owner,
            mode,
            fixed_mode: creation.mode,
        })
    }

    /// Gives a written file its attributes, times last.
    pub(super) fn dress(
        &self,
        made: &Made,
        metadata: &Metadata,
        xattrs: &[Xattr],
        losses: &mut Vec<Loss>,
    ) -> rustix::io::Result<()> {
        let volume = &self.tree.capabilities;
        let keep = &self.batch.preserve;
        let node = Node::File(made.fd.as_fd());
        let mut chowned = false;
        if let Some(mut owner) = self.wanted_owner(metadata).filter(|owner| *owner != made.owner) {
            if self.own.user != 0 && owner.user != made.owner.user {
                lose(losses, Loss::Owner);
                owner.user = made.owner.user;
            }
            if !volume.owners {
                lose(losses, Loss::Owner);
            } else if owner != made.owner {
                attributes::set_owner(&node, owner, made.owner, losses)?;
                chowned = true;
            }
        }
        if keep.xattrs && self.inherits_acl && volume.xattrs {
            match xattr::remove(&node, xattr::ACL_ACCESS) {
                Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                Err(error) => return Err(error),
            }
        }
        let wanted = self.wanted_mode(metadata);
        if !volume.modes {
            if keep.mode && wanted != made.fixed_mode {
                lose(losses, Loss::Mode);
            }
        } else if made.mode != Some(wanted) || (chowned && wanted & 0o6000 != 0) {
            attributes::set_mode(&node, wanted, losses)?;
        }
        for xattr in xattrs {
            if !volume.xattrs {
                lose(losses, Loss::of_xattr(&xattr.name));
            } else if let Err(error) = xattr::set(&node, &xattr.name, &xattr.value) {
                xattr::lose(&xattr.name, error, losses)?;
            }
        }
        if keep.times {
            // Creation times are in the extended attributes, if they were ever set.
            attributes::set_times(&node, metadata.accessed, Some(metadata.modified), losses)?;
        }
        if self.batch.sync_each {
            rustix::io::retry_on_intr(|| fsync(&made.fd))?;
        }
        Ok(())
    }

    /// Gives a complete file its final name.
    pub(super) fn reveal(&self, item: &BatchItem) -> rustix::io::Result<()> {
        match &item.rename_to {
            Some(name) => {
                let fragile = !self.tree.capabilities.folder_renames;
                names::rename_fragile(&self.dir, fragile, item.target.as_bytes(), name.as_bytes())
            }
            None => Ok(()),
        }
    }

    /// Removes what a failed copy left. A file that stood there before under its final name stays.
    pub(super) fn discard(&self, item: &BatchItem) {
        if item.create == Create::New || item.rename_to.is_some() {
            let _ = unlinkat(&self.dir, item.target.as_bytes(), AtFlags::empty());
        }
    }

    fn wanted_mode(&self, metadata: &Metadata) -> u32 {
        let mode = metadata.mode.unwrap_or(0o644);
        if self.batch.preserve.mode {
            mode & 0o7777
        } else {
            mode & 0o777 & !executor::process_umask()
        }
    }

    fn wanted_owner(&self, metadata: &Metadata) -> Option<Owner> {
        metadata.owner.filter(|_| self.batch.preserve.owner)
    }
}

/// Returns an existing file as it is now, after checking that it is a regular file.
fn existing(fd: OwnedFd) -> rustix::io::Result<Made> {
    let stat = fstat(&fd)?;
    match crate::stat::kind(stat.st_mode) {
        ropeway_vfs::Kind::File => {}
        ropeway_vfs::Kind::Directory => return Err(Errno::ISDIR),
        _ => return Err(Errno::OPNOTSUPP),
    }
    let mode = stat.st_mode & 0o7777;
    let owner = Owner {
        user: stat.st_uid,
        group: stat.st_gid,
    };
    Ok(Made {
        fd,
        owner,
        mode: Some(mode),
        fixed_mode: mode,
    })
}

/// Writes a piece of content; with `holes`, leaves out blocks of zeroes.
pub(super) fn write(fd: &OwnedFd, bytes: &[u8], offset: u64, holes: bool) -> rustix::io::Result<()> {
    if !holes {
        return write_run(fd, bytes, offset);
    }
    let is_zero = |block: &[u8]| block.iter().all(|byte| *byte == 0);
    let mut at = 0;
    while at < bytes.len() {
        let mut end = at;
        while end < bytes.len() {
            let next = (end + HOLE_BYTES).min(bytes.len());
            if is_zero(&bytes[end..next]) {
                break;
            }
            end = next;
        }
        write_run(fd, &bytes[at..end], offset + at as u64)?;
        at = (end + HOLE_BYTES).min(bytes.len());
    }
    Ok(())
}

/// Sets the length of a file that ends in a hole.
pub(super) fn set_length(fd: &OwnedFd, length: u64) -> rustix::io::Result<()> {
    ftruncate(fd, length)
}

fn write_run(fd: &OwnedFd, bytes: &[u8], offset: u64) -> rustix::io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pwrite(fd, &bytes[done..], offset + done as u64) {
            // A write of 0 bytes without an error: the device is broken.
            Ok(0) => return Err(Errno::IO),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_blocks_become_holes_and_nothing_else_does() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let fd: OwnedFd = file.reopen().unwrap().into();
        let mut bytes = vec![0u8; 5 * HOLE_BYTES + 100];
        bytes[HOLE_BYTES + 7] = 1;
        bytes[3 * HOLE_BYTES..4 * HOLE_BYTES].fill(9);
        write(&fd, &bytes, 0, true).unwrap();
        set_length(&fd, bytes.len() as u64).unwrap();
        assert!(std::fs::read(file.path()).unwrap() == bytes);
    }
}
