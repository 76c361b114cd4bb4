//! Records each operation for `--trace`.

use std::sync::Arc;

use super::{Call, Done, Layer, Layered, Operation};
use crate::End;
use crate::trace::{By, Carried, Record, SharedObserver, failure};
use crate::{Result, Tree};

/// A tree whose operations are recorded.
pub type Traced = Layered<TraceLayer>;

impl Layered<TraceLayer> {
    /// Reports each operation on `inner` to `observer` when it has finished. An operation that is
    /// dropped is not recorded.
    #[expect(
        clippy::new_ret_no_self,
        reason = "so that the layer is compiled in this crate"
    )]
    pub fn new(inner: Arc<dyn Tree>, observer: SharedObserver, end: End) -> Arc<dyn Tree> {
        Self::wrap(inner, TraceLayer { observer, end })
    }
}

/// The layer of [`Traced`].
pub struct TraceLayer {
    observer: SharedObserver,
    end: End,
}

impl Layer for TraceLayer {
    const WHOLE_SMALL: bool = true;

    async fn around<'a, T: Send + 'a>(
        &'a self,
        call: Call<'a>,
        operation: Operation<'a, T>,
    ) -> Result<Done<T>> {
        let start = self.observer.now();
        let mut carried = Carried::new(operation());
        let result = (&mut carried).await;
        self.observer.record(Record {
            start,
            duration: self.observer.now().saturating_sub(start),
            end: Some(self.end),
            kind: call.action.word(),
            path: call.path.as_bytes(),
            to: &[],
            offset: call.offset,
            length: call.length,
            result: match &result {
                Ok(done) => i64::try_from(done.amount).unwrap_or(i64::MAX),
                Err(error) => failure(error),
            },
            by: By {
                connection: carried.connection(),
                ..By::default()
            },
        });
        result
    }
}
