//! The runtime's clock as a [`Clock`]: real in production, virtual where a test pauses it.

use std::time::Duration;

use ropeway_vfs::{Clock, Pending};
use tokio::time::Instant;

/// Time of the tokio runtime; needs one to wait.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeClock {
    zero: Instant,
}

impl RuntimeClock {
    /// A clock whose zero is now.
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
