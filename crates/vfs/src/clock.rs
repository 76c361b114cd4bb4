//! Time as an argument: the real clock or a virtual one.

use std::time::{Duration, Instant};

use crate::Pending;

/// A clock that decorators and policies measure and wait with.
pub trait Clock: Send + Sync + 'static {
    /// Time since the clock's own zero; never goes back.
    fn now(&self) -> Duration;
    /// Completes when [`now`](Self::now) has reached `deadline`.
    fn sleep_until(&self, deadline: Duration) -> Pending<'static, ()>;
}

/// The machine's monotonic clock. Waiting is given by the caller's runtime as a function, since this
/// crate knows none.
pub struct SystemClock<S> {
    zero: Instant,
    sleep: S,
}

impl<S> SystemClock<S>
where
    S: Fn(Duration) -> Pending<'static, ()> + Send + Sync + 'static,
{
    /// A clock whose zero is now; `sleep` waits for a span of time.
    pub fn new(sleep: S) -> Self {
        Self {
            zero: Instant::now(),
            sleep,
        }
    }
}

impl<S> Clock for SystemClock<S>
where
    S: Fn(Duration) -> Pending<'static, ()> + Send + Sync + 'static,
{
    fn now(&self) -> Duration {
        self.zero.elapsed()
    }

    fn sleep_until(&self, deadline: Duration) -> Pending<'static, ()> {
        (self.sleep)(deadline.saturating_sub(self.now()))
    }
}
