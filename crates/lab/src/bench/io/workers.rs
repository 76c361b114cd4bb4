//! Requests one after the other by pread(2) and pwrite(2), on one thread or on several.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ropeway_block::BlockMut;
use ropeway_vfs::RelPath;
use ropeway_vfs::trace::{By, Record, SharedObserver};
use rustix::io::ReadWriteFlags;

use super::data::{Buffers, Marks};
use super::tally::Tally;
use super::{PassError, PassResult};
use crate::bench::order::Order;

/// The requests of a pass over one file.
pub(super) struct Requests<'a> {
    pub(super) fd: &'a Arc<OwnedFd>,
    pub(super) order: &'a Order,
    pub(super) record: usize,
    pub(super) writes: bool,
    /// Flags of preadv2(2).
    pub(super) flags: ReadWriteFlags,
    pub(super) marks: Marks,
    pub(super) limit: Duration,
    pub(super) bytes_max: u64,
    pub(super) stop: &'a AtomicBool,
    pub(super) trace: Option<&'a Traces>,
}

/// Where operations on a file are recorded.
pub(super) struct Traces {
    pub(super) observer: SharedObserver,
    pub(super) path: RelPath,
}

impl Traces {
    /// Records an operation that ends now.
    pub(super) fn record(&self, kind: &'static str, offset: u64, length: u64, took: Duration, result: i64) {
        self.observer.record(Record {
            start: self.observer.now().saturating_sub(took),
            duration: took,
            end: Some(ropeway_vfs::End::Target),
            kind,
            path: self.path.as_bytes(),
            to: &[],
            offset,
            length,
            result,
            by: By::default(),
        });
    }
}

impl Requests<'_> {
    /// Name of the operation, for messages and traces.
    pub(super) fn verb(&self) -> &'static str {
        if self.writes { "write" } else { "read" }
    }

    /// Whether no further request may begin.
    pub(super) fn is_over(&self, now: Duration, bytes: u64) -> bool {
        now >= self.limit || bytes >= self.bytes_max || self.stop.load(Ordering::Relaxed)
    }

    /// Returns the byte where a request begins.
    pub(super) fn offset(&self, number: u64) -> u64 {
        self.order.at(number) * self.record as u64
    }

    /// Checks what a read has returned.
    pub(super) fn check(&self, block: &[u8], offset: u64) -> PassResult<()> {
        match self.marks.hold(block, offset) {
            true => Ok(()),
            false => Err(PassError::Wrong(format!(
                "the bytes read at {offset} are not those that were written there"
            ))),
        }
    }

    /// Converts the result of a request; direct I/O that is refused is unsupported.
    pub(super) fn failed(&self, error: io::Error) -> PassError {
        if self.flags.is_empty() || error.raw_os_error() != Some(libc::EOPNOTSUPP) {
            return PassError::at(self.verb())(error);
        }
        PassError::no_mode("this file system takes no I/O that drops its pages (RWF_DONTCACHE)")
    }

    /// Makes one request.
    fn perform(&self, block: &mut BlockMut, offset: u64) -> PassResult<()> {
        let bytes = &mut block.capacity_mut()[..self.record];
        if self.writes {
            self.marks.write(bytes, offset);
            self.write(bytes, offset).map_err(|error| self.failed(error))
        } else {
            self.read(bytes, offset).map_err(|error| self.failed(error))?;
            self.check(bytes, offset)
        }
    }

    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let fd = self.fd.as_fd();
        whole(bytes.len(), |done| {
            let (rest, at) = (&bytes[done..], offset + done as u64);
            match self.flags.is_empty() {
                true => rustix::io::pwrite(fd, rest, at),
                false => rustix::io::pwritev2(fd, &[IoSlice::new(rest)], at, self.flags),
            }
        })
    }

    fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let fd = self.fd.as_fd();
        whole(bytes.len(), |done| {
            let (rest, at) = (&mut bytes[done..], offset + done as u64);
            match self.flags.is_empty() {
                true => rustix::io::pread(fd, rest, at),
                false => rustix::io::preadv2(fd, &mut [IoSliceMut::new(rest)], at, self.flags),
            }
        })
    }

    fn trace(&self, offset: u64, took: Duration) {
        if let Some(traces) = self.trace {
            let length = self.record as u64;
            traces.record(self.verb(), offset, length, took, self.record as i64);
        }
    }
}

/// Repeats a call until all bytes are moved.
fn whole(length: usize, mut call: impl FnMut(usize) -> rustix::io::Result<usize>) -> io::Result<()> {
    let mut done = 0;
    while done < length {
        match call(done) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => done += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Makes all requests on this thread, one after the other.
///
/// # Errors
/// A request fails.
pub(super) fn single(requests: &Requests<'_>, buffers: &Buffers) -> PassResult<Tally> {
    let mut blocks = taken(requests, buffers, 1);
    let begun = Instant::now();
    let mut tally = Tally::default();
    let mut last = Duration::ZERO;
    for number in 0..requests.order.len() {
        if requests.is_over(last, tally.bytes) {
            tally.cut = true;
            break;
        }
        let offset = requests.offset(number);
        let block = blocks.front_mut().expect("a share has at least one block");
        requests.perform(block, offset)?;
        // The end of a request is the beginning of the next: one look at the clock for each.
        let now = begun.elapsed();
        tally.add(now, now - last, requests.record as u64);
        requests.trace(offset, now - last);
        last = now;
        blocks.rotate_left(1);
    }
    Ok(tally)
}

/// Makes all requests on `depth` threads.
///
/// # Errors
/// A request fails.
pub(super) fn threads(requests: &Requests<'_>, buffers: &Buffers, depth: u32) -> PassResult<Tally> {
    let (next, moved) = (AtomicU64::new(0), AtomicU64::new(0));
    let depth = u64::from(depth).min(requests.order.len()).max(1);
    let shares: Vec<VecDeque<BlockMut>> = (0..depth)
        .map(|_| taken(requests, buffers, depth as usize))
        .collect();
    let begun = Instant::now();
    let worker = |mut blocks: VecDeque<BlockMut>| -> PassResult<Tally> {
        let mut tally = Tally::default();
        let mut last = begun.elapsed();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= requests.order.len() {
                return Ok(tally);
            }
            if requests.is_over(last, moved.load(Ordering::Relaxed)) {
                tally.cut = true;
                return Ok(tally);
            }
            let offset = requests.offset(number);
            let block = blocks.front_mut().expect("a share has at least one block");
            requests.perform(block, offset)?;
            let now = begun.elapsed();
            tally.add(now, now - last, requests.record as u64);
            moved.fetch_add(requests.record as u64, Ordering::Relaxed);
            requests.trace(offset, now - last);
            last = now;
            blocks.rotate_left(1);
        }
    };
    let joined = thread::scope(|scope| {
        let workers: Vec<_> = shares
            .into_iter()
            .map(|share| scope.spawn(|| worker(share)))
            .collect();
        let ended = workers.into_iter().map(|worker| worker.join());
        ended.collect::<Vec<_>>()
    });
    let mut all = Tally::default();
    for tally in joined {
        let tally = tally.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        all.join(&tally?);
    }
    Ok(all)
}

/// Takes blocks: many for writes, so that different bytes are written, and one for reads.
fn taken(requests: &Requests<'_>, buffers: &Buffers, workers: usize) -> VecDeque<BlockMut> {
    let mut share = buffers.share(workers);
    if !requests.writes {
        share.truncate(1);
    }
    share
}
