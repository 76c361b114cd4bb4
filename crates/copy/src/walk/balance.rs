//! Whether folders of both ends were equal so far: comparing them pays only where most are.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// What a folder that differs counts against one that is equal. A guess: it costs a round trip, an equal one
/// saves a listing.
const MISS: i32 = 2;
/// How far a balance goes: after five others in a row no more is asked, and after many equal ones it takes
/// some more.
const BALANCE: RangeInclusive<i32> = -10..=20;

/// How many folders were equal so far, less those that were not. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Balance(Arc<AtomicI32>);

impl Balance {
    /// Counts a folder.
    pub(crate) fn weigh(&self, is_equal: bool) {
        let balance = self.0.load(Ordering::Relaxed) + if is_equal { 1 } else { -MISS };
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
