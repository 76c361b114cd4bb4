//! Records each operation for `--trace`.

use std::sync::Arc;

use super::{Call, Done, Layer, Layered};
use crate::trace::{End, Record, SharedObserver};
use crate::{Pending, Result, Tree};

/// A tree whose operations are recorded.
pub type Traced = Layered<TraceLayer>;

impl Layered<TraceLayer> {
    /// Tells `observer` of each operation on `inner` when it has finished. A dropped operation is not recorded.
    pub fn new(inner: Arc<dyn Tree>, observer: SharedObserver, end: End) -> Arc<Self> {
        Self::wrap(inner, TraceLayer { observer, end })
    }
}

/// The layer of [`Traced`].
pub struct TraceLayer {
    observer: SharedObserver,
    end: End,
}

/// Written as the result of an error that has no errno: -EIO.
const RESULT_UNKNOWN: i64 = -5;

impl Layer for TraceLayer {
    const WHOLE_SMALL: bool = true;

    async fn around<'a, T, F>(&'a self, call: Call<'a>, attempt: F) -> Result<Done<T>>
    where
        T: Send + 'a,
        F: Fn(u32) -> Pending<'a, Result<Done<T>>> + Send + Sync + 'a,
    {
        let start = self.observer.now();
        let result = attempt(0).await;
        self.observer.record(Record {
            start,
            duration: self.observer.now().saturating_sub(start),
            end: self.end,
            kind: call.action.word(),
            path: call.path,
            offset: call.offset,
            length: call.length,
            result: match &result {
                Ok(done) => i64::try_from(done.amount).unwrap_or(i64::MAX),
                Err(error) => {
                    let errno = error.source.as_ref().and_then(std::io::Error::raw_os_error);
                    errno.map_or(RESULT_UNKNOWN, |errno| -i64::from(errno))
                }
            },
        });
        result
    }
}
