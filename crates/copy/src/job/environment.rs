//! What a job takes from the machine: clock, randomness, identities, sizes. Tests replace them.
//!
//! The monotonic clock is that of the tokio runtime, which a test can pause. With trees and a
//! [`JournalStore`](crate::JournalStore) in memory, a whole job then runs on one thread in virtual
//! time, and the same seed gives the same run.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use ropeway_vfs::Timestamp;
use rustix::time::ClockId;
use tokio::time::Instant;

/// Longest time to wait for the clock to tick. A tick takes 10 ms at most (`CONFIG_HZ=100`), but a busy
/// host lets a virtual machine miss many. Less than what counts as a clock that was set back.
const TICK_WAIT: Duration = Duration::from_millis(400);

/// The wall clock of the machine whose file systems hold the target. A test may set it.
///
/// File systems take change times from the last tick. Since Linux 6.13, ext4, xfs, btrfs and tmpfs
/// take that of a file whose change time somebody has looked at from the fine clock
/// (Documentation/filesystems/multigrain-ts.rst), which is up to a tick ahead.
#[derive(Clone)]
pub struct WallClock {
    ticks: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    fine: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

impl WallClock {
    /// Makes a clock that shows what `now` returns.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        let now: Arc<dyn Fn() -> Timestamp + Send + Sync> = Arc::new(now);
        Self {
            ticks: Arc::clone(&now),
            fine: now,
        }
    }

    /// The same clock, whose last tick `ticks` returns.
    #[must_use]
    pub fn with_ticks(self, ticks: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self {
            ticks: Arc::new(ticks),
            ..self
        }
    }

    /// Returns the last tick. Whatever changes later has a change time that is not earlier.
    pub(crate) fn now(&self) -> Timestamp {
        (self.ticks)()
    }

    /// Waits for a tick that is later than the change time of everything that has changed by now, and
    /// returns it. Whatever changes after the wait has a change time that is not earlier.
    pub(crate) async fn next_tick(&self) -> Timestamp {
        let latest = (self.fine)().max(self.now());
        let begin = Instant::now();
        loop {
            let now = self.now();
            if now > latest || begin.elapsed() >= TICK_WAIT {
                return now;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Default for WallClock {
    /// The clock of the machine.
    fn default() -> Self {
        let read = |id| {
            move || {
                let now = rustix::time::clock_gettime(id);
                // The nanoseconds of a second fit.
                Timestamp::from_unix(now.tv_sec, now.tv_nsec as u32)
            }
        };
        Self::new(read(ClockId::Realtime)).with_ticks(read(ClockId::RealtimeCoarse))
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WallClock({})", self.now().0)
    }
}

/// A source of random numbers. A test may derive them from a seed.
#[derive(Clone)]
pub struct Randomness(Arc<dyn Fn() -> io::Result<u64> + Send + Sync>);

impl Randomness {
    /// Makes a source that returns what `next` returns.
    pub fn new(next: impl Fn() -> io::Result<u64> + Send + Sync + 'static) -> Self {
        Self(Arc::new(next))
    }

    /// Returns a random number.
    ///
    /// # Errors
    /// The system gives none.
    pub(crate) fn next(&self) -> io::Result<u64> {
        (self.0)()
    }
}

impl Default for Randomness {
    /// The random numbers of the kernel, which nobody can guess (getrandom(2)).
    fn default() -> Self {
        Self::new(|| {
            let mut bytes = [0; 8];
            // The kernel serves requests of up to 256 bytes completely (getrandom(2)).
            rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
            Ok(u64::from_le_bytes(bytes))
        })
    }
}

impl fmt::Debug for Randomness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Randomness")
    }
}

/// File sizes in bytes at which a job treats a file differently. The defaults are measured or
/// reasoned. The simulator makes them small, so that small files take every path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Files of at least this size have a record in the journal.
    pub journal_min: u64,
    /// Bytes of a file between two records of its progress: what a kill may cost in addition to the
    /// blocks in flight.
    pub journal_every: u64,
    /// Size of the largest file in a batch.
    pub small_max: u64,
    /// Files of at least this size are followed between checkpoints, and wait while a long flush
    /// runs. Shorter ones are complete soon enough.
    pub long_min: u64,
    /// Write-back starts in pieces of this many bytes: enough for the request queue of one device,
    /// and few enough to start soon.
    pub window: u64,
    /// A file of up to this size that changed while it was read is read again several times, after
    /// growing pauses. Most writers rest in between.
    pub reread_max: u64,
    /// A file of up to this size is read again once, without a pause.
    pub reread_once_max: u64,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            journal_min: 4 << 20,
            journal_every: 4 << 20,
            small_max: 1 << 20,
            long_min: 64 << 20,
            window: 8 << 20,
            reread_max: 1 << 20,
            reread_once_max: 64 << 20,
        }
    }
}

/// What a job takes from the machine on which it runs. The default is this machine, in an unknown
/// boot.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The clock that sets change times on the target.
    pub clock: WallClock,
    /// Source of the nonce in temporary names.
    pub random: Randomness,
    /// Identity of the running boot (`/proc/sys/kernel/random/boot_id`) and of the target's mount.
    /// What is written and not durable is lost with either of them. If it is empty, nothing written
    /// is trusted.
    pub boot_id: String,
    /// The user that new nodes belong to.
    pub user: u32,
    /// Folder for the hashes of a job without a journal.
    pub scratch: PathBuf,
    /// Sizes at which files are treated differently.
    pub sizes: Sizes,
}

impl Default for Environment {
    fn default() -> Self {
        Self {
            clock: WallClock::default(),
            random: Randomness::default(),
            boot_id: String::new(),
            user: rustix::process::geteuid().as_raw(),
            scratch: std::env::temp_dir(),
            sizes: Sizes::default(),
        }
    }
}
