//! Requests in flight on a file of a server: workers that each make one request at a time.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ropeway_block::{Block, BlockMut, Pool};
use ropeway_vfs::File;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::data::{Buffers, Marks};
use super::tally::Tally;
use super::{PassError, PassResult};
use crate::bench::cell::Pattern;
use crate::bench::order::Order;

/// How often the workers' stop is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// An open file, of which records are read and written. Errors are sentences.
pub trait Records: Send + Sync + 'static {
    /// Reads `length` bytes at `offset` into the block; returns the block in any case.
    fn read(
        &self,
        block: BlockMut,
        offset: u64,
        length: usize,
    ) -> impl Future<Output = (BlockMut, Result<(), String>)> + Send;

    /// Writes the whole block at `offset`.
    fn write(&self, block: Block, offset: u64) -> impl Future<Output = Result<(), String>> + Send;
}

impl Records for Arc<dyn File> {
    async fn read(&self, block: BlockMut, offset: u64, length: usize) -> (BlockMut, Result<(), String>) {
        let (block, result) = self.read_at(block, offset, length).await;
        (block, result.map_err(|error| error.to_string()))
    }

    async fn write(&self, block: Block, offset: u64) -> Result<(), String> {
        let written = self.write_at(block, offset).await;
        written.map_err(|error| error.to_string())
    }
}

/// The requests of a pass over one file.
#[derive(Clone, Debug)]
pub(super) struct Requests {
    pub(super) order: Order,
    pub(super) record: usize,
    pub(super) writes: bool,
    pub(super) marks: Marks,
    pub(super) depth: u32,
    pub(super) limit: Duration,
    pub(super) bytes_max: u64,
}

/// State that the workers share.
struct Shared<R> {
    records: R,
    requests: Requests,
    next: AtomicU64,
    moved: AtomicU64,
    over: AtomicBool,
    begun: Instant,
}

/// Makes all requests with as many in flight as wanted. Ends early if `stop` is set.
///
/// # Errors
/// A request fails, or returns other bytes than were written.
pub(super) async fn pump<R: Records>(
    records: R,
    requests: Requests,
    buffers: &Buffers,
    stop: &AtomicBool,
) -> PassResult<Tally> {
    let depth = u64::from(requests.depth).min(requests.order.len()).max(1) as usize;
    let shared = Arc::new(Shared {
        records,
        requests,
        next: AtomicU64::new(0),
        moved: AtomicU64::new(0),
        over: AtomicBool::new(false),
        begun: Instant::now(),
    });
    let workers: Vec<_> = (0..depth)
        .map(|_| {
            let (shared, pool) = (Arc::clone(&shared), buffers.pool().clone());
            let spares = buffers.share(depth);
            tokio::spawn(async move { shared.work(&pool, spares).await })
        })
        .collect();
    let mut all = Tally::default();
    let mut result = Ok(());
    for worker in workers {
        match ended(worker, &shared.over, stop).await {
            Ok(tally) => all.join(&tally),
            Err(error) => {
                shared.over.store(true, Ordering::Relaxed);
                result = result.and(Err(error));
            }
        }
    }
    result.map(|()| all)
}

/// Waits for a worker. Sets `over` for all of them once `stop` is set.
pub(super) async fn ended<T>(mut worker: JoinHandle<T>, over: &AtomicBool, stop: &AtomicBool) -> T {
    let ended = loop {
        tokio::select! {
            ended = &mut worker => break ended,
            () = tokio::time::sleep(LOOK) => {
                over.fetch_or(stop.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    };
    ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

impl<R: Records> Shared<R> {
    /// Makes requests until there are none, one at a time.
    async fn work(&self, pool: &Pool, mut spares: VecDeque<BlockMut>) -> PassResult<Tally> {
        let requests = &self.requests;
        let mut tally = Tally::default();
        let mut last = self.begun.elapsed();
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= requests.order.len() {
                return Ok(tally);
            }
            let is_full = self.moved.load(Ordering::Relaxed) >= requests.bytes_max;
            if is_full || last >= requests.limit || self.over.load(Ordering::Relaxed) {
                tally.cut = true;
                return Ok(tally);
            }
            let offset = requests.order.at(number) * requests.record as u64;
            let block = match spares.pop_front() {
                Some(block) => block,
                None => pool.get().await,
            };
            match self.request(block, offset).await? {
                Some(block) => spares.push_front(block),
                // The client gave the block back to the pool; others may have taken it.
                None => spares.extend(pool.try_get()),
            }
            let now = self.begun.elapsed();
            tally.add(now, now - last, requests.record as u64);
            self.moved.fetch_add(requests.record as u64, Ordering::Relaxed);
            last = now;
        }
    }

    /// Makes one request. Returns the block of a read.
    async fn request(&self, mut block: BlockMut, offset: u64) -> PassResult<Option<BlockMut>> {
        let Requests {
            record,
            marks,
            writes,
            ..
        } = self.requests;
        let failed = |what: &str| {
            let what = what.to_owned();
            move |why: String| PassError::at(what)(std::io::Error::other(why))
        };
        if writes {
            marks.write(&mut block.capacity_mut()[..record], offset);
            block.set_len(record);
            let written = self.records.write(block.freeze(), offset).await;
            written.map_err(failed("write"))?;
            return Ok(None);
        }
        let (block, result) = self.records.read(block, offset, record).await;
        result.map_err(failed("read"))?;
        if block.len() != record || !marks.hold(&block, offset) {
            return Err(PassError::Wrong(format!(
                "the bytes read at {offset} are not those that were written there"
            )));
        }
        Ok(Some(block))
    }
}

/// One pass from start to end over one file that another process may have written, with its data
/// prepared. `lab nas` makes such passes.
#[derive(Debug)]
pub struct Sweep {
    requests: Requests,
    buffers: Buffers,
}

impl Sweep {
    /// Prepares a pass over a file of `size` bytes in records of `record` bytes, `depth` of them in
    /// flight. A rest that is smaller than a record is left out.
    pub fn new(size: u64, record: u64, depth: u32, writes: bool) -> Self {
        let record = record.max(1);
        let order = Order::of(Pattern::Read, size / record, 0);
        let in_flight = u64::from(depth).min(order.len()).max(1) as usize;
        Self {
            buffers: Buffers::new(record as usize, in_flight, size),
            requests: Requests {
                order,
                record: record as usize,
                writes,
                // The same for every process.
                marks: Marks { file: size, pass: 0 },
                depth,
                limit: Duration::MAX,
                bytes_max: u64::MAX,
            },
        }
    }

    /// Makes the pass, on the current runtime.
    ///
    /// # Errors
    /// A request fails, or returns other bytes than such a pass has written.
    pub async fn run<R: Records>(&self, records: R) -> PassResult<()> {
        let never = AtomicBool::new(false);
        pump(records, self.requests.clone(), &self.buffers, &never)
            .await
            .map(drop)
    }
}

/// Runs [`pump`] on a runtime, from a thread that is none of its own.
pub(super) fn pump_on<R: Records>(
    runtime: &Handle,
    records: R,
    requests: Requests,
    buffers: &Buffers,
    stop: &AtomicBool,
) -> PassResult<Tally> {
    runtime.block_on(pump(records, requests, buffers, stop))
}
