//! Writes the file, one write(2) after the other, and watches what it becomes.
//!
//! The file has no name (`O_TMPFILE`, or unlinked at once), so whatever ends the process removes it, and what of it was
//! still dirty is dropped with it.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::kernel::{Device, Owed, device_moved};
use crate::local::in_memory;
use crate::random::SplitMix64;

/// Bytes of one write(2).
pub const WRITE_BYTES: u64 = 1 << 20;
/// Writes between two syncs while the kernel learns.
const WARM_WRITES: u32 = 8;
/// How often the kernel is asked what it owes; asking takes some 0.1 ms.
const LOOK: Duration = Duration::from_millis(20);
/// Looks that are kept; then every second one goes and looks become rarer.
const LOOKS_MAX: usize = 4096;

/// A file on a device.
#[derive(Debug)]
pub struct Ground {
    file: File,
    numbers: (u32, u32),
    /// What the device may have; unknown for file systems without a device of their own.
    pub device: Option<Device>,
    /// Bytes that are free to us.
    pub free_bytes: u64,
    /// Whether it is in memory.
    pub in_memory: bool,
}

/// What is owed at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    /// Since the start.
    pub seconds: f64,
    /// By the machine.
    pub owed: Owed,
    /// Written to the file until then.
    pub written_bytes: u64,
    /// What the device has completed since the start, where it counts.
    pub device_bytes: Option<u64>,
}

/// Everything that was seen.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Bytes and seconds after each write.
    pub writes: Vec<[f64; 2]>,
    /// While it was written and until it was durable.
    pub looks: Vec<Look>,
    /// What others owed before.
    pub before: Owed,
    /// From the start until everything was durable; `None` if that was not awaited.
    pub durable_seconds: Option<f64>,
    /// The device had completed so much when the last write returned.
    pub device_bytes_at_end: Option<u64>,
    /// Why it ended before all was written, if so.
    pub ended_early: Option<String>,
}

impl Ground {
    /// Makes the file.
    ///
    /// # Errors
    /// Nothing can be made there.
    pub fn make(dir: &Path) -> io::Result<Self> {
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

    /// Writes and syncs for a while: the kernel takes a device that it does not know for one of 100 MB/s, and learns in
    /// seconds (kernel: mm/page-writeback.c, INIT_BW). How long a writer waits follows from that.
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

    /// Writes so many bytes, and waits until they are durable. Ends early when told to, when `limit` is over, or when the
    /// system refuses; what was seen until then is given in any case.
    pub fn measure(&mut self, bytes: u64, limit: Duration, stop: &AtomicBool) -> Seen {
        // What others wrote to this device would be written first.
        _ = rustix::fs::syncfs(self.file.as_fd());
        let mut seen = Seen {
            before: Owed::read().unwrap_or_default(),
            ..Seen::default()
        };
        let mut eye = Eye::open(self.device_bytes());
        self.write(bytes, limit, stop, &mut seen, &mut eye);
        seen.device_bytes_at_end = eye.device_bytes(self.device_bytes());
        eye.look(self.device_bytes(), true);
        self.drain(limit, stop, &mut seen, &mut eye);
        eye.look(self.device_bytes(), true);
        seen.looks = eye.looks;
        seen
    }

    fn write(&mut self, bytes: u64, limit: Duration, stop: &AtomicBool, seen: &mut Seen, eye: &mut Eye) {
        let mut buffer = vec![0; WRITE_BYTES as usize];
        // Neither compression nor a fast path for zeros may play a part.
        SplitMix64::new(bytes).fill(&mut buffer);
        let mut written = 0;
        while written < bytes {
            if stop.load(Ordering::Acquire) {
                seen.ended_early = Some("it was interrupted".to_owned());
                return;
            }
            if eye.begun.elapsed() > limit {
                seen.ended_early = Some(format!("{} s were over", limit.as_secs_f64()));
                return;
            }
            buffer[..8].copy_from_slice(&written.to_le_bytes());
            let length = (bytes - written).min(WRITE_BYTES) as usize;
            if let Err(error) = self.file.write_all(&buffer[..length]) {
                seen.ended_early = Some(format!("writing failed: {error}"));
                return;
            }
            written += length as u64;
            eye.written = written;
            seen.writes
                .push([written as f64, eye.begun.elapsed().as_secs_f64()]);
            eye.look_if_due(|| self.device_bytes());
        }
    }

    fn drain(&self, limit: Duration, stop: &AtomicBool, seen: &mut Seen, eye: &mut Eye) {
        let done = AtomicBool::new(false);
        let mut given_up = None;
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
                thread::sleep(LOOK / 2);
                eye.look_if_due(|| self.device_bytes());
                let why = if stop.load(Ordering::Acquire) {
                    "it was interrupted"
                } else if begun.elapsed() > limit {
                    "the device took too long"
                } else {
                    continue;
                };
                if given_up.is_none() {
                    given_up = Some(why);
                    // What is dirty is dropped, so that nobody waits for it.
                    _ = self.file.set_len(0);
                }
            }
            syncing
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        match (result, given_up) {
            (Ok(at), None) => {
                seen.durable_seconds = Some(at.duration_since(eye.begun).as_secs_f64());
            }
            (_, Some(why)) => _ = seen.ended_early.get_or_insert(why.to_owned()),
            (Err(error), None) => _ = seen.ended_early.get_or_insert(format!("sync failed: {error}")),
        }
    }
}

/// Looks now and then.
struct Eye {
    begun: Instant,
    device_before: Option<u64>,
    every: Duration,
    last: Duration,
    written: u64,
    looks: Vec<Look>,
}

impl Eye {
    fn open(device_before: Option<u64>) -> Self {
        let mut eye = Self {
            begun: Instant::now(),
            device_before,
            every: LOOK,
            last: Duration::ZERO,
            written: 0,
            looks: Vec::new(),
        };
        eye.look(device_before, true);
        eye.begun = Instant::now();
        eye
    }

    fn device_bytes(&self, now: Option<u64>) -> Option<u64> {
        Some(now?.saturating_sub(self.device_before?))
    }

    fn look_if_due(&mut self, device: impl FnOnce() -> Option<u64>) {
        if self.begun.elapsed() >= self.last + self.every {
            self.look(device(), false);
        }
    }

    fn look(&mut self, device: Option<u64>, is_last: bool) {
        self.last = self.begun.elapsed();
        let Ok(owed) = Owed::read() else { return };
        self.looks.push(Look {
            seconds: self.last.as_secs_f64(),
            owed,
            written_bytes: self.written,
            device_bytes: self.device_bytes(device),
        });
        if self.looks.len() >= LOOKS_MAX && !is_last {
            let mut index = 0;
            self.looks.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.every *= 2;
        }
    }
}
