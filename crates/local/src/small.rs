//! Writes or reads a small file whole, in one job of one thread instead of one job for each step.
//!
//! The steps are those of [`ropeway_vfs::small`]. Requests that need more than plain buffered I/O
//! (another cache policy, a trace of each operation) take the steps one by one.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ropeway_block::BlockMut;
use ropeway_vfs::{
    CacheMode, Create, GetSmall, GotSmall, Metadata, Op, OpenOptions, PutDone, PutSmall, RelPath, Result,
};
use rustix::io::Errno;

use crate::attributes::{self, Node, xattr};
use crate::beneath::fault;
use crate::tree::Inner;
use crate::{names, open};

/// Whether a request needs plain buffered I/O only.
pub(crate) fn is_plain(tree: &Inner, cache: CacheMode) -> bool {
    matches!(cache, CacheMode::Auto | CacheMode::Keep) && !tree.trace.on()
}

/// Writes one file.
pub(crate) fn put(tree: &Arc<Inner>, put: &PutSmall) -> Result<PutDone> {
    let opened = open::open(tree, &put.path, OpenOptions::write(put.create, CacheMode::Keep))?;
    if let Some(content) = &put.content {
        write(&opened.fd, content).map_err(|error| fault(Op::Write, &put.path, error))?;
    }
    let node = Node::File(opened.fd.as_fd());
    let losses = attributes::set(&node, &put.change, &tree.capabilities, tree.view, &put.path)?;
    if put.sync {
        rustix::fs::fsync(&opened.fd).map_err(|error| fault(Op::Sync, &put.path, error))?;
    }
    drop(opened);
    if let Some(to) = &put.rename_to {
        let fragile = !tree.capabilities.folder_renames;
        names::rename(&tree.root, fragile, &put.path, to, true)?;
    }
    Ok(PutDone {
        losses,
        reused: false,
    })
}

fn write(fd: &OwnedFd, bytes: &[u8]) -> rustix::io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pwrite(fd, &bytes[done..], done as u64) {
            // A write of 0 bytes without an error: the device is broken.
            Ok(0) => return Err(Errno::IO),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads one file.
pub(crate) fn get(tree: &Arc<Inner>, get: &GetSmall, mut block: BlockMut) -> (BlockMut, Result<GotSmall>) {
    block.set_len(0);
    let result = get_into(tree, get, &mut block);
    if result.is_err() {
        block.set_len(0);
    }
    (block, result)
}

fn get_into(tree: &Arc<Inner>, get: &GetSmall, block: &mut BlockMut) -> Result<GotSmall> {
    let path = &get.path;
    let options = OpenOptions {
        create: Create::No,
        ..OpenOptions::read(CacheMode::Keep)
    };
    let opened = open::open(tree, path, options)?;
    let before = metadata(tree, &opened.fd, path)?;
    if before.size > block.capacity() as u64 {
        return Ok(GotSmall {
            metadata: before,
            xattrs: None,
            whole: false,
            reused: false,
        });
    }
    // One byte more shows whether the file grew.
    let length = block.capacity().min(before.size as usize + 1);
    let count = read(&opened.fd, &mut block.capacity_mut()[..length])
        .map_err(|error| fault(Op::Read, path, error))?;
    block.set_len(count);
    let xattrs = match get.xattrs {
        true => {
            let node = Node::File(opened.fd.as_fd());
            Some(xattr::read(&node, tree.view).map_err(|error| fault(Op::Xattr, path, error))?)
        }
        false => None,
    };
    let after = metadata(tree, &opened.fd, path)?;
    let whole = after.size == before.size
        && after.modified == before.modified
        && after.changed == before.changed
        && count as u64 == before.size;
    Ok(GotSmall {
        metadata: before,
        xattrs,
        whole,
        reused: false,
    })
}

fn metadata(tree: &Inner, fd: &OwnedFd, path: &RelPath) -> Result<Metadata> {
    tree.metadata_of(&Node::File(fd.as_fd()))
        .map_err(|error| fault(Op::Stat, path, error))
}

fn read(fd: &OwnedFd, bytes: &mut [u8]) -> rustix::io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pread(fd, &mut bytes[done..], done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
