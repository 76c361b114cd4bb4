//! Ranges of files: extents and holes, reserved space, copies inside the kernel.

use std::os::fd::OwnedFd;

use ropeway_vfs::{CopyPiece, Extent};
use rustix::fs::{
    FallocateFlags, SeekFrom, copy_file_range, fallocate, fstat, ioctl_ficlone, seek, sendfile,
};
use rustix::io::Errno;

/// Zeroes written at once where holes cannot be punched.
const ZEROES: &[u8] = &[0; 64 * 1024];

/// Most bytes of one copy_file_range call. A call cannot be interrupted; this many take a fraction of a
/// second.
const COPY_BYTES_MAX: u64 = 128 << 20;

/// Longest file that one thread sends whole from cache to cache (a guess: a sixteenth of a second at
/// 1 GB/s).
const SEND_MAX: u64 = 64 << 20;

/// Returns the first run of data at or after `offset`.
pub(crate) fn next_extent(fd: &OwnedFd, offset: u64) -> rustix::io::Result<Option<Extent>> {
    let start = match seek(fd, SeekFrom::Data(offset)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // The volume knows no holes: everything is data.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => {
            let length = size(fd)?.saturating_sub(offset);
            return Ok((length > 0).then_some(Extent { offset, length }));
        }
        Err(error) => return Err(error),
    };
    let end = match seek(fd, SeekFrom::Hole(start)) {
        Ok(end) => end,
        // The file shrank meanwhile.
        Err(Errno::NXIO) => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok((end > start).then(|| Extent {
        offset: start,
        length: end - start,
    }))
}

/// Reserves space; an error only if the volume is full.
pub(crate) fn allocate(fd: &OwnedFd, length: u64) -> rustix::io::Result<()> {
    if length == 0 {
        return Ok(());
    }
    match retried(|| fallocate(fd, FallocateFlags::KEEP_SIZE, 0, length)) {
        Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::IO)) => Err(error),
        _ => Ok(()),
    }
}

/// Makes a range a hole, or writes zeroes where holes cannot be punched; within the file's length.
pub(crate) fn punch_hole(fd: &OwnedFd, offset: u64, length: u64) -> rustix::io::Result<()> {
    if length == 0 {
        return Ok(());
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match retried(|| fallocate(fd, flags, offset, length)) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
        result => return result,
    }
    let end = offset.saturating_add(length).min(size(fd)?);
    let mut at = offset;
    while at < end {
        let count = (end - at).min(ZEROES.len() as u64) as usize;
        at += retried(|| rustix::io::pwrite(fd, &ZEROES[..count], at))? as u64;
    }
    Ok(())
}

/// Shares the whole content of `source`; returns false if the volume cannot.
pub(crate) fn reflink(target: &OwnedFd, source: &OwnedFd) -> rustix::io::Result<bool> {
    match retried(|| ioctl_ficlone(target, source)) {
        Ok(()) => Ok(true),
        Err(
            Errno::OPNOTSUPP
            | Errno::XDEV
            | Errno::INVAL
            | Errno::NOTTY
            | Errno::NOSYS
            | Errno::TXTBSY
            | Errno::PERM,
        ) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Copies a range inside the kernel, through the page cache if the volume cannot share blocks. Returns
/// `None` if the kernel cannot.
pub(crate) fn copy_range(
    target: &OwnedFd,
    source: &OwnedFd,
    offset: u64,
    length: u64,
) -> rustix::io::Result<Option<u64>> {
    let piece = CopyPiece {
        from: offset,
        to: offset,
        length,
    };
    copy_piece(target, source, piece)
}

/// Copies a range to another offset, as [`copy_range`] does.
pub(crate) fn copy_piece(
    target: &OwnedFd,
    source: &OwnedFd,
    piece: CopyPiece,
) -> rustix::io::Result<Option<u64>> {
    let length = piece.length;
    let mut done = 0;
    while done < length {
        let (mut from, mut to) = (piece.from + done, piece.to + done);
        let count = (length - done).min(COPY_BYTES_MAX) as usize;
        match retried(|| copy_file_range(source, Some(&mut from), target, Some(&mut to), count)) {
            Ok(0) => break,
            Ok(count) => done += count as u64,
            Err(Errno::XDEV) if done == 0 && piece.from == piece.to => {
                return send(target, source, piece.from, length);
            }
            Err(
                Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::TXTBSY | Errno::PERM,
            ) if done == 0 => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
    }
    if done == 0 && length > 0 && piece.from < size(source)? {
        // Some volumes return 0 for "not supported".
        return Ok(None);
    }
    Ok(Some(done))
}

/// Copies between two volumes: pages pass from one cache to the other and are copied once. One thread
/// does it all, so longer files are copied in blocks instead, whose reads and writes overlap.
pub(crate) fn send(
    target: &OwnedFd,
    source: &OwnedFd,
    offset: u64,
    length: u64,
) -> rustix::io::Result<Option<u64>> {
    if size(source)? > SEND_MAX {
        return Ok(None);
    }
    // All other writes name their offset, so nothing else uses this descriptor's position.
    seek(target, SeekFrom::Start(offset))?;
    let mut done = 0;
    while done < length {
        let mut from = offset + done;
        match retried(|| sendfile(target, source, Some(&mut from), (length - done) as usize)) {
            Ok(0) => break,
            Ok(count) => done += count as u64,
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) if done == 0 => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(done))
}

fn size(fd: &OwnedFd) -> rustix::io::Result<u64> {
    Ok(fstat(fd)?.st_size.max(0) as u64)
}

fn retried<T>(call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    rustix::io::retry_on_intr(call)
}
