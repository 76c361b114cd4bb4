//! Whether folders of both ends were equal so far: comparing them pays only where most are.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// What an equal folder counts.
const EQUAL: i32 = 10;
/// What a folder that differs counts. A guess: it costs a round trip, an equal one saves a listing.
const OTHER: i32 = -20;
/// What a folder without a digest counts: little, since the far end is not known yet when the first ones are
/// asked for.
const ABSENT: i32 = -2;
/// How far a balance goes: after five others in a row no more is asked, and after many equal ones it takes
/// some more.
const BALANCE: RangeInclusive<i32> = -100..=200;

/// How many folders were equal so far, less those that were not. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Balance(Arc<AtomicI32>);

impl Balance {
    /// Counts a folder; `None` if it has no digest.
    pub(crate) fn weigh(&self, is_equal: Option<bool>) {
        let weight = match is_equal {
            Some(true) => EQUAL,
            Some(false) => OTHER,
            None => ABSENT,
        };
        let balance = self.0.load(Ordering::Relaxed) + weight;
        // Others may weigh at the same time; one more or less does not matter.
        self.0
            .store(balance.clamp(*BALANCE.start(), *BALANCE.end()), Ordering::Relaxed);
    }

    /// Whether no more folders are worth a comparison.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.0.load(Ordering::Relaxed) == *BALANCE.start()
    }

    /// Whether folders were mostly equal so far.
    pub(crate) fn is_promising(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 16 folders are listed before the first answer shows what a server can.
    #[test]
    fn a_far_end_that_is_not_known_yet_is_asked_again() {
        let balance = Balance::default();
        (0..32).for_each(|_| balance.weigh(None));
        assert!(!balance.is_hopeless() && !balance.is_promising());
        (0..7).for_each(|_| balance.weigh(Some(true)));
        assert!(balance.is_promising());
        (0..5).for_each(|_| balance.weigh(Some(false)));
        (0..50).for_each(|_| balance.weigh(None));
        assert!(balance.is_hopeless());
    }
}
