//! Writes the file, one write(2) after the other, and samples the dirty pages.
//!
//! The file has no name (`O_TMPFILE`, or unlinked at once). So it is removed however the process ends,
//! and its dirty pages are dropped with it.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::kernel::{Device, DirtyPages, device_moved};
use crate::local::in_memory;
use crate::random::SplitMix64;

/// Bytes of one write(2).
pub const WRITE_BYTES: u64 = 1 << 20;
/// Writes between two syncs of the warm-up.
const WARM_WRITES: u32 = 8;
/// Interval of samples; one takes some 0.1 ms.
const INTERVAL: Duration = Duration::from_millis(20);
/// Largest number of samples. Then every second one is dropped and the interval is doubled.
const SAMPLES_MAX: usize = 4096;

/// A file on a device.
#[derive(Debug)]
pub struct TestFile {
    file: File,
    numbers: (u32, u32),
    /// Limits of the device; unknown for file systems without their own device.
    pub device: Option<Device>,
    /// Free bytes of the file system.
    pub free_bytes: u64,
    /// Whether the file is in memory.
    pub in_memory: bool,
}

/// State of the page cache at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// Seconds since the start.
    pub seconds: f64,
    /// Dirty pages of the machine.
    pub dirty: DirtyPages,
    /// Bytes written to the file so far.
    pub written_bytes: u64,
    /// Bytes that the device has completed since the start, where it counts them.
    pub device_bytes: Option<u64>,
}

/// The samples of one measurement.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// Bytes and seconds after each write.
    pub writes: Vec<[f64; 2]>,
    /// Samples from the start until the file was durable.
    pub samples: Vec<Sample>,
    /// Dirty pages of other files before the start.
    pub before: DirtyPages,
    /// Time from the start until everything was durable; `None` if it did not become durable.
    pub durable_seconds: Option<f64>,
    /// Bytes that the device had completed when the last write returned.
    pub device_bytes_at_end: Option<u64>,
    /// Reason for an early end.
    pub ended_early: Option<String>,
}

impl TestFile {
    /// Creates the file.
    ///
    /// # Errors
    /// No file can be created there.
    pub fn create(dir: &Path) -> io::Result<Self> {
        let file = tempfile::tempfile_in(dir)?;
        let device = rustix::fs::fstat(&file)?.st_dev;
        let numbers = (rustix::fs::major(device), rustix::fs::minor(device));
        let space = rustix::fs::fstatvfs(&file)?;
        Ok(Self {
            numbers,
            device: Device::read(numbers.0, numbers.1),
            free_bytes: space.f_bavail.saturating_mul(space.f_frsize),
            in_memory: in_memory(&file),
            file,
        })
    }

    fn device_bytes(&self) -> Option<u64> {
        device_moved(self.numbers.0, self.numbers.1).map(|[_, written]| written)
    }

    /// Writes and syncs for some time. The kernel assumes 100 MB/s for an unknown device and learns its rate
    /// in seconds (kernel: mm/page-writeback.c, INIT_BW); the waits of writers follow from it.
    ///
    /// # Errors
    /// The system refuses.
    pub fn warm_up(&mut self, span: Duration, stop: &AtomicBool) -> io::Result<()> {
        let begun = Instant::now();
        let mut buffer = vec![0; WRITE_BYTES as usize];
        SplitMix64::new(1).fill(&mut buffer);
        while begun.elapsed() < span && !stop.load(Ordering::Acquire) {
            self.file.rewind()?;
            for _ in 0..WARM_WRITES {
                self.file.write_all(&buffer)?;
            }
            self.file.sync_data()?;
        }
        self.file.set_len(0)?;
        self.file.rewind()
    }

    /// Writes so many bytes, and waits until they are durable. Ends early on `stop`, after `limit`, or when
    /// a system call fails; the samples until then are returned in any case.
    pub fn measure(&mut self, bytes: u64, limit: Duration, stop: &AtomicBool) -> Recording {
        // Otherwise the device would write other files first.
        _ = rustix::fs::syncfs(self.file.as_fd());
        let mut recording = Recording {
            before: DirtyPages::read().unwrap_or_default(),
            ..Recording::default()
        };
        let mut sampler = Sampler::start(self.device_bytes());
        self.write(bytes, limit, stop, &mut recording, &mut sampler);
        recording.device_bytes_at_end = sampler.device_bytes(self.device_bytes());
        sampler.sample(self.device_bytes(), true);
        self.drain(limit, stop, &mut recording, &mut sampler);
        sampler.sample(self.device_bytes(), true);
        recording.samples = sampler.samples;
        recording
    }

    fn write(
        &mut self,
        bytes: u64,
        limit: Duration,
        stop: &AtomicBool,
        recording: &mut Recording,
        sampler: &mut Sampler,
    ) {
        let mut buffer = vec![0; WRITE_BYTES as usize];
        // So that neither compression nor a fast path for zeros changes the rate.
        SplitMix64::new(bytes).fill(&mut buffer);
        let mut written = 0;
        while written < bytes {
            if stop.load(Ordering::Acquire) {
                recording.ended_early = Some("it was interrupted".to_owned());
                return;
            }
            if sampler.begun.elapsed() > limit {
                recording.ended_early = Some(format!("the limit of {} s was reached", limit.as_secs_f64()));
                return;
            }
            buffer[..8].copy_from_slice(&written.to_le_bytes());
            let length = (bytes - written).min(WRITE_BYTES) as usize;
            if let Err(error) = self.file.write_all(&buffer[..length]) {
                recording.ended_early = Some(format!("writing failed: {error}"));
                return;
            }
            written += length as u64;
            sampler.written = written;
            recording
                .writes
                .push([written as f64, sampler.begun.elapsed().as_secs_f64()]);
            sampler.sample_if_due(|| self.device_bytes());
        }
    }

    fn drain(&self, limit: Duration, stop: &AtomicBool, recording: &mut Recording, sampler: &mut Sampler) {
        let done = AtomicBool::new(false);
        let mut cancelled = None;
        let result = thread::scope(|scope| {
            let syncing = thread::Builder::new()
                .name("sync".to_owned())
                .spawn_scoped(scope, || {
                    let result = self.file.sync_data();
                    done.store(true, Ordering::Release);
                    result.map(|()| Instant::now())
                })?;
            let begun = Instant::now();
            while !done.load(Ordering::Acquire) {
                thread::sleep(INTERVAL / 2);
                sampler.sample_if_due(|| self.device_bytes());
                let why = if stop.load(Ordering::Acquire) {
                    "it was interrupted"
                } else if begun.elapsed() > limit {
                    "the device took too long"
                } else {
                    continue;
                };
                if cancelled.is_none() {
                    cancelled = Some(why);
                    // Drops the dirty pages, so that no process waits for them.
                    _ = self.file.set_len(0);
                }
            }
            syncing
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        match (result, cancelled) {
            (Ok(at), None) => {
                recording.durable_seconds = Some(at.duration_since(sampler.begun).as_secs_f64());
            }
            (_, Some(why)) => _ = recording.ended_early.get_or_insert(why.to_owned()),
            (Err(error), None) => {
                _ = recording
                    .ended_early
                    .get_or_insert(format!("sync failed: {error}"))
            }
        }
    }
}

/// Takes samples at intervals.
struct Sampler {
    begun: Instant,
    device_before: Option<u64>,
    every: Duration,
    last: Duration,
    written: u64,
    samples: Vec<Sample>,
}

impl Sampler {
    fn start(device_before: Option<u64>) -> Self {
        let mut sampler = Self {
            begun: Instant::now(),
            device_before,
            every: INTERVAL,
            last: Duration::ZERO,
            written: 0,
            samples: Vec::new(),
        };
        sampler.sample(device_before, true);
        sampler.begun = Instant::now();
        sampler
    }

    fn device_bytes(&self, now: Option<u64>) -> Option<u64> {
        Some(now?.saturating_sub(self.device_before?))
    }

    fn sample_if_due(&mut self, device: impl FnOnce() -> Option<u64>) {
        if self.begun.elapsed() >= self.last + self.every {
            self.sample(device(), false);
        }
    }

    fn sample(&mut self, device: Option<u64>, is_last: bool) {
        self.last = self.begun.elapsed();
        let Ok(dirty) = DirtyPages::read() else { return };
        self.samples.push(Sample {
            seconds: self.last.as_secs_f64(),
            dirty,
            written_bytes: self.written,
            device_bytes: self.device_bytes(device),
        });
        if self.samples.len() >= SAMPLES_MAX && !is_last {
            let mut index = 0;
            self.samples.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.every *= 2;
        }
    }
}
