//! [`IoQueue`]: many reads and writes of one thread in flight, through an io_uring of its own.
//!
//! The engine behind [`LocalTree`](crate::LocalTree) serves many files of a copy from other threads, and
//! each request passes through two of them. A measurement of a device wants neither: the thread that
//! asks is the thread that submits and reaps. Short transfers are continued here, as everywhere.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ropeway_block::{Block, BlockMut};
use rustix::event::EventfdFlags;
use rustix::io::ReadWriteFlags;

use crate::io::{DONTCACHE, Request, Work};
use crate::sys::ring::{Ring, available};

/// Largest number of requests in flight in one queue. A guess: more than devices take.
pub const QUEUE_DEPTH_MAX: u32 = 1024;

/// Reads and writes of one thread in flight.
pub struct IoQueue {
    ring: Ring<u64>,
    flags: ReadWriteFlags,
}

/// A finished request.
#[derive(Debug)]
pub enum Finished {
    /// A read: its tag, its block, and the number of bytes read.
    Read(u64, BlockMut, io::Result<usize>),
    /// A write: its tag, its block, and the number of bytes written.
    Write(u64, Block, io::Result<usize>),
}

impl IoQueue {
    /// Makes a queue for up to `depth` requests in flight, to be used by this thread only. `None` where
    /// the system has no io_uring for this process.
    ///
    /// # Errors
    /// The system refuses a ring of this depth.
    ///
    /// # Panics
    /// If `depth` is 0 or above [`QUEUE_DEPTH_MAX`].
    pub fn open(depth: u32) -> io::Result<Option<Self>> {
        assert!(
            (1..=QUEUE_DEPTH_MAX).contains(&depth),
            "a queue has between 1 and {QUEUE_DEPTH_MAX} requests"
        );
        if !available() {
            return Ok(None);
        }
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let ring = Ring::with_depth(Arc::new(wake), None, depth)?;
        Ok(Some(Self {
            ring,
            flags: ReadWriteFlags::empty(),
        }))
    }

    /// From now on, the kernel drops pages of the page cache after use (`RWF_DONTCACHE`). Volumes that
    /// cannot do this answer EOPNOTSUPP.
    #[must_use]
    pub fn leaving_the_cache(mut self) -> Self {
        self.flags = DONTCACHE;
        self
    }

    /// Whether another request may be added.
    pub fn has_room(&self) -> bool {
        self.ring.has_room()
    }

    /// Whether nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.ring.is_idle()
    }

    /// Adds a read of `length` bytes at `offset` into the start of `block`. It begins with the next
    /// [`wait`](Self::wait).
    ///
    /// # Panics
    /// Without room, or if `length` exceeds the block.
    pub fn read(&mut self, fd: &Arc<OwnedFd>, offset: u64, length: usize, block: BlockMut, tag: u64) {
        self.push(fd, offset, length, Work::Read { block, start: 0 }, tag);
    }

    /// Adds a write of a whole block at `offset`. It begins with the next [`wait`](Self::wait).
    ///
    /// # Panics
    /// Without room.
    pub fn write(&mut self, fd: &Arc<OwnedFd>, offset: u64, block: Block, tag: u64) {
        let length = block.len();
        self.push(fd, offset, length, Work::Write { block }, tag);
    }

    fn push(&mut self, fd: &Arc<OwnedFd>, offset: u64, length: usize, work: Work, tag: u64) {
        let mut request = Request::new(fd, offset, length, work);
        request.flags = self.flags;
        self.ring.push(request, tag);
    }

    /// Submits what was added, and waits until a request has made progress.
    ///
    /// # Errors
    /// The kernel refuses the ring.
    pub fn wait(&mut self) -> io::Result<()> {
        self.ring.wait()
    }

    /// Returns the next finished request; `None` if there is none now.
    pub fn finished(&mut self) -> Option<Finished> {
        loop {
            let (mut request, tag, result) = self.ring.completed()?;
            match request.advance(result) {
                None => self.ring.push(request, tag),
                Some(result) => match request.work {
                    Work::Read { block, .. } => return Some(Finished::Read(tag, block, result)),
                    Work::Write { block } => return Some(Finished::Write(tag, block, result)),
                    Work::Sync { .. } => unreachable!("this queue adds reads and writes only"),
                },
            }
        }
    }
}

impl std::fmt::Debug for IoQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IoQueue").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_block::Pool;

    #[test]
    fn what_is_written_is_read_in_any_order() {
        let Some(mut queue) = IoQueue::open(4).unwrap() else {
            println!("skipped: no io_uring here");
            return;
        };
        let fd: Arc<OwnedFd> = Arc::new(tempfile::tempfile().unwrap().into());
        let pool = Pool::new(4096, 4);
        for number in 0..4_u64 {
            let mut block = pool.try_get().unwrap();
            block.set_len(4096);
            block.capacity_mut()[..4096].fill(number as u8 + 1);
            queue.write(&fd, number * 4096, block.freeze(), number);
        }
        assert!(!queue.has_room());
        let mut written = 0;
        while written < 4 {
            queue.wait().unwrap();
            while let Some(done) = queue.finished() {
                assert!(matches!(done, Finished::Write(_, _, Ok(4096))), "{done:?}");
                written += 1;
            }
        }
        assert!(queue.is_idle());
        for number in 0..4_u64 {
            queue.read(&fd, number * 4096, 4096, pool.try_get().unwrap(), number);
        }
        let mut seen = [false; 4];
        while seen.contains(&false) {
            queue.wait().unwrap();
            while let Some(done) = queue.finished() {
                let Finished::Read(tag, mut block, Ok(4096)) = done else {
                    panic!("{done:?}");
                };
                assert!(
                    block.capacity_mut()[..4096]
                        .iter()
                        .all(|byte| u64::from(*byte) == tag + 1)
                );
                seen[tag as usize] = true;
            }
        }
    }

    #[test]
    fn a_read_at_the_end_is_short() {
        let Some(mut queue) = IoQueue::open(1).unwrap() else {
            println!("skipped: no io_uring here");
            return;
        };
        let fd: Arc<OwnedFd> = Arc::new(tempfile::tempfile().unwrap().into());
        let pool = Pool::new(4096, 1);
        queue.read(&fd, 0, 4096, pool.try_get().unwrap(), 7);
        let done = loop {
            queue.wait().unwrap();
            if let Some(done) = queue.finished() {
                break done;
            }
        };
        assert!(matches!(done, Finished::Read(7, _, Ok(0))), "{done:?}");
    }
}
