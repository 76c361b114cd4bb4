//! Source side of a batch: opens files, ahead if they are not cached, and reads them whole.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ropeway_vfs::{BatchItem, Metadata, Timestamp};
use rustix::fs::{Advice, Mode, OFlags, Stat, fadvise, fstat, openat};
use rustix::io::{Errno, ReadWriteFlags};

use crate::stat;

/// Number of sources opened ahead if reads come from the device. 32 reads in flight for each of two
/// threads keep an NVMe drive busy and let a disk sort.
const AHEAD: usize = 32;

/// If a volume does not report it: a read that took longer came from a device, not from memory (a guess: a
/// page from memory takes 5 µs, one from a fast device 80 µs).
const COLD_READ: Duration = Duration::from_micros(100);

/// Number of times a file is read again if it changes while being read.
const REREADS_MAX: usize = 2;

/// The files of a batch, in order.
pub(super) struct Sources<'a> {
    dir: Arc<OwnedFd>,
    items: &'a [BatchItem],
    ahead: VecDeque<rustix::io::Result<OwnedFd>>,
    next: usize,
    cold: bool,
    /// Whether the volume supports reads that must not wait.
    may_ask: bool,
    user: u32,
}

/// Result of reading a file.
pub(super) struct Content {
    /// Bytes in the buffer.
    pub(super) length: usize,
    /// Whether the file goes on beyond the buffer.
    pub(super) more: bool,
    /// The file after it was read.
    pub(super) stat: Stat,
    /// Whether it differs from what the walk saw, or changed while being read.
    pub(super) changed: bool,
}

impl<'a> Sources<'a> {
    pub(super) fn new(dir: Arc<OwnedFd>, items: &'a [BatchItem]) -> Self {
        let user = rustix::process::geteuid().as_raw();
        Self {
            dir,
            items,
            ahead: VecDeque::new(),
            next: 0,
            cold: false,
            may_ask: true,
            user,
        }
    }

    /// Returns the next file, open. Files are taken in the order of the items.
    pub(super) fn take(&mut self) -> rustix::io::Result<OwnedFd> {
        if self.cold {
            self.open_ahead();
        }
        self.ahead.pop_front().unwrap_or_else(|| {
            let opened = self.open(self.next);
            self.next += 1;
            opened
        })
    }

    /// Reads a file whole, up to the size of the buffer; repeats while it changes.
    pub(super) fn read(
        &mut self,
        fd: &OwnedFd,
        item: &BatchItem,
        buffer: &mut [u8],
    ) -> rustix::io::Result<Content> {
        let seen = &item.metadata;
        let mut length = self.fill(fd, seen.size, buffer)?;
        let mut stat = fstat(fd)?;
        let mut changed = differs(&stat, seen) || is_short(length, &stat, buffer);
        // A modification time can be set back: whatever was touched is read until it stands still.
        if changed && stat::is_made_up(fd) {
            changed = false;
        } else if changed || is_touched(&stat, seen) {
            let mut stood_still = false;
            for _ in 0..REREADS_MAX {
                length = self.fill(fd, size(&stat), buffer)?;
                let after = fstat(fd)?;
                stood_still = same(&stat, &after) && !is_short(length, &after, buffer);
                stat = after;
                if stood_still {
                    break;
                }
            }
            changed = !stood_still || differs(&stat, seen);
        }
        Ok(Content {
            length,
            more: length == buffer.len(),
            stat,
            changed,
        })
    }

    /// Reads `expected` bytes or up to the end; to the end if 0 are expected (files of the kernel report 0).
    fn fill(&mut self, fd: &OwnedFd, expected: u64, buffer: &mut [u8]) -> rustix::io::Result<usize> {
        let expected = expected.min(buffer.len() as u64) as usize;
        let mut length = 0;
        while length < expected || (expected == 0 && length < buffer.len()) {
            match self.read_once(fd, &mut buffer[length..], length as u64) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(length)
    }

    /// Reads a file whole, up to the size of the buffer, without examining it. If it has `expected` bytes, one
    /// call finds its end too.
    pub(super) fn read_plain(
        &mut self,
        fd: &OwnedFd,
        expected: u64,
        buffer: &mut [u8],
    ) -> rustix::io::Result<usize> {
        let mut length = 0;
        while length < buffer.len() {
            let asked = expected
                .saturating_add(1)
                .saturating_sub(length as u64)
                .max(1 << 10);
            let end = buffer.len().min(length + asked as usize);
            match self.read_once(fd, &mut buffer[length..end], length as u64) {
                Ok(count) => {
                    length += count;
                    if count == 0 || length as u64 == expected && length < end {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(length)
    }

    fn read_once(&mut self, fd: &OwnedFd, buffer: &mut [u8], offset: u64) -> rustix::io::Result<usize> {
        if self.cold {
            return rustix::io::pread(fd, buffer, offset);
        }
        if self.may_ask {
            match rustix::io::preadv2(fd, &mut [IoSliceMut::new(buffer)], offset, ReadWriteFlags::NOWAIT) {
                Err(Errno::AGAIN) => {
                    self.cold = true;
                    self.open_ahead();
                    return rustix::io::pread(fd, buffer, offset);
                }
                Err(Errno::OPNOTSUPP | Errno::INVAL) => self.may_ask = false,
                result => return result,
            }
        }
        let start = Instant::now();
        let result = rustix::io::pread(fd, buffer, offset);
        self.cold = start.elapsed() > COLD_READ;
        result
    }

    /// Finds out whether sources come from a device, by the first bytes of one of them.
    pub(super) fn ask(&mut self, fd: &OwnedFd) -> rustix::io::Result<()> {
        if self.cold || !self.may_ask {
            return Ok(());
        }
        self.read_once(fd, &mut [0], 0).map(drop)
    }

    fn open_ahead(&mut self) {
        while self.ahead.len() < AHEAD && self.next < self.items.len() {
            let opened = self.open(self.next);
            if let Ok(fd) = &opened {
                let length = NonZeroU64::new(self.items[self.next].metadata.size);
                let _ = fadvise(fd, 0, length, Advice::WillNeed);
            }
            self.ahead.push_back(opened);
            self.next += 1;
        }
    }

    fn open(&self, index: usize) -> rustix::io::Result<OwnedFd> {
        let item = &self.items[index];
        // O_NONBLOCK: does not wait if the name means a FIFO by now; regular files ignore it.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let owned = self.user == 0 || item.metadata.owner.is_some_and(|owner| owner.user == self.user);
        let first = if owned { flags | OFlags::NOATIME } else { flags };
        match openat(&self.dir, item.name.as_bytes(), first, Mode::empty()) {
            // Root of a user name space that does not hold this owner.
            Err(Errno::PERM) if owned => openat(&self.dir, item.name.as_bytes(), flags, Mode::empty()),
            result => result,
        }
    }
}

/// Whether fewer bytes were read than the file has.
fn is_short(length: usize, stat: &Stat, buffer: &[u8]) -> bool {
    (length as u64) < size(stat).min(buffer.len() as u64)
}

/// Bytes of a file.
pub(super) fn size(stat: &Stat) -> u64 {
    stat.st_size.max(0) as u64
}

/// Whether attributes that follow from the content differ from those seen.
pub(super) fn differs(stat: &Stat, seen: &Metadata) -> bool {
    size(stat) != seen.size || modified(stat) != seen.modified
}

/// Whether the node was changed since, be it only its attributes.
pub(super) fn is_touched(stat: &Stat, seen: &Metadata) -> bool {
    let changed = Timestamp::from_unix(stat.st_ctime, stat.st_ctime_nsec as u32);
    differs(stat, seen) || seen.changed.is_some_and(|before| before != changed)
}

/// Whether the node did not change between two stats.
pub(super) fn same(a: &Stat, b: &Stat) -> bool {
    size(a) == size(b)
        && modified(a) == modified(b)
        && (a.st_ctime, a.st_ctime_nsec) == (b.st_ctime, b.st_ctime_nsec)
}

fn modified(stat: &Stat) -> Timestamp {
    Timestamp::from_unix(stat.st_mtime, stat.st_mtime_nsec as u32)
}
