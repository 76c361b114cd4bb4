//! The clock of the runtime as a [`Clock`]: real in production, virtual if a test pauses it.

use std::time::Duration;

use ropeway_vfs::{Clock, Pending};
use tokio::time::Instant;

/// The time of the tokio runtime. Waiting needs a runtime.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeClock {
    zero: Instant,
}

impl RuntimeClock {
    /// Makes a clock whose zero is now.
    pub fn new() -> Self {
        Self { zero: Instant::now() }
    }
}

impl Default for RuntimeClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for RuntimeClock {
    fn now(&self) -> Duration {
        self.zero.elapsed()
    }

    fn sleep_until(&self, deadline: Duration) -> Pending<'static, ()> {
        Box::pin(tokio::time::sleep_until(self.zero + deadline))
    }
}
