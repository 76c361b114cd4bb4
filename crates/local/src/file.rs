//! [`LocalFile`]: an open regular file of a tree.

use std::any::Any;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ropeway_block::{Block, BlockMut};
use ropeway_vfs::trace::failure;
use ropeway_vfs::{
    CopyPiece, Error, Extent, File, Loss, Metadata, MetadataChange, Op, Pending, RelPath, Result, Xattr,
};
use rustix::fs::{Advice, fadvise, ftruncate};
use rustix::io::{Errno, ReadWriteFlags};

use crate::attributes::{self, Node, xattr};
use crate::beneath::fault;
use crate::cache::CacheFollower;
use crate::executor::{self, Lane};
use crate::io::{DONTCACHE, Request, Work};
use crate::observe::{Started, Trace};
use crate::open::{CachePolicy, Direct, Opened};
use crate::tree::Inner;
use crate::{ranges, stat, sys};

/// A regular file of a [`LocalTree`](crate::LocalTree).
pub struct LocalFile {
    tree: Arc<Inner>,
    path: RelPath,
    fd: Arc<OwnedFd>,
    direct: Option<Direct>,
    policy: CachePolicy,
    policy_from: u64,
    was_empty: bool,
    /// Whether something was written with `RWF_DONTCACHE`.
    has_left: AtomicBool,
}

/// State that a blocking job of a file needs.
struct Held {
    tree: Arc<Inner>,
    path: RelPath,
    fd: Arc<OwnedFd>,
}

impl LocalFile {
    pub(crate) fn new(tree: Arc<Inner>, path: RelPath, opened: Opened) -> Self {
        let Opened {
            fd,
            direct,
            policy,
            policy_from,
            was_empty,
        } = opened;
        Self {
            tree,
            path,
            fd,
            direct,
            policy,
            policy_from,
            was_empty,
            has_left: AtomicBool::new(false),
        }
    }

    fn trace(&self) -> &Trace {
        &self.tree.trace
    }

    /// Records an operation of the I/O engine.
    fn end(&self, started: Started, kind: &'static str, range: (u64, u64), result: i64) {
        let ring = self.tree.io.ring_of(&self.fd);
        self.trace()
            .end_on(started, kind, &self.path, range, result, ring);
    }

    /// Runs a blocking operation and records it.
    fn call<T: Send + 'static>(
        &self,
        lane: Lane,
        kind: &'static str,
        range: (u64, u64),
        operation: impl FnOnce(&Held) -> Result<T> + Send + 'static,
    ) -> Pending<'_, Result<T>> {
        let held = Held {
            tree: Arc::clone(&self.tree),
            path: self.path.clone(),
            fd: Arc::clone(&self.fd),
        };
        let count = move |_: &T| range.1;
        Box::pin(executor::run(lane, move || {
            held.tree
                .trace
                .call(kind, &held.path, range, count, || operation(&held))
        }))
    }

    /// Returns flags and follower for buffered I/O on a range.
    fn policy(&self, offset: u64, length: usize) -> (ReadWriteFlags, Option<&Arc<CacheFollower>>) {
        match &self.policy {
            _ if offset + length as u64 <= self.policy_from => (ReadWriteFlags::empty(), None),
            CachePolicy::Keep => (ReadWriteFlags::empty(), None),
            CachePolicy::DontCache => (DONTCACHE, None),
            CachePolicy::Follow(follower) => (ReadWriteFlags::empty(), Some(follower)),
        }
    }

    /// Returns an error if a write-back failed that this file has awaited.
    fn is_written_back(&self) -> Result<()> {
        match &self.policy {
            CachePolicy::Follow(follower) => follower
                .failure()
                .map_or(Ok(()), |error| Err(fault(Op::Sync, &self.path, error))),
            _ => Ok(()),
        }
    }

    async fn read(&self, mut block: BlockMut, offset: u64, length: usize) -> (BlockMut, Result<()>) {
        if let Some(direct) = &self.direct
            && let Some(rounded) = direct.read_length(offset, length, block.capacity())
        {
            let mut request = Request::new(&direct.fd, offset, rounded, Work::Read { block, start: 0 });
            request.unit = direct.align;
            let (work, result) = self.tree.io.perform(request).await;
            block = block_of(work);
            match result {
                Ok(done) => {
                    block.set_len(done.min(length));
                    return (block, Ok(()));
                }
                // Some volumes refuse direct I/O only now: continue through the cache.
                Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {}
                Err(error) => return (block, Err(fault(Op::Read, &self.path, error))),
            }
        }
        let (flags, follower) = self.policy(offset, length);
        if let Some(follower) = follower {
            look_before(follower, offset, length).await;
        }
        let mut request = Request::new(&self.fd, offset, length, Work::Read { block, start: 0 });
        request.flags = flags;
        let (work, result) = self.tree.io.perform(request).await;
        let mut block = block_of(work);
        match result {
            Ok(done) => {
                block.set_len(done);
                if let Some(follower) = follower {
                    let consumed = follower.after_read(offset, done as u64, done < length);
                    if !consumed.is_empty() {
                        let follower = Arc::clone(follower);
                        executor::run(Lane::Data, move || follower.drop_windows(&consumed)).await;
                    }
                }
                (block, Ok(()))
            }
            Err(error) => (block, Err(fault(Op::Read, &self.path, error))),
        }
    }

    /// Returns a job that drops pages which were busy when the kernel tried; `None` if other programs' pages
    /// may be among them.
    fn sweep(&self) -> Option<impl FnOnce() + Send + 'static> {
        let (fd, from) = (Arc::clone(&self.fd), self.policy_from);
        let sweep = move || {
            let _ = fadvise(&fd, from, None, Advice::DontNeed);
        };
        (self.was_empty && self.has_left.load(Ordering::Relaxed)).then_some(sweep)
    }

    async fn write(&self, block: Block, offset: u64) -> Result<()> {
        let failed = |error: std::io::Error| fault(Op::Write, &self.path, error);
        let mut done = 0;
        if let Some(direct) = &self.direct {
            let head = direct.write_length(offset, &block);
            if head > 0 {
                let request = Request::new(&direct.fd, offset, head, Work::Write { block: block.clone() });
                match self.tree.io.perform(request).await.1 {
                    Ok(_) => done = head,
                    Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {}
                    Err(error) => return Err(failed(error)),
                }
            }
        }
        let rest = block.len() - done;
        if rest == 0 {
            return Ok(());
        }
        let offset = offset + done as u64;
        let block = if done == 0 {
            block
        } else {
            block.slice(done..done + rest)
        };
        let (flags, follower) = self.policy(offset, rest);
        if let Some(follower) = follower {
            look_before(follower, offset, rest).await;
        }
        let mut request = Request::new(&self.fd, offset, rest, Work::Write { block });
        request.flags = flags;
        self.tree.io.perform(request).await.1.map_err(failed)?;
        if flags.contains(DONTCACHE) {
            self.has_left.store(true, Ordering::Relaxed);
        }
        if let Some(follower) = follower {
            let settle = follower.after_write(offset, rest as u64);
            if !settle.is_empty() {
                let follower = Arc::clone(follower);
                executor::run(Lane::Slow, move || follower.settle(&settle)).await;
                self.is_written_back()?;
            }
        }
        Ok(())
    }
}

impl File for LocalFile {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn path(&self) -> &RelPath {
        &self.path
    }

    fn reports_size(&self) -> bool {
        !stat::is_made_up(&self.fd)
    }

    fn metadata(&self) -> Pending<'_, Result<Metadata>> {
        self.call(Lane::Short, "stat", (0, 0), |file| {
            file.tree
                .metadata_of(&Node::File(file.fd.as_fd()))
                .map_err(|error| file.fault(Op::Stat, error))
        })
    }

    fn read_at(&self, block: BlockMut, offset: u64, length: usize) -> Pending<'_, (BlockMut, Result<()>)> {
        assert!(length <= block.capacity(), "the read fits the block");
        Box::pin(async move {
            let started = self.trace().start();
            let (block, result) = self.read(block, offset, length).await;
            let value = result.as_ref().map_or_else(failure, |()| block.len() as i64);
            self.end(started, "read", (offset, length as u64), value);
            (block, result)
        })
    }

    fn write_at(&self, block: Block, offset: u64) -> Pending<'_, Result<()>> {
        Box::pin(async move {
            let started = self.trace().start();
            let length = block.len();
            let result = self.write(block, offset).await;
            let value = result.as_ref().map_or_else(failure, |()| length as i64);
            self.end(started, "write", (offset, length as u64), value);
            result
        })
    }

    fn next_extent(&self, offset: u64) -> Pending<'_, Result<Option<Extent>>> {
        self.call(Lane::Short, "extents", (offset, 0), move |file| {
            ranges::next_extent(&file.fd, offset).map_err(|error| file.fault(Op::Extents, error))
        })
    }

    fn set_len(&self, length: u64) -> Pending<'_, Result<()>> {
        self.call(Lane::Short, "set_length", (0, length), move |file| {
            ftruncate(&file.fd, length).map_err(|error| file.fault(Op::SetLength, error))
        })
    }

    fn allocate(&self, length: u64) -> Pending<'_, Result<()>> {
        self.call(Lane::Data, "set_length", (0, length), move |file| {
            ranges::allocate(&file.fd, length).map_err(|error| file.fault(Op::SetLength, error))
        })
    }

    fn punch_hole(&self, offset: u64, length: u64) -> Pending<'_, Result<()>> {
        self.call(Lane::Data, "set_length", (offset, length), move |file| {
            ranges::punch_hole(&file.fd, offset, length).map_err(|error| file.fault(Op::SetLength, error))
        })
    }

    fn reflink_from<'a>(&'a self, source: &'a dyn File) -> Pending<'a, Result<bool>> {
        let Some(source) = source.as_any().downcast_ref::<LocalFile>() else {
            return Box::pin(async { Ok(false) });
        };
        let source = Arc::clone(&source.fd);
        self.call(Lane::Data, "reflink", (0, 0), move |file| {
            ranges::reflink(&file.fd, &source).map_err(|error| file.fault(Op::CopyRange, error))
        })
    }

    fn copy_range_from<'a>(
        &'a self,
        source: &'a dyn File,
        offset: u64,
        length: u64,
    ) -> Pending<'a, Result<Option<u64>>> {
        let Some(source) = source.as_any().downcast_ref::<LocalFile>() else {
            return Box::pin(async { Ok(None) });
        };
        let source = Arc::clone(&source.fd);
        self.call(Lane::Data, "copy_range", (offset, length), move |file| {
            ranges::copy_range(&file.fd, &source, offset, length)
                .map_err(|error| file.fault(Op::CopyRange, error))
        })
    }

    fn copy_pieces_from<'a>(
        &'a self,
        source: &'a dyn File,
        pieces: &'a [CopyPiece],
    ) -> Pending<'a, Result<bool>> {
        let Some(source) = source.as_any().downcast_ref::<LocalFile>() else {
            return Box::pin(async { Ok(false) });
        };
        let (source, pieces) = (Arc::clone(&source.fd), pieces.to_vec());
        let range = pieces.first().map_or((0, 0), |first| {
            (first.to, pieces.iter().map(|piece| piece.length).sum())
        });
        self.call(Lane::Data, "copy_range", range, move |file| {
            for piece in pieces {
                let copied = ranges::copy_piece(&file.fd, &source, piece);
                if copied.map_err(|error| file.fault(Op::CopyRange, error))? != Some(piece.length) {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    fn start_writeback(&self, offset: u64, length: u64) -> Pending<'_, Result<()>> {
        self.call(
            Lane::Data,
            "writeback",
            (offset, length),
            move |file| match sys::sync_file_range(file.fd.as_fd(), offset, length, false) {
                Err(error) if cannot_sync_ranges(&error) => Ok(()),
                result => result.map_err(|error| file.fault(Op::Sync, error)),
            },
        )
    }

    fn wait_writeback(&self, offset: u64, length: u64) -> Pending<'_, Result<()>> {
        self.call(
            Lane::Slow,
            "writeback",
            (offset, length),
            move |file| match sys::sync_file_range(file.fd.as_fd(), offset, length, true) {
                Err(error) if cannot_sync_ranges(&error) => {
                    rustix::fs::fdatasync(&file.fd).map_err(|error| file.fault(Op::Sync, error))
                }
                result => result.map_err(|error| file.fault(Op::Sync, error)),
            },
        )
    }

    fn sync(&self, data_only: bool) -> Pending<'_, Result<()>> {
        Box::pin(async move {
            let started = self.trace().start();
            let request = Request::new(&self.fd, 0, 0, Work::Sync { data_only });
            let result = self.tree.io.perform(request).await.1;
            if let Some(sweep) = self.sweep() {
                executor::run(Lane::Data, sweep).await;
            }
            let result = result
                .map(drop)
                .map_err(|error| fault(Op::Sync, &self.path, error))
                .and_then(|()| self.is_written_back());
            let value = result.as_ref().map_or_else(failure, |()| 0);
            self.end(started, "sync", (0, 0), value);
            result
        })
    }

    fn drop_cache(&self, offset: u64, length: u64) -> Pending<'_, Result<()>> {
        self.call(Lane::Data, "drop_cache", (offset, length), move |file| {
            // No length means to the end of the file.
            let length = NonZeroU64::new(length).filter(|length| length.get() <= i64::MAX as u64);
            fadvise(&file.fd, offset, length, Advice::DontNeed).map_err(|error| file.fault(Op::Sync, error))
        })
    }

    fn cached(&self, offset: u64, length: u64) -> Pending<'_, Result<Option<u64>>> {
        self.call(Lane::Short, "cached", (offset, length), move |file| {
            sys::cached_bytes(file.fd.as_fd(), offset, length).map_err(|error| file.fault(Op::Stat, error))
        })
    }

    fn set_metadata<'a>(&'a self, change: &'a MetadataChange) -> Pending<'a, Result<Vec<Loss>>> {
        let change = change.clone();
        self.call(Lane::Short, "set_attributes", (0, 0), move |file| {
            let node = Node::File(file.fd.as_fd());
            attributes::set(
                &node,
                &change,
                &file.tree.capabilities,
                file.tree.view,
                &file.path,
            )
        })
    }

    fn xattrs(&self) -> Pending<'_, Result<Vec<Xattr>>> {
        self.call(Lane::Short, "xattr", (0, 0), |file| {
            xattr::read(&Node::File(file.fd.as_fd()), file.tree.view)
                .map_err(|error| file.fault(Op::Xattr, error))
        })
    }
}

impl Drop for LocalFile {
    fn drop(&mut self) {
        if let CachePolicy::Follow(follower) = &self.policy
            && follower.has_rest()
        {
            let follower = Arc::clone(follower);
            executor::detach(Lane::Slow, move || follower.finish());
        }
        if let Some(sweep) = self.sweep() {
            executor::detach(Lane::Data, sweep);
        }
    }
}

impl Held {
    fn fault(&self, op: Op, error: impl Into<std::io::Error>) -> Error {
        fault(op, &self.path, error)
    }
}

impl Direct {
    /// Returns the bytes to ask for in a direct read of `length` bytes; `None` if it cannot be direct.
    fn read_length(&self, offset: u64, length: usize, capacity: usize) -> Option<usize> {
        let rounded = length.next_multiple_of(self.align);
        (length > 0 && offset.is_multiple_of(self.align as u64) && rounded <= capacity).then_some(rounded)
    }

    /// Returns the number of bytes at the front of `block` that can be written directly.
    fn write_length(&self, offset: u64, block: &Block) -> usize {
        let aligned = offset.is_multiple_of(self.align as u64)
            && (block.as_ptr() as usize).is_multiple_of(self.memory_align);
        if aligned {
            block.len() / self.align * self.align
        } else {
            0
        }
    }
}

/// Examines windows of the page cache before their first access.
async fn look_before(follower: &Arc<CacheFollower>, offset: u64, length: usize) {
    let unknown = follower.unknown(offset, length as u64);
    if !unknown.is_empty() {
        let follower = Arc::clone(follower);
        executor::run(Lane::Short, move || follower.examine(&unknown)).await;
    }
}

fn block_of(work: Work) -> BlockMut {
    match work {
        Work::Read { block, .. } => block,
        Work::Write { .. } | Work::Sync { .. } => unreachable!("an engine gives back the work it was given"),
    }
}

fn cannot_sync_ranges(error: &std::io::Error) -> bool {
    // No page cache of its own, or no such call.
    matches!(
        error.raw_os_error(),
        Some(libc::ESPIPE | libc::ENOSYS | libc::EOPNOTSUPP | libc::EINVAL)
    )
}
