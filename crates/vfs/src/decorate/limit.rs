//! Limits reads to a rate, for `--bwlimit`.
//!
//! A bucket of bytes fills at the current rate. A read starts when all reads started before it are
//! paid for, and completes when it is paid for itself. So reads are spaced evenly at the source,
//! several may be in flight where replies take long, and the total is exact. Bytes that a short
//! read did not use are refunded. All sources of a job share one [`RateLimit`], which also measures
//! how long it held reads back, so that a report can name it as the bottleneck.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use super::{Action, Call, Done, Layer, Layered};
use crate::{Clock, Pending, Result, Tree, event};

/// A tree whose reads keep to a rate.
///
/// A read should not ask for much more than there is: until it completes, everything it asked for
/// counts.
pub type Limit = Layered<RateLimit>;

impl Layered<RateLimit> {
    /// Makes the reads of `inner` keep to a limit that other trees may share.
    pub fn new(inner: Arc<dyn Tree>, limit: Arc<RateLimit>) -> Arc<Self> {
        Self::wrap_shared(inner, limit)
    }
}

/// A limit in bytes a second for the reads of one tree or of several together.
pub struct RateLimit {
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
    /// Reads that wait now: to start, or to be paid for.
    waiting: usize,
    /// When the first of them began to wait.
    waiting_since: Duration,
    /// Time in which at least one read waited, up to the last moment in which none did.
    held_back: Duration,
}

/// Nanoseconds in a second.
const UNIT: u128 = 1_000_000_000;

/// Time whose bytes an idle tree may save up: enough to hide a timer's tick, too little to show in
/// 5 s (0.4 %). A guess.
const BURST: Duration = Duration::from_millis(20);

/// Time until the rate is read again, so that a timetable takes effect in time.
const RECHECK: Duration = Duration::from_secs(1);

/// A limit that held reads back for this part of the time is the bottleneck. A guess: a source that
/// the limit slows waits nearly always, a slower one nearly never.
const BOTTLENECK_SHARE: f64 = 0.5;

impl RateLimit {
    /// Makes a limit of `rate()` bytes a second (`None`: no limit; 0: no reads). `rate` is called
    /// before each read and at least once a second, so it may follow a timetable.
    pub fn new<R>(rate: R, clock: Arc<dyn Clock>) -> Arc<Self>
    where
        R: Fn() -> Option<u64> + Send + Sync + 'static,
    {
        let bucket = Bucket {
            filled_at: clock.now(),
            ..Bucket::default()
        };
        Arc::new(Self {
            rate: Box::new(rate),
            clock,
            bucket: Mutex::new(bucket),
        })
    }

    /// Returns the time in which at least one read waited for the limit.
    pub fn held_back(&self) -> Duration {
        let bucket = self.lock();
        let waiting = match bucket.waiting {
            0 => Duration::ZERO,
            _ => self.clock.now().saturating_sub(bucket.waiting_since),
        };
        bucket.held_back + waiting
    }

    /// Names this limit as what limits a job of `elapsed` if the source seems slow only because of
    /// it; otherwise returns `found`.
    pub fn bottleneck(&self, found: Option<event::Limit>, elapsed: Duration) -> Option<event::Limit> {
        match found {
            Some(event::Limit::Source) if self.held_back() >= elapsed.mul_f64(BOTTLENECK_SHARE) => {
                Some(event::Limit::Bandwidth)
            }
            _ => found,
        }
    }

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
        let _waiting = Waiting::new(self);
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

/// A read that waits for the limit, until it is dropped.
struct Waiting<'a>(&'a RateLimit);

impl<'a> Waiting<'a> {
    fn new(limit: &'a RateLimit) -> Self {
        let mut bucket = limit.lock();
        if bucket.waiting == 0 {
            bucket.waiting_since = limit.clock.now();
        }
        bucket.waiting += 1;
        Self(limit)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut bucket = self.0.lock();
        bucket.waiting -= 1;
        if bucket.waiting == 0 {
            let waited = self.0.clock.now().saturating_sub(bucket.waiting_since);
            bucket.held_back += waited;
        }
    }
}

/// A place in the queue; dropping it leaves the queue.
struct Turn<'a> {
    layer: &'a RateLimit,
    number: u64,
}

impl<'a> Turn<'a> {
    fn new(layer: &'a RateLimit) -> Self {
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

impl Layer for RateLimit {
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
        let _waiting = Waiting::new(self);
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
