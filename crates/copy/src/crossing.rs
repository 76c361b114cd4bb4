//! Small files from one side to another: each whole, in one call on each side, hundreds in flight across folders.
//!
//! ```text
//!   permit -> block of the class that fits -> source.get_small -> target.put_small -> counted as a batch's file is
//! ```
//!
//! Where a call costs a round trip, what counts is how many are under way. Memory is bounded by three pools of blocks
//! (a page more than 64 KiB, 1 MiB, a page more than 4 MiB): a file takes one block of the smallest class that holds it, and
//! waits if none is free, or if the blocks taken make [`ROOM`] already. Blocks that one class needs no more give their memory
//! back when another needs it.
//! Whatever is not plain (grown beyond its block, changed while it was read, a passing error, holes worth keeping)
//! takes the long way, through [`file`].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropeway_block::{Block, BlockMut, Pool};
use ropeway_vfs::{BatchDone, Create, End, Error, ErrorKind, GetSmall, GotSmall, PutSmall, Tree, Verdict};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::context::{Context, RootContext};
use crate::file::{self, FileTask};
use crate::folder::Placement;
use crate::leftovers;
use crate::links;
use crate::progress::add_wait;
use crate::small;

/// Payload and number of blocks of each class beside the job's own pool (of 1 MiB). 256 files of 64 KiB are 16 MiB in
/// flight, 5 of 4 MiB are 20: each is twice what a line of 622 Mbit/s and 75 ms holds (5.8 MB). Slots that are never used
/// cost nothing.
const SMALL: (usize, usize) = (68 << 10, 256);
const MIDDLE: (usize, usize) = ((4 << 20) + 4096, 5);
/// Bytes of all blocks taken this way at once: five of 4 MiB and some small ones. With the 26 MiB of streams of bigger files,
/// the heap and the program's own pages the process stays below 64 MiB; 24 made it 65.
const ROOM: usize = 21 << 20;
/// Memory of all blocks, taken or free, beyond which free ones of other classes give theirs back, on a long line. A guess: a
/// third more than [`ROOM`]. While streams of bigger files hold as much by themselves, nothing free keeps its memory: a file
/// of 4 MiB takes up to 10 ms of page faults then, and 50 ms of such a line.
const RESIDENT_MAX: usize = 28 << 20;
/// One permit of it.
const UNIT: usize = 4096;
/// Files under way at most, whatever a tree asks for.
const IN_FLIGHT_MAX: usize = 512;
/// A file with holes takes the long way from this size on: a smaller hole is not worth the round trips.
const SPARSE_MIN: u64 = 64 << 10;

/// What bounds the small files under way.
pub(crate) struct Crossing {
    is_far: bool,
    permits: Arc<Semaphore>,
    permits_max: usize,
    small: Pool,
    middle: Pool,
    room: Semaphore,
}

impl Crossing {
    /// `None` where neither side is behind a network.
    pub(crate) fn between(target: &dyn Tree, roots: &[Arc<RootContext>]) -> Option<Self> {
        let sources = roots
            .iter()
            .map(|root| root.root.source.capabilities().small_in_flight);
        let wanted = sources.fold(target.capabilities().small_in_flight, usize::max);
        (wanted > 1).then(|| {
            let permits_max = wanted.min(IN_FLIGHT_MAX);
            Self {
                is_far: roots
                    .iter()
                    .map(|root| &*root.root.source)
                    .chain([target])
                    .any(|tree| tree.capabilities().far),
                permits: Arc::new(Semaphore::new(permits_max)),
                permits_max,
                small: Pool::new(SMALL.0, SMALL.1),
                middle: Pool::new(MIDDLE.0, MIDDLE.1),
                room: Semaphore::new(ROOM / UNIT),
            }
        })
    }

    /// The largest file that crosses this way.
    pub(crate) fn size_max(&self) -> u64 {
        // Below, so that a file that grew by a byte is seen to have.
        self.middle.block_size() as u64 - 1
    }

    /// One for each file under way.
    pub(crate) fn permits(&self) -> &Arc<Semaphore> {
        &self.permits
    }

    /// Waits until no file is under way.
    pub(crate) async fn landed(&self) {
        let all = u32::try_from(self.permits_max).unwrap_or(u32::MAX);
        drop(self.permits.acquire_many(all).await);
    }

    /// A block that holds `size` bytes, and the room it takes.
    async fn block(&self, context: &Context, size: u64) -> (SemaphorePermit<'_>, BlockMut) {
        let classes = [&self.small, &context.pool, &self.middle];
        let fits = |pool: &&Pool| size < pool.block_size() as u64;
        let pool = classes.into_iter().find(fits).unwrap_or(&self.middle);
        // Exact: a few thousand at most.
        let units = pool.block_size().min(ROOM).div_ceil(UNIT) as u32;
        let room = self.room.acquire_many(units).await;
        let room = room.expect("the semaphore is never closed");
        let block = pool.get().await;
        self.bound_memory(context, pool);
        (room, block)
    }

    /// Free blocks keep their memory for the next file, but all of them together little more than can be taken at once.
    fn bound_memory(&self, context: &Context, taken: &Pool) {
        if !self.is_far {
            // Pages would cost more than the line.
            return;
        }
        let all = [&self.small, &context.pool, &self.middle];
        let resident: usize = all.iter().map(|pool| pool.resident()).sum();
        let mut surplus = resident.saturating_sub(RESIDENT_MAX);
        let is_other = |pool: &&Pool| pool.block_size() != taken.block_size();
        for pool in all.into_iter().filter(is_other) {
            surplus = surplus.saturating_sub(pool.give_back(surplus));
        }
    }
}

/// Copies one small file. The permit is held by the caller.
pub(crate) async fn copy(context: &Arc<Context>, task: FileTask) {
    if context.stopped() {
        return;
    }
    let Some(crossing) = context
        .crossing
        .as_ref()
        .filter(|_| !is_worth_holes(context, &task))
    else {
        return file::copy(context, task).await;
    };
    if context.wants_durable() {
        context.sync.wait_for_room(context).await;
    }
    let (_room, block) = crossing.block(context, task.metadata.size).await;
    if context.stopped() {
        return;
    }
    let (block, got) = get(context, &task, block).await;
    let stable_ids = task.folder.root().root.source.capabilities().stable_ids;
    let is_same = |got: &GotSmall| file::check_identity(&task, &got.metadata, stable_ids).is_ok();
    let got = match got {
        Ok(got) if got.whole && is_same(&got) => got,
        Ok(_) => {
            drop(block);
            return file::copy(context, task).await;
        }
        Err(error) => {
            drop(block);
            return failed(context, task, error, End::Source).await;
        }
    };
    let mut done = BatchDone {
        read: block.len() as u64,
        sent: block.len() as u64,
        size: block.len() as u64,
        hash: context.hashes.is_some().then(|| *blake3::hash(&block).as_bytes()),
        ..BatchDone::default()
    };
    let content = (!block.is_empty()).then(|| block.freeze());
    match put(context, &task, content, &got).await {
        Ok(losses) => {
            done.losses = losses;
            small::finished(context, task, &done).await;
        }
        Err(error) => failed(context, task, error, End::Target).await,
    }
}

/// Whether holes of this file are to be kept, which only the long way does.
fn is_worth_holes(context: &Context, task: &FileTask) -> bool {
    task.metadata.size >= SPARSE_MIN && task.metadata.is_sparse() && context.target.capabilities().sparse
}

async fn get(context: &Context, task: &FileTask, block: BlockMut) -> (BlockMut, Result<GotSmall, Error>) {
    let get = GetSmall {
        path: task.source_path.clone(),
        size: task.metadata.size,
        xattrs: context.wants_xattrs(&*task.folder.root().root.source, &task.metadata),
        cache: file::cache_of(context, task.metadata.size).source,
    };
    let start = Instant::now();
    let got = task.folder.root().root.source.get_small(get, block).await;
    add_wait(&context.live.waits.source, start.elapsed());
    got
}

async fn put(
    context: &Context,
    task: &FileTask,
    content: Option<Block>,
    got: &GotSmall,
) -> Result<Vec<ropeway_vfs::Loss>, Error> {
    let temporary = task.folder.placement() == Placement::Temporary;
    let dir = task.folder.path();
    let to = dir.join(&task.name);
    let path = match temporary {
        true => dir.join(&context.temporary_of(task.token())),
        false => to.clone(),
    };
    task.folder.marks(context);
    if temporary {
        leftovers::before(context, &task.folder).await;
    }
    small::make_way(context, std::slice::from_ref(task)).await;
    let put = PutSmall {
        path,
        // What is there already is removed by the longer way, which looks at it.
        create: Create::New,
        content,
        change: context.change_of_file(&got.metadata, got.xattrs.clone()),
        sync: context.flushes_each(),
        rename_to: (temporary && !context.postpones()).then_some(to),
        cache: file::cache_of(context, task.metadata.size).target,
    };
    let start = Instant::now();
    let result = context.target.put_small(put).await;
    add_wait(&context.live.waits.target, start.elapsed());
    result
}

/// A passing error, or one that the slower way may avoid, gets its tries there.
async fn failed(context: &Arc<Context>, task: FileTask, error: Error, end: End) {
    if context.stopped() {
        return;
    }
    let slower = matches!(error.kind, ErrorKind::AlreadyExists | ErrorKind::Unsupported);
    if error.verdict() == Verdict::Retry || slower {
        let task = match end {
            End::Source => task,
            End::Target => small::leftover(task),
        };
        return file::copy(context, task).await;
    }
    file::give_up(context, &task, &error).await;
    let link = task.link;
    context.live.files_failed.fetch_add(1, Ordering::Relaxed);
    context.fail(&task.shown(), error, end).await;
    if let Some(id) = link {
        links::failed(context, id).await;
    }
}
