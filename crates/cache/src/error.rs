//! Why a cache cannot be opened or used.

use std::io;

/// Reasons for refusing a device or an operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file has other content; it is not touched.
    #[error("the file is not a ropeway cache; it was not changed")]
    Foreign,
    /// Another process has the cache open.
    #[error("the cache is in use by another process")]
    Busy,
    /// The format is newer than this program.
    #[error("the cache has format {0}, which this program does not know; it was not changed")]
    NewerFormat(u32),
    /// The device cannot hold a cache.
    #[error("the device has {len} bytes; a cache needs at least {least}")]
    TooSmall {
        /// Bytes of the device.
        len: u64,
        /// Bytes needed.
        least: u64,
    },
    /// The cache's device is off after an error or a stall.
    #[error("the cache is off since its device failed or stalled")]
    Off,
    /// The device failed.
    #[error("the cache's device failed: {0}")]
    Device(#[from] io::Error),
}
