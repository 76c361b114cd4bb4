//! Leaving the page cache as it was found.
//!
//! Where the volume takes `RWF_DONTCACHE` the kernel does it: pages that were not cached before are
//! dropped when read, or when written back. Elsewhere [`Behind`] follows a file's I/O in windows: it
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

/// Files from this size on leave the cache as it was when the caller does not say ([`ropeway_vfs::CacheMode::Auto`]).
/// A guess: what one reads again soon is smaller, what floods a cache is larger.
pub const CACHE_LEAVE_MIN: u64 = 32 << 20;

/// Bytes looked at and dropped at once: some milliseconds of a fast device, 2048 pages.
const WINDOW: u64 = 8 << 20;

/// Windows under write-back before the oldest is awaited: the device always has work.
const STARTED_MAX: usize = 2;

/// Follows one open file without kernel help.
pub(crate) struct Behind {
    fd: Arc<OwnedFd>,
    windows: Mutex<Windows>,
    /// The error of a write-back that was awaited; 0: none.
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
    /// Nothing of it was cached before this file's first access.
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

impl Behind {
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

    /// Windows of a range that were not looked at yet; give them to [`examine`](Self::examine) before the access.
    pub(crate) fn unknown(&self, offset: u64, length: u64) -> Vec<u64> {
        let windows = self.lock();
        covered(offset, length)
            .filter(|index| !windows.known.contains_key(index))
            .collect()
    }

    /// Looks whether windows are cached. Blocks.
    pub(crate) fn examine(&self, indices: &[u64]) {
        for index in indices {
            let cached = sys::cached_bytes(self.fd.as_fd(), index * WINDOW, WINDOW);
            let cold = matches!(cached, Ok(Some(0)));
            // Whoever came first looked before anything was read.
            self.lock().known.entry(*index).or_insert(Window {
                cold,
                ..Window::default()
            });
        }
    }

    /// Counts bytes read; the windows that are consumed are to be dropped by [`drop_windows`](Self::drop_windows).
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

    /// Counts bytes written; the answer is for [`settle`](Self::settle).
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

    /// Starts write-back of full windows, awaits that of an old one and drops it. Blocks.
    pub(crate) fn settle(&self, settle: &Settle) {
        for index in &settle.start {
            // Errors of write-back are kept by the kernel for the sync that decides about durability.
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

    /// Settles all that is left when the file is closed. Blocks.
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
        // The kernel tells an error once for each open descriptor: a later flush of this one would be silent.
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

    /// The error of a write-back that was awaited here: what was written to this file is not all on the device.
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

    fn behind(bytes: u64) -> Behind {
        let file = tempfile::tempfile().unwrap();
        file.set_len(bytes).unwrap();
        Behind::new(&Arc::new(file.into()))
    }

    #[test]
    fn windows_are_dropped_once_whole() {
        let behind = behind(20 * MIB);
        let unknown = behind.unknown(0, 20 * MIB);
        assert_eq!(unknown, [0, 1, 2]);
        behind.examine(&unknown);
        assert!(behind.after_read(4 * MIB, 8 * MIB, false).is_empty());
        assert_eq!(behind.after_read(0, 4 * MIB, false), [0]);
        assert_eq!(behind.after_read(12 * MIB, 8 * MIB, true), [1, 2]);
        assert!(!behind.has_rest());
    }

    #[test]
    fn writes_start_write_back_and_await_the_oldest() {
        let behind = behind(0);
        for index in 0..3 {
            behind.examine(&behind.unknown(index * WINDOW, WINDOW));
            let settle = behind.after_write(index * WINDOW, WINDOW);
            let finish = (index == 2).then_some(0);
            assert_eq!(
                settle,
                Settle {
                    start: vec![index],
                    finish
                }
            );
            behind.settle(&settle);
        }
        assert!(behind.has_rest());
        behind.finish();
        assert!(!behind.has_rest());
    }
}
