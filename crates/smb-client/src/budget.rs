//! The bytes in flight that all connections of a client have together: the sum of their governors' windows.

use std::sync::{Mutex, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::depth::WINDOW_MIN;

/// One permit.
const UNIT: u64 = 4096;

/// Bytes that may be in flight. Served in turn.
#[derive(Debug)]
pub(crate) struct Budget {
    semaphore: Semaphore,
    state: Mutex<State>,
    units_max: u64,
}

#[derive(Debug)]
struct State {
    /// Sum of the windows, in bytes.
    total: u64,
    /// Permits there are, free or taken.
    issued: u64,
}

impl Budget {
    /// Never more than `bytes_max`.
    pub(crate) fn new(bytes_max: u64) -> Self {
        let units = WINDOW_MIN / UNIT;
        Self {
            semaphore: Semaphore::new(units as usize),
            state: Mutex::new(State {
                total: 0,
                issued: units,
            }),
            units_max: (bytes_max / UNIT).clamp(1, u64::from(u32::MAX)),
        }
    }

    /// Waits until `bytes` may be in flight, as long as the permit lives.
    pub(crate) async fn acquire(&self, bytes: u64) -> SemaphorePermit<'_> {
        // There are always as many permits as this, so a large request waits for a quiet moment, not forever.
        let units = bytes.div_ceil(UNIT).clamp(1, self.units_min()) as u32;
        let permit = self.semaphore.acquire_many(units).await;
        permit.expect("the semaphore is never closed")
    }

    /// Whether callers wait, or nearly so.
    pub(crate) fn is_used_up(&self) -> bool {
        // 1 MiB, the usual request, does not fit any more.
        (self.semaphore.available_permits() as u64) < (1 << 20) / UNIT
    }

    fn units_min(&self) -> u64 {
        (WINDOW_MIN / UNIT).min(self.units_max)
    }

    /// A connection's window is `new` now; it was `old`.
    pub(crate) fn update(&self, old: u64, new: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.total = (state.total + new).saturating_sub(old);
        let target = (state.total / UNIT).clamp(self.units_min(), self.units_max);
        if target > state.issued {
            self.semaphore.add_permits((target - state.issued) as usize);
            state.issued = target;
        } else {
            // Permits that are taken are withdrawn by a later update.
            let surplus = state.issued - target;
            state.issued -= self.semaphore.forget_permits(surplus as usize) as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn windows_add_up_and_shrink() {
        let budget = Budget::new(64 << 20);
        budget.update(0, 8 << 20);
        budget.update(0, 8 << 20);
        assert_eq!(budget.semaphore.available_permits() as u64 * UNIT, 16 << 20);
        let held = budget.acquire(4 << 20).await;
        budget.update(8 << 20, 0);
        budget.update(8 << 20, 0);
        assert_eq!(budget.semaphore.available_permits(), 0);
        drop(held);
        budget.update(0, 0);
        assert_eq!(budget.semaphore.available_permits() as u64 * UNIT, WINDOW_MIN);
        // More than there is: waits for all of it.
        drop(budget.acquire(64 << 20).await);
    }
}
