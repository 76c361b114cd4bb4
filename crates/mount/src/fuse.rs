//! FUSE requests as calls of [`Fs`].
//!
//! Each request is answered on the thread that took it from the kernel; only waits for locks are
//! parked. A panic becomes EIO, so that no program waits forever.

mod convert;
mod passing;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, TimeOrNow, WriteFlags,
};
use ropeway_vfs::posix::NewKind;
use rustix::io::Errno;

use self::convert::{
    BUFFER, F_RDLCK, F_UNLCK, F_WRLCK, O_APPEND, O_EXCL, access_of, caller, configure, errno, guarded,
    lock_request, nameless, new_kind, rename_mode, requester, send_value, time_of, xattr_set,
};
use self::passing::Passing;
use crate::errno::Answer;
use crate::fs::{Change, Creation, Fs, Renaming};

/// A node's number never stands for another node while the kernel knows it.
const GENERATION: Generation = Generation(0);

/// The file system that fuser calls.
pub(crate) struct Fuse {
    fs: Arc<Fs>,
    passing: Passing,
}

impl Fuse {
    /// Makes the file system. With `passes` the kernel reads and writes files of a disk by itself,
    /// where it can.
    pub(crate) fn new(fs: Arc<Fs>, passes: bool) -> Self {
        let passing = Passing::new(Arc::clone(&fs), passes);
        Self { fs, passing }
    }

    /// Answers a request; a panic becomes EIO.
    fn ask<T>(&self, by: &fuser::Request, what: impl FnOnce(&Fs) -> Answer<T>) -> Result<T, fuser::Errno> {
        self.fs.count();
        guarded(|| requester(by).ask(|| what(&self.fs))).map_err(errno)
    }
}

/// Sends the answer to a request.
macro_rules! send {
    ($result:expr, $reply:ident, |$value:pat_param| $good:expr) => {
        match $result {
            Ok($value) => $good,
            Err(error) => $reply.error(error),
        }
    };
}

impl Filesystem for Fuse {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        self.passing
            .configured(configure(config, self.passing.is_wanted()));
        Ok(())
    }

    fn destroy(&mut self) {
        self.fs.end();
    }

    fn lookup(&self, by: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.ask(by, |fs| fs.lookup(parent.0, name.as_bytes()));
        send!(found, reply, |attributes| reply.entry(
            &self.fs.lifetime(),
            &attributes,
            GENERATION
        ));
    }

    fn forget(&self, by: &fuser::Request, ino: INodeNo, lookups: u64) {
        let _ = self.ask(by, |fs| {
            fs.forget(ino.0, lookups);
            Ok(())
        });
    }

    fn getattr(&self, by: &fuser::Request, ino: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        let found = self.ask(by, |fs| fs.attributes(ino.0, handle.map(|handle| handle.0)));
        send!(found, reply, |attributes| reply
            .attr(&self.fs.lifetime(), &attributes));
    }

    fn setattr(
        &self,
        by: &fuser::Request,
        ino: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = Change {
            mode,
            user,
            group,
            size,
            accessed: accessed.map(time_of),
            modified: modified.map(time_of),
        };
        let handle = handle.map(|handle| handle.0);
        let changed = self.ask(by, |fs| fs.change(caller(by), ino.0, handle, &change));
        send!(changed, reply, |attributes| reply
            .attr(&self.fs.lifetime(), &attributes));
    }

    fn readlink(&self, by: &fuser::Request, ino: INodeNo, reply: ReplyData) {
        send!(self.ask(by, |fs| fs.read_link(ino.0)), reply, |target| reply
            .data(&target));
    }

    fn mknod(
        &self,
        by: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let made = self.ask(by, |fs| {
            let (parent, name, kind) = (parent.0, name.as_bytes(), new_kind(mode, device)?);
            let creation = Creation {
                parent,
                name,
                kind,
                mode,
                umask,
            };
            fs.make(caller(by), &creation)
        });
        send!(made, reply, |attributes| reply.entry(
            &self.fs.lifetime(),
            &attributes,
            GENERATION
        ));
    }

    fn mkdir(
        &self,
        by: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let (parent, name, kind) = (parent.0, name.as_bytes(), NewKind::Directory);
        let creation = Creation {
            parent,
            name,
            kind,
            mode,
            umask,
        };
        let made = self.ask(by, |fs| fs.make(caller(by), &creation));
        send!(made, reply, |attributes| reply.entry(
            &self.fs.lifetime(),
            &attributes,
            GENERATION
        ));
    }

    fn unlink(&self, by: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        send!(
            self.ask(by, |fs| fs.remove(parent.0, name.as_bytes(), false)),
            reply,
            |()| reply.ok()
        );
    }

    fn rmdir(&self, by: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        send!(
            self.ask(by, |fs| fs.remove(parent.0, name.as_bytes(), true)),
            reply,
            |()| reply.ok()
        );
    }

    fn symlink(&self, by: &fuser::Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let creation = Creation {
            parent: parent.0,
            name: name.as_bytes(),
            kind: NewKind::Symlink(target.as_os_str().as_bytes()),
            mode: 0o777,
            umask: 0,
        };
        let made = self.ask(by, |fs| fs.make(caller(by), &creation));
        send!(made, reply, |attributes| reply.entry(
            &self.fs.lifetime(),
            &attributes,
            GENERATION
        ));
    }

    fn rename(
        &self,
        by: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let renamed = self.ask(by, |fs| {
            let mode = rename_mode(flags)?;
            let from = (parent.0, name.as_bytes());
            let to = (new_parent.0, new_name.as_bytes());
            fs.rename(&Renaming { from, to, mode })
        });
        send!(renamed, reply, |()| reply.ok());
    }

    fn link(&self, by: &fuser::Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let linked = self.ask(by, |fs| fs.link(ino.0, parent.0, name.as_bytes()));
        send!(linked, reply, |attributes| reply.entry(
            &self.fs.lifetime(),
            &attributes,
            GENERATION
        ));
    }

    fn open(&self, by: &fuser::Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let opened = self.ask(by, |fs| fs.open_for(by.pid(), ino.0, access_of(flags)));
        send!(opened, reply, |(handle, is_kept)| {
            self.passing.opened(ino.0, handle, is_kept, reply);
        });
    }

    fn read(
        &self,
        by: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        BUFFER.with_borrow_mut(|buffer| {
            let size = size as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            let read = self.ask(by, |fs| fs.read(handle.0, &mut buffer[..size], offset));
            send!(read, reply, |count| reply.data(&buffer[..count]));
        });
    }

    fn write(
        &self,
        by: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // What a memory map changed already has its place.
        let appends = flags.0 & O_APPEND != 0 && !write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let kills = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let written = self.ask(by, |fs| fs.write(handle.0, data, offset, appends, kills));
        // A request has at most REQUEST_BYTES.
        send!(written, reply, |()| reply.written(data.len() as u32));
    }

    fn flush(
        &self,
        by: &fuser::Request,
        ino: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        send!(
            self.ask(by, |fs| fs.flush(ino.0, handle.0, owner.0)),
            reply,
            |()| { reply.ok() }
        );
    }

    fn release(
        &self,
        by: &fuser::Request,
        ino: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let released = self.ask(by, |fs| {
            fs.release(ino.0, handle.0);
            self.passing.closed(ino.0, handle.0);
            Ok(())
        });
        send!(released, reply, |()| reply.ok());
    }

    fn fsync(&self, by: &fuser::Request, _: INodeNo, handle: FileHandle, only_data: bool, reply: ReplyEmpty) {
        send!(self.ask(by, |fs| fs.sync(handle.0, only_data)), reply, |()| reply
            .ok());
    }

    fn opendir(&self, by: &fuser::Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let opened = self.ask(by, |fs| fs.open_folder(ino.0));
        send!(opened, reply, |handle| reply
            .opened(FileHandle(handle), FopenFlags::empty()));
    }

    fn readdir(
        &self,
        by: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.ask(by, |fs| {
            fs.list(handle.0, offset, false, |entry| {
                reply.add(
                    INodeNo(entry.ino),
                    entry.next,
                    entry.kind,
                    OsStr::from_bytes(entry.name),
                )
            })
        });
        send!(listed, reply, |()| reply.ok());
    }

    fn readdirplus(
        &self,
        by: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let lifetime = self.fs.lifetime();
        let listed = self.ask(by, |fs| {
            fs.list(handle.0, offset, true, |entry| {
                // The kernel ignores the attributes of `.` and `..`.
                let attributes = entry.attributes.unwrap_or_else(|| nameless(entry.ino));
                let name = OsStr::from_bytes(entry.name);
                reply.add(
                    INodeNo(entry.ino),
                    entry.next,
                    name,
                    &lifetime,
                    &attributes,
                    GENERATION,
                )
            })
        });
        send!(listed, reply, |()| reply.ok());
    }

    fn releasedir(
        &self,
        by: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        let released = self.ask(by, |fs| {
            fs.close_folder(handle.0);
            Ok(())
        });
        send!(released, reply, |()| reply.ok());
    }

    fn fsyncdir(&self, by: &fuser::Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        send!(self.ask(by, |fs| fs.sync_folder(handle.0)), reply, |()| reply
            .ok());
    }

    fn statfs(&self, by: &fuser::Request, _: INodeNo, reply: ReplyStatfs) {
        send!(self.ask(by, Fs::space), reply, |space| {
            let (nodes, available) = (space.nodes, space.available);
            reply.statfs(
                space.total,
                available,
                available,
                nodes,
                nodes,
                space.unit,
                space.name_max,
                space.unit,
            );
        });
    }

    fn setxattr(
        &self,
        by: &fuser::Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let how = xattr_set(flags);
        let set = self.ask(by, |fs| fs.set_xattr(ino.0, name.as_bytes(), value, how));
        send!(set, reply, |()| reply.ok());
    }

    fn getxattr(&self, by: &fuser::Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let value = self.ask(by, |fs| fs.xattr(ino.0, name.as_bytes()));
        send!(value, reply, |value| send_value(&value, size, reply));
    }

    fn listxattr(&self, by: &fuser::Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.ask(by, |fs| fs.xattr_names(ino.0));
        send!(names, reply, |names| send_value(&names, size, reply));
    }

    fn removexattr(&self, by: &fuser::Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        send!(
            self.ask(by, |fs| fs.remove_xattr(ino.0, name.as_bytes())),
            reply,
            |()| reply.ok()
        );
    }

    fn access(&self, _: &fuser::Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        // The kernel checks modes and ACLs itself (default_permissions).
        reply.ok();
    }

    fn create(
        &self,
        by: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (parent, name, kind) = (parent.0, name.as_bytes(), NewKind::File);
        let creation = Creation {
            parent,
            name,
            kind,
            mode,
            umask,
        };
        let access = access_of(OpenFlags(flags));
        let is_exclusive = flags & O_EXCL != 0;
        let made = self.ask(by, |fs| fs.create(caller(by), &creation, access, is_exclusive));
        send!(made, reply, |(attributes, handle)| {
            self.passing.created(&attributes, handle, reply);
        });
    }

    fn getlk(
        &self,
        by: &fuser::Request,
        ino: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        first: u64,
        last: u64,
        kind: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        let found = self.ask(by, |fs| {
            let request = lock_request((ino, handle, owner), (first, last), kind, pid)?;
            fs.lock_conflict(&request)
        });
        send!(found, reply, |held| match held {
            None => reply.locked(first, last, F_UNLCK, 0),
            Some(held) => {
                let kind = if held.is_exclusive { F_WRLCK } else { F_RDLCK };
                reply.locked(held.span.first, held.span.last, kind, held.pid);
            }
        });
    }

    fn setlk(
        &self,
        by: &fuser::Request,
        ino: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        first: u64,
        last: u64,
        kind: i32,
        pid: u32,
        waits: bool,
        reply: ReplyEmpty,
    ) {
        let (fs, caller) = (Arc::clone(&self.fs), caller(by));
        let asked = self.ask(by, |_| {
            lock_request((ino, handle, owner), (first, last), kind, pid)
        });
        send!(asked, reply, |request| {
            let send = move |answer: Answer<()>| match answer {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno(error)),
            };
            // A panic drops the reply, and fuser answers EIO.
            let _ = guarded(|| {
                fs.lock(caller, request, waits, Box::new(send));
                Ok(())
            });
        });
    }

    fn fallocate(
        &self,
        by: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        send!(
            self.ask(by, |fs| fs.allocate(handle.0, offset, length, mode)),
            reply,
            |()| reply.ok()
        );
    }

    fn lseek(
        &self,
        by: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let found = self.ask(by, |fs| {
            let offset = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
            fs.seek(handle.0, offset, whence)
        });
        send!(found, reply, |at| reply
            .offset(i64::try_from(at).unwrap_or(i64::MAX)));
    }

    fn copy_file_range(
        &self,
        by: &fuser::Request,
        _: INodeNo,
        source: FileHandle,
        source_offset: u64,
        _: INodeNo,
        target: FileHandle,
        offset: u64,
        length: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let copied = self.ask(by, |fs| {
            fs.copy((source.0, source_offset), (target.0, offset), length)
        });
        // A copy is bounded well below 4 GiB.
        send!(copied, reply, |count| reply
            .written(u32::try_from(count).unwrap_or(u32::MAX)));
    }
}
