//! Worker threads for requests that may wait for a device: reads that are not cached, large writes,
//! flushes. The threads of the connections continue meanwhile.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex, MutexGuard};
use ropeway_vfs::trace::Requester;

/// The workers that execute a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum JobClass {
    /// Those of requests that may change something.
    #[default]
    Changes,
    /// The request changes nothing, so it need not queue behind those that do.
    Reads,
    /// The request reads much to answer little, so others do not queue behind it.
    Hashes,
    /// The request makes many files, so others do not queue behind it.
    MakesFiles,
    /// The request reads many files, so others do not queue behind it, nor it behind those that make files.
    ReadsFiles,
}

/// A piece of work.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Worker threads and their queue. The limits for jobs of a connection bound the queue.
pub(crate) struct WorkerPool {
    queue: Arc<Queue>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    threads_max: usize,
}

struct Queue {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    /// Jobs, each with the one that it is for.
    queue: VecDeque<(Requester, Job)>,
    idle: usize,
    stopped: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn run(&self) {
        let mut state = self.lock();
        loop {
            if let Some((requester, job)) = state.queue.pop_front() {
                drop(state);
                // The panic itself reports the job; the thread continues with others.
                _ = catch_unwind(AssertUnwindSafe(|| requester.ask(job)));
                state = self.lock();
            } else if state.stopped {
                return;
            } else {
                state.idle += 1;
                self.work.wait(&mut state);
                state.idle -= 1;
            }
        }
    }
}

impl WorkerPool {
    /// Creates a pool without threads. It starts up to `threads_max` when there is work.
    pub(crate) fn new(threads_max: usize) -> Self {
        Self {
            queue: Arc::new(Queue {
                state: Mutex::default(),
                work: Condvar::new(),
            }),
            threads: Mutex::default(),
            threads_max: threads_max.max(1),
        }
    }

    /// Queues a job.
    pub(crate) fn run(&self, job: Job) {
        let starved = {
            let mut state = self.queue.lock();
            state.queue.push_back((Requester::present(), job));
            state.queue.len() > state.idle
        };
        self.queue.work.notify_one();
        if starved {
            self.grow();
        }
    }

    fn grow(&self) {
        let mut threads = self.threads.lock();
        if threads.len() < self.threads_max {
            let queue = Arc::clone(&self.queue);
            let thread = std::thread::Builder::new().name("smb-io".to_owned());
            match thread.spawn(move || queue.run()) {
                Ok(thread) => threads.push(thread),
                // Existing threads take the job. Without any, this thread executes it.
                Err(_) if threads.is_empty() => {
                    let next = || self.queue.lock().queue.pop_front();
                    while let Some((requester, job)) = next() {
                        requester.ask(job);
                    }
                }
                Err(_) => {}
            }
        }
    }
}

impl Drop for WorkerPool {
    /// Executes the queued jobs before it returns.
    fn drop(&mut self) {
        self.queue.lock().stopped = true;
        self.queue.work.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // The panic itself has reported the job.
            _ = thread.join();
        }
    }
}
