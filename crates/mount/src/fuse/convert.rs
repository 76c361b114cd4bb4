//! Conversions between FUSE's values and those of the operations.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::SystemTime;

use fuser::{
    FileHandle, FileType, INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags,
    ReplyXattr, TimeOrNow,
};
use ropeway_vfs::Timestamp;
use ropeway_vfs::posix::{NewKind, RenameMode, XattrSet};
use ropeway_vfs::store::{Access, RangeLock};
use ropeway_vfs::trace::Requester;
use rustix::io::Errno;

use crate::errno::Answer;
use crate::fs::Caller;
use crate::locks::{Request, Span};
use crate::view::{decode_device, timestamp};

thread_local! {
    /// Reads go through one buffer for each thread: allocating a mebibyte each time costs page faults.
    pub(super) static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Largest write and read of one request, in bytes (256 pages, the kernel's limit by default).
pub(super) const REQUEST_BYTES: u32 = 1 << 20;

/// Reads ahead and the like that the kernel may have under way at once (a guess).
pub(super) const BACKGROUND_MAX: u16 = 64;

/// What the adapter wants of the kernel, where it has it.
pub(super) const WANTED: [InitFlags; 9] = [
    // Names in one folder are looked up in parallel.
    InitFlags::FUSE_PARALLEL_DIROPS,
    // Changes behind the mount show in the attributes; then the kernel drops what it has in memory.
    InitFlags::FUSE_AUTO_INVAL_DATA,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_POSIX_LOCKS,
    // The store applies the umask, since a default ACL replaces it.
    InitFlags::FUSE_DONT_MASK,
    InitFlags::FUSE_POSIX_ACL,
    // Without it each write asks for security.capability.
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_ASYNC_DIO,
];

/// Kinds of nodes in a mode (inode(7)).
pub(super) const KIND_MASK: u32 = 0o170_000;

/// Flags of setxattr(2).
pub(super) const XATTR_CREATE: i32 = 1;
pub(super) const XATTR_REPLACE: i32 = 2;

/// Types of fcntl(2) locks.
pub(super) const F_RDLCK: i32 = 0;
pub(super) const F_WRLCK: i32 = 1;
pub(super) const F_UNLCK: i32 = 2;

/// Flags of open(2) (asm-generic/fcntl.h, as on x86, Arm and RISC-V).
pub(super) const O_APPEND: i32 = 0o2000;
pub(super) const O_EXCL: i32 = 0o200;

pub(super) fn guarded<T>(what: impl FnOnce() -> Answer<T>) -> Answer<T> {
    catch_unwind(AssertUnwindSafe(what)).unwrap_or_else(|_| {
        tracing::error!("an operation of the mount panicked; its program gets EIO");
        Err(Errno::IO)
    })
}

pub(super) fn errno(error: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(error.raw_os_error())
}

/// Returns the process that asks; 0 is the kernel itself.
pub(super) fn requester(request: &fuser::Request) -> Requester {
    Requester {
        connection: None,
        process: Some(request.pid()).filter(|process| *process != 0),
    }
}

pub(super) fn caller(request: &fuser::Request) -> Caller {
    Caller {
        user: request.uid(),
        group: request.gid(),
        thread: request.pid(),
    }
}

pub(super) fn access_of(flags: OpenFlags) -> Access {
    match flags.acc_mode() {
        OpenAccMode::O_RDONLY => Access::Read,
        OpenAccMode::O_WRONLY | OpenAccMode::O_RDWR => Access::Write,
    }
}

pub(super) fn time_of(time: TimeOrNow) -> Timestamp {
    timestamp(match time {
        TimeOrNow::SpecificTime(time) => time,
        TimeOrNow::Now => SystemTime::now(),
    })
}

/// Sends a value, or its size if the program asks for that.
pub(super) fn send_value(value: &[u8], size: u32, reply: ReplyXattr) {
    match size {
        0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
        size if value.len() > size as usize => reply.error(fuser::Errno::ERANGE),
        _ => reply.data(value),
    }
}

pub(super) fn lock_request(
    (ino, handle, owner): (INodeNo, FileHandle, LockOwner),
    (first, last): (u64, u64),
    kind: i32,
    pid: u32,
) -> Answer<Request> {
    let lock = match kind {
        F_RDLCK => RangeLock::Shared,
        F_WRLCK => RangeLock::Exclusive,
        F_UNLCK => RangeLock::None,
        _ => return Err(Errno::INVAL),
    };
    Ok(Request {
        ino: ino.0,
        handle: handle.0,
        owner: owner.0,
        pid,
        span: Span { first, last },
        lock,
    })
}

/// Attributes for an entry whose attributes do not matter.
pub(super) fn nameless(ino: u64) -> fuser::FileAttr {
    fuser::FileAttr {
        ino: INodeNo(ino),
        size: 0,
        blocks: 0,
        atime: SystemTime::UNIX_EPOCH,
        mtime: SystemTime::UNIX_EPOCH,
        ctime: SystemTime::UNIX_EPOCH,
        crtime: SystemTime::UNIX_EPOCH,
        kind: FileType::Directory,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

/// Sets what the adapter wants of the kernel; `passes` that it may read and write files by itself.
/// Returns whether it will.
pub(super) fn configure(config: &mut KernelConfig, passes: bool) -> bool {
    for flag in WANTED {
        // An older kernel does without.
        let _ = config.add_capabilities(flag);
    }
    let _ = config.set_max_write(REQUEST_BYTES);
    if let Err(most) = config.set_max_readahead(REQUEST_BYTES) {
        let _ = config.set_max_readahead(most);
    }
    let _ = config.set_max_background(BACKGROUND_MAX);
    // A depth of 1 still allows an overlay file system over the mount.
    passes
        && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
        && config.set_max_stack_depth(1).is_ok()
}

/// The kind of node that mknod(2) makes.
pub(super) fn new_kind(mode: u32, device: u32) -> Answer<NewKind<'static>> {
    let (major, minor) = decode_device(device);
    match mode & KIND_MASK {
        0 | 0o100_000 => Ok(NewKind::File),
        0o010_000 => Ok(NewKind::Fifo),
        0o140_000 => Ok(NewKind::Socket),
        0o020_000 => Ok(NewKind::CharDevice(major, minor)),
        0o060_000 => Ok(NewKind::BlockDevice(major, minor)),
        _ => Err(Errno::INVAL),
    }
}

/// What a rename does with a node that has the new name.
pub(super) fn rename_mode(flags: RenameFlags) -> Answer<RenameMode> {
    match flags {
        flags if flags.is_empty() => Ok(RenameMode::Replace),
        RenameFlags::RENAME_NOREPLACE => Ok(RenameMode::Keep),
        RenameFlags::RENAME_EXCHANGE => Ok(RenameMode::Exchange),
        _ => Err(Errno::INVAL),
    }
}

/// Whether an extended attribute must exist.
pub(super) fn xattr_set(flags: i32) -> XattrSet {
    match flags {
        XATTR_CREATE => XattrSet::Create,
        XATTR_REPLACE => XattrSet::Replace,
        _ => XattrSet::Any,
    }
}
