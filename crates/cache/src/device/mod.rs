//! What the cache needs of a device.

mod file;
mod simulated;

use std::io;

pub use file::FileDevice;
pub use simulated::{Faults, SimulatedDevice};

/// A block device or a preallocated file.
///
/// The engine writes at multiples of 4096 bytes and reads at multiples of
/// [`alignment`](Self::alignment), from memory aligned to 4096 bytes.
pub trait Device: Send + Sync {
    /// Fills `into` from `offset`. An end in between is an error.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
    /// Writes all of `from` at `offset`.
    fn write_at(&self, offset: u64, from: &[u8]) -> io::Result<()>;
    /// Returns once everything written before is on the device.
    fn sync(&self) -> io::Result<()>;
    /// Returns the length in bytes.
    fn size(&self) -> io::Result<u64>;
    /// Returns the unit of reads in bytes: 512 where the device reads single sectors, or 4096.
    fn alignment(&self) -> usize {
        4096
    }
}

impl<D: Device + ?Sized> Device for std::sync::Arc<D> {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        (**self).read_at(offset, into)
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        (**self).write_at(offset, from)
    }

    fn sync(&self) -> io::Result<()> {
        (**self).sync()
    }

    fn size(&self) -> io::Result<u64> {
        (**self).size()
    }

    fn alignment(&self) -> usize {
        (**self).alignment()
    }
}
