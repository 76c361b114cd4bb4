//! A preallocated file as a device.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, FlockOperation, OFlags, fallocate, fcntl_getfl, fcntl_setfl, flock};
use rustix::io::Errno;

use crate::device::Device;
use crate::error::Error;

/// A file, locked against other processes, read and written past the page cache where the file
/// system can do that.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    is_direct: bool,
    alignment: usize,
}

impl FileDevice {
    /// Opens or creates a file that only its owner can read, and locks it. A new or empty file is
    /// preallocated with `len` bytes; another one keeps its length.
    pub fn open(path: &Path, len: u64) -> Result<Self, Error> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(Error::Busy),
            locked => locked.map_err(io::Error::from)?,
        }
        if file.metadata()?.len() == 0 {
            match fallocate(&file, FallocateFlags::empty(), 0, len) {
                // A file system without preallocation: blocks are allocated when they are written.
                Err(Errno::OPNOTSUPP) => file.set_len(len)?,
                allocated => allocated.map_err(io::Error::from)?,
            }
        }
        // Refused by file systems that know only the page cache, as tmpfs did until 6.6.
        let flags = fcntl_getfl(&file).map_err(io::Error::from)?;
        let is_direct = fcntl_setfl(&file, flags | OFlags::DIRECT).is_ok();
        let alignment = if reads_sectors(&file) { 512 } else { 4096 };
        Ok(Self {
            file,
            is_direct,
            alignment,
        })
    }

    /// Whether reads and writes go past the page cache.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }
}

/// Whether a single sector can be read. Devices with sectors of 4096 bytes refuse it.
fn reads_sectors(file: &File) -> bool {
    let pool = ropeway_block::Pool::new(4096, 1);
    let mut buffer = pool.try_get().expect("the pool has one slot");
    file.read_exact_at(&mut buffer.capacity_mut()[..512], 512).is_ok()
}

impl Device for FileDevice {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, offset)
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.file.write_all_at(from, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn size(&self) -> io::Result<u64> {
        self.file.metadata().map(|metadata| metadata.len())
    }

    fn alignment(&self) -> usize {
        self.alignment
    }
}
