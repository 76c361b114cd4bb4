//! Opens regular files and chooses their page cache policy.

use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ropeway_vfs::{CacheMode, Create, Error, ErrorKind, Kind, Op, OpenOptions, RelPath, Result};
use rustix::fs::{Mode, OFlags, Statx, StatxFlags, fchmod};
use rustix::io::Errno;

use crate::beneath::{fault, not_regular, open_fault};
use crate::cache::{CACHE_LEAVE_MIN, CacheFollower};
use crate::executor::mode_is_masked;
use crate::io::DONTCACHE;
use crate::stat;
use crate::tree::Inner;

/// Alignment for direct I/O if the kernel does not report it (before Linux 6.1): larger than any sector
/// in use.
const DIRECT_ALIGN_DEFAULT: u32 = 4096;

/// Alignment of blocks (see ropeway_block). Volumes that need more get no direct I/O.
const DIRECT_ALIGN_MAX: u32 = ropeway_block::ALIGNMENT as u32;

/// An offset beyond every file, for reads that transfer nothing.
const FAR_OFFSET: u64 = 1 << 62;

/// An opened file.
pub(crate) struct Opened {
    pub(crate) fd: Arc<OwnedFd>,
    pub(crate) direct: Option<Direct>,
    pub(crate) policy: CachePolicy,
    /// The policy holds for accesses that reach beyond this offset.
    pub(crate) policy_from: u64,
    /// Whether the file was empty when opened, so that nothing of it was cached.
    pub(crate) was_empty: bool,
}

/// A second description of the file that bypasses the page cache.
pub(crate) struct Direct {
    pub(crate) fd: Arc<OwnedFd>,
    /// Offsets and lengths are multiples of this.
    pub(crate) align: usize,
    /// Memory addresses are multiples of this.
    pub(crate) memory_align: usize,
}

/// How buffered I/O treats the page cache.
pub(crate) enum CachePolicy {
    /// As usual: pages stay.
    Keep,
    /// The kernel leaves the cache as it was (`RWF_DONTCACHE`).
    DontCache,
    /// This program leaves the cache as it was.
    Follow(Arc<CacheFollower>),
}

/// Opens, and creates if asked, a regular file. Never waits on a FIFO and never follows a link.
pub(crate) fn open(tree: &Inner, path: &RelPath, options: OpenOptions) -> Result<Opened> {
    let op = if options.create == Create::No {
        Op::Open
    } else {
        Op::Create
    };
    let fd = open_regular(tree, op, path, options)?;
    let mask = StatxFlags::BASIC_STATS | StatxFlags::DIOALIGN;
    let stat = stat::raw(&fd, mask).map_err(|error| fault(op, path, error))?;
    require_regular(op, path, u32::from(stat.stx_mode))?;
    let fd = Arc::new(fd);
    let direct = match options.cache {
        CacheMode::Direct => open_direct(tree, path, options.write, &stat),
        _ => None,
    };
    let (leave, policy_from) = match options.cache {
        CacheMode::Keep => (false, 0),
        CacheMode::Leave | CacheMode::Direct => (true, 0),
        CacheMode::Auto if stat.stx_size >= CACHE_LEAVE_MIN => (true, 0),
        // A file that grows beyond the threshold leaves the cache alone from there on.
        CacheMode::Auto => (options.write, CACHE_LEAVE_MIN),
    };
    let policy = match leave {
        false => CachePolicy::Keep,
        true if tree.takes_dontcache(&fd, stat::volume(&stat)) => CachePolicy::DontCache,
        true => CachePolicy::Follow(Arc::new(CacheFollower::new(&fd))),
    };
    Ok(Opened {
        fd,
        direct,
        policy,
        policy_from,
        was_empty: stat.stx_size == 0,
    })
}

/// Whether reads and writes of an open file take `RWF_DONTCACHE`.
pub(crate) fn probe_dontcache(fd: &OwnedFd) -> bool {
    let mut byte = [0];
    // Reads nothing: the kernel checks the flag before the offset.
    rustix::io::preadv2(fd, &mut [IoSliceMut::new(&mut byte)], FAR_OFFSET, DONTCACHE).is_ok()
}

/// Returns an error unless the mode is that of a regular file.
pub(crate) fn require_regular(op: Op, path: &RelPath, mode: u32) -> Result<()> {
    match stat::kind(mode) {
        Kind::File => Ok(()),
        Kind::Directory => Err(Error::new(op, path, ErrorKind::IsADirectory)),
        _ => Err(not_regular(op, path)),
    }
}

fn open_regular(tree: &Inner, op: Op, path: &RelPath, options: OpenOptions) -> Result<OwnedFd> {
    let mut flags = OFlags::NONBLOCK;
    flags |= if options.write {
        OFlags::RDWR
    } else {
        OFlags::RDONLY | OFlags::NOATIME
    };
    let (create, mode) = match options.create {
        Create::No => (OFlags::empty(), 0),
        Create::New => (OFlags::CREATE | OFlags::EXCL, options.mode & 0o7777),
        Create::IfMissing => (OFlags::CREATE, options.mode & 0o7777),
        Create::Truncate => (OFlags::CREATE | OFlags::TRUNC, options.mode & 0o7777),
    };
    let mut opened = None;
    if options.create != Create::No && mode_is_masked(mode) {
        // The mode must be set only if the file is new, so try to make it exclusively first.
        match open_retrying(tree, path, flags | OFlags::CREATE | OFlags::EXCL, mode) {
            Ok(fd) => {
                fchmod(&fd, Mode::from_raw_mode(mode)).map_err(|error| fault(op, path, error))?;
                opened = Some(Ok(fd));
            }
            Err(Errno::EXIST) if options.create != Create::New => {}
            Err(error) => opened = Some(Err(error)),
        }
    }
    opened
        .unwrap_or_else(|| open_retrying(tree, path, flags | create, mode))
        .map_err(|error| open_fault(op, path, error))
}

/// Opens; repeats without what may be forbidden: O_NOATIME, and reading a file opened for writing.
fn open_retrying(tree: &Inner, path: &RelPath, flags: OFlags, mode: u32) -> rustix::io::Result<OwnedFd> {
    match tree.root.open_at(path, flags, mode) {
        Err(Errno::PERM) if flags.contains(OFlags::NOATIME) => {
            tree.root.open_at(path, flags.difference(OFlags::NOATIME), mode)
        }
        Err(Errno::ACCESS) if flags.contains(OFlags::RDWR) => {
            tree.root
                .open_at(path, flags.difference(OFlags::RDWR) | OFlags::WRONLY, mode)
        }
        result => result,
    }
}

/// Opens the same file again for direct I/O; `None` if that is refused.
fn open_direct(tree: &Inner, path: &RelPath, write: bool, stat: &Statx) -> Option<Direct> {
    let told = stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    let (align, memory_align) = if told {
        (stat.stx_dio_offset_align, stat.stx_dio_mem_align)
    } else {
        (DIRECT_ALIGN_DEFAULT, DIRECT_ALIGN_DEFAULT)
    };
    if align == 0 || align > DIRECT_ALIGN_MAX || memory_align > DIRECT_ALIGN_MAX {
        return None;
    }
    let access = if write {
        OFlags::RDWR
    } else {
        OFlags::RDONLY | OFlags::NOATIME
    };
    let fd = open_retrying(tree, path, access | OFlags::DIRECT | OFlags::NONBLOCK, 0).ok()?;
    let again = stat::raw(&fd, StatxFlags::INO).ok()?;
    // Another program may have put another file in its place meanwhile.
    let same = again.stx_ino == stat.stx_ino && stat::volume(&again) == stat::volume(stat);
    same.then(|| Direct {
        fd: Arc::new(fd),
        align: align as usize,
        memory_align: memory_align.max(1) as usize,
    })
}
