//! Lookups on threads of their own, so that a device that hangs holds up no reader.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use ropeway_cache::{Cache, Key};

use crate::fetches::Bytes;

/// Threads. A guess: flash devices reach their rate at this depth.
const THREADS: usize = 8;
/// Blocks that wait for a thread, at most; more are misses.
const WAITING_MAX: usize = 1024;
/// After this time the source is asked instead. The cache turns itself off after one second.
const PATIENCE: Duration = Duration::from_secs(1);

/// The threads.
pub(crate) struct Lookups {
    shared: Arc<Shared>,
}

struct Shared {
    cache: Cache,
    queue: Mutex<Queue>,
    arrived: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    is_done: bool,
}

struct Job {
    key: Key,
    place: usize,
    batch: Arc<Batch>,
}

struct Batch {
    found: Mutex<Found>,
    ended: Condvar,
}

struct Found {
    blocks: Vec<Option<Bytes>>,
    left: usize,
}

impl Lookups {
    /// Starts the threads. They end with this value; one that hangs in the device ends with it.
    pub(crate) fn start(cache: &Cache) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            cache: cache.clone(),
            queue: Mutex::default(),
            arrived: Condvar::new(),
        });
        let this = Self {
            shared: Arc::clone(&shared),
        };
        for _ in 0..THREADS {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name("boost-lookup".into());
            thread.spawn(move || shared.run())?;
        }
        Ok(this)
    }

    /// Looks blocks up; `None` for what is not there, or does not come in time.
    pub(crate) fn find(&self, keys: &[Key]) -> Vec<Option<Bytes>> {
        let batch = Arc::new(Batch {
            found: Mutex::new(Found {
                blocks: vec![None; keys.len()],
                left: keys.len(),
            }),
            ended: Condvar::new(),
        });
        {
            let mut queue = self.shared.queue.lock();
            if queue.jobs.len() + keys.len() > WAITING_MAX {
                return vec![None; keys.len()];
            }
            for (place, key) in keys.iter().enumerate() {
                let batch = Arc::clone(&batch);
                queue.jobs.push_back(Job {
                    key: *key,
                    place,
                    batch,
                });
            }
        }
        match keys.len() {
            1 => drop(self.shared.arrived.notify_one()),
            _ => drop(self.shared.arrived.notify_all()),
        }
        let deadline = Instant::now() + PATIENCE;
        let mut found = batch.found.lock();
        while found.left > 0 && !batch.ended.wait_until(&mut found, deadline).timed_out() {}
        std::mem::take(&mut found.blocks)
    }
}

impl Drop for Lookups {
    fn drop(&mut self) {
        self.shared.queue.lock().is_done = true;
        self.shared.arrived.notify_all();
    }
}

impl Shared {
    fn run(&self) {
        while let Some(job) = self.next() {
            let bytes = self.cache.lookup(&job.key);
            let mut found = job.batch.found.lock();
            // Empty if the reader has gone.
            if let Some(block) = found.blocks.get_mut(job.place) {
                *block = bytes;
            }
            found.left -= 1;
            if found.left == 0 {
                job.batch.ended.notify_all();
            }
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.queue.lock();
        loop {
            if queue.is_done {
                return None;
            }
            match queue.jobs.pop_front() {
                Some(job) => return Some(job),
                None => self.arrived.wait(&mut queue),
            }
        }
    }
}
