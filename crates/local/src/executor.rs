//! The process-wide threads that make blocking system calls.
//!
//! There are three lanes, so that short work never waits for a flush of a slow device:
//! * [`Lane::Short`]: metadata and batches of small files; one thread for each core, at least two;
//! * [`Lane::Data`]: big reads and writes of the psync engine, several at once;
//! * [`Lane::Slow`]: calls that wait for a device: fsync, syncfs, awaiting write-back.
//!
//! Batches have a queue of their own, which is served after all other work of the short lane: a listing
//! that waited for a second of batches would leave the threads idle afterwards. Two threads take batches
//! of one folder only if there are no others, since both would wait for that folder's lock in the kernel.
//!
//! Threads start when needed and are parked when idle. Each lane admits a bounded number of jobs; a
//! future beyond that waits without blocking its thread, so submitting never deadlocks. A job never
//! waits for another job. Workers have their own umask of 0 if the system allows it (see
//! [`mode_is_masked`]).

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use async_lock::{Semaphore, SemaphoreGuardArc};
use futures_channel::oneshot;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::sys;

/// Jobs queued or running in one lane. A job is a boxed closure of some hundred bytes, so this is below 1 MiB.
const JOBS_MAX: usize = 4096;

/// Threads of the data lane: block operations in flight of the psync engine (a guess: about where one
/// device queue stops gaining).
const DATA_THREADS: usize = 8;

/// Threads of the slow lane: number of devices flushed at once.
const SLOW_THREADS: usize = 8;

/// Most threads of the short lane.
const SHORT_THREADS_MAX: usize = 256;

/// Kinds of work, each with threads of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Metadata, small files.
    Short,
    /// Big reads and writes.
    Data,
    /// Work that waits for devices.
    Slow,
}

impl Lane {
    fn pool(self) -> &'static Pool {
        static SHORT: LazyLock<Pool> = LazyLock::new(|| Pool::new("ropeway-file", short_threads_default()));
        static DATA: LazyLock<Pool> = LazyLock::new(|| Pool::new("ropeway-data", DATA_THREADS));
        static SLOW: LazyLock<Pool> = LazyLock::new(|| Pool::new("ropeway-sync", SLOW_THREADS));
        match self {
            Lane::Short => &SHORT,
            Lane::Data => &DATA,
            Lane::Slow => &SLOW,
        }
    }
}

/// Runs a job on a thread of a lane. The job is submitted at the first poll; then it runs even if the
/// future is dropped.
pub(crate) async fn run<T: Send + 'static>(lane: Lane, job: impl FnOnce() -> T + Send + 'static) -> T {
    lane.pool().run(Work::Any, job).await
}

/// Runs a batch on a thread of the short lane; `folder` is any number that tells folders apart.
pub(crate) async fn run_batch<T: Send + 'static>(folder: u64, job: impl FnOnce() -> T + Send + 'static) -> T {
    let batch = |job| Work::Batch { folder, job };
    Lane::Short.pool().run(batch, job).await
}

/// Runs a job on a thread of a lane without a result. It does not count against the lane's bound: callers
/// are bounded by the open files that they clean up.
pub(crate) fn detach(lane: Lane, job: impl FnOnce() + Send + 'static) {
    lane.pool().push(Work::Any(Box::new(job)));
}

/// Sets the number of threads of the short lane.
pub(crate) fn set_short_threads(count: usize) {
    let limit = count.clamp(1, SHORT_THREADS_MAX);
    Lane::Short.pool().limit.store(limit, Ordering::Relaxed);
}

/// Raises the number of threads of the short lane to at least `count`.
pub(crate) fn ensure_short_threads(count: usize) {
    Lane::Short
        .pool()
        .limit
        .fetch_max(count.min(SHORT_THREADS_MAX), Ordering::Relaxed);
}

/// Default number of threads of the short lane: one for each core, at least two.
pub(crate) fn short_threads_default() -> usize {
    std::thread::available_parallelism()
        .map_or(2, std::num::NonZero::get)
        .max(2)
}

/// Whether the umask of this worker thread removes bits of `mode`.
pub(crate) fn mode_is_masked(mode: u32) -> bool {
    mode & UMASK.with(Cell::get) != 0
}

thread_local! {
    /// The umask of this thread; by default the process's.
    static UMASK: Cell<u32> = Cell::new(process_umask());
}

/// Returns the process's umask at the first call, read without changing it.
pub(crate) fn process_umask() -> u32 {
    static MASK: OnceLock<u32> = OnceLock::new();
    *MASK.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        status
            .lines()
            .find_map(|line| line.strip_prefix("Umask:"))
            .and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok())
            // Unknown: assume that it removes every bit, so that modes are always set again.
            .unwrap_or(0o777)
    })
}

type Job = Box<dyn FnOnce() + Send>;

fn permitted_job(permit: SemaphoreGuardArc, job: impl FnOnce() + Send + 'static) -> Job {
    Box::new(move || {
        let _permit = permit;
        job();
    })
}

struct Pool {
    name: &'static str,
    limit: AtomicUsize,
    permits: Arc<Semaphore>,
    state: Mutex<State>,
    wake: Condvar,
}

/// A queued job.
enum Work {
    /// Runs in its turn.
    Any(Job),
    /// Runs preferably while no other thread works in the same folder.
    Batch {
        /// Tells folders apart.
        folder: u64,
        job: Job,
    },
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    batches: VecDeque<(u64, Job)>,
    /// Folders that threads work in now: at most one entry for each thread.
    folders: Vec<u64>,
    threads: usize,
    idle: usize,
}

impl State {
    fn waiting(&self) -> usize {
        self.jobs.len() + self.batches.len()
    }

    fn add(&mut self, work: Work) {
        match work {
            Work::Any(job) => self.jobs.push_back(job),
            Work::Batch { folder, job } => self.batches.push_back((folder, job)),
        }
    }

    /// Takes the next work: other work before batches; of batches the oldest whose folder is free, else the
    /// oldest.
    fn take(&mut self) -> Option<Work> {
        if let Some(job) = self.jobs.pop_front() {
            return Some(Work::Any(job));
        }
        let free = self
            .batches
            .iter()
            .position(|(folder, _)| !self.folders.contains(folder));
        let (folder, job) = self.batches.remove(free.unwrap_or(0))?;
        self.folders.push(folder);
        Some(Work::Batch { folder, job })
    }

    fn left(&mut self, folder: u64) {
        if let Some(at) = self.folders.iter().position(|other| *other == folder) {
            self.folders.swap_remove(at);
        }
    }
}

impl Pool {
    fn new(name: &'static str, limit: usize) -> Self {
        Self {
            name,
            limit: AtomicUsize::new(limit),
            permits: Arc::new(Semaphore::new(JOBS_MAX)),
            state: Mutex::default(),
            wake: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Waits for a permit, submits `job` as the work that `kind` makes of it, and waits for its result.
    async fn run<T: Send + 'static>(
        &'static self,
        kind: impl FnOnce(Job) -> Work,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let permit = self.permits.acquire_arc().await;
        let (reply, answer) = oneshot::channel();
        self.push(kind(permitted_job(permit, move || {
            let _ = reply.send(job());
        })));
        match answer.await {
            Ok(value) => value,
            Err(oneshot::Canceled) => panic!("a file job panicked"),
        }
    }

    fn push(&'static self, work: Work) {
        let mut state = self.lock();
        state.add(work);
        if state.waiting() <= state.idle || state.threads >= self.limit.load(Ordering::Relaxed) {
            drop(state);
            self.wake.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let spawned = std::thread::Builder::new()
            .name(self.name.into())
            .spawn(move || self.work());
        if spawned.is_err() {
            let mut state = self.lock();
            state.threads -= 1;
            if state.threads == 0
                && let Some(work) = state.take()
            {
                // No thread can be started: run the job on this one.
                drop(state);
                self.finish(work);
            }
        }
    }

    /// Runs one job. A panic drops the job's reply, which reports it; the thread goes on.
    fn finish(&self, work: Work) {
        match work {
            Work::Any(job) => drop(catch_unwind(AssertUnwindSafe(job))),
            Work::Batch { folder, job } => {
                let _ = catch_unwind(AssertUnwindSafe(job));
                self.lock().left(folder);
            }
        }
    }

    fn work(&self) {
        if sys::own_umask() {
            UMASK.with(|mask| mask.set(0));
        }
        let mut state = self.lock();
        loop {
            if state.threads > self.limit.load(Ordering::Relaxed) {
                state.threads -= 1;
                // Pass the wake-up on to another thread.
                self.wake.notify_one();
                return;
            }
            if let Some(work) = state.take() {
                drop(state);
                self.finish(work);
                state = self.lock();
                continue;
            }
            state.idle += 1;
            self.wake.wait(&mut state);
            state.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::block_on;

    #[test]
    fn a_panicking_job_leaves_its_lane_working() {
        let panicked = || block_on(run(Lane::Data, || -> u8 { panic!("on purpose") }));
        assert!(catch_unwind(panicked).is_err());
        for _ in 0..2 * DATA_THREADS {
            assert_eq!(block_on(run(Lane::Data, || 7)), 7);
        }
    }

    #[test]
    fn workers_have_no_umask_or_know_it() {
        let masked = block_on(run(Lane::Short, || mode_is_masked(0o777)));
        assert!(!masked || process_umask() != 0);
    }
}
