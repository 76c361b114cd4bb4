//! Measures a device through a file without a name, which is gone with its last descriptor: also
//! after Ctrl-C or kill -9.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use ropeway_block::Pool;
use rustix::fs::{CWD, Mode, OFlags, fcntl_getfl, fcntl_setfl, fstatfs, openat};
use rustix::io::Errno;

use crate::qualify::{Figures, READ_BYTES, Series, WRITE_BYTES};

/// Bytes of the file at most: beyond the caches of sticks and of most disks. A guess.
const FILE_MAX: u64 = 1 << 30;

/// Bytes of the file at least: some places to choose from.
const FILE_MIN: u64 = 8 << 20;

/// Parts of the file, which are spread over the device by its file system.
const PLACES: u64 = 16;

/// Time for each of filling, writing and reading. One slow operation may exceed it.
const SPAN: Duration = Duration::from_secs(3);

/// Bytes written with one call while the file is filled.
const STEP: u64 = 1 << 20;

/// File systems in memory (`statfs`: `TMPFS_MAGIC`, `RAMFS_MAGIC`).
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];

/// Why a device cannot be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// The folder is in memory.
    #[error("the folder is in memory (tmpfs): there is no device to test")]
    InMemory,
    /// The file system knows only the page cache.
    #[error("the file system has no direct I/O: memory would be measured, not the device")]
    NoDirectIo,
    /// Too little space.
    #[error("only {free} bytes are free; the test needs {}", 2 * FILE_MIN)]
    NoSpace {
        /// Bytes that are free.
        free: u64,
    },
    /// The device failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Measures the device of a folder: about ten seconds, at most a quarter of the free space. Nothing is
/// left behind.
///
/// # Errors
/// The folder is not on a device with direct I/O, has too little space, or fails.
pub fn measure(folder: &Path) -> Result<Figures, MeasureError> {
    let file = unnamed(folder)?;
    let status = fstatfs(&file).map_err(io::Error::from)?;
    let kind = status.f_type & 0xffff_ffff;
    if IN_MEMORY.contains(&kind) {
        return Err(MeasureError::InMemory);
    }
    let flags = fcntl_getfl(&file).map_err(io::Error::from)?;
    fcntl_setfl(&file, flags | OFlags::DIRECT).map_err(|_| MeasureError::NoDirectIo)?;
    let free_bytes = status
        .f_bavail
        .saturating_mul(u64::try_from(status.f_bsize).unwrap_or(4096));
    if free_bytes < 2 * FILE_MIN {
        return Err(MeasureError::NoSpace { free: free_bytes });
    }
    let file_bytes = (free_bytes / 4).clamp(FILE_MIN, FILE_MAX);
    let mut bench = Bench::new(file);
    let written = bench.fill(file_bytes)?;
    // Writes first: the reads then find what a used device has.
    let writes = bench.writes(&written)?;
    let reads = bench.reads(&written)?;
    Ok(Figures {
        reads: Series::of(READ_BYTES, reads).ok_or_else(|| io::Error::other("no read ended"))?,
        writes: Series::of(WRITE_BYTES, writes).ok_or_else(|| io::Error::other("no write ended"))?,
        file_bytes: written.len() as u64 * STEP,
        free_bytes,
    })
}

/// Opens a file without a name; where that is not possible, one whose name is removed at once.
fn unnamed(folder: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match openat(CWD, folder, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => return Ok(File::from(file)),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
        Err(error) => return Err(error.into()),
    }
    let name = format!(".ropeway-boost-test-{}", std::process::id());
    let path = folder.join(name);
    let options = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path);
    let file = options?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

struct Bench {
    file: File,
    pool: Pool,
    rng: fastrand::Rng,
}

impl Bench {
    fn new(file: File) -> Self {
        Self {
            file,
            pool: Pool::new(STEP as usize, 1),
            rng: fastrand::Rng::new(),
        }
    }

    /// Writes random bytes, place by place in turns, until the file is full or the time is over.
    /// Returns the steps that were written: unwritten ones would be read without the device.
    fn fill(&mut self, file_bytes: u64) -> io::Result<Vec<u64>> {
        let mut buffer = self.pool.try_get().expect("the pool has one slot");
        let buffer = buffer.capacity_mut();
        self.rng.fill(buffer);
        let steps_of_place = (file_bytes / STEP / PLACES).max(1);
        let mut written = Vec::new();
        let start = Instant::now();
        'all: for step in 0..steps_of_place {
            for place in 0..PLACES {
                let at = place * steps_of_place + step;
                if (at + 1) * STEP > file_bytes {
                    continue;
                }
                if start.elapsed() > SPAN && written.len() as u64 * STEP >= FILE_MIN.min(file_bytes) {
                    break 'all;
                }
                // No two steps are equal, for devices that save equal ones once.
                self.rng.fill(&mut buffer[..512]);
                self.file.write_all_at(buffer, at * STEP)?;
                written.push(at);
            }
        }
        self.file.sync_data()?;
        Ok(written)
    }

    fn writes(&mut self, written: &[u64]) -> io::Result<Vec<Duration>> {
        let mut buffer = self.pool.try_get().expect("the pool has one slot");
        let buffer = &mut buffer.capacity_mut()[..WRITE_BYTES];
        self.rng.fill(buffer);
        let halves = STEP / WRITE_BYTES as u64;
        let (start, mut times) = (Instant::now(), Vec::new());
        while times.is_empty() || start.elapsed() < SPAN {
            self.rng.fill(&mut buffer[..512]);
            let at =
                written[self.rng.usize(..written.len())] * STEP + self.rng.u64(..halves) * WRITE_BYTES as u64;
            let begun = Instant::now();
            self.file.write_all_at(buffer, at)?;
            times.push(begun.elapsed());
        }
        // What the device has not written yet counts as well.
        let begun = Instant::now();
        self.file.sync_data()?;
        if let Some(last) = times.last_mut() {
            *last += begun.elapsed();
        }
        Ok(times)
    }

    fn reads(&mut self, written: &[u64]) -> io::Result<Vec<Duration>> {
        let mut buffer = self.pool.try_get().expect("the pool has one slot");
        let buffer = &mut buffer.capacity_mut()[..READ_BYTES];
        let pages = STEP / READ_BYTES as u64;
        let (start, mut times) = (Instant::now(), Vec::new());
        while times.is_empty() || start.elapsed() < SPAN {
            let at =
                written[self.rng.usize(..written.len())] * STEP + self.rng.u64(..pages) * READ_BYTES as u64;
            let begun = Instant::now();
            self.file.read_exact_at(buffer, at)?;
            times.push(begun.elapsed());
        }
        Ok(times)
    }
}
