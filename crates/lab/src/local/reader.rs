//! A reader that a copy should not slow down. It reads 4 KiB at random positions past the page cache, with
//! a pause after each read, so that it is no load.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::{Advice, OFlags, fadvise};

use crate::random::SplitMix64;

/// Size of a read in bytes: a page, the largest alignment that direct I/O needs.
const BLOCK: usize = 4096;
/// Number of blocks in the file.
const BLOCKS: u64 = 8192;
/// Size of the file in bytes.
pub(super) const FILE_BYTES: u64 = BLOCK as u64 * BLOCKS;
/// Pause after each read.
const PAUSE: Duration = Duration::from_millis(2);
/// Largest number of recorded reads: two hours.
const READS_MAX: usize = 1 << 22;

/// Writes the file that is read.
///
/// # Errors
/// The file cannot be written.
pub(super) fn make(path: &Path) -> io::Result<()> {
    let mut file = File::create(path)?;
    let mut buffer = vec![0; 1 << 20];
    let mut random = SplitMix64::new(BLOCKS);
    for _ in 0..FILE_BYTES >> 20 {
        random.fill(&mut buffer);
        file.write_all(&buffer)?;
    }
    file.sync_all()
}

/// A thread that reads until [`Reader::finish`] or drop.
#[derive(Debug)]
pub(super) struct Reader {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Duration>>>,
}

impl Reader {
    /// Starts reading from a file of [`make`].
    ///
    /// # Errors
    /// The file cannot be opened, or no thread can be started.
    pub(super) fn start(path: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECT.bits().cast_signed();
        let direct = File::options().read(true).custom_flags(flags).open(path);
        let (file, cached) = match direct {
            Ok(file) => (file, false),
            // Not every file system has direct I/O.
            Err(_) => (File::open(path)?, true),
        };
        let seed = fs::metadata(path)?.len();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name("reader".to_owned())
            .spawn(move || read(&file, cached, seed, &stopped))?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    /// Ends the thread. Returns the latency of each read.
    pub(super) fn finish(mut self) -> Vec<Duration> {
        self.stop.store(true, Ordering::Release);
        let thread = self.thread.take();
        thread.and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

fn read(file: &File, cached: bool, seed: u64, stop: &AtomicBool) -> Vec<Duration> {
    let mut random = SplitMix64::new(seed);
    let mut room = vec![0; 2 * BLOCK];
    let skip = room.as_ptr().align_offset(BLOCK).min(BLOCK);
    let mut times = Vec::new();
    while !stop.load(Ordering::Acquire) && times.len() < READS_MAX {
        let offset = random.up_to(BLOCKS - 1) * BLOCK as u64;
        if cached {
            // If this is refused, reads are too fast, but for all tools alike.
            _ = fadvise(
                file,
                offset,
                std::num::NonZeroU64::new(BLOCK as u64),
                Advice::DontNeed,
            );
        }
        let begun = Instant::now();
        if file.read_exact_at(&mut room[skip..skip + BLOCK], offset).is_err() {
            break;
        }
        let room = READS_MAX - times.len();
        times.extend(waits(begun.elapsed(), PAUSE).take(room));
        thread::sleep(PAUSE);
    }
    times
}

/// Returns the waits of readers that arrive every `pause` while one read takes so long. Otherwise a
/// long stall would count as one read of many (coordinated omission).
pub fn waits(took: Duration, pause: Duration) -> impl Iterator<Item = Duration> {
    std::iter::successors(Some(took), move |waited| {
        let rest = waited.checked_sub(pause)?;
        (!rest.is_zero()).then_some(rest)
    })
}

/// Returns the latency that this percentage of reads does not exceed, in milliseconds (nearest rank);
/// `None` without reads.
pub fn percentile_ms(mut times: Vec<Duration>, percent: usize) -> Option<f64> {
    times.sort_unstable();
    let rank = (times.len() * percent).div_ceil(100).max(1) - 1;
    times.get(rank).map(|time| time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let times: Vec<Duration> = (1..=100).rev().map(Duration::from_millis).collect();
        assert_eq!(percentile_ms(times.clone(), 99), Some(99.0));
        assert_eq!(percentile_ms(times, 50), Some(50.0));
        assert_eq!(percentile_ms(Vec::new(), 99), None);
    }

    #[test]
    fn a_stall_is_as_many_reads_as_would_have_waited() {
        assert_eq!(waits(PAUSE / 2, PAUSE).collect::<Vec<_>>(), [PAUSE / 2]);
        assert_eq!(waits(PAUSE, PAUSE).count(), 1);
        assert_eq!(waits(PAUSE * 1000, PAUSE).count(), 1000);
        assert_eq!(waits(PAUSE * 1000, PAUSE).last(), Some(PAUSE));
    }

    #[test]
    fn it_reads_until_it_is_finished() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("probe");
        make(&path).unwrap();
        for patience in [50, 500, 5000].map(Duration::from_millis) {
            let begun = Instant::now();
            let reader = Reader::start(&path).unwrap();
            thread::sleep(patience);
            let times = reader.finish();
            // A stall counts as many reads, but never more than there was time for.
            let most = begun.elapsed().as_nanos() / PAUSE.as_nanos();
            assert!(times.len() as u128 <= most + 1, "{} of {most}", times.len());
            if !times.is_empty() {
                return;
            }
        }
        panic!("it reads nothing");
    }
}
