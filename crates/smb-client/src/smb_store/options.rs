//! The options of a store.

use std::time::Duration;

/// The options of an [`SmbStore`](crate::SmbStore). Sizes are bytes.
#[derive(Clone, Debug)]
pub struct SmbStoreOptions {
    /// How long attributes, missing names and listings are valid. Zero asks the server each time.
    pub cache_timeout: Duration,
    /// How long data read ahead is valid where the server grants no lease on the file.
    pub data_timeout: Duration,
    /// Largest number of names whose attributes are kept; some 300 bytes each.
    pub names_max: usize,
    /// Largest distance between a reader and the data requested ahead of it.
    pub read_ahead_max: u64,
    /// Memory for data read ahead, of all files.
    pub read_buffer_max: u64,
    /// Memory for data that the server has not flushed, of all files.
    pub write_buffer_max: u64,
    /// Whether names that differ only in case are different files. Servers do not report it
    /// reliably.
    pub case_sensitive: bool,
    /// Name of the store in messages. Default: the names of share and folder.
    pub description: Option<String>,
}

impl Default for SmbStoreOptions {
    fn default() -> Self {
        Self {
            // As NFS and FUSE file systems do by default.
            cache_timeout: Duration::from_secs(1),
            // A guess: a player of 1 Mbit/s reads a block of 1 MiB in 8 s.
            data_timeout: Duration::from_secs(10),
            names_max: 200_000,
            // 622 Mbit/s x 75 ms are 5.8 MB; with the queues before the line, 12 MB keep it filled.
            read_ahead_max: 24 << 20,
            read_buffer_max: 96 << 20,
            // 32 MiB on their way, what arrives while one FLUSH waits for its answer and then the
            // next, and a reserve for a slow one: with 64 MiB `cp` of 1 GiB over 622 Mbit/s and 75
            // ms took 0.3 s longer.
            write_buffer_max: 96 << 20,
            case_sensitive: false,
            description: None,
        }
    }
}
