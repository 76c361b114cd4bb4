//! How fast a device reads in sequence, measured once when a cache is made.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use ropeway_block::Pool;
use ropeway_cache::{Device as _, FileDevice};

/// File that is written, read and removed.
pub(crate) const NAME: &str = "probe";
/// End of the names of unfinished files.
pub(crate) const TEMPORARY: &str = ".tmp";

/// Bytes of a request.
const STEP: usize = 1 << 20;
/// Bytes read, at most. A guess: a device of 1 GB/s takes 60 ms.
const BYTES: u64 = 64 << 20;
/// Time for writing, and for reading. A stick of 10 MB/s is measured with 10 MB.
const TIME: Duration = Duration::from_secs(1);

/// Returns bytes per second.
///
/// # Errors
/// The device fails or is full.
pub(crate) fn sequential_read(folder: &Path) -> io::Result<f64> {
    let path = folder.join(NAME);
    let measured = measure(&path);
    fs::remove_file(&path)?;
    measured
}

fn measure(path: &Path) -> io::Result<f64> {
    let device = FileDevice::open(path, BYTES).map_err(io::Error::other)?;
    let mut block = Pool::new(STEP, 1).try_get().expect("the pool has one slot");
    let buffer = block.capacity_mut();
    // Not compressible, as the blocks of a cache.
    aws_lc_rs::rand::fill(buffer).map_err(|_| io::Error::other("no random numbers"))?;
    let start = Instant::now();
    let mut written = 0;
    while written < BYTES && (written == 0 || start.elapsed() < TIME) {
        device.write_at(written, buffer)?;
        written += STEP as u64;
    }
    device.sync()?;
    let start = Instant::now();
    let mut read = 0;
    while read < written && (read == 0 || start.elapsed() < TIME) {
        device.read_at(read, buffer)?;
        read += STEP as u64;
    }
    Ok(read as f64 / start.elapsed().as_secs_f64().max(1e-6))
}
