//! The files that wait for a worker.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::files::File;

/// Files by the time from which on it is their turn. Each file with a backlog is in it once, so it
/// is as long as the journal allows.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    files: VecDeque<(Instant, Arc<File>)>,
    is_closed: bool,
}

impl Queue {
    /// Adds a file whose turn comes after `delay`.
    pub(crate) fn push(&self, file: &Arc<File>, delay: Duration) {
        let due = Instant::now() + delay;
        self.waiting.lock().files.push_back((due, Arc::clone(file)));
        self.changed.notify_one();
    }

    /// Makes it the turn of all files that have not failed.
    pub(crate) fn hurry(&self) {
        let now = Instant::now();
        let mut waiting = self.waiting.lock();
        for (due, file) in &mut waiting.files {
            // A file whose state is in use has just been queued.
            if file.state.try_lock().is_some_and(|state| state.failures == 0) {
                *due = now;
            }
        }
        drop(waiting);
        self.changed.notify_all();
    }

    /// Waits for a file whose turn it is; `None` once the queue is closed.
    pub(crate) fn next(&self) -> Option<Arc<File>> {
        let mut waiting = self.waiting.lock();
        loop {
            if waiting.is_closed {
                return None;
            }
            let now = Instant::now();
            let ready = waiting.files.iter().position(|(due, _)| *due <= now);
            if let Some(ready) = ready {
                return waiting.files.remove(ready).map(|(_, file)| file);
            }
            match waiting.files.iter().map(|(due, _)| *due).min() {
                Some(due) => _ = self.changed.wait_until(&mut waiting, due),
                None => self.changed.wait(&mut waiting),
            }
        }
    }

    /// Returns the files whose conflict waits to be saved.
    pub(crate) fn lost(&self) -> Vec<Arc<File>> {
        let files: Vec<Arc<File>> = {
            let waiting = self.waiting.lock();
            waiting.files.iter().map(|(_, file)| Arc::clone(file)).collect()
        };
        files
            .into_iter()
            .filter(|file| file.state.lock().is_lost)
            .collect()
    }

    /// Takes any file, whether it is its turn or not.
    pub(crate) fn take(&self) -> Option<Arc<File>> {
        self.waiting.lock().files.pop_front().map(|(_, file)| file)
    }

    /// Lets all workers end.
    pub(crate) fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.changed.notify_all();
    }
}
