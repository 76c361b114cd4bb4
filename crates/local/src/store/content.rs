//! Content of open files: reads, writes, holes, copies.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, OwnedFd};

use ropeway_vfs::Extent;
use rustix::fs::{FallocateFlags, copy_file_range, fallocate, fstat};
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2, pwrite, retry_on_intr};

use super::volume;
use crate::ranges::{next_extent, punch_hole};

/// Zeros written at once if the volume cannot make them itself.
const ZEROS: &[u8] = &[0; 64 * 1024];

/// Most bytes of one copy_file_range call. A call cannot be interrupted; this many take a fraction of a
/// second.
const KERNEL_COPY_MAX: u64 = 128 << 20;

/// Bytes read and written at once if the kernel cannot copy (a guess).
const COPY_BYTES: u64 = 256 * 1024;

/// One range to copy.
pub(super) struct Copy<'a> {
    pub(super) source: &'a OwnedFd,
    pub(super) target: &'a OwnedFd,
    pub(super) source_offset: u64,
    pub(super) offset: u64,
    pub(super) length: u64,
    /// Both are the same file.
    pub(super) same: bool,
}

/// Reads until the buffer is full or the file ends.
pub(super) fn read(fd: &OwnedFd, buffer: &mut [u8], offset: u64) -> rustix::io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        let Some(at) = in_range(offset, done) else {
            break;
        };
        match retry_on_intr(|| pread(fd, &mut buffer[done..], at))? {
            0 => break,
            count => done += count,
        }
    }
    Ok(done)
}

/// Reads from the page cache; `None` unless it holds the whole range.
pub(super) fn read_cached(fd: &OwnedFd, buffer: &mut [u8], offset: u64) -> rustix::io::Result<Option<usize>> {
    if buffer.is_empty() || in_range(offset, 0).is_none() {
        return Ok(Some(0));
    }
    let length = buffer.len();
    let count = match preadv2(fd, &mut [IoSliceMut::new(buffer)], offset, ReadWriteFlags::NOWAIT) {
        Ok(count) => count,
        Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INTR) => return Ok(None),
        Err(error) => return Err(error),
    };
    if count == length || offset + count as u64 >= size(fd)? {
        Ok(Some(count))
    } else {
        Ok(None)
    }
}

/// Writes all.
pub(super) fn write(fd: &OwnedFd, data: &[u8], offset: u64) -> rustix::io::Result<()> {
    let mut done = 0;
    while done < data.len() {
        let at = in_range(offset, done).ok_or(Errno::FBIG)?;
        match retry_on_intr(|| pwrite(fd, &data[done..], at))? {
            0 => return Err(Errno::IO),
            count => done += count,
        }
    }
    Ok(())
}

/// Reserves space for the first `length` bytes.
pub(super) fn allocate(fd: &OwnedFd, length: u64) -> rustix::io::Result<()> {
    if length == 0 {
        return Ok(());
    }
    if in_range(length, 0).is_none() {
        return Err(Errno::FBIG);
    }
    require_room(fd, length)?;
    retry_on_intr(|| fallocate(fd, FallocateFlags::KEEP_SIZE, 0, length))
}

/// Reserves space for a range; the length of the file stays.
pub(super) fn reserve(fd: &OwnedFd, offset: u64, length: u64) -> rustix::io::Result<()> {
    let end = offset.checked_add(length).and_then(|end| in_range(end, 0));
    if end.is_none() {
        return Err(Errno::FBIG);
    }
    require_room(fd, length)?;
    retry_on_intr(|| fallocate(fd, FallocateFlags::KEEP_SIZE, offset, length))
}

/// Refuses a reservation that cannot fit. The kernel would take all free space before it fails, and other
/// writers would find none meanwhile.
fn require_room(fd: &OwnedFd, length: u64) -> rustix::io::Result<()> {
    let has = u64::try_from(fstat(fd)?.st_blocks)
        .unwrap_or(0)
        .saturating_mul(512);
    if length.saturating_sub(has) > volume::space(fd.as_fd())?.available {
        return Err(Errno::NOSPC);
    }
    Ok(())
}

/// Makes a range zeros, within the length of the file.
pub(super) fn zero(fd: &OwnedFd, offset: u64, length: u64, hole: bool) -> rustix::io::Result<()> {
    let end = offset.saturating_add(length).min(size(fd)?);
    if offset >= end {
        return Ok(());
    }
    if hole {
        return punch_hole(fd, offset, end - offset);
    }
    require_room(fd, end - offset)?;
    let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
    match retry_on_intr(|| fallocate(fd, flags, offset, end - offset)) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
        result => return result,
    }
    let mut at = offset;
    while at < end {
        let count = (end - at).min(ZEROS.len() as u64);
        write(fd, &ZEROS[..count as usize], at)?;
        at += count;
    }
    Ok(())
}

/// Returns the runs of data in a range; at most `max`.
pub(super) fn extents(fd: &OwnedFd, offset: u64, length: u64, max: usize) -> rustix::io::Result<Vec<Extent>> {
    let end = offset.saturating_add(length).min(i64::MAX as u64);
    let mut runs = Vec::new();
    let mut at = offset;
    while at < end && runs.len() < max {
        let Some(run) = next_extent(fd, at)? else {
            break;
        };
        if run.offset >= end {
            break;
        }
        let stop = (run.offset + run.length).min(end);
        runs.push(Extent {
            offset: run.offset,
            length: stop - run.offset,
        });
        at = stop;
    }
    Ok(runs)
}

/// Copies a range and returns its length; short at the end of the source.
pub(super) fn copy(copy: &Copy<'_>) -> rustix::io::Result<u64> {
    let available = size(copy.source)?.saturating_sub(copy.source_offset);
    let length = copy.length.min(available);
    let overlaps = copy.same && copy.source_offset.abs_diff(copy.offset) < length;
    let mut done = 0;
    while done < length && !overlaps {
        let (mut from, mut to) = (copy.source_offset + done, copy.offset + done);
        let count = (length - done).min(KERNEL_COPY_MAX) as usize;
        match retry_on_intr(|| {
            copy_file_range(copy.source, Some(&mut from), copy.target, Some(&mut to), count)
        }) {
            // The end of the file; on some volumes "not supported".
            Ok(0) => break,
            Ok(count) => done += count as u64,
            Err(
                Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::XDEV | Errno::TXTBSY | Errno::PERM,
            ) => break,
            Err(error) => return Err(error),
        }
    }
    if done == length {
        return Ok(done);
    }
    let backwards = overlaps && copy.offset > copy.source_offset;
    let mut buffer = vec![0; COPY_BYTES.min(length - done) as usize];
    while done < length {
        let count = (length - done).min(COPY_BYTES);
        // If the target overlaps the source and lies behind it, copy backwards.
        let at = if backwards { length - done - count } else { done };
        let piece = &mut buffer[..count as usize];
        let read = read(copy.source, piece, copy.source_offset + at)?;
        write(copy.target, &piece[..read], copy.offset + at)?;
        if (read as u64) < count && !backwards {
            // The source shrank meanwhile.
            return Ok(done + read as u64);
        }
        done += count;
    }
    Ok(done)
}

/// Returns `offset + done` if it is a valid file offset (loff_t).
fn in_range(offset: u64, done: usize) -> Option<u64> {
    offset
        .checked_add(done as u64)
        .filter(|at| i64::try_from(*at).is_ok())
}

fn size(fd: &OwnedFd) -> rustix::io::Result<u64> {
    Ok(fstat(fd)?.st_size.max(0) as u64)
}
