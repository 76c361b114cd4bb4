//! What the kernel has in memory of the files of a mount, as whoever serves the mount sees and fills it.

use std::io;

use crate::path::RelPath;

/// The kernel's memory of the files of one mount. Calls wait for the kernel, which may wait for the
/// store of the mount: never call them from a thread that answers the kernel.
pub trait KernelPages: Send + Sync {
    /// Returns, for each piece of `step` bytes of a range, whether all of it is in memory; `None` if
    /// the kernel does not tell.
    ///
    /// # Errors
    /// The file cannot be opened under its path, or the mount has ended.
    fn kept(&self, path: &RelPath, offset: u64, length: u64, step: u64) -> io::Result<Option<Vec<bool>>>;

    /// Reads a range through the mount, so that it is in memory afterwards. Nothing else is read.
    ///
    /// # Errors
    /// As [`kept`](Self::kept).
    fn read(&self, path: &RelPath, offset: u64, length: u64) -> io::Result<()>;

    /// Returns the process whose requests these reads are: it is no program that uses the files. It
    /// may be another one after an error.
    fn process(&self) -> Option<u32>;
}
