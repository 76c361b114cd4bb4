//! Helpers of this crate's tests.

use ropeway_vfs::Capabilities;

/// A seeded generator for simulations.
pub(crate) struct Random(fastrand::Rng);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// Returns a number in `0..bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0.usize(..bound)
    }

    /// Returns a number in `0..1`.
    pub(crate) fn unit(&mut self) -> f64 {
        self.0.f64()
    }

    /// Exponentially distributed with mean 1.
    pub(crate) fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    /// Normally distributed with mean 0 and deviation 1 (Box and Muller).
    pub(crate) fn normal(&mut self) -> f64 {
        (2.0 * self.exponential()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// A tree that can hold everything, like ext4.
pub(crate) fn capabilities() -> Capabilities {
    Capabilities {
        remote: false,
        on_network: false,
        far: false,
        page_cache: true,
        time_granularity_ns: 1,
        time_granularity_known: true,
        sizes_known: true,
        case_sensitive: true,
        name_max: 255,
        windows_names: false,
        raw_names: true,
        file_size_max: u64::MAX,
        owners: true,
        modes: true,
        xattrs: true,
        short_xattrs: false,
        security: false,
        symlinks: true,
        hard_links: true,
        special_files: true,
        sparse: true,
        stable_ids: true,
        journals_metadata: true,
        folder_renames: true,
        replaces_open: true,
        creation_times: false,
        batches_in_flight: 2,
        small_in_flight: 1,
        small_puts_in_flight: 0,
        small_gets_in_flight: 0,
        blocks_in_flight: 0,
        named_streams: false,
        links_shown: true,
    }
}
