//! The budget of READ and WRITE bytes in flight over all connections of a client. Its size is the
//! sum of the connections' windows, and one request at least.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Bytes of one permit.
const UNIT: u64 = 4096;
/// Bytes that may always be in flight; more from the first larger request on. The usual request.
const ALWAYS: u64 = 1 << 20;

/// A semaphore over bytes in flight. Callers are served in the order of their arrival.
#[derive(Debug)]
pub(crate) struct Budget {
    semaphore: Semaphore,
    state: Mutex<State>,
    units_max: u64,
    /// Number of permits that there are at least: as many as the largest request takes.
    units_min: AtomicU64,
    /// Whether more permits are issued than there should be: those in use are withdrawn when they are
    /// returned.
    has_surplus: AtomicBool,
}

/// Bytes in flight, until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit<'a> {
    budget: &'a Budget,
    held: Option<SemaphorePermit<'a>>,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take()
            && self.budget.has_surplus.load(Ordering::Acquire)
        {
            self.budget.withdraw(held);
        }
    }
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
        let units_max = (bytes_max / UNIT).clamp(1, u64::from(u32::MAX));
        let units = (ALWAYS / UNIT).min(units_max);
        Self {
            semaphore: Semaphore::new(units as usize),
            state: Mutex::new(State {
                total: 0,
                issued: units,
                cap: u64::MAX,
            }),
            units_max,
            units_min: AtomicU64::new(units),
            has_surplus: AtomicBool::new(false),
        }
    }

    /// Creates one that only [`cap`](Self::cap) limits further.
    pub(crate) fn capped(bytes_max: u64) -> Self {
        let budget = Self::new(bytes_max);
        budget.update(0, bytes_max);
        budget
    }

    /// Waits until `bytes` more may be in flight, and reserves them for the life of the permit.
    pub(crate) async fn acquire(&self, bytes: u64) -> Permit<'_> {
        let units = bytes.div_ceil(UNIT).clamp(1, self.units_max);
        // A large request waits for a quiet moment, not forever.
        if self.units_min.fetch_max(units, Ordering::Relaxed) < units {
            self.update(0, 0);
        }
        let permit = self.semaphore.acquire_many(units as u32).await;
        Permit {
            budget: self,
            held: Some(permit.expect("the semaphore is never closed")),
        }
    }

    /// Returns whether callers wait for permits, or soon will.
    pub(crate) fn is_used_up(&self) -> bool {
        // The usual request of 1 MiB no longer fits.
        (self.semaphore.available_permits() as u64) < (1 << 20) / UNIT
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
        let target = self.target(&state);
        if target > state.issued {
            self.semaphore.add_permits((target - state.issued) as usize);
            state.issued = target;
        } else {
            let surplus = state.issued - target;
            state.issued -= self.semaphore.forget_permits(surplus as usize) as u64;
        }
        self.has_surplus.store(state.issued > target, Ordering::Release);
    }

    /// Returns the number of permits that there should be.
    fn target(&self, state: &State) -> u64 {
        let units_min = self.units_min.load(Ordering::Relaxed);
        (state.total.min(state.cap) / UNIT).clamp(units_min, self.units_max)
    }

    /// Takes back as many permits as there are too many of, before a waiting caller gets them.
    fn withdraw(&self, mut held: SemaphorePermit<'_>) {
        let mut state = self.state.lock();
        let surplus = state.issued.saturating_sub(self.target(&state));
        let taken = surplus.min(held.num_permits() as u64);
        if let Some(part) = held.split(taken as usize) {
            part.forget();
            state.issued -= taken;
        }
        self.has_surplus.store(surplus > taken, Ordering::Release);
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
        let held = budget.acquire(ALWAYS).await;
        budget.update(8 << 20, 0);
        budget.update(8 << 20, 0);
        assert_eq!(budget.semaphore.available_permits(), 0);
        drop(held);
        assert_eq!(budget.semaphore.available_permits() as u64 * UNIT, ALWAYS);
        budget.update(0, 32 << 20);
        budget.cap(8 << 20);
        assert_eq!(budget.semaphore.available_permits() as u64 * UNIT, 8 << 20);
        budget.cap(u64::MAX);
        assert_eq!(budget.semaphore.available_permits() as u64 * UNIT, 32 << 20);
        budget.update(32 << 20, 0);
        // A request larger than the budget waits for all of it.
        drop(budget.acquire(64 << 20).await);
    }

    #[tokio::test]
    async fn a_budget_that_shrinks_takes_permits_back_as_they_are_returned() {
        let budget = Budget::new(64 << 20);
        budget.update(0, 8 << 20);
        let mut held = Vec::new();
        for _ in 0..8 {
            held.push(budget.acquire(1 << 20).await);
        }
        budget.update(8 << 20, 2 << 20);
        for left in [0, 0, 0, 0, 0, 0, 1, 2] {
            held.pop();
            assert_eq!(budget.semaphore.available_permits() as u64 * UNIT, left << 20);
        }
    }

    #[tokio::test]
    async fn callers_that_wait_do_not_keep_a_budget_from_shrinking() {
        let budget = Budget::new(64 << 20);
        budget.update(0, 8 << 20);
        let mut held = Vec::new();
        for _ in 0..8 {
            held.push(budget.acquire(1 << 20).await);
        }
        let mut waiting = Box::pin(budget.acquire(1 << 20));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        budget.update(8 << 20, 2 << 20);
        for _ in 0..6 {
            held.pop();
            assert!(futures_util::poll!(&mut waiting).is_pending());
        }
        held.pop();
        assert!(futures_util::poll!(&mut waiting).is_ready());
    }

    /// It would wait forever.
    #[tokio::test]
    async fn the_largest_request_fits_however_small_the_windows_become() {
        let budget = Budget::new(64 << 20);
        budget.update(0, 16 << 20);
        drop(budget.acquire(8 << 20).await);
        budget.update(16 << 20, 64 << 10);
        drop(budget.acquire(8 << 20).await);
        assert_eq!(budget.semaphore.available_permits() as u64 * UNIT, 8 << 20);
        // A client whose own limit is smaller than a request.
        let budget = Budget::new(64 << 10);
        drop(budget.acquire(1 << 20).await);
        assert_eq!(budget.semaphore.available_permits() as u64 * UNIT, 64 << 10);
    }
}
