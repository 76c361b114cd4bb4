//! Threads for what may wait for a device: reads of what is not cached, big writes, flushes. The connections' own threads
//! go on meanwhile.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

/// A piece of work.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Threads and what they have to do. The queue is bounded by what connections may have under way.
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
    queue: VecDeque<Job>,
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
            if let Some(job) = state.queue.pop_front() {
                drop(state);
                // A job that panics is reported by the panic; the thread goes on with others.
                _ = catch_unwind(AssertUnwindSafe(job));
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
    /// Threads are started when there is work for them, `threads_max` at most.
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

    /// Has a job done.
    pub(crate) fn run(&self, job: Job) {
        let starved = {
            let mut state = self.queue.lock();
            state.queue.push_back(job);
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
                // Those that there are do it; without any, here and now.
                Err(_) if threads.is_empty() => {
                    let next = || self.queue.lock().queue.pop_front();
                    while let Some(job) = next() {
                        job();
                    }
                }
                Err(_) => {}
            }
        }
    }
}

impl Drop for WorkerPool {
    /// What is queued is still done.
    fn drop(&mut self) {
        self.queue.lock().stopped = true;
        self.queue.work.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // A job that panicked has been reported by the panic itself.
            _ = thread.join();
        }
    }
}
