//! Copies one file of a batch.

use std::borrow::Cow;
use std::os::fd::{AsFd, OwnedFd};

use ropeway_vfs::trace::failure;
use ropeway_vfs::{
    Batch, BatchDone, BatchItem, BatchResult, EndError, HashAlgorithm, Metadata, Op, RelPath, Xattr,
};
use rustix::fs::{Stat, fstat, ioctl_ficlone};

use super::source::{Content, Sources, differs, is_touched, same, size};
use super::target::{self, Made, Targets};
use super::word;
use crate::attributes::Node;
use crate::attributes::xattr::{self, View};
use crate::beneath::{fault, open_fault};
use crate::open::require_regular;
use crate::ranges;
use crate::stat;
use crate::tree::Inner;

/// Size from which a reflink is tried if the volume may support it: below, sharing costs more than copying
/// (a guess).
const REFLINK_MIN: u64 = 64 * 1024;

/// Size from which files pass from cache to cache inside the kernel, copied once instead of twice. Below,
/// one read and one write are fewer calls (sendfile moves 64 KiB at a time, sendfile(2) and pipe(7)).
const SEND_MIN: u64 = 64 * 1024;

/// Bytes of one unit of `st_blocks` (stat(2)).
const BLOCK_BYTES: u64 = 512;

/// Copies the files of one batch, one after the other.
pub(super) struct Copier<'a> {
    source: &'a Inner,
    target: &'a Inner,
    batch: &'a Batch,
    sources: Sources<'a>,
    targets: Targets<'a>,
    buffer: &'a mut [u8],
    /// Reflinks may work: same volume, not refused yet.
    may_reflink: bool,
    /// sendfile may be used: no hash is wanted, and it was not refused yet.
    may_send: bool,
}

impl<'a> Copier<'a> {
    pub(super) fn new(
        source: &'a Inner,
        target: &'a Inner,
        batch: &'a Batch,
        buffer: &'a mut [u8],
    ) -> Result<Self, EndError> {
        let from = source
            .root
            .place(Op::Open, &batch.source_dir)
            .map_err(EndError::on_source)?;
        let to = target
            .root
            .place(Op::Create, &batch.target_dir)
            .map_err(EndError::on_target)?;
        let may_reflink = source.may_reflink && batch.hash.is_none() && same_volume(&from, &to);
        Ok(Self {
            source,
            target,
            batch,
            sources: Sources::new(from, &batch.items),
            targets: Targets::new(target, batch, to),
            buffer,
            may_reflink,
            may_send: batch.hash.is_none(),
        })
    }

    /// Copies the file at `index`; a failure leaves nothing behind.
    pub(super) fn copy(&mut self, index: usize, item: &BatchItem) -> BatchResult {
        debug_assert!(
            std::ptr::eq(&raw const self.batch.items[index], item),
            "items come in order"
        );
        let mut made = None;
        let result = self.copy_item(item, &mut made);
        if result.is_err() && made.take().is_some() {
            self.targets.discard(item);
        }
        result
    }

    fn copy_item(&mut self, item: &BatchItem, made: &mut Option<Made>) -> BatchResult {
        let mut done = BatchDone::default();
        let from = self.on_source(Op::Open, item, 0, |this| this.sources.take())?;
        let cloned = if self.may_reflink && item.metadata.size >= REFLINK_MIN {
            self.reflink(&from, item, made)?
        } else {
            None
        };
        let sends = cloned.is_none() && self.sends(item);
        let content = match cloned {
            Some(stat) => unread(stat, item),
            None if sends => self.look(&from, item)?,
            None => self.read(&from, item)?,
        };
        done.source_changed = content.changed;
        let metadata = self.current(&from, item, &content.stat)?;
        let xattrs = self.xattrs(&from, item)?;
        if made.is_none() {
            *made = Some(self.make(item, &metadata, &xattrs)?);
        }
        let Some(new) = made.as_ref() else {
            unreachable!("made just now")
        };
        if cloned.is_some() {
            done.size = size(&content.stat);
        } else if sends {
            self.send(&from, new, item, &content, &mut done)?;
        } else {
            self.transfer(&from, new, item, &content, &mut done)?;
        }
        self.on_target(Op::SetAttributes, item, 0, |this| {
            this.targets.dress(new, &metadata, &xattrs, &mut done.losses)
        })?;
        if done.source_changed && item.rename_to.is_some() {
            // The content may be a mixture of two versions: the final name stays as it is until the file has
            // been copied once more.
            self.targets.discard(item);
        } else if item.rename_to.is_some() {
            self.on_target(Op::Rename, item, 0, |this| this.targets.reveal(item))?;
        }
        Ok(done)
    }

    /// Whether to copy by sendfile. It would fill holes.
    fn sends(&self, item: &BatchItem) -> bool {
        let seen = &item.metadata;
        self.may_send && seen.size >= SEND_MIN && seen.allocated.is_some_and(|bytes| bytes >= seen.size)
    }

    /// Examines the source before sendfile.
    fn look(&mut self, from: &OwnedFd, item: &BatchItem) -> Result<Content, EndError> {
        let stat = self.on_source(Op::Stat, item, 0, |_| fstat(from))?;
        self.regular(item, stat.st_mode)?;
        self.on_source(Op::Read, item, 1, |this| this.sources.ask(from))?;
        Ok(unread(stat, item))
    }

    /// Copies by sendfile, or by reads and writes if the kernel refuses.
    fn send(
        &mut self,
        from: &OwnedFd,
        new: &Made,
        item: &BatchItem,
        seen: &Content,
        done: &mut BatchDone,
    ) -> Result<(), EndError> {
        let length = size(&seen.stat);
        let sent = self.on_target(Op::Write, item, length, |_| {
            ranges::send(&new.fd, from, 0, length)
        })?;
        let Some(sent) = sent else {
            self.may_send = false;
            let content = self.read(from, item)?;
            done.source_changed |= content.changed;
            return self.transfer(from, new, item, &content, done);
        };
        let after = self.on_source(Op::Stat, item, 0, |_| fstat(from))?;
        done.source_changed |= !same(&seen.stat, &after) || sent != size(&after);
        (done.read, done.sent, done.size) = (sent, sent, sent);
        Ok(())
    }

    fn regular(&self, item: &BatchItem, mode: u32) -> Result<(), EndError> {
        require_regular(Op::Read, &item_path(&self.batch.source_dir, item), mode).map_err(EndError::on_source)
    }

    fn read(&mut self, from: &OwnedFd, item: &BatchItem) -> Result<Content, EndError> {
        let content = self.on_source(Op::Read, item, item.metadata.size, |this| {
            this.sources.read(from, item, this.buffer)
        });
        // The name may mean another node by now: a FIFO or device neither reads nor seeks like a file.
        let mode = match &content {
            Ok(content) => Some(content.stat.st_mode),
            Err(_) => fstat(from).ok().map(|stat| stat.st_mode),
        };
        if let Some(mode) = mode {
            self.regular(item, mode)?;
        }
        content
    }

    /// Shares the source's blocks with a new file; `None` if the volume cannot. The file is made in both
    /// cases.
    fn reflink(
        &mut self,
        from: &OwnedFd,
        item: &BatchItem,
        made: &mut Option<Made>,
    ) -> Result<Option<Stat>, EndError> {
        // Private until the source's present attributes are known.
        let mut private = item.metadata.clone();
        private.mode = private.mode.map(|mode| mode & 0o600 | 0o200);
        let new = self.make(item, &private, &[])?;
        let shared = rustix::io::retry_on_intr(|| ioctl_ficlone(&new.fd, from)).is_ok();
        *made = Some(new);
        self.may_reflink = shared;
        if !shared {
            return Ok(None);
        }
        self.on_source(Op::Stat, item, 0, |_| fstat(from)).map(Some)
    }

    /// Returns the metadata for the copy: that of the walk, or fresh if the source was touched since.
    fn current<'i>(
        &self,
        from: &OwnedFd,
        item: &'i BatchItem,
        now: &Stat,
    ) -> Result<Cow<'i, Metadata>, EndError> {
        if !is_touched(now, &item.metadata) {
            return Ok(Cow::Borrowed(&item.metadata));
        }
        match stat::open(from) {
            Ok(fresh) => Ok(Cow::Owned(fresh)),
            Err(error) => Err(EndError::on_source(fault(
                Op::Stat,
                &item_path(&self.batch.source_dir, item),
                error,
            ))),
        }
    }

    fn xattrs(&self, from: &OwnedFd, item: &BatchItem) -> Result<Vec<Xattr>, EndError> {
        if !(self.batch.preserve.xattrs && self.source.capabilities.xattrs) {
            return Ok(Vec::new());
        }
        xattr::read(&Node::File(from.as_fd()), View::Raw).map_err(|error| {
            EndError::on_source(fault(Op::Xattr, &item_path(&self.batch.source_dir, item), error))
        })
    }

    fn make(&mut self, item: &BatchItem, metadata: &Metadata, xattrs: &[Xattr]) -> Result<Made, EndError> {
        self.on_target(Op::Create, item, 0, |this| {
            this.targets.make(item, metadata, xattrs)
        })
    }

    /// Writes the buffer, then reads and writes the rest of the file.
    fn transfer(
        &mut self,
        from: &OwnedFd,
        new: &Made,
        item: &BatchItem,
        content: &Content,
        done: &mut BatchDone,
    ) -> Result<(), EndError> {
        let mut length = content.length;
        let holes = (content.stat.st_blocks.max(0) as u64).saturating_mul(BLOCK_BYTES) < size(&content.stat);
        let algorithm = self.batch.hash;
        let mut hasher = algorithm.filter(|_| content.more).map(HashAlgorithm::hasher);
        let mut offset = 0u64;
        loop {
            if let Some(hasher) = &mut hasher {
                hasher.update(&self.buffer[..length]);
            }
            if length > 0 {
                self.on_target(Op::Write, item, length as u64, |this| {
                    target::write(&new.fd, &this.buffer[..length], offset, holes)
                })?;
            }
            offset += length as u64;
            if !content.more {
                break;
            }
            length = self.on_source(Op::Read, item, 0, |this| {
                rustix::io::retry_on_intr(|| rustix::io::pread(from, &mut *this.buffer, offset))
            })?;
            if length == 0 {
                let after = self.on_source(Op::Stat, item, 0, |_| fstat(from))?;
                let changed = !same(&content.stat, &after) || offset != size(&after);
                done.source_changed |= changed && !stat::is_made_up(from);
                break;
            }
        }
        if holes {
            self.on_target(Op::Write, item, 0, |_| target::set_length(&new.fd, offset))?;
        }
        done.hash = algorithm.map(|algorithm| match hasher {
            Some(hasher) => hasher.finish(),
            None => algorithm.hash(&self.buffer[..content.length]),
        });
        (done.read, done.sent, done.size) = (offset, offset, offset);
        Ok(())
    }

    fn on_source<T>(
        &mut self,
        op: Op,
        item: &BatchItem,
        length: u64,
        call: impl FnOnce(&mut Self) -> rustix::io::Result<T>,
    ) -> Result<T, EndError> {
        let started = self.source.trace.start();
        let result =
            call(self).map_err(|error| open_fault(op, &item_path(&self.batch.source_dir, item), error));
        if self.source.trace.on() {
            let path = item_path(&self.batch.source_dir, item);
            let value = result.as_ref().map_or_else(failure, |_| length as i64);
            self.source
                .trace
                .end(started, word(op), &path, (0, length), value);
        }
        result.map_err(EndError::on_source)
    }

    fn on_target<T>(
        &mut self,
        op: Op,
        item: &BatchItem,
        length: u64,
        call: impl FnOnce(&mut Self) -> rustix::io::Result<T>,
    ) -> Result<T, EndError> {
        let started = self.target.trace.start();
        let path = || self.batch.target_dir.join(&item.target);
        let path = self.target.trace.on().then(path);
        let result = call(self).map_err(|error| {
            let name = item.rename_to.as_ref().unwrap_or(&item.target);
            fault(op, &self.batch.target_dir.join(name), error)
        });
        if let Some(path) = path {
            let value = result.as_ref().map_or_else(failure, |_| length as i64);
            self.target
                .trace
                .end(started, word(op), &path, (0, length), value);
        }
        result.map_err(EndError::on_target)
    }
}

/// Returns the content record of a source of which nothing was read.
fn unread(stat: Stat, item: &BatchItem) -> Content {
    Content {
        length: 0,
        more: false,
        stat,
        changed: differs(&stat, &item.metadata),
    }
}

fn same_volume(from: &OwnedFd, to: &OwnedFd) -> bool {
    let volume = |fd| {
        stat::open(fd)
            .ok()
            .and_then(|metadata| metadata.id)
            .map(|id| id.volume)
    };
    volume(from).is_some() && volume(from) == volume(to)
}

fn item_path(dir: &RelPath, item: &BatchItem) -> RelPath {
    dir.join(&item.name)
}
