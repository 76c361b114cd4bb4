//! An observer that counts operations, for several test programs.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use ropeway_vfs::trace::{Observer, Record};

/// Counts operations by name.
#[derive(Default)]
pub(crate) struct Counted(pub(crate) Mutex<HashMap<&'static str, u64>>);

impl Counted {
    pub(crate) fn count(&self, kind: &str) -> u64 {
        self.0.lock().unwrap().get(kind).copied().unwrap_or_default()
    }
}

impl Observer for Counted {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn record(&self, record: Record<'_>) {
        *self.0.lock().unwrap().entry(record.kind).or_default() += 1;
    }
}
