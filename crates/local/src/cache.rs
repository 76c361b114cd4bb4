//! Leaves the page cache as it was.
//!
//! If the volume takes `RWF_DONTCACHE`, the kernel does it: pages that were not cached before are
//! dropped when read, or when written back. Elsewhere [`CacheFollower`] follows a file's I/O in windows: it
//! looks whether a window is cached before the first access, and drops windows that were not, once they
//! are consumed or written back. A window of which a single page was cached before is never dropped.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{Advice, fadvise};
use rustix::io::Errno;

use crate::sys;

/// Size from which files leave the cache as it was by default ([`ropeway_vfs::CacheMode::Auto`]). A
/// guess: files that are read again soon are smaller, files that flood a cache are larger.
pub const CACHE_LEAVE_MIN: u64 = 32 << 20;

/// Bytes of a window, examined and dropped at once: some milliseconds of a fast device, 2048 pages.
const WINDOW: u64 = 8 << 20;

/// Windows under write-back before the oldest is awaited, so that the device always has work.
const STARTED_MAX: usize = 2;

/// Follows the I/O of one open file and drops its pages without help of the kernel.
pub(crate) struct CacheFollower {
    fd: Arc<OwnedFd>,
    windows: Mutex<Windows>,
    /// Errno of a failed write-back that was awaited; 0: none.
    failure: AtomicI32,
}

#[derive(Default)]
struct Windows {
    known: BTreeMap<u64, Window>,
    /// Under write-back, oldest first.
    started: VecDeque<u64>,
}

#[derive(Default)]
struct Window {
    /// Whether nothing of the window was cached before this file's first access.
    cold: bool,
    read: u64,
    written: u64,
}

/// What to do after a write.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Settle {
    start: Vec<u64>,
    finish: Option<u64>,
}

impl CacheFollower {
    /// Follows `fd`. Read-ahead is turned off: it would fill windows before they were looked at.
    pub(crate) fn new(fd: &Arc<OwnedFd>) -> Self {
        let _ = fadvise(fd, 0, None, Advice::Random);
        Self {
            fd: Arc::clone(fd),
            windows: Mutex::default(),
            failure: AtomicI32::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Windows> {
        self.windows.lock()
    }

    /// Returns the windows of a range that were not examined yet; pass them to [`examine`](Self::examine)
    /// before the access.
    pub(crate) fn unknown(&self, offset: u64, length: u64) -> Vec<u64> {
        let windows = self.lock();
        covered(offset, length)
            .filter(|index| !windows.known.contains_key(index))
            .collect()
    }

    /// Examines whether windows are cached. Blocks.
    pub(crate) fn examine(&self, indices: &[u64]) {
        for index in indices {
            let cached = sys::cached_bytes(self.fd.as_fd(), index * WINDOW, WINDOW);
            let cold = matches!(cached, Ok(Some(0)));
            // The first access examined the window before anything was read.
            self.lock().known.entry(*index).or_insert(Window {
                cold,
                ..Window::default()
            });
        }
    }

    /// Counts bytes read. Returns the consumed windows, to be dropped by [`drop_windows`](Self::drop_windows).
    pub(crate) fn after_read(&self, offset: u64, length: u64, ended: bool) -> Vec<u64> {
        let mut windows = self.lock();
        let mut consumed = Vec::new();
        for index in covered(offset, length) {
            let Some(window) = windows.known.get_mut(&index) else {
                continue;
            };
            window.read += overlap(index, offset, length);
            let last = ended && index == (offset + length) / WINDOW;
            if (window.read >= WINDOW || last) && window.written == 0 {
                if window.cold {
                    consumed.push(index);
                }
                windows.known.remove(&index);
            }
        }
        consumed
    }

    /// Counts bytes written. Returns the work for [`settle`](Self::settle).
    pub(crate) fn after_write(&self, offset: u64, length: u64) -> Settle {
        let mut windows = self.lock();
        let mut settle = Settle::default();
        for index in covered(offset, length) {
            let Some(window) = windows.known.get_mut(&index) else {
                continue;
            };
            let before = window.written;
            window.written += overlap(index, offset, length);
            if window.cold && before < WINDOW && window.written >= WINDOW {
                settle.start.push(index);
                windows.started.push_back(index);
            }
        }
        if windows.started.len() > STARTED_MAX {
            settle.finish = windows.started.pop_front();
            if let Some(index) = settle.finish {
                windows.known.remove(&index);
            }
        }
        settle
    }

    /// Starts write-back of full windows, awaits that of an old window and drops it. Blocks.
    pub(crate) fn settle(&self, settle: &Settle) {
        for index in &settle.start {
            // The kernel keeps errors of write-back for the sync that decides about durability.
            let _ = sys::sync_file_range(self.fd.as_fd(), index * WINDOW, WINDOW, false);
        }
        if let Some(index) = settle.finish {
            self.write_back_and_drop(index);
        }
    }

    /// Drops the clean pages of windows. May block.
    pub(crate) fn drop_windows(&self, indices: &[u64]) {
        for index in indices {
            let _ = fadvise(
                &self.fd,
                index * WINDOW,
                NonZeroU64::new(WINDOW),
                Advice::DontNeed,
            );
        }
    }

    /// Whether [`finish`](Self::finish) has anything to do.
    pub(crate) fn has_rest(&self) -> bool {
        self.lock().known.values().any(|window| window.cold)
    }

    /// Settles the remaining windows when the file is closed. Blocks.
    pub(crate) fn finish(&self) {
        let known = std::mem::take(&mut self.lock().known);
        for (index, window) in known.iter().filter(|(_, window)| window.cold) {
            if window.written > 0 {
                self.write_back_and_drop(*index);
            } else {
                self.drop_windows(&[*index]);
            }
        }
    }

    fn write_back_and_drop(&self, index: u64) {
        // The kernel reports an error once for each open descriptor: a later flush would not report it.
        if let Err(error) = sys::sync_file_range(self.fd.as_fd(), index * WINDOW, WINDOW, true)
            && let Some(code) = error.raw_os_error()
            && !matches!(
                Errno::from_raw_os_error(code),
                Errno::INVAL | Errno::SPIPE | Errno::NOSYS
            )
        {
            self.failure.store(code, Ordering::Release);
        }
        self.drop_windows(&[index]);
    }

    /// Returns the error of a write-back that was awaited here: the device does not have all that was
    /// written.
    pub(crate) fn failure(&self) -> Option<io::Error> {
        let code = self.failure.load(Ordering::Acquire);
        (code != 0).then(|| io::Error::from_raw_os_error(code))
    }
}

impl Settle {
    /// Whether there is nothing to do.
    pub(crate) fn is_empty(&self) -> bool {
        self.start.is_empty() && self.finish.is_none()
    }
}

fn covered(offset: u64, length: u64) -> std::ops::Range<u64> {
    offset / WINDOW
        ..offset
            .saturating_add(length)
            .div_ceil(WINDOW)
            .max(offset / WINDOW)
}

fn overlap(index: u64, offset: u64, length: u64) -> u64 {
    let (start, end) = (index * WINDOW, (index + 1) * WINDOW);
    (offset + length).min(end).saturating_sub(offset.max(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn follower(bytes: u64) -> CacheFollower {
        let file = tempfile::tempfile().unwrap();
        file.set_len(bytes).unwrap();
        CacheFollower::new(&Arc::new(file.into()))
    }

    #[test]
    fn windows_are_dropped_once_whole() {
        let follower = follower(20 * MIB);
        let unknown = follower.unknown(0, 20 * MIB);
        assert_eq!(unknown, [0, 1, 2]);
        follower.examine(&unknown);
        assert!(follower.after_read(4 * MIB, 8 * MIB, false).is_empty());
        assert_eq!(follower.after_read(0, 4 * MIB, false), [0]);
        assert_eq!(follower.after_read(12 * MIB, 8 * MIB, true), [1, 2]);
        assert!(!follower.has_rest());
    }

    #[test]
    fn writes_start_write_back_and_await_the_oldest() {
        let follower = follower(0);
        for index in 0..3 {
            follower.examine(&follower.unknown(index * WINDOW, WINDOW));
            let settle = follower.after_write(index * WINDOW, WINDOW);
            let finish = (index == 2).then_some(0);
            assert_eq!(
                settle,
                Settle {
                    start: vec![index],
                    finish
                }
            );
            follower.settle(&settle);
        }
        assert!(follower.has_rest());
        follower.finish();
        assert!(!follower.has_rest());
    }
}
