//! Limits reads to a rate, for `--bwlimit`.
//!
//! A bucket of bytes fills at the current rate. A read starts when all reads started before it are
//! paid for, and completes when it is paid for itself. So reads are spaced evenly at the source,
//! several may be in flight where replies take long, and the total is exact. Bytes that a short
//! read did not use are refunded.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use super::{Action, Call, Done, Layer, Layered};
use crate::{Clock, Pending, Result, Tree};

/// A tree whose reads keep to a rate.
///
/// A read should not ask for much more than there is: until it completes, everything it asked for
/// counts.
pub type Limit = Layered<LimitLayer>;

impl Layered<LimitLayer> {
    /// Limits `inner` to `rate()` bytes a second (`None`: no limit; 0: no reads). `rate` is called
    /// before each read and at least once a second, so it may follow a timetable.
    pub fn new<R>(inner: Arc<dyn Tree>, rate: R, clock: Arc<dyn Clock>) -> Arc<Self>
    where
        R: Fn() -> Option<u64> + Send + Sync + 'static,
    {
        let bucket = Bucket {
            filled_at: clock.now(),
            ..Bucket::default()
        };
        let layer = LimitLayer {
            rate: Box::new(rate),
            clock,
            bucket: Mutex::new(bucket),
        };
        Self::wrap(inner, layer)
    }
}

/// The layer of [`Limit`].
pub struct LimitLayer {
    rate: Box<dyn Fn() -> Option<u64> + Send + Sync>,
    clock: Arc<dyn Clock>,
    bucket: Mutex<Bucket>,
}

/// Amounts are in bytes x [`UNIT`], so that a nanosecond of any rate is a whole number.
#[derive(Default)]
struct Bucket {
    /// Granted since the start.
    granted: u128,
    /// Claimed by reads that started.
    claimed: u128,
    filled_at: Duration,
    next_turn: u64,
    /// Reads that wait to start, in order.
    queue: VecDeque<(u64, Option<Waker>)>,
}

/// Nanoseconds in a second.
const UNIT: u128 = 1_000_000_000;

/// Time whose bytes an idle tree may save up: enough to hide a timer's tick, too little to show in
/// 5 s (0.4 %). A guess.
const BURST: Duration = Duration::from_millis(20);

/// Time until the rate is read again, so that a timetable takes effect in time.
const RECHECK: Duration = Duration::from_secs(1);

impl LimitLayer {
    fn lock(&self) -> MutexGuard<'_, Bucket> {
        self.bucket.lock()
    }

    /// Fills the bucket up to now. Returns how long until `wanted` is granted, `None` if it is.
    fn owed(&self, bucket: &mut Bucket, wanted: u128) -> Option<Duration> {
        let now = self.clock.now();
        let elapsed = now.saturating_sub(bucket.filled_at);
        bucket.filled_at = now;
        let Some(rate) = (self.rate)() else {
            bucket.granted = bucket.granted.max(bucket.claimed);
            return None;
        };
        let rate = u128::from(rate);
        let most = bucket.claimed.saturating_add(rate * BURST.as_nanos());
        bucket.granted = bucket.granted.saturating_add(rate * elapsed.as_nanos()).min(most);
        let missing = wanted.saturating_sub(bucket.granted);
        if missing == 0 {
            return None;
        }
        let wait = missing
            .checked_div(rate)
            .map_or(RECHECK.as_nanos(), |nanos| nanos + 1);
        Some(Duration::from_nanos(wait.min(RECHECK.as_nanos()) as u64))
    }

    /// Waits for its turn and claims `length` bytes. Returns the total claimed up to and including
    /// this claim.
    async fn begin(&self, length: u64) -> u128 {
        let turn = Turn::new(self);
        let mut sleep: Option<Pending<'static, ()>> = None;
        poll_fn(|cx| turn.poll(length, &mut sleep, cx)).await
    }

    /// Refunds what was claimed and not used.
    fn refund(&self, length: u64, used: u64) {
        let mut bucket = self.lock();
        bucket.granted = bucket
            .granted
            .saturating_add(u128::from(length.saturating_sub(used)) * UNIT);
        bucket.wake_first();
    }
}

impl Bucket {
    fn wake_first(&mut self) {
        if let Some(waker) = self.queue.front_mut().and_then(|(_, waker)| waker.take()) {
            waker.wake();
        }
    }
}

/// A place in the queue; dropping it leaves the queue.
struct Turn<'a> {
    layer: &'a LimitLayer,
    number: u64,
}

impl<'a> Turn<'a> {
    fn new(layer: &'a LimitLayer) -> Self {
        let mut bucket = layer.lock();
        let number = bucket.next_turn;
        bucket.next_turn += 1;
        bucket.queue.push_back((number, None));
        Self { layer, number }
    }

    fn poll(
        &self,
        length: u64,
        sleep: &mut Option<Pending<'static, ()>>,
        cx: &mut Context<'_>,
    ) -> Poll<u128> {
        loop {
            {
                let mut bucket = self.layer.lock();
                let first = bucket
                    .queue
                    .front()
                    .is_some_and(|(number, _)| *number == self.number);
                let claimed = bucket.claimed;
                let wait = self.layer.owed(&mut bucket, claimed);
                if first && wait.is_none() {
                    bucket.claimed = claimed.saturating_add(u128::from(length) * UNIT);
                    return Poll::Ready(bucket.claimed);
                }
                if let Some(place) = bucket.queue.iter_mut().find(|(number, _)| *number == self.number) {
                    place.1 = Some(cx.waker().clone());
                }
                match wait {
                    Some(wait) if first => {
                        *sleep = Some(self.layer.clock.sleep_until(self.layer.clock.now() + wait));
                    }
                    _ => return Poll::Pending,
                }
            }
            match sleep.as_mut().map(|sleep| sleep.as_mut().poll(cx)) {
                Some(Poll::Ready(())) => {}
                _ => return Poll::Pending,
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut bucket = self.layer.lock();
        bucket.queue.retain(|(number, _)| *number != self.number);
        bucket.wake_first();
    }
}

impl Layer for LimitLayer {
    const WHOLE_SMALL: bool = true;

    async fn around<'a, T, F>(&'a self, call: Call<'a>, operation: F) -> Result<Done<T>>
    where
        T: Send + 'a,
        F: FnOnce() -> Pending<'a, Result<Done<T>>> + Send + 'a,
    {
        if !matches!(call.action, Action::Read | Action::GetSmall) {
            return operation().await;
        }
        let claim = self.begin(call.length).await;
        let result = operation().await;
        let used = result.as_ref().map_or(0, |done| done.amount).min(call.length);
        self.refund(call.length, used);
        loop {
            let wait = {
                let mut bucket = self.lock();
                self.owed(&mut bucket, claim)
            };
            match wait {
                Some(wait) => self.clock.sleep_until(self.clock.now() + wait).await,
                None => return result,
            }
        }
    }
}

#[cfg(test)]
#[path = "limit_tests.rs"]
mod tests;
