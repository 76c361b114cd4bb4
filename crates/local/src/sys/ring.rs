//! One io_uring and what the kernel works on through it.
//!
//! Ownership: a [`Request`] given to [`Ring::push`] owns its descriptor and buffer and stays in the ring's
//! table until its completion was reaped. Dropping the future that waits for it changes nothing here.
//! Dropping the ring first awaits all that is in flight; if that fails, the requests are leaked, never freed.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, opcode, squeue};
use ropeway_block::Pool;

use crate::io::{Request, Work};

/// Requests in flight in one ring: more than any copy keeps on one device (blocks in flight x files), and 64 showed
/// no less throughput than 256 in prototypes.
pub(crate) const DEPTH: u32 = 64;

/// Registered buffers may have at most 1 GiB each (io_uring_register(2)).
const BUFFER_BYTES_MAX: usize = 1 << 30;

/// Most bytes asked for in one operation, so that the length fits the kernel's signed 32 bits.
const OPERATION_BYTES_MAX: usize = 1 << 30;

/// `user_data` of the wake-up poll; others are table indices.
const WAKE: u64 = u64::MAX;

/// A ring, its requests (each with a tag of the caller's) and the event descriptor that wakes it.
pub(crate) struct Ring<T> {
    uring: IoUring,
    /// One place for each request in flight.
    requests: ManuallyDrop<Vec<Option<(Request, T)>>>,
    free: Vec<usize>,
    wake: Arc<OwnedFd>,
    wake_armed: bool,
    /// Not registered yet: the kernel pins, and so touches, all of it then; a copy that moves no block through the
    /// ring need not pay for that.
    offered: Option<Pool>,
    registered: Option<Pool>,
}

/// Whether the kernel offers what this crate needs.
pub(crate) fn available() -> bool {
    let Ok(uring) = IoUring::new(2) else { return false };
    let mut probe = io_uring::Probe::new();
    uring.submitter().register_probe(&mut probe).is_ok()
        && [
            opcode::Read::CODE,
            opcode::Write::CODE,
            opcode::ReadFixed::CODE,
            opcode::WriteFixed::CODE,
            opcode::Fsync::CODE,
            opcode::PollAdd::CODE,
        ]
        .iter()
        .all(|code| probe.is_supported(*code))
}

impl<T> Ring<T> {
    /// A ring for the calling thread (only it may use the ring), woken by `wake`. `pool`'s region is registered with
    /// the first of its blocks, where the memory lock limit allows.
    pub(crate) fn new(wake: Arc<OwnedFd>, pool: Option<&Pool>) -> io::Result<Self> {
        Self::with_depth(wake, pool, DEPTH)
    }

    /// The same with another number of requests in flight.
    pub(crate) fn with_depth(wake: Arc<OwnedFd>, pool: Option<&Pool>, depth: u32) -> io::Result<Self> {
        // Twice the depth: the wake-up needs an entry too.
        let entries = depth.max(1) * 2;
        // Single issuer and deferred task work (Linux 6.1) save interrupts; older kernels take a plain ring.
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(entries)
            .or_else(|_| IoUring::new(entries))?;
        Ok(Self {
            uring,
            requests: ManuallyDrop::new((0..depth).map(|_| None).collect()),
            free: (0..depth as usize).rev().collect(),
            wake,
            wake_armed: false,
            offered: pool.cloned(),
            registered: None,
        })
    }

    /// Registers the pool's region if this is the first of its blocks to come.
    fn meet(&mut self, work: &Work) {
        let of_pool = |pool: &Pool| match work {
            Work::Read { block, .. } => block.belongs_to(pool),
            Work::Write { block } => block.belongs_to(pool),
            Work::Sync { .. } => false,
        };
        if self.offered.as_ref().is_some_and(of_pool) {
            self.registered = self.offered.take().filter(|pool| register(&self.uring, pool));
            tracing::debug!(
                registered = self.registered.is_some(),
                "buffers offered to io_uring"
            );
        }
    }

    /// Whether another request may be pushed.
    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Whether nothing is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.free.len() == self.requests.len()
    }

    /// Takes a request; it reaches the kernel with the next [`wait`](Self::wait).
    ///
    /// # Panics
    /// Without room.
    pub(crate) fn push(&mut self, mut request: Request, tag: T) {
        self.meet(&request.work);
        let index = self.free.pop().expect("the caller asked has_room");
        let entry = self.entry(&mut request).user_data(index as u64);
        assert!(self.requests[index].is_none(), "a free slot holds no request");
        self.requests[index] = Some((request, tag));
        self.submit_entry(&entry);
    }

    /// Submits, and waits until something completed or the wake descriptor was written to.
    pub(crate) fn wait(&mut self) -> io::Result<()> {
        if !self.wake_armed {
            let poll = opcode::PollAdd::new(Fd(self.wake.as_raw_fd()), libc::POLLIN as u32)
                .build()
                .user_data(WAKE);
            self.submit_entry(&poll);
            self.wake_armed = true;
        }
        match self.uring.submit_and_wait(1) {
            Ok(_) => Ok(()),
            // Interrupted; short of memory; completions must be reaped first: the loop comes again.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// The next completed request with its result (bytes).
    pub(crate) fn completed(&mut self) -> Option<(Request, T, io::Result<usize>)> {
        loop {
            let entry = self.uring.completion().next()?;
            if entry.user_data() == WAKE {
                self.wake_armed = false;
                // Takes the count back to 0; the descriptor does not block and may have been drained already.
                let _ = rustix::io::read(&*self.wake, &mut [0u8; 8]);
                continue;
            }
            let index = entry.user_data() as usize;
            let (request, tag) = self.requests[index]
                .take()
                .expect("one completion for each request");
            self.free.push(index);
            let result = usize::try_from(entry.result())
                .map_err(|_| io::Error::from_raw_os_error(entry.result().saturating_neg()));
            return Some((request, tag, result));
        }
    }

    fn submit_entry(&mut self, entry: &squeue::Entry) {
        // SAFETY: what the entry points to is owned by the request in `self.requests` until its completion is reaped
        // (descriptor and buffer), or by `self` (the wake descriptor).
        let pushed = unsafe { self.uring.submission().push(entry) };
        // The queue has twice as many entries as requests, and everything is submitted by each `wait`.
        pushed.expect("the submission queue has room for all requests and the wake-up");
    }

    fn entry(&self, request: &mut Request) -> squeue::Entry {
        let fd = Fd(request.fd.as_raw_fd());
        let offset = request.offset + request.done as u64;
        let flags = request.flags.bits() as i32;
        let rest = (request.length - request.done).min(OPERATION_BYTES_MAX);
        match &mut request.work {
            Work::Read { block, start } => {
                assert!(
                    *start + request.length <= block.capacity(),
                    "the read fits the block"
                );
                let fixed = self
                    .registered
                    .as_ref()
                    .is_some_and(|pool| block.belongs_to(pool));
                let pointer = block.as_mut_ptr().wrapping_add(*start + request.done);
                match fixed.then(|| self.fixed_index(pointer, rest)).flatten() {
                    Some(index) => opcode::ReadFixed::new(fd, pointer, rest as u32, index)
                        .offset(offset)
                        .rw_flags(flags)
                        .build(),
                    None => opcode::Read::new(fd, pointer, rest as u32)
                        .offset(offset)
                        .rw_flags(flags)
                        .build(),
                }
            }
            Work::Write { block } => {
                assert!(request.length <= block.len(), "the write lies in the block");
                let fixed = self
                    .registered
                    .as_ref()
                    .is_some_and(|pool| block.belongs_to(pool));
                let pointer = block.as_ptr().wrapping_add(request.done);
                match fixed.then(|| self.fixed_index(pointer, rest)).flatten() {
                    Some(index) => opcode::WriteFixed::new(fd, pointer, rest as u32, index)
                        .offset(offset)
                        .rw_flags(flags)
                        .build(),
                    None => opcode::Write::new(fd, pointer, rest as u32)
                        .offset(offset)
                        .rw_flags(flags)
                        .build(),
                }
            }
            Work::Sync { data_only } => {
                let flags = if *data_only {
                    FsyncFlags::DATASYNC
                } else {
                    FsyncFlags::empty()
                };
                opcode::Fsync::new(fd).flags(flags).build()
            }
        }
    }

    /// Index of the registered buffer that holds all of `pointer..pointer + length`.
    fn fixed_index(&self, pointer: *const u8, length: usize) -> Option<u16> {
        let (base, registered) = self.registered.as_ref()?.region();
        let first = pointer as usize - base as usize;
        let index = first / BUFFER_BYTES_MAX;
        (first + length <= registered && index == (first + length - 1) / BUFFER_BYTES_MAX)
            .then(|| u16::try_from(index).ok())
            .flatten()
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        while !self.is_idle() {
            if self.wait().is_err() {
                // The kernel may still use the buffers: they stay allocated for ever.
                return;
            }
            while self.completed().is_some() {}
        }
        // SAFETY: nothing is in flight, the table is not used after this.
        unsafe { ManuallyDrop::drop(&mut self.requests) }
    }
}

/// A page of the larger kind on x86-64 and most others; elsewhere the advice below covers less.
const HUGE_PAGE: usize = 2 << 20;

/// Asks for large pages where nothing is touched yet: a tenth of the faults when all is touched at once.
fn advise_large_pages(base: *const u8, length: usize) {
    let skip = base.align_offset(HUGE_PAGE);
    if length <= skip || length - skip < HUGE_PAGE {
        return;
    }
    let first = base.wrapping_add(skip).cast_mut();
    let whole = (length - skip) / HUGE_PAGE * HUGE_PAGE;
    // SAFETY: the pages belong to the pool's region, which lives as long as the caller's handle of it; the advice
    // changes how they are backed, not what they hold.
    let _ = unsafe { rustix::mm::madvise(first.cast(), whole, rustix::mm::Advice::LinuxHugepage) };
}

/// Registers the pool's region; false where the memory lock limit or the kernel forbids it.
fn register(uring: &IoUring, pool: &Pool) -> bool {
    pool.pin();
    let (base, length) = pool.region();
    advise_large_pages(base, length);
    let parts: Vec<libc::iovec> = (0..length)
        .step_by(BUFFER_BYTES_MAX)
        .map(|start| libc::iovec {
            iov_base: base.wrapping_add(start).cast_mut().cast(),
            iov_len: (length - start).min(BUFFER_BYTES_MAX),
        })
        .collect();
    // SAFETY: the region lives as long as the pool, of which the ring keeps a handle; the kernel pins the pages and
    // touches them only for requests, which own the blocks they name.
    unsafe { uring.submitter().register_buffers(&parts) }.is_ok()
}
