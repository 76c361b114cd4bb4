//! Notices when the wall clock was set back.
//!
//! Change times on the target come from the wall clock. A step backwards shows as a wall clock that
//! advanced less than the monotonic clock between two looks.

use std::time::Duration;

use ropeway_vfs::Timestamp;

/// The wall clock may fall behind the monotonic clock by this much between two looks before it
/// counts as set back. A guess: far above the slewing of NTP over a few seconds.
const STEP_MAX: Duration = Duration::from_millis(500);

/// Compares both clocks at each look.
#[derive(Clone, Copy, Debug)]
pub struct ClockWatch {
    wall: Timestamp,
    steady: Duration,
    was_set_back: bool,
}

impl ClockWatch {
    /// Begins with what both clocks show now.
    pub fn new(wall: Timestamp, now: Duration) -> Self {
        Self {
            wall,
            steady: now,
            was_set_back: false,
        }
    }

    /// Looks at both clocks. Returns whether the wall clock was ever set back, as far as the looks
    /// tell.
    pub fn look(&mut self, wall: Timestamp, now: Duration) -> bool {
        let passed = i128::try_from(now.saturating_sub(self.steady).as_nanos()).unwrap_or(i128::MAX);
        let step_max = i128::try_from(STEP_MAX.as_nanos()).unwrap_or(i128::MAX);
        let is_back = wall.0 - self.wall.0 < passed - step_max;
        *self = Self {
            wall,
            steady: now,
            was_set_back: self.was_set_back || is_back,
        };
        self.was_set_back
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_step_backwards_counts_and_it_counts_for_ever() {
        let at = |seconds: i128| Timestamp(seconds * 1_000_000_000);
        let mut watch = ClockWatch::new(at(1000), Duration::ZERO);
        assert!(!watch.look(at(1002), Duration::from_secs(2)), "both advance");
        assert!(
            !watch.look(at(4602), Duration::from_secs(2)),
            "a suspend, which only the wall clock counts"
        );
        assert!(!watch.look(at(4603), Duration::from_millis(3400)), "slewed");
        assert!(watch.look(at(4602), Duration::from_millis(3400)));
        assert!(watch.look(at(9000), Duration::from_secs(4)), "remembered");
    }
}
