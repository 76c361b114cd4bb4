//! Reads, writes and flushes of open files by one of two engines.
//!
//! A [`Request`] owns what the system needs for it (descriptor, buffer) and is carried by value through
//! the engine and back, so that a dropped future cannot take a buffer away from under the kernel. Both
//! engines drive the same state machine, [`Request::advance`]: it continues short transfers, repeats
//! interrupted calls and recognises the end of the file.

mod psync;
mod uring;

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ropeway_block::{Block, BlockMut, Pool};
use ropeway_vfs::{Error, ErrorKind, Op, RelPath};
use rustix::io::ReadWriteFlags;

use crate::IoEngine;
use uring::Rings;

/// `RWF_DONTCACHE` (Linux 6.14, linux/fs.h): buffered I/O whose pages are dropped after use.
pub const DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

/// The operation.
pub(crate) enum Work {
    /// Read into the block, from byte `start` of its payload on.
    Read {
        /// The buffer.
        block: BlockMut,
        /// Position in its payload.
        start: usize,
    },
    /// Write the block's first bytes.
    Write {
        /// The bytes.
        block: Block,
    },
    /// Flush the file.
    Sync {
        /// Data only.
        data_only: bool,
    },
}

/// One operation on one file, with its progress.
pub(crate) struct Request {
    /// The open file.
    pub(crate) fd: Arc<OwnedFd>,
    /// Offset in the file.
    pub(crate) offset: u64,
    /// Bytes to transfer.
    pub(crate) length: usize,
    /// Bytes transferred.
    pub(crate) done: usize,
    /// Flags of preadv2(2).
    pub(crate) flags: ReadWriteFlags,
    /// A read whose result is no multiple of this has reached the end of the file (direct I/O cannot go on
    /// from there).
    pub(crate) unit: usize,
    /// The operation.
    pub(crate) work: Work,
}

impl Request {
    /// Makes a request for `length` bytes at `offset` with plain flags.
    pub(crate) fn new(fd: &Arc<OwnedFd>, offset: u64, length: usize, work: Work) -> Self {
        let flags = ReadWriteFlags::empty();
        Self {
            fd: Arc::clone(fd),
            offset,
            length,
            done: 0,
            flags,
            unit: 1,
            work,
        }
    }

    /// Applies the result of one system call. Returns `None` if there is more to do, else the number of bytes
    /// transferred.
    pub(crate) fn advance(&mut self, result: io::Result<usize>) -> Option<io::Result<usize>> {
        let count = match result {
            Ok(count) => count,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                ) =>
            {
                return None;
            }
            Err(error) => return Some(Err(error)),
        };
        match self.work {
            Work::Sync { .. } => Some(Ok(0)),
            Work::Read { .. } => {
                self.done = (self.done + count).min(self.length);
                let end = count == 0 || self.done == self.length || !self.done.is_multiple_of(self.unit);
                end.then_some(Ok(self.done))
            }
            Work::Write { .. } if count == 0 && self.done < self.length => {
                Some(Err(io::ErrorKind::WriteZero.into()))
            }
            Work::Write { .. } => {
                self.done += count;
                (self.done >= self.length).then_some(Ok(self.done))
            }
        }
    }
}

/// A running engine, shared by the trees that use the same pool.
#[derive(Clone)]
pub(crate) enum Io {
    /// io_uring threads.
    Uring(Arc<Rings>),
    /// Worker threads.
    Psync,
}

impl Io {
    /// Starts (or joins) the engine.
    pub(crate) fn start(engine: IoEngine, pool: Option<&Pool>) -> io::Result<Self> {
        Ok(match engine {
            IoEngine::Uring => Io::Uring(Rings::shared(pool)?),
            IoEngine::Psync => Io::Psync,
        })
    }

    /// Returns the number of the ring that carries out requests for a file; `None` without rings.
    pub(crate) fn ring_of(&self, fd: &OwnedFd) -> Option<u32> {
        match self {
            Io::Uring(rings) => Some(rings.ring_of(fd) as u32),
            Io::Psync => None,
        }
    }

    /// Performs a request; returns what it owned and the number of bytes transferred.
    pub(crate) async fn perform(&self, request: Request) -> (Work, io::Result<usize>) {
        match self {
            Io::Uring(rings) => rings.perform(request).await,
            Io::Psync => psync::perform(request).await,
        }
    }
}

/// Returns the engine to use: the one asked for, else the one that `wish` (of the environment) names, else
/// io_uring if the system offers it.
pub(crate) fn choose(asked: Option<IoEngine>, wish: Option<&OsStr>) -> Result<IoEngine, Error> {
    let refuse = |kind, message: String| Error {
        op: Op::Open,
        path: RelPath::root(),
        kind,
        source: Some(io::Error::other(message)),
    };
    let asked = match asked {
        Some(engine) => Some(engine),
        None => match wish {
            None => None,
            Some(value) if value.is_empty() => None,
            Some(value) if value == "uring" => Some(IoEngine::Uring),
            Some(value) if value == "psync" => Some(IoEngine::Psync),
            Some(value) => {
                let message = format!("ROPEWAY_IO must be `uring` or `psync`, not {value:?}");
                return Err(refuse(ErrorKind::Misuse, message));
            }
        },
    };
    match asked {
        Some(IoEngine::Uring) if !uring::available() => {
            let message = "io_uring was asked for, but this system forbids it or is too old".to_owned();
            Err(refuse(ErrorKind::Unsupported, message))
        }
        Some(engine) => Ok(engine),
        None if uring::available() => Ok(IoEngine::Uring),
        None => Ok(IoEngine::Psync),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(length: usize, work: Work) -> Request {
        let fd: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
        Request::new(&Arc::new(fd), 0, length, work)
    }

    #[test]
    fn a_bad_wish_is_refused_and_named() {
        let choose = |wish: &str| choose(None, Some(OsStr::new(wish)));
        assert_eq!(choose("psync").unwrap(), IoEngine::Psync);
        assert!(choose("").is_ok());
        let error = choose("fast").unwrap_err();
        assert_eq!(error.kind, ErrorKind::Misuse);
        assert!(
            error
                .to_string()
                .contains("ROPEWAY_IO must be `uring` or `psync`, not \"fast\"")
        );
    }

    #[test]
    fn short_transfers_go_on_and_the_end_is_seen() {
        let pool = Pool::new(8192, 1);
        let mut read = request(
            8000,
            Work::Read {
                block: pool.try_get().unwrap(),
                start: 0,
            },
        );
        assert!(read.advance(Ok(1000)).is_none());
        assert!(read.advance(Err(io::ErrorKind::Interrupted.into())).is_none());
        assert_eq!(read.advance(Ok(0)).unwrap().unwrap(), 1000);
        drop(read);
        let mut direct = request(
            8192,
            Work::Read {
                block: pool.try_get().unwrap(),
                start: 0,
            },
        );
        direct.unit = 4096;
        assert!(direct.advance(Ok(4096)).is_none());
        assert_eq!(direct.advance(Ok(5)).unwrap().unwrap(), 4101);
        drop(direct);
        let mut block = pool.try_get().unwrap();
        block.set_len(10);
        let mut write = request(
            10,
            Work::Write {
                block: block.freeze(),
            },
        );
        assert!(write.advance(Ok(4)).is_none());
        assert_eq!(
            write.advance(Ok(0)).unwrap().unwrap_err().kind(),
            io::ErrorKind::WriteZero
        );
        assert_eq!(write.advance(Ok(6)).unwrap().unwrap(), 10);
    }
}
