//! A thread that does a cache's background work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::engine::Cache;

/// Time between two rounds: at 500 MB/s a segment of 8 MiB fills in 16 ms.
const INTERVAL: Duration = Duration::from_millis(5);

/// Calls [`Cache::work`] until it is dropped; then everything is written.
#[derive(Debug)]
pub struct Writer {
    is_done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread.
    pub fn start(cache: Cache) -> std::io::Result<Self> {
        let is_done = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_done);
        let thread = std::thread::Builder::new()
            .name("cache-writer".to_owned())
            .spawn(move || {
                while !ends.load(Ordering::Acquire) {
                    // An error has turned the cache off and is counted; the next rounds probe.
                    let _ = cache.work();
                    std::thread::park_timeout(INTERVAL);
                }
                // What cannot be written now is missed later.
                let _ = cache.flush();
            })?;
        Ok(Self {
            is_done,
            thread: Some(thread),
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.is_done.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic of the thread was printed by the panic hook.
            let _ = thread.join();
        }
    }
}
