//! Records of operations for `--trace`. Without an observer nothing is measured.

use std::time::Duration;

use ropeway_vfs::trace::{By, Record, SharedObserver, failure};
use ropeway_vfs::{End, Error, RelPath};

/// Destination of the records, if there is one.
#[derive(Clone, Default)]
pub(crate) struct Trace(Option<(SharedObserver, End)>);

/// Start time of an operation; `None` if nothing is observed.
#[derive(Clone, Copy)]
pub(crate) struct Started(Option<Duration>);

impl Trace {
    pub(crate) fn new(observer: Option<(SharedObserver, End)>) -> Self {
        Self(observer)
    }

    /// Whether there is an observer.
    pub(crate) fn on(&self) -> bool {
        self.0.is_some()
    }

    /// Starts the clock of an operation.
    pub(crate) fn start(&self) -> Started {
        Started(self.0.as_ref().map(|(observer, _)| observer.now()))
    }

    /// Records an operation that ended with `result`: the bytes done, or a negative errno.
    pub(crate) fn end(
        &self,
        started: Started,
        kind: &'static str,
        path: &RelPath,
        range: (u64, u64),
        result: i64,
    ) {
        self.end_on(started, kind, path, range, result, None);
    }

    /// Like [`end`](Self::end), for an operation that `ring` may have carried out.
    pub(crate) fn end_on(
        &self,
        started: Started,
        kind: &'static str,
        path: &RelPath,
        range: (u64, u64),
        result: i64,
        ring: Option<u32>,
    ) {
        let (Some((observer, end)), Some(start)) = (&self.0, started.0) else {
            return;
        };
        let duration = observer.now().saturating_sub(start);
        let (offset, length) = range;
        observer.record(Record {
            start,
            duration,
            end: Some(*end),
            kind,
            path: path.as_bytes(),
            to: &[],
            offset,
            length,
            result,
            by: By {
                ring,
                ..By::default()
            },
        });
    }

    /// Runs an operation and records it; `count` returns the bytes done.
    pub(crate) fn call<T>(
        &self,
        kind: &'static str,
        path: &RelPath,
        range: (u64, u64),
        count: impl FnOnce(&T) -> u64,
        operation: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let started = self.start();
        let result = operation();
        if self.on() {
            let value = match &result {
                Ok(value) => count(value).min(i64::MAX as u64) as i64,
                Err(error) => failure(error),
            };
            self.end(started, kind, path, range, value);
        }
        result
    }
}
