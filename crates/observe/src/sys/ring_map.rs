//! The consumer's side of a BPF ring buffer (Documentation/bpf/ringbuf.rst).
//!
//! ```text
//!   page 0: position of the consumer     page 1: position of the producer     data, mapped twice
//! ```
//!
//! The data is mapped twice in a row, so that a record that wraps around is contiguous.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Flags in a record's length (linux/bpf.h).
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
/// Bytes in front of each record.
const HEADER_BYTES: u64 = 8;
/// Bytes after which the producers are told that there is room again. Each time costs them a cache
/// miss, so not after each record; it is a small part of the ring, which has some megabytes.
const TELL_BYTES: u64 = 256 << 10;

/// A mapping that is removed at the end.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

impl Mapping {
    fn new(fd: BorrowedFd<'_>, offset: u64, length: usize, protection: ProtFlags) -> io::Result<Self> {
        // SAFETY: no address is asked for, so nothing existing is replaced.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                length,
                protection,
                MapFlags::SHARED,
                fd,
                offset,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, length })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping was made by `new`; no reference into it lives longer than its owner.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// A ring buffer of the kernel, read by one consumer.
#[derive(Debug)]
pub(crate) struct RingMap {
    fd: OwnedFd,
    consumer: Mapping,
    /// Position of the producer, then the data twice.
    producer: Mapping,
    page_bytes: usize,
    data_bytes: u64,
}

// SAFETY: the mappings are memory of this process, used by the owner only; other threads see them
// only through `&mut RingMap`.
unsafe impl Send for RingMap {}

impl RingMap {
    /// Maps a ring of `data_bytes`, a power of two.
    ///
    /// # Errors
    /// The descriptor is no ring of this size.
    pub(crate) fn new(fd: OwnedFd, data_bytes: u32) -> io::Result<Self> {
        assert!(data_bytes.is_power_of_two());
        let page_bytes = rustix::param::page_size();
        let consumer = Mapping::new(fd.as_fd(), 0, page_bytes, ProtFlags::READ | ProtFlags::WRITE)?;
        let length = page_bytes + 2 * data_bytes as usize;
        let producer = Mapping::new(fd.as_fd(), page_bytes as u64, length, ProtFlags::READ)?;
        Ok(Self {
            fd,
            consumer,
            producer,
            page_bytes,
            data_bytes: u64::from(data_bytes),
        })
    }

    /// Returns the descriptor, which becomes readable when the programs wake the consumer.
    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    fn consumed(&self) -> &AtomicU64 {
        // SAFETY: the page begins with the position, aligned; it is mapped as long as `self` lives.
        unsafe { &*self.consumer.start.as_ptr().cast::<AtomicU64>() }
    }

    fn produced(&self) -> u64 {
        // SAFETY: as above; the kernel writes it, so it is read as an atomic.
        unsafe { &*self.producer.start.as_ptr().cast::<AtomicU64>() }.load(Ordering::Acquire)
    }

    /// Passes every record that is there to `take`, at most one round of the ring.
    pub(crate) fn drain(&mut self, mut take: impl FnMut(&[u8])) {
        let mut at = self.consumed().load(Ordering::Relaxed);
        let (end, mut told) = (self.produced(), at);
        while at < end {
            let place = self.page_bytes + (at & (self.data_bytes - 1)) as usize;
            // SAFETY: `place` is inside of the mapping, and aligned: records are multiples of 8 bytes.
            let length = unsafe { &*self.producer.start.as_ptr().add(place).cast::<AtomicU32>() };
            let length = length.load(Ordering::Acquire);
            if length & BUSY != 0 {
                break;
            }
            let bytes = u64::from(length & !(BUSY | DISCARDED));
            assert!(bytes <= self.data_bytes, "the kernel's ring is intact");
            if length & DISCARDED == 0 {
                // SAFETY: a record that is not busy is not written any more until it is consumed. It
                // begins in the first copy of the data and is at most as long, so it ends in the second.
                let record = unsafe {
                    let start = self.producer.start.as_ptr().add(place + HEADER_BYTES as usize);
                    std::slice::from_raw_parts(start, bytes as usize)
                };
                take(record);
            }
            at += (bytes + HEADER_BYTES).next_multiple_of(8);
            if at - told >= TELL_BYTES {
                self.consumed().store(at, Ordering::Release);
                told = at;
            }
        }
        self.consumed().store(at, Ordering::Release);
    }
}
