//! Open files, folders and links.

use std::any::Any;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ropeway_vfs::external::Watching;
use ropeway_vfs::posix::{Permissions, XattrSet};
use ropeway_vfs::store::{Access, Entries, Node, NodeChange, NodeStat, RangeLock, StreamInfo, StreamOpen};
use ropeway_vfs::{Error, ErrorKind, Extent, Kind, Name, Op, Result, Timestamp, Xattr};
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, StatxFlags, Timespec, Timestamps, UTIME_OMIT, fdatasync, fsync, ftruncate,
    futimens, openat, readlinkat, utimensat,
};
use rustix::io::Errno;

use super::descriptors::Handle;
use super::entries::LocalEntries;
use super::external_changes::Watched;
use super::open::MASK;
use super::root::failed;
use super::xattrs::{self, Target, node_stat};
use super::{Core, content, locks, posix, stream};
use crate::sys::sync_file_range;
use crate::winmeta::dos::{self, Dos};
use crate::{stat, xattr};

/// An open node of a [`LocalStore`](super::LocalStore).
pub(super) struct LocalNode {
    pub(super) core: Arc<Core>,
    pub(super) handle: Arc<Handle>,
    pub(super) kind: Kind,
    pub(super) access: Access,
}

impl LocalNode {
    pub(super) fn new(core: &Arc<Core>, handle: Handle, kind: Kind, access: Access) -> Self {
        Self {
            core: Arc::clone(core),
            handle: Arc::new(handle),
            kind,
            access,
        }
    }

    pub(super) fn failed(&self, op: Op) -> impl Fn(Errno) -> Error + '_ {
        move |error| failed(op, &self.handle.path(), error)
    }

    pub(super) fn refuse<T>(&self, op: Op, kind: ErrorKind) -> Result<T> {
        Err(Error::new(op, &self.handle.path(), kind))
    }

    /// Refuses operations on content for anything but files.
    pub(super) fn require_content(&self, op: Op) -> Result<()> {
        match self.kind {
            Kind::Directory => self.refuse(op, ErrorKind::IsADirectory),
            Kind::File => Ok(()),
            _ => self.refuse(op, ErrorKind::Misuse),
        }
    }

    fn change_dos(&self, change: &NodeChange) -> Result<()> {
        if self.kind == Kind::Symlink {
            // Links cannot have them (xattr(7)). Ignored, since clients that copy a link set its times in the
            // same request.
            return Ok(());
        }
        if !self.core.features.windows_metadata {
            return self.refuse(Op::SetAttributes, ErrorKind::Unsupported);
        }
        let target = Target::of(&self.handle)?;
        // Reading and writing the attribute must not interleave with another change.
        let lock = self.core.changing(self.handle.id());
        let _one = lock.lock();
        let mut kept = dos::read(&target.node()).map_err(self.failed(Op::SetAttributes))?;
        if let Some(attributes) = change.dos_attributes {
            kept.attributes = Dos::of_attributes(attributes).attributes;
        }
        kept.created = change.created.or(kept.created);
        dos::write(&target.node(), &kept).map_err(|error| xattrs::value_fault(&self.handle, error))
    }

    fn change_times(&self, change: &NodeChange) -> Result<()> {
        let times = Timestamps {
            last_access: timespec(change.accessed),
            last_modification: timespec(change.modified),
        };
        let fd = self.handle.fd(Op::SetAttributes)?;
        let result = if self.handle.is_path_only() {
            utimensat(&fd, c"", &times, AtFlags::EMPTY_PATH)
        } else {
            futimens(&fd, &times)
        };
        result.map_err(self.failed(Op::SetAttributes))
    }

    /// Sets times that the volume may be unable to store. The kernel then sets the nearest one without an
    /// error (utimensat(2)); this undoes such a change and refuses it.
    fn try_times(&self, change: &NodeChange) -> Result<()> {
        let before = self.true_stat()?;
        self.change_times(change)?;
        let now = self.true_stat()?;
        // Rounding to the volume's granularity is accepted: 2 s at most (FAT).
        let is_kept = |asked: Option<Timestamp>, kept: Timestamp| {
            asked.is_none_or(|asked| asked.equal_within(kept, 2_000_000_001))
        };
        if is_kept(change.accessed, now.accessed) && is_kept(change.modified, now.modified) {
            return Ok(());
        }
        self.change_times(&NodeChange {
            accessed: change.accessed.map(|_| before.accessed),
            modified: change.modified.map(|_| before.modified),
            ..NodeChange::default()
        })?;
        self.refuse(Op::SetAttributes, ErrorKind::Misuse)
    }

    /// Returns the attributes as the system has them.
    fn true_stat(&self) -> Result<NodeStat> {
        let fd = self.handle.fd(Op::Stat)?;
        let stat = stat::raw(&fd, MASK).map_err(self.failed(Op::Stat))?;
        let has_dos = matches!(self.kind, Kind::File | Kind::Directory);
        let dos = if !has_dos || !self.core.features.windows_metadata {
            Dos::default()
        } else {
            let node = match self.handle.is_path_only() {
                true => xattr::Node::Path(fd.as_fd()),
                false => xattr::Node::File(fd.as_fd()),
            };
            dos::read(&node).map_err(self.failed(Op::Stat))?
        };
        Ok(node_stat(&stat, dos))
    }
}

impl Node for LocalNode {
    fn access(&self) -> Access {
        self.access
    }

    fn stat(&self) -> Result<NodeStat> {
        self.true_stat().map(|stat| self.core.change_times.apply(stat))
    }

    fn birth(&self) -> Result<Option<Timestamp>> {
        let fd = self.handle.fd(Op::Stat)?;
        let stat = stat::raw(&fd, StatxFlags::BTIME).map_err(self.failed(Op::Stat))?;
        let has = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
        let birth = stat.stx_btime;
        Ok(has.then(|| Timestamp::from_unix(birth.tv_sec, birth.tv_nsec)))
    }

    fn change(&self, change: &NodeChange) -> Result<()> {
        if [change.accessed, change.modified].into_iter().any(is_unsure) {
            // First, so that a refusal changes nothing.
            self.try_times(change)?;
        }
        if change.created.is_some() || change.dos_attributes.is_some() {
            self.change_dos(change)?;
        }
        // Last, since the changes above touch these times.
        if change.accessed.is_some() || change.modified.is_some() {
            self.change_times(change)?;
        }
        if let Some(changed) = change.changed {
            self.core.change_times.tell(&self.true_stat()?, changed);
        }
        Ok(())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let fd = self.handle.fd(Op::Read)?;
        content::read(&fd, buffer, offset).map_err(self.failed(Op::Read))
    }

    fn in_memory(&self) -> bool {
        self.core.in_memory(self.handle.id())
    }

    fn read_cached(&self, buffer: &mut [u8], offset: u64) -> Result<Option<usize>> {
        let fd = self.handle.fd(Op::Read)?;
        if self.in_memory() {
            return content::read(&fd, buffer, offset)
                .map(Some)
                .map_err(self.failed(Op::Read));
        }
        content::read_cached(&fd, buffer, offset).map_err(self.failed(Op::Read))
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let fd = self.handle.fd(Op::Write)?;
        content::write(&fd, data, offset).map_err(self.failed(Op::Write))
    }

    fn set_len(&self, length: u64) -> Result<()> {
        self.require_content(Op::SetLength)?;
        let fd = self.handle.fd(Op::SetLength)?;
        match ftruncate(&fd, length) {
            // EINVAL: not opened for writing, or a length that no file can have.
            Err(Errno::INVAL) if self.access != Access::Write => {
                self.refuse(Op::SetLength, ErrorKind::PermissionDenied)
            }
            Err(Errno::INVAL) => self.refuse(Op::SetLength, ErrorKind::FileTooLarge),
            result => result.map_err(self.failed(Op::SetLength)),
        }
    }

    fn allocate(&self, length: u64) -> Result<()> {
        self.require_content(Op::SetLength)?;
        let fd = self.handle.fd(Op::SetLength)?;
        content::allocate(&fd, length).map_err(self.failed(Op::SetLength))
    }

    fn zero(&self, offset: u64, length: u64, hole: bool) -> Result<()> {
        self.require_content(Op::Write)?;
        let fd = self.handle.fd(Op::Write)?;
        content::zero(&fd, offset, length, hole).map_err(self.failed(Op::Write))
    }

    fn extents(&self, offset: u64, length: u64, max: usize) -> Result<Vec<Extent>> {
        self.require_content(Op::Extents)?;
        let fd = self.handle.fd(Op::Extents)?;
        content::extents(&fd, offset, length, max).map_err(self.failed(Op::Extents))
    }

    fn copy_from(&self, source: &dyn Node, source_offset: u64, offset: u64, length: u64) -> Result<u64> {
        self.require_content(Op::CopyRange)?;
        let Some(from) = source.as_any().downcast_ref::<LocalNode>() else {
            return stream::copy(self, source, source_offset, offset, length);
        };
        from.require_content(Op::CopyRange)?;
        let (source_fd, target) = (from.handle.fd(Op::CopyRange)?, self.handle.fd(Op::CopyRange)?);
        let copy = content::Copy {
            source: &source_fd,
            target: &target,
            source_offset,
            offset,
            length,
            same: self.handle.id() == from.handle.id(),
        };
        content::copy(&copy).map_err(self.failed(Op::CopyRange))
    }

    fn begin_sync(&self) -> Result<()> {
        if self.handle.is_path_only() || self.kind != Kind::File {
            return Ok(());
        }
        let fd = self.handle.fd(Op::Sync)?;
        let begun = sync_file_range(fd.as_fd(), 0, 0, false);
        begun.map_err(|error| {
            let code = error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
            self.failed(Op::Sync)(code)
        })
    }

    fn sync(&self) -> Result<()> {
        let fd = self.handle.fd(Op::Sync)?;
        if !self.handle.is_path_only() {
            return fsync(&fd).map_err(self.failed(Op::Sync));
        }
        if !matches!(self.kind, Kind::File | Kind::Directory) {
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        openat(CWD, xattr::proc_path(&fd), flags, Mode::empty())
            .and_then(fsync)
            .map_err(self.failed(Op::Sync))
    }

    fn entries(&self) -> Result<Box<dyn Entries>> {
        if self.kind != Kind::Directory {
            return self.refuse(Op::List, ErrorKind::NotADirectory);
        }
        let fd = self.handle.fd(Op::List)?;
        // A description of its own, so that listings do not share their position.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let again = || openat(&fd, c".", flags, Mode::empty());
        let dir = self.core.root.relieved(again).map_err(self.failed(Op::List))?;
        Ok(Box::new(LocalEntries::new(dir, self.handle.path(), &self.core)))
    }

    fn link_target(&self) -> Result<Vec<u8>> {
        if self.kind != Kind::Symlink {
            return self.refuse(Op::Stat, ErrorKind::Misuse);
        }
        let fd = self.handle.fd(Op::Stat)?;
        readlinkat(&fd, c"", Vec::new())
            .map(std::ffi::CString::into_bytes)
            .map_err(self.failed(Op::Stat))
    }

    fn streams(&self) -> Result<Vec<StreamInfo>> {
        stream::list(self)
    }

    fn open_stream(&self, name: &Name, how: &StreamOpen) -> Result<(Arc<dyn Node>, bool)> {
        stream::open(self, name, how)
    }

    fn remove_stream(&self, name: &Name) -> Result<()> {
        stream::remove(self, name)
    }

    fn rename_stream(&self, name: &Name, to: &Name, replace: bool) -> Result<()> {
        stream::rename(self, name, to, replace)
    }

    fn security(&self) -> Result<Option<Vec<u8>>> {
        xattrs::security(&self.handle)
    }

    fn set_security(&self, descriptor: &[u8]) -> Result<()> {
        xattrs::set_security(&self.handle, self.kind, descriptor)
    }

    fn eas(&self) -> Result<Vec<Xattr>> {
        xattrs::eas(&self.handle)
    }

    fn set_ea(&self, name: &[u8], value: &[u8]) -> Result<()> {
        xattrs::set_ea(&self.handle, self.kind, name, value)
    }

    fn watch(&self, below: bool) -> Result<Watching> {
        let what = Watched {
            handle: &self.handle,
            directory: self.kind == Kind::Directory,
            below,
        };
        let core = &self.core;
        core.watcher.watch(&core.descriptors, &what).map(Watching::new)
    }

    fn lock_range(&self, first: u64, last: u64, lock: RangeLock) -> Result<bool> {
        locks::set(self, first, last, lock)
    }

    fn is_range_locked(&self, first: u64, last: u64, write: bool) -> Result<bool> {
        locks::is_locked(self, first, last, write)
    }

    fn sync_data(&self) -> Result<()> {
        if self.handle.is_path_only() {
            return self.sync();
        }
        let fd = self.handle.fd(Op::Sync)?;
        fdatasync(&fd).map_err(self.failed(Op::Sync))
    }

    fn set_permissions(&self, permissions: &Permissions) -> Result<()> {
        posix::set_permissions(self, permissions)
    }

    fn device(&self) -> Result<Option<(u32, u32)>> {
        posix::device(self)
    }

    fn reserve(&self, offset: u64, length: u64) -> Result<()> {
        self.require_content(Op::SetLength)?;
        let fd = self.handle.fd(Op::SetLength)?;
        content::reserve(&fd, offset, length).map_err(self.failed(Op::SetLength))
    }

    fn xattr_names(&self) -> Result<Vec<Vec<u8>>> {
        posix::xattr_names(self)
    }

    fn xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        posix::xattr(self, name)
    }

    fn set_xattr(&self, name: &[u8], value: &[u8], how: XattrSet) -> Result<()> {
        posix::set_xattr(self, name, value, how)
    }

    fn remove_xattr(&self, name: &[u8]) -> Result<()> {
        posix::remove_xattr(self, name)
    }

    fn content_descriptor(&self) -> Option<Arc<OwnedFd>> {
        let is_content = self.kind == Kind::File && !self.handle.is_path_only();
        is_content.then(|| self.handle.fd(Op::Open).ok()).flatten()
    }

    fn unflushed_bytes(&self) -> Option<u64> {
        let fd = self.content_descriptor()?;
        let [dirty, writeback] = crate::sys::unflushed_bytes(fd.as_fd()).ok()?;
        let size = rustix::fs::fstat(&fd).ok()?.st_size.max(0) as u64;
        Some(dirty.saturating_add(writeback).min(size))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Whether some volumes cannot store the time: every one can store 1970 to 2038.
fn is_unsure(time: Option<Timestamp>) -> bool {
    time.is_some_and(|time| !(0..=i64::from(i32::MAX)).contains(&time.to_unix().0))
}

fn timespec(time: Option<Timestamp>) -> Timespec {
    let Some(time) = time else {
        return Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        };
    };
    let (seconds, nanoseconds) = time.to_unix();
    Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds.into(),
    }
}
