//! Repeats what may pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Action, Call, Done, Layer, Layered};
use crate::{Clock, Pending, Result, Tree, Verdict};

/// A tree that repeats operations whose error may pass ([`Verdict::Retry`]).
///
/// What cannot simply be repeated (creating, linking, removing, renaming) accepts the trace of its own earlier
/// success, and only that. Two things are not repeated: the next chunk of a listing, since a folder taken for whole
/// when it is not would be believed (list it anew), and a flush, since a system reports a write-back error once and a
/// second flush would succeed although data is lost.
pub type Retry = Layered<RetryLayer>;

impl Layered<RetryLayer> {
    /// Repeats after the pause `backoff` gives for the repetition (1, 2, …), until it gives `None`.
    pub fn new<B>(inner: Arc<dyn Tree>, backoff: B, clock: Arc<dyn Clock>) -> Arc<Self>
    where
        B: Fn(u32) -> Option<Duration> + Send + Sync + 'static,
    {
        let layer = RetryLayer {
            backoff: Box::new(backoff),
            clock,
            retries: AtomicU64::new(0),
        };
        Self::wrap(inner, layer)
    }

    /// Repetitions so far.
    pub fn retries(&self) -> u64 {
        self.layer.retries.load(Ordering::Relaxed)
    }
}

/// The layer of [`Retry`].
pub struct RetryLayer {
    backoff: Box<dyn Fn(u32) -> Option<Duration> + Send + Sync>,
    clock: Arc<dyn Clock>,
    retries: AtomicU64,
}

impl Layer for RetryLayer {
    const ITEMWISE: bool = true;
    const WHOLE_SMALL: bool = true;
    const REPEATS: bool = true;

    async fn around<'a, T, F>(&'a self, call: Call<'a>, attempt: F) -> Result<Done<T>>
    where
        T: Send + 'a,
        F: Fn(u32) -> Pending<'a, Result<Done<T>>> + Send + Sync + 'a,
    {
        let mut tries = 0;
        loop {
            let error = match attempt(tries).await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            if error.verdict() != Verdict::Retry || !repeatable(call.action) {
                return Err(error);
            }
            tries = tries.saturating_add(1);
            let Some(pause) = (self.backoff)(tries) else {
                return Err(error);
            };
            self.retries.fetch_add(1, Ordering::Relaxed);
            self.clock.sleep_until(self.clock.now() + pause).await;
        }
    }
}

fn repeatable(action: Action) -> bool {
    !matches!(
        action,
        Action::ListNext
            | Action::SyncTree
            | Action::SyncDir
            | Action::SyncFile
            | Action::StartWriteback
            | Action::WaitWriteback
    )
}

#[cfg(test)]
#[path = "retry_tests.rs"]
mod tests;
