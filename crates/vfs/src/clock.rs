//! Time as an argument: one shape of clock for every pure core.
//!
//! Monotonic time is a [`Duration`] since a zero that the driver chooses. It never goes back, and
//! deadlines are values of the same kind. A state machine takes it as an argument `now` and returns
//! a deadline to wait for. Code that has to sleep in the middle of a future (the decorators) takes
//! an `Arc<dyn` [`Clock`]`>` and reads the same value from [`Clock::now`]. Dates that leave the
//! process ([`Timestamp`](crate::Timestamp), SMB's FILETIME) are a different type and are passed
//! separately.
//!
//! [`VirtualClock`] stands still until it is advanced. [`simulate`] runs a future on it and lets
//! time jump to the next sleeper whenever nothing else can happen. A copy of hours is then tested
//! in milliseconds, the same way each time.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::Pending;

/// A monotonic clock to measure and wait with.
pub trait Clock: Send + Sync + 'static {
    /// Returns the time since the clock's zero. Never goes back.
    fn now(&self) -> Duration;
    /// Completes when [`now`](Self::now) has reached `deadline`.
    fn sleep_until(&self, deadline: Duration) -> Pending<'static, ()>;
}

/// A clock that moves only when advanced. Clones share the same time.
#[derive(Clone, Default)]
pub struct VirtualClock {
    state: Arc<Mutex<VirtualState>>,
}

#[derive(Default)]
struct VirtualState {
    now: Duration,
    next_sleeper: u64,
    /// By deadline, then by the order in which they fell asleep; one entry for each waiting future.
    sleepers: BTreeMap<(Duration, u64), Waker>,
}

impl VirtualClock {
    /// Makes a clock at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves time forward and wakes every sleeper that is due, in order.
    pub fn advance(&self, by: Duration) {
        let target = self.lock().now.saturating_add(by);
        self.advance_to(target);
    }

    /// Moves time to the earliest sleeper and wakes it; returns `false` if there is none.
    pub fn advance_to_next(&self) -> bool {
        let Some(deadline) = self.lock().sleepers.keys().next().map(|(deadline, _)| *deadline) else {
            return false;
        };
        self.advance_to(deadline);
        true
    }

    fn advance_to(&self, target: Duration) {
        let due = {
            let mut state = self.lock();
            let now = state.now.max(target);
            state.now = now;
            let later = state.sleepers.split_off(&(now, u64::MAX));
            std::mem::replace(&mut state.sleepers, later)
        };
        for waker in due.into_values() {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, VirtualState> {
        self.state.lock()
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Duration {
        self.lock().now
    }

    fn sleep_until(&self, deadline: Duration) -> Pending<'static, ()> {
        Box::pin(VirtualSleep {
            clock: self.clone(),
            deadline,
            id: None,
        })
    }
}

struct VirtualSleep {
    clock: VirtualClock,
    deadline: Duration,
    id: Option<u64>,
}

impl Future for VirtualSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let mut state = this.clock.lock();
        if state.now >= this.deadline {
            return Poll::Ready(());
        }
        let id = *this.id.get_or_insert_with(|| {
            state.next_sleeper += 1;
            state.next_sleeper
        });
        state.sleepers.insert((this.deadline, id), cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for VirtualSleep {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.clock.lock().sleepers.remove(&(self.deadline, id));
        }
    }
}

/// Runs a future on this thread to its end. Whenever it waits and nothing has woken it, time jumps
/// to the earliest sleeper of `clock`. The run is deterministic if the future starts no thread.
///
/// # Panics
/// If the future waits for something that time cannot bring: nothing sleeps and nothing woke it.
pub fn simulate<F: Future>(clock: &VirtualClock, future: F) -> F::Output {
    let woken = Arc::new(Woken(AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&woken));
    let mut future = pin!(future);
    loop {
        while woken.0.swap(false, Ordering::SeqCst) {
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return output;
            }
        }
        assert!(
            clock.advance_to_next(),
            "the future waits for something that virtual time cannot bring"
        );
    }
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::join_all;

    #[test]
    fn simulated_time_jumps_from_sleeper_to_sleeper() {
        let clock = VirtualClock::new();
        let order = Mutex::new(Vec::new());
        simulate(&clock, async {
            join_all([3_u64, 1, 2].map(|hours| {
                let (clock, order) = (clock.clone(), &order);
                async move {
                    clock.sleep_until(Duration::from_secs(hours * 3600)).await;
                    order.lock().push((hours, clock.now().as_secs() / 3600));
                }
            }))
            .await
        });
        assert_eq!(*order.lock(), [(1, 1), (2, 2), (3, 3)]);
    }

    #[test]
    fn a_dropped_sleeper_is_removed() {
        let clock = VirtualClock::new();
        let mut sleep = clock.sleep_until(Duration::from_secs(1));
        let woken = Waker::from(Arc::new(Woken(AtomicBool::new(false))));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&woken)).is_pending());
        drop(sleep);
        assert!(!clock.advance_to_next());
        clock.advance(Duration::from_secs(5));
        assert_eq!(clock.now(), Duration::from_secs(5));
    }

    #[test]
    #[should_panic(expected = "cannot bring")]
    fn waiting_for_what_time_cannot_bring_panics() {
        simulate(&VirtualClock::new(), std::future::pending::<()>());
    }
}
