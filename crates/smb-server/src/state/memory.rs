//! Memory that connections have freed goes back to the system, some time later and for all of them at
//! once: the allocator keeps it otherwise, for each thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// Time between two releases. One takes some milliseconds, during which others cannot allocate.
const PAUSE: Duration = Duration::from_secs(5);

/// Releases freed memory, if there is something that can.
pub(crate) struct FreedMemory {
    release: Option<fn()>,
    release_stack: Option<fn()>,
    /// Whether memory was freed since the last release.
    is_due: AtomicBool,
    /// When memory was last released, by the server's clock.
    last: Mutex<Duration>,
}

impl FreedMemory {
    pub(crate) fn new(release: Option<fn()>, release_stack: Option<fn()>) -> Self {
        Self {
            release,
            release_stack,
            is_due: false.into(),
            last: Mutex::default(),
        }
    }

    /// Notes that a connection has freed its buffers, and will wait for long: its thread needs little of its
    /// stack.
    pub(crate) fn idle(&self) {
        self.freed();
        if let Some(release_stack) = self.release_stack {
            release_stack();
        }
    }

    /// Notes that a connection has freed its buffers.
    pub(crate) fn freed(&self) {
        self.is_due.store(true, Ordering::Relaxed);
    }

    /// Releases now: much was freed.
    pub(crate) fn release(&self) {
        if let Some(release) = self.release {
            release();
        }
    }

    /// Releases what was freed, if the last release was long ago.
    pub(crate) fn tend(&self, now: Duration) {
        let mut last = self.last.lock();
        if self.is_due.load(Ordering::Relaxed) && now.saturating_sub(*last) >= PAUSE {
            *last = now;
            self.is_due.store(false, Ordering::Relaxed);
            self.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn freed_memory_is_released_once_and_not_too_often() {
        static RELEASES: AtomicU32 = AtomicU32::new(0);
        let memory = FreedMemory::new(
            Some(|| {
                RELEASES.fetch_add(1, Ordering::Relaxed);
            }),
            None,
        );
        let releases_at = |seconds| {
            memory.tend(Duration::from_secs(seconds));
            RELEASES.load(Ordering::Relaxed)
        };
        assert_eq!(releases_at(10), 0, "nothing was freed");
        memory.freed();
        assert_eq!(releases_at(11), 1);
        assert_eq!(releases_at(20), 1);
        memory.freed();
        assert_eq!(releases_at(21), 2);
        memory.freed();
        assert_eq!(releases_at(25), 2, "too early");
        assert_eq!(releases_at(26), 3);
    }
}
