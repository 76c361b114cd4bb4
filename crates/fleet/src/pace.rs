//! How large a slice is: large enough that publishing it costs little, small enough that work can be given away
//! and a kill costs little.

use std::time::Duration;

use crate::worker::SliceLimits;

/// Time that the copy of a slice should take at least. A guess: an idle worker waits about so long for a share.
const SPAN_MIN: Duration = Duration::from_secs(2);

/// Times of what follows a slice (segment, names, flushes) that its copy should take. A guess: a ninth of the time is
/// lost then.
const TIMES_OVERHEAD: u32 = 8;

/// The first slice, if the limits allow as much.
const FIRST: (usize, u64) = (64, 4 << 20);

/// The smallest one.
const LEAST: (usize, u64) = (16, 4 << 20);

/// Sizes slices by the time that they took.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    most: SliceLimits,
    files: usize,
    bytes: u64,
}

impl Pace {
    /// Begins with a small slice. `most`: bounds of the largest one.
    pub fn new(most: SliceLimits) -> Self {
        Self {
            most,
            files: FIRST.0.min(most.files_max),
            bytes: FIRST.1.min(most.bytes_max),
        }
    }

    /// Returns the bounds of the next slice.
    pub fn limits(&self) -> SliceLimits {
        SliceLimits {
            files_max: self.files,
            bytes_max: self.bytes,
            ..self.most
        }
    }

    /// Notes a slice of `files` and `bytes`: the times of its copy, and of what followed it. One that ended early
    /// since nothing was left says only whether it was too large.
    pub fn took(&mut self, (files, bytes): (usize, u64), copied: Duration, overhead: Duration) {
        let wanted = SPAN_MIN.max(overhead * TIMES_OVERHEAD);
        let is_full = files >= self.files || bytes >= self.bytes;
        if copied > wanted * 2 {
            self.files = (self.files / 2).max(LEAST.0.min(self.most.files_max));
            self.bytes = (self.bytes / 2).max(LEAST.1.min(self.most.bytes_max));
        } else if is_full && copied < wanted / 2 {
            self.files = self.files.saturating_mul(2).min(self.most.files_max);
            self.bytes = self.bytes.saturating_mul(2).min(self.most.bytes_max);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Copies slices at a rate until the size settles; returns its bytes.
    fn settled(bytes_a_second: u64, overhead: Duration) -> u64 {
        let mut pace = Pace::new(SliceLimits::default());
        for _ in 0..30 {
            let bytes = pace.limits().bytes_max;
            pace.took((1, bytes), MS * (bytes * 1_000 / bytes_a_second) as u32, overhead);
        }
        pace.limits().bytes_max
    }

    #[test]
    fn a_slice_takes_some_seconds_and_much_longer_than_what_follows_it() {
        let line = 12_500_000;
        assert!((line..=4 * line).contains(&settled(line, MS * 50)));
        assert!((4 * line..=16 * line).contains(&settled(line, MS * 1_000)));
        assert_eq!(settled(10_000_000_000, MS * 10), SliceLimits::default().bytes_max);
        assert_eq!(settled(10_000, MS * 10), LEAST.1);
        // A line that became slow.
        let mut pace = Pace::new(SliceLimits::default());
        for (seconds, bytes) in [(0, 8 << 20), (0, 16 << 20), (60, 8 << 20), (60, 4 << 20)] {
            let limits = pace.limits();
            pace.took((limits.files_max, limits.bytes_max), MS * 1_000 * seconds, MS);
            assert_eq!(pace.limits().bytes_max, bytes);
        }
    }

    #[test]
    fn the_rest_of_a_folder_does_not_enlarge_slices_and_limits_hold() {
        let mut pace = Pace::new(SliceLimits::default());
        pace.took((FIRST.0 - 1, 0), MS, MS);
        assert_eq!(pace.limits().files_max, FIRST.0);
        let few = SliceLimits {
            files_max: 3,
            ..SliceLimits::default()
        };
        let mut pace = Pace::new(few);
        pace.took((3, 0), MS, MS);
        pace.took((3, 0), MS * 100_000, MS);
        assert_eq!(pace.limits().files_max, 3);
    }
}
