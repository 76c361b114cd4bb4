//! The budget of READ and WRITE bytes in flight over all connections of a client. Its size is the
//! sum of the connections' windows.

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::window::WINDOW_MIN;

/// Bytes of one permit.
const UNIT: u64 = 4096;

/// A semaphore over bytes in flight. Callers are served in the order of their arrival.
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
    /// Number of permits, free or taken.
    issued: u64,
    /// Most bytes for now.
    cap: u64,
}

impl Budget {
    /// Creates a budget that never exceeds `bytes_max`.
    pub(crate) fn new(bytes_max: u64) -> Self {
        let units = WINDOW_MIN / UNIT;
        Self {
            semaphore: Semaphore::new(units as usize),
            state: Mutex::new(State {
                total: 0,
                issued: units,
                cap: u64::MAX,
            }),
            units_max: (bytes_max / UNIT).clamp(1, u64::from(u32::MAX)),
        }
    }

    /// Waits until `bytes` more may be in flight, and reserves them for the life of the permit.
    pub(crate) async fn acquire(&self, bytes: u64) -> SemaphorePermit<'_> {
        // At least this many permits always exist, so a large request waits for a quiet moment, not
        // forever.
        let units = bytes.div_ceil(UNIT).clamp(1, self.units_min()) as u32;
        let permit = self.semaphore.acquire_many(units).await;
        permit.expect("the semaphore is never closed")
    }

    /// Returns whether callers wait for permits, or soon will.
    pub(crate) fn is_used_up(&self) -> bool {
        // The usual request of 1 MiB no longer fits.
        (self.semaphore.available_permits() as u64) < (1 << 20) / UNIT
    }

    fn units_min(&self) -> u64 {
        (WINDOW_MIN / UNIT).min(self.units_max)
    }

    /// Sets the most bytes for now, whatever the windows add up to.
    pub(crate) fn cap(&self, bytes: u64) {
        self.state.lock().cap = bytes;
        self.update(0, 0);
    }

    /// Changes the contribution of one connection from `old` to `new` bytes.
    pub(crate) fn update(&self, old: u64, new: u64) {
        let mut state = self.state.lock();
        state.total = (state.total + new).saturating_sub(old);
        let target = (state.total.min(state.cap) / UNIT).clamp(self.units_min(), self.units_max);
        if target > state.issued {
            self.semaphore.add_permits((target - state.issued) as usize);
            state.issued = target;
        } else {
            // Permits in use cannot be withdrawn now; a later update withdraws them.
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
        budget.update(0, 32 << 20);
        budget.cap(8 << 20);
        assert_eq!(budget.semaphore.available_permits() as u64 * UNIT, 8 << 20);
        budget.cap(u64::MAX);
        assert_eq!(budget.semaphore.available_permits() as u64 * UNIT, 32 << 20);
        budget.update(32 << 20, 0);
        // A request larger than the budget waits for all of it.
        drop(budget.acquire(64 << 20).await);
    }
}
