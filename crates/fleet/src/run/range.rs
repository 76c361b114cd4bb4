//! Copies a range of one open file to the same place of another, with several blocks in flight.

use std::collections::VecDeque;
use std::ops::Range;
use std::pin::pin;
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

/// Operations that have begun. An operation may hold what others wait for, such as a place in the window of a
/// connection, and lets it go only when its future is polled: so they are polled whatever is waited for.
#[derive(Default)]
struct Flight<'a> {
    reads: FuturesOrdered<Pending<'a, Result<Piece>>>,
    writes: FuturesUnordered<Pending<'a, Result<()>>>,
    /// What was read and is not written yet, in order.
    ready: VecDeque<Piece>,
}

impl Flight<'_> {
    /// Returns how many pieces are being read, or were read and are not written yet.
    fn read_len(&self) -> usize {
        self.reads.len() + self.ready.len()
    }

    fn is_empty(&self) -> bool {
        self.read_len() == 0 && self.writes.is_empty()
    }

    /// Waits until one operation has ended; for ever if there is none.
    async fn step(&mut self) -> Result<()> {
        let Self { reads, writes, ready } = self;
        let piece = match (reads.is_empty(), writes.is_empty()) {
            (true, true) => std::future::pending().await,
            (true, false) => return writes.next().await.transpose().map(drop),
            (false, true) => reads.next().await,
            (false, false) => match select(reads.next(), writes.next()).await {
                Either::Left((piece, _)) => piece,
                Either::Right((written, _)) => return written.transpose().map(drop),
            },
        };
        ready.extend(piece.transpose()?);
        Ok(())
    }

    /// Waits for something else, while operations go on.
    async fn during<T>(&mut self, other: impl Future<Output = Result<T>>) -> Result<T> {
        let mut other = pin!(other);
        loop {
            match select(other.as_mut(), pin!(self.step())).await {
                Either::Left((done, _)) => return done,
                Either::Right((stepped, _)) => stepped?,
            }
        }
    }
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
        let mut flight = Flight::default();
        loop {
            while flight.read_len() < IN_FLIGHT && next < end {
                end = flight.during(shorten(next)).await?;
                if next >= end {
                    break;
                }
                let found = match data.filter(|data| next < data.offset + data.length) {
                    Some(found) => found,
                    None => flight.during(self.data_at(next, end)).await?,
                };
                data = Some(found);
                if next < found.offset {
                    let hole = (found.offset.min(end) - next).min(HOLE_AT_ONCE);
                    next += hole;
                    flight
                        .reads
                        .push_back(Box::pin(async move { Ok(Piece::Hole(hole)) }));
                    continue;
                }
                let block = match (self.pool.try_get(), flight.is_empty()) {
                    (Some(block), _) => block,
                    (None, true) => self.pool.get().await,
                    (None, false) => break,
                };
                let length = (end.min(found.offset + found.length) - next).min(block.capacity() as u64);
                flight.reads.push_back(self.read(block, next, length as usize));
                next += length;
            }
            if flight.is_empty() {
                break;
            }
            if flight.ready.is_empty() {
                flight.step().await?;
            }
            match flight.ready.pop_front() {
                Some(Piece::Data(block, at)) => {
                    hasher.update(&block);
                    flight.writes.push(self.write(block, at));
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ropeway_vfs::decorate::{Call, Done, Layer, Layered, Operation};
    use ropeway_vfs::{CacheMode, Create, MemoryTree, OpenOptions, RelPath, Tree};
    use tokio::sync::Semaphore;

    use super::*;

    /// A connection with a window of so many operations.
    struct Window(Semaphore);

    impl Layer for Window {
        async fn around<'a, T: Send + 'a>(
            &'a self,
            _: Call<'a>,
            operation: Operation<'a, T>,
        ) -> ropeway_vfs::Result<Done<T>> {
            let _place = self.0.acquire().await.unwrap();
            // The reply comes later.
            tokio::task::yield_now().await;
            operation().await
        }
    }

    /// A worker that gave half of its part away while the window was full waited for ever: the writes in it were not polled.
    #[test]
    fn writes_go_on_while_something_is_asked_of_the_same_connection() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        runtime.unwrap().block_on(async {
            let (source, target) = (Arc::new(MemoryTree::new()), Arc::new(MemoryTree::new()));
            let path = RelPath::parse(b"file").unwrap();
            let pool = Pool::new(1_024, 64);
            let content: Vec<u8> = (0..100 * 1_024_u32).map(|byte| (byte % 251) as u8).collect();
            let create = OpenOptions::write(Create::New, CacheMode::Keep);
            for tree in [&source, &target] {
                let file = tree.open(&path, create).await.unwrap();
                for (chunk, number) in content
                    .chunks(1_024)
                    .zip(0..)
                    .filter(|_| Arc::ptr_eq(tree, &source))
                {
                    let mut block = pool.get().await;
                    block.capacity_mut()[..chunk.len()].copy_from_slice(chunk);
                    block.set_len(chunk.len());
                    file.write_at(block.freeze(), number * 1_024).await.unwrap();
                }
            }
            let line = Layered::wrap(Arc::clone(&target) as Arc<dyn Tree>, Window(Semaphore::new(2)));
            // Reads take time as well, so that writes have begun when the next ones are ready.
            let disk = Layered::wrap(Arc::clone(&source) as Arc<dyn Tree>, Window(Semaphore::new(100)));
            let read = disk
                .open(&path, OpenOptions::read(CacheMode::Keep))
                .await
                .unwrap();
            let write = OpenOptions::write(Create::No, CacheMode::Keep);
            let written = line.open(&path, write).await.unwrap();
            let copy = RangeCopy {
                source: &*read,
                target: &*written,
                pool: &pool,
                counters: &Counters::default(),
                stop: &AtomicBool::new(false),
            };
            let length = content.len() as u64;
            let shorten = async |_: u64| {
                line.metadata(&path).await.map_err(Error::target)?;
                Ok(length)
            };
            let copied =
                tokio::time::timeout(std::time::Duration::from_secs(60), copy.copy(0..length, shorten));
            copied.await.expect("it does not wait for ever").unwrap();
            assert_eq!(target.content(&path).unwrap(), content);
        });
    }
}
