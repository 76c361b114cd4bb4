//! How much of a file's range is in the page cache: cachestat(2), or mincore(2) before Linux 6.5.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// cachestat's number; equal on every architecture since system call numbers are shared (Linux 6.5).
const SYS_CACHESTAT: libc::c_long = 451;

/// Largest piece of a file mapped at once for mincore, in bytes: 1 GiB costs 256 KiB of answer (a guess).
const MAP_BYTES_MAX: u64 = 1 << 30;

/// `struct cachestat_range` of linux/mman.h.
#[repr(C)]
struct Range {
    offset: u64,
    length: u64,
}

/// `struct cachestat` of linux/mman.h; counts of pages.
#[repr(C)]
#[derive(Default)]
struct Counts {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Bytes of `offset..offset + length` in the page cache, whole pages. `Ok(None)` where it cannot be told.
pub(crate) fn cached_bytes(fd: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<Option<u64>> {
    if length == 0 {
        return Ok(Some(0));
    }
    let page = rustix::param::page_size() as u64;
    // The system call takes the range as signed page indices; a range to the end of time is the whole file.
    let length = length.min(i64::MAX as u64 - offset.min(i64::MAX as u64));
    let error = match counts(fd, offset, length) {
        Ok(counts) => return Ok(Some(counts.cached * page)),
        Err(error) => error,
    };
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EPERM) => by_mincore(fd, offset, length, page),
        Some(libc::EOPNOTSUPP | libc::EINVAL) => Ok(None),
        _ => Err(error),
    }
}

/// The same, but `None` also where the kernel tells the truth only to a file's owner and to root, and the
/// process is neither.
pub(crate) fn kept_bytes(fd: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<Option<u64>> {
    kept_by(counts(fd, offset, length), fd, offset, length)
}

/// Returns what cachestat counted, or what mincore says in its place.
fn kept_by(
    counted: io::Result<Counts>,
    fd: BorrowedFd<'_>,
    offset: u64,
    length: u64,
) -> io::Result<Option<u64>> {
    let page = rustix::param::page_size() as u64;
    let error = match counted {
        Ok(counts) => return Ok(Some(counts.cached * page)),
        Err(error) => error,
    };
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EPERM) => {
            let (owner, own) = (rustix::fs::fstat(fd)?.st_uid, rustix::process::geteuid());
            match own.is_root() || owner == own.as_raw() {
                true => by_mincore(fd, offset, length, page),
                false => Ok(None),
            }
        }
        Some(libc::EOPNOTSUPP | libc::EINVAL) => Ok(None),
        _ => Err(error),
    }
}

/// Bytes of a file that are dirty, and that are on their way to the device, whole pages. `None` before Linux
/// 6.5.
pub(crate) fn unflushed_bytes(fd: BorrowedFd<'_>) -> io::Result<[u64; 2]> {
    let counts = counts(fd, 0, i64::MAX as u64)?;
    let page = rustix::param::page_size() as u64;
    Ok([counts.dirty, counts.writeback].map(|pages| pages.saturating_mul(page)))
}

fn counts(fd: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<Counts> {
    let range = Range { offset, length };
    let mut counts = Counts::default();
    // SAFETY: both structures live across the call and have the kernel's layout; the call keeps no pointer.
    let result = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            fd.as_raw_fd(),
            &raw const range,
            &raw mut counts,
            0u32,
        )
    };
    match result {
        0 => Ok(counts),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The same by mapping the range. The kernel says "all cached" to those who may not write the file, which errs on
/// the side of never dropping another's pages.
fn by_mincore(fd: BorrowedFd<'_>, offset: u64, length: u64, page: u64) -> io::Result<Option<u64>> {
    let size = rustix::fs::fstat(fd)?.st_size.max(0) as u64;
    let end = offset.saturating_add(length).min(size);
    let mut at = offset / page * page;
    let mut cached = 0;
    while at < end {
        let span = (end - at).min(MAP_BYTES_MAX);
        match resident_pages(fd, at, span as usize, page as usize) {
            Ok(pages) => cached += pages * page,
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ENODEV | libc::EACCES | libc::ENOSYS)
                ) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
        at += span;
    }
    Ok(Some(cached))
}

fn resident_pages(fd: BorrowedFd<'_>, offset: u64, span: usize, page: usize) -> io::Result<u64> {
    let mut answer = vec![0u8; span.div_ceil(page)];
    // SAFETY: a fresh shared mapping at an address of the kernel's choice; nothing ever dereferences it.
    let map = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            span,
            libc::PROT_READ,
            libc::MAP_SHARED,
            fd.as_raw_fd(),
            offset as libc::off_t,
        )
    };
    if map == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `map` is ours with `span` bytes; `answer` has one byte for each of its pages.
    let result = unsafe { libc::mincore(map, span, answer.as_mut_ptr()) };
    let error = io::Error::last_os_error();
    // SAFETY: the mapping made above, unmapped once; no reference into it exists.
    unsafe { libc::munmap(map, span) };
    if result != 0 {
        return Err(error);
    }
    Ok(answer.iter().filter(|page| **page & 1 == 1).count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn mincore_agrees_with_cachestat() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; 300_000]).unwrap();
        let page = rustix::param::page_size() as u64;
        let exact = cached_bytes(file.as_fd(), 0, u64::MAX).unwrap();
        let mapped = by_mincore(file.as_fd(), 0, u64::MAX, page).unwrap();
        assert_eq!(mapped, Some(300_000u64.next_multiple_of(page)));
        assert_eq!(exact, mapped);
        assert_eq!(cached_bytes(file.as_fd(), 0, 0).unwrap(), Some(0));
        assert_eq!(by_mincore(file.as_fd(), page, page, page).unwrap(), Some(page));
        // On tmpfs pages count as dirty until they are swapped out.
        let unflushed = unflushed_bytes(file.as_fd())
            .ok()
            .map(|[dirty, writeback]| dirty + writeback);
        assert!(unflushed <= exact, "{unflushed:?}");
    }
    #[test]
    fn without_cachestat_the_pages_are_counted_by_mincore_or_not_at_all() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 100_000]).unwrap();
        let page = rustix::param::page_size() as u64;
        let missing = |number| Err(io::Error::from_raw_os_error(number));
        let kept = |counted| kept_by(counted, file.as_fd(), 0, 50_000).unwrap();
        let all = Some(50_000u64.next_multiple_of(page));
        assert_eq!(kept(missing(libc::ENOSYS)), all, "before Linux 6.5");
        assert_eq!(kept(missing(libc::EPERM)), all);
        assert_eq!(kept(missing(libc::EOPNOTSUPP)), None, "huge pages");
        assert_eq!(kept_bytes(file.as_fd(), 0, 50_000).unwrap(), all);
        assert!(kept_by(missing(libc::EBADF), file.as_fd(), 0, 1).is_err());
    }
}
