//! Copies a range of one open file to the same place of another, with several blocks in flight.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use blake3::hazmat::{ChainingValue, HasherExt as _};
use futures_util::StreamExt as _;
use futures_util::future::{Either, select};
use futures_util::stream::{FuturesOrdered, FuturesUnordered};
use ropeway_block::{BlockMut, Pool};
use ropeway_vfs::{EndError, Error as VfsError, ErrorKind, Extent, File, Op, Pending};

use super::Counters;
use crate::error::{Error, Result};

/// Reads in flight at most, and as many writes. Signs of life wait behind them on a slow line: with 64 they came too
/// late at 100 Mbit/s, and others took the part over.
const IN_FLIGHT: usize = 12;

/// Bytes of a hole that are hashed at once: tens of milliseconds.
const HOLE_AT_ONCE: u64 = 64 << 20;

/// Zeroes that a hole is hashed as.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// What was read: data, or a hole.
enum Piece {
    Data(BlockMut, u64),
    Hole(u64),
}

/// Two open files, and what a copy between them needs.
pub(super) struct RangeCopy<'a> {
    pub(super) source: &'a dyn File,
    pub(super) target: &'a dyn File,
    pub(super) pool: &'a Pool,
    pub(super) counters: &'a Counters,
    pub(super) stop: &'a AtomicBool,
}

impl RangeCopy<'_> {
    /// Copies a range of the file, which must be a subtree of its BLAKE3 tree. Holes stay holes: the target has
    /// one there. `shorten` is asked before each read for the end of the range, with the place up to which it is
    /// read already: it may have moved closer. Returns the chaining value of the subtree.
    ///
    /// # Errors
    /// An end failed, or the source is shorter.
    pub(super) async fn copy(
        &self,
        range: Range<u64>,
        mut shorten: impl AsyncFnMut(u64) -> Result<u64>,
    ) -> Result<ChainingValue> {
        let mut hasher = blake3::Hasher::new();
        hasher.set_input_offset(range.start);
        let (mut next, mut end) = (range.start, range.end);
        let mut data: Option<Extent> = None;
        let mut reads: FuturesOrdered<Pending<'_, Result<Piece>>> = FuturesOrdered::new();
        let mut writes: FuturesUnordered<Pending<'_, Result<()>>> = FuturesUnordered::new();
        loop {
            while reads.len() < IN_FLIGHT && next < end {
                end = shorten(next).await?;
                if next >= end {
                    break;
                }
                let found = match data.filter(|data| next < data.offset + data.length) {
                    Some(found) => found,
                    None => self.data_at(next, end).await?,
                };
                data = Some(found);
                if next < found.offset {
                    let hole = (found.offset.min(end) - next).min(HOLE_AT_ONCE);
                    next += hole;
                    reads.push_back(Box::pin(async move { Ok(Piece::Hole(hole)) }));
                    continue;
                }
                let is_idle = reads.is_empty() && writes.is_empty();
                let block = match (self.pool.try_get(), is_idle) {
                    (Some(block), _) => block,
                    (None, true) => self.pool.get().await,
                    (None, false) => break,
                };
                let length = (end.min(found.offset + found.length) - next).min(block.capacity() as u64);
                reads.push_back(self.read(block, next, length as usize));
                next += length;
            }
            let piece = match (reads.is_empty(), writes.is_empty()) {
                (true, true) => break,
                (true, false) => {
                    writes.next().await.transpose()?;
                    continue;
                }
                (false, true) => reads.next().await,
                (false, false) => match select(reads.next(), writes.next()).await {
                    Either::Left((piece, _)) => piece,
                    Either::Right((written, _)) => {
                        written.transpose()?;
                        continue;
                    }
                },
            };
            match piece.transpose()? {
                Some(Piece::Data(block, at)) => {
                    hasher.update(&block);
                    writes.push(self.write(block, at));
                }
                Some(Piece::Hole(length)) => {
                    hash_hole(&mut hasher, length);
                    // Signs of life and signals have their turn.
                    tokio::task::yield_now().await;
                }
                None => {}
            }
            self.counters.progress.fetch_add(1, Ordering::Relaxed);
            if self.stop.load(Ordering::Acquire) {
                return Err(Error::Stopped);
            }
        }
        Ok(hasher.finalize_non_root())
    }

    /// Returns the first data at or behind a place: an empty run at `end` if there is only a hole.
    async fn data_at(&self, at: u64, end: u64) -> Result<Extent> {
        let found = self.source.next_extent(at).await.map_err(Error::source)?;
        Ok(match found {
            Some(Extent { offset, length }) if offset < end => Extent { offset, length },
            _ => Extent {
                offset: end,
                length: 0,
            },
        })
    }

    fn read(&self, block: BlockMut, at: u64, length: usize) -> Pending<'_, Result<Piece>> {
        let (source, parts) = (self.source, &self.counters.parts);
        Box::pin(async move {
            let (block, read) = source.read_at(block, at, length).await;
            read.map_err(Error::source)?;
            parts.fetch_add(block.len() as u64, Ordering::Relaxed);
            match block.len() == length {
                true => Ok(Piece::Data(block, at)),
                false => Err(Error::source(VfsError::new(
                    Op::Read,
                    source.path(),
                    ErrorKind::Changed,
                ))),
            }
        })
    }

    fn write(&self, block: BlockMut, at: u64) -> Pending<'_, Result<()>> {
        let target = self.target;
        Box::pin(async move {
            let written = target.write_at(block.freeze(), at).await;
            written.map_err(|error| Error::End(EndError::on_target(error)))
        })
    }
}

fn hash_hole(hasher: &mut blake3::Hasher, mut length: u64) {
    while length > 0 {
        let some = length.min(ZEROES.len() as u64);
        hasher.update(&ZEROES[..some as usize]);
        length -= some;
    }
}
