//! Whether the device can be trusted: off after an error or a stall, probed again later.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::device::Device;

/// The time since a zero that the owner of the cache chooses.
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// An operation that takes longer turns the cache off: the source would have answered sooner.
const STALL: Duration = Duration::from_secs(1);

/// Operations whose age is watched. With more in flight, some are not.
const WATCHED: usize = 64;

/// A device, its clock and its state.
pub(super) struct Guarded {
    device: Box<dyn Device>,
    alignment: usize,
    clock: Clock,
    is_off: AtomicBool,
    off_since: Mutex<Duration>,
    turned_off: AtomicU64,
    /// Starts of operations in flight in microseconds, plus 1; 0 for none.
    started: [AtomicU64; WATCHED],
    next: AtomicUsize,
}

impl Guarded {
    pub(super) fn new(device: Box<dyn Device>, clock: Clock) -> Self {
        let alignment = device.alignment();
        assert!([512, 4096].contains(&alignment), "sectors of 512 or 4096 bytes");
        Self {
            device,
            alignment,
            clock,
            is_off: AtomicBool::new(false),
            off_since: Mutex::new(Duration::ZERO),
            turned_off: AtomicU64::new(0),
            started: std::array::from_fn(|_| AtomicU64::new(0)),
            next: AtomicUsize::new(0),
        }
    }

    pub(super) fn now(&self) -> Duration {
        (self.clock)()
    }

    pub(super) fn turned_off(&self) -> u64 {
        self.turned_off.load(Ordering::Relaxed)
    }

    /// Whether the device may be used. Notices operations that hang.
    pub(super) fn is_on(&self) -> bool {
        if self.is_off.load(Ordering::Acquire) {
            return false;
        }
        let now = self.now();
        let limit = micros(now).saturating_sub(micros(STALL));
        let hangs = self.started.iter().any(|started| {
            let started = started.load(Ordering::Relaxed);
            started != 0 && started - 1 < limit
        });
        if hangs {
            self.turn_off(now);
        }
        !hangs
    }

    /// Returns for how long the device has been off.
    pub(super) fn off_for(&self) -> Option<Duration> {
        let is_off = self.is_off.load(Ordering::Acquire);
        is_off.then(|| self.now().saturating_sub(*self.off_since.lock()))
    }

    /// Puts the next probe off.
    pub(super) fn stay_off(&self) {
        *self.off_since.lock() = self.now();
    }

    pub(super) fn turn_on(&self) {
        self.is_off.store(false, Ordering::Release);
    }

    fn turn_off(&self, now: Duration) {
        *self.off_since.lock() = now;
        if !self.is_off.swap(true, Ordering::AcqRel) {
            self.turned_off.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes the start of an operation where no other one is noted: one that hangs must stay there.
    fn watch(&self, start: Duration) -> Option<&AtomicU64> {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let cells = (0..WATCHED).map(|at| &self.started[first.wrapping_add(at) % WATCHED]);
        cells.into_iter().find(|cell| {
            let noted = cell.compare_exchange(0, micros(start) + 1, Ordering::Relaxed, Ordering::Relaxed);
            noted.is_ok()
        })
    }

    fn run<T>(&self, operation: impl FnOnce(&dyn Device) -> io::Result<T>) -> io::Result<T> {
        let start = self.now();
        let watch = self.watch(start);
        let result = operation(&*self.device);
        if let Some(watch) = watch {
            watch.store(0, Ordering::Relaxed);
        }
        let now = self.now();
        if result.is_err() || now.saturating_sub(start) > STALL {
            self.turn_off(now);
        }
        result
    }

    pub(super) fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.run(|device| device.read_at(offset, into))
    }

    pub(super) fn alignment(&self) -> usize {
        self.alignment
    }

    pub(super) fn write_at(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.run(|device| device.write_at(offset, from))
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.run(|device| device.sync())
    }

    pub(super) fn size(&self) -> io::Result<u64> {
        self.run(|device| device.size())
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX - 1)
}

#[cfg(test)]
mod tests {
    use parking_lot::Condvar;

    use super::*;

    /// A device whose first read hangs until it is let go.
    #[derive(Default)]
    struct Hanging {
        reads: AtomicUsize,
        is_free: Mutex<bool>,
        freed: Condvar,
    }

    impl Device for Hanging {
        fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
            if self.reads.fetch_add(1, Ordering::SeqCst) == 0 {
                let mut is_free = self.is_free.lock();
                while !*is_free {
                    self.freed.wait(&mut is_free);
                }
            }
            Ok(())
        }

        fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
            Ok(())
        }

        fn sync(&self) -> io::Result<()> {
            Ok(())
        }

        fn size(&self) -> io::Result<u64> {
            Ok(0)
        }
    }

    #[test]
    fn a_read_that_hangs_is_noticed_after_many_that_do_not() {
        let device = Arc::new(Hanging::default());
        let seconds = Arc::new(AtomicU64::new(0));
        let source = Arc::clone(&seconds);
        let clock: Clock = Arc::new(move || Duration::from_secs(source.load(Ordering::SeqCst)));
        let guarded = Guarded::new(Box::new(Arc::clone(&device)), clock);
        std::thread::scope(|scope| {
            scope.spawn(|| guarded.read_at(0, &mut []).expect("it ends at last"));
            while device.reads.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            for _ in 0..3 * WATCHED {
                guarded.read_at(0, &mut []).expect("others do not hang");
            }
            assert!(guarded.is_on());
            seconds.store(2, Ordering::SeqCst);
            let is_on = guarded.is_on();
            *device.is_free.lock() = true;
            device.freed.notify_all();
            assert!(!is_on);
        });
    }
}
