//! Limits reads to a rate, for `--bwlimit`.
//!
//! A bucket of bytes fills at the current rate. A read starts when all reads started before it are
//! paid for, and completes when it is paid for itself. So reads are spaced evenly at the source,
//! several may be in flight where replies take long, and the total is exact. Bytes that a short
//! read did not use are refunded. All sources of a job share one [`RateLimit`], which also measures
//! how long it held reads back, so that a report can name it as the bottleneck.
//!
//! The rate may change while the job runs, and a pause holds new reads. A job that starts without a
//! rate has no [`Limit`] around its trees, since that would cost it the ways inside one tree. It asks
//! [`RateLimit::admit`] itself before each piece of work, which costs two loads while nothing limits.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard, RwLock};

use super::turns::Turns;
use super::{Action, Call, Done, Layer, Layered, Operation};
use crate::gate::Gate;
use crate::{Clock, Pending, Result, Tree, event};

/// A tree whose reads keep to a rate.
///
/// A read should not ask for much more than there is: until it completes, everything it asked for
/// counts.
pub type Limit = Layered<RateLimit>;

impl Layered<RateLimit> {
    /// Makes the reads of `inner` keep to a limit that other trees may share.
    #[expect(
        clippy::new_ret_no_self,
        reason = "so that the layer is compiled in this crate"
    )]
    pub fn new(inner: Arc<dyn Tree>, limit: Arc<RateLimit>) -> Arc<dyn Tree> {
        limit.in_trees.store(true, Ordering::Relaxed);
        Self::wrap_shared(inner, limit)
    }
}

/// A rate in bytes a second (`None`: no limit; 0: no reads), asked again and again.
pub type Rate = Box<dyn Fn() -> Option<u64> + Send + Sync>;

/// A limit in bytes a second for the reads of one tree or of several together.
pub struct RateLimit {
    /// `None` while there is no rate at all.
    rate: RwLock<Option<Rate>>,
    /// Whether there is a rate.
    has_rate: AtomicBool,
    /// Whether trees count the bytes, so that the job must not.
    in_trees: AtomicBool,
    gate: Gate,
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
    /// Reads that wait to start.
    queue: Turns,
    /// Reads that wait now: to start, or to be paid for.
    waiting: usize,
    /// When the first of them began to wait. Time without pauses, as that of `held_back`.
    waiting_since: Duration,
    /// Time in which at least one read waited, up to the last moment in which none did.
    held_back: Duration,
    /// When the last of them stopped waiting, by the clock.
    waited_until: Duration,
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

/// Part of a second's bytes that one piece of work may have, so that a rate that is set while a job
/// runs is about as exact as one that it starts with.
const PIECE_PART: u64 = 10;
/// Smallest piece of work in bytes that a rate leads to. A guess.
const PIECE_MIN: u64 = 64 << 10;

impl RateLimit {
    /// Makes a limit of `rate()` bytes a second (`None`: no limit; 0: no reads). `rate` is called
    /// before each read and at least once a second, so it may follow a timetable.
    pub fn new<R>(rate: R, clock: Arc<dyn Clock>) -> Arc<Self>
    where
        R: Fn() -> Option<u64> + Send + Sync + 'static,
    {
        Self::with(Some(Box::new(rate)), clock)
    }

    /// Makes a limit without a rate, which may get one later.
    pub fn unlimited(clock: Arc<dyn Clock>) -> Arc<Self> {
        Self::with(None, clock)
    }

    fn with(rate: Option<Rate>, clock: Arc<dyn Clock>) -> Arc<Self> {
        let bucket = Bucket {
            filled_at: clock.now(),
            ..Bucket::default()
        };
        Arc::new(Self {
            has_rate: AtomicBool::new(rate.is_some()),
            rate: RwLock::new(rate),
            in_trees: AtomicBool::new(false),
            gate: Gate::new(Arc::clone(&clock)),
            clock,
            bucket: Mutex::new(bucket),
        })
    }

    /// Changes the rate. Reads that wait notice it within a second.
    pub fn set_rate(&self, rate: Option<Rate>) {
        let has_rate = rate.is_some();
        *self.rate.write() = rate;
        let mut bucket = self.lock();
        if !self.has_rate.swap(has_rate, Ordering::Relaxed) {
            // Nobody filled it meanwhile.
            bucket.filled_at = self.clock.now();
            bucket.granted = bucket.granted.max(bucket.claimed);
        }
        bucket.queue.wake_first();
    }

    /// Returns the rate of this moment; `None` without a limit.
    pub fn rate(&self) -> Option<u64> {
        self.rate.read().as_ref().and_then(|rate| rate())
    }

    /// Holds new reads. Returns whether they were not held before.
    pub fn pause(&self) -> bool {
        self.gate.pause()
    }

    /// Lets reads pass again. Returns whether they were held.
    pub fn resume(&self) -> bool {
        let was_paused = self.gate.resume();
        self.lock().queue.wake_first();
        was_paused
    }

    /// Whether new reads are held by a pause.
    pub fn is_paused(&self) -> bool {
        self.gate.is_paused()
    }

    /// Returns the length of all pauses.
    pub fn paused_for(&self) -> Duration {
        self.gate.paused_for()
    }

    /// Whether nothing can move: paused, or a rate of zero.
    pub fn is_closed(&self) -> bool {
        self.is_paused() || self.rate() == Some(0)
    }

    /// Returns for how long nothing has waited for this limit; `None` if something waits now.
    pub fn free_for(&self) -> Option<Duration> {
        if self.is_paused() {
            return None;
        }
        let bucket = self.lock();
        let since = bucket.waited_until.max(self.gate.resumed_at());
        (bucket.waiting == 0).then(|| self.clock.now().saturating_sub(since))
    }

    /// Completes when no pause holds new work.
    pub async fn pass(&self) {
        self.gate.pass().await;
    }

    /// Admits a piece of work of `length` bytes, for work that passes no [`Limit`]. Waits while the
    /// job is paused, and for its turn if there is a rate.
    pub async fn admit(&self, length: u64) -> Admitted<'_> {
        self.gate.pass().await;
        if self.in_trees.load(Ordering::Relaxed) || !self.has_rate.load(Ordering::Relaxed) {
            return Admitted(None);
        }
        Admitted(Some(self.claim(length).await))
    }

    /// Waits for the turn of `length` bytes that were read without this limit
    /// ([`File::examine_at`](crate::File::examine_at)), and until they are paid for.
    pub async fn charge(&self, length: u64) {
        self.gate.pass().await;
        if length == 0 || !self.has_rate.load(Ordering::Relaxed) {
            return;
        }
        self.claim(length).await.pay(length).await;
    }

    /// Returns the largest piece of work in bytes that should be admitted at once.
    pub fn piece_max(&self) -> u64 {
        match self.has_rate.load(Ordering::Relaxed) && !self.in_trees.load(Ordering::Relaxed) {
            true => self
                .rate()
                .map_or(u64::MAX, |rate| (rate / PIECE_PART).max(PIECE_MIN)),
            false => u64::MAX,
        }
    }

    /// Returns the time in which at least one read waited for the limit, without pauses.
    pub fn held_back(&self) -> Duration {
        let bucket = self.lock();
        let waiting = match bucket.waiting {
            0 => Duration::ZERO,
            _ => self.gate.active().saturating_sub(bucket.waiting_since),
        };
        bucket.held_back + waiting
    }

    /// Names this limit as what limits a job of `elapsed` if the source seems slow only because of
    /// it; otherwise returns `found`.
    pub fn bottleneck(&self, found: Option<event::Limit>, elapsed: Duration) -> Option<event::Limit> {
        let elapsed = elapsed.saturating_sub(self.paused_for());
        match found {
            Some(event::Limit::Source) => {
                let held = self.held_back();
                let is_it = held > Duration::ZERO && held >= elapsed.mul_f64(BOTTLENECK_SHARE);
                Some(if is_it {
                    event::Limit::Bandwidth
                } else {
                    event::Limit::Source
                })
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
        let Some(rate) = self.rate() else {
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

    /// Waits for its turn and claims `length` bytes, which must be paid for.
    async fn claim(&self, length: u64) -> Claim<'_> {
        Claim {
            limit: self,
            length,
            total: self.begin(length).await,
        }
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
        bucket.queue.wake_first();
    }
}

/// A read that waits for the limit, until it is dropped.
struct Waiting<'a>(&'a RateLimit);

impl<'a> Waiting<'a> {
    fn new(limit: &'a RateLimit) -> Self {
        let mut bucket = limit.lock();
        if bucket.waiting == 0 {
            bucket.waiting_since = limit.gate.active();
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
            let waited = self.0.gate.active().saturating_sub(bucket.waiting_since);
            bucket.held_back += waited;
            bucket.waited_until = self.0.clock.now();
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
        let number = layer.lock().queue.join();
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
                let first = bucket.queue.is_first(self.number);
                let claimed = bucket.claimed;
                let wait = self.layer.owed(&mut bucket, claimed);
                // Whoever ends a pause wakes the first.
                let held = self.layer.is_paused();
                if first && wait.is_none() && !held {
                    bucket.claimed = claimed.saturating_add(u128::from(length) * UNIT);
                    return Poll::Ready(bucket.claimed);
                }
                bucket.queue.waits(self.number, cx.waker());
                match wait {
                    Some(wait) if first && !held => {
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
        bucket.queue.leave(self.number);
        bucket.queue.wake_first();
    }
}

impl Layer for RateLimit {
    const WHOLE_SMALL: bool = true;
    const BOUNDS_RATE: bool = true;

    async fn around<'a, T: Send + 'a>(
        &'a self,
        call: Call<'a>,
        operation: Operation<'a, T>,
    ) -> Result<Done<T>> {
        if !matches!(call.action, Action::Read | Action::GetSmall) {
            return operation().await;
        }
        let claim = self.claim(call.length).await;
        let result = operation().await;
        claim.pay(result.as_ref().map_or(0, |done| done.amount)).await;
        result
    }
}

/// A piece of work that was admitted.
#[must_use = "its bytes must be paid for"]
pub struct Admitted<'a>(Option<Claim<'a>>);

impl Admitted<'_> {
    /// Waits until the bytes that the work really moved are paid for.
    pub async fn pay(self, used: u64) {
        if let Some(claim) = self.0 {
            claim.pay(used).await;
        }
    }
}

/// Bytes of one piece of work.
struct Claim<'a> {
    limit: &'a RateLimit,
    length: u64,
    /// Everything claimed up to and including this claim.
    total: u128,
}

impl Claim<'_> {
    /// Refunds what was not used, and waits until the rest is paid for.
    async fn pay(self, used: u64) {
        let limit = self.limit;
        limit.refund(self.length, used.min(self.length));
        let _waiting = Waiting::new(limit);
        loop {
            let wait = {
                let mut bucket = limit.lock();
                limit.owed(&mut bucket, self.total)
            };
            match wait {
                Some(wait) => limit.clock.sleep_until(limit.clock.now() + wait).await,
                None => return,
            }
        }
    }
}

#[cfg(test)]
#[path = "limit_tests.rs"]
mod tests;
