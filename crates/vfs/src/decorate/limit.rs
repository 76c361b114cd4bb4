//! Holds reading to a rate, for `--bwlimit`.
//!
//! A bank of bytes fills at the rate of the moment. A read begins when all reads begun before it are paid, and
//! completes when it is paid itself: so reads are spaced evenly on the source, several may be under way when its
//! answers take long, and the sum is exact. What a short read did not use is paid back.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::{Action, Call, Done, Layer, Layered};
use crate::{Clock, Pending, Result, Tree};

/// A tree whose reads keep to a rate.
///
/// A read should not ask for much more than there is: until it completes, all it asked for counts.
pub type Limit = Layered<LimitLayer>;

impl Layered<LimitLayer> {
    /// Holds `inner` to `rate()` bytes a second (`None`: no limit; 0: a stand-still), asked anew before each read and
    /// at least each second, so that it may follow a timetable.
    pub fn new<R>(inner: Arc<dyn Tree>, rate: R, clock: Arc<dyn Clock>) -> Arc<Self>
    where
        R: Fn() -> Option<u64> + Send + Sync + 'static,
    {
        let bank = Bank {
            filled_at: clock.now(),
            ..Bank::default()
        };
        let layer = LimitLayer {
            rate: Box::new(rate),
            clock,
            bank: Mutex::new(bank),
        };
        Self::wrap(inner, layer)
    }
}

/// The layer of [`Limit`].
pub struct LimitLayer {
    rate: Box<dyn Fn() -> Option<u64> + Send + Sync>,
    clock: Arc<dyn Clock>,
    bank: Mutex<Bank>,
}

/// Amounts are in bytes x [`UNIT`], so that a nanosecond of any rate is a whole number.
#[derive(Default)]
struct Bank {
    /// Paid in since the start.
    granted: u128,
    /// Asked for by reads that began.
    claimed: u128,
    filled_at: Duration,
    next_turn: u64,
    /// Reads waiting to begin, in order.
    queue: VecDeque<(u64, Option<Waker>)>,
}

/// Nanoseconds in a second.
const UNIT: u128 = 1_000_000_000;

/// What an idle time may save up: enough to hide a timer's tick, too little to show in 5 s (0.4 %). A guess.
const BURST: Duration = Duration::from_millis(20);

/// How long to wait before asking for the rate again, so that a timetable takes effect in time.
const RECHECK: Duration = Duration::from_secs(1);

impl LimitLayer {
    fn lock(&self) -> MutexGuard<'_, Bank> {
        self.bank.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills the bank up to now; how long until `wanted` is granted, `None` if it is.
    fn owed(&self, bank: &mut Bank, wanted: u128) -> Option<Duration> {
        let now = self.clock.now();
        let elapsed = now.saturating_sub(bank.filled_at);
        bank.filled_at = now;
        let Some(rate) = (self.rate)() else {
            bank.granted = bank.granted.max(bank.claimed);
            return None;
        };
        let rate = u128::from(rate);
        let most = bank.claimed.saturating_add(rate * BURST.as_nanos());
        bank.granted = bank.granted.saturating_add(rate * elapsed.as_nanos()).min(most);
        let missing = wanted.saturating_sub(bank.granted);
        if missing == 0 {
            return None;
        }
        let wait = missing
            .checked_div(rate)
            .map_or(RECHECK.as_nanos(), |nanos| nanos + 1);
        Some(Duration::from_nanos(wait.min(RECHECK.as_nanos()) as u64))
    }

    /// Waits for the turn and claims `length` bytes; gives the claim's place in the sum of all.
    async fn begin(&self, length: u64) -> u128 {
        let turn = Turn::new(self);
        let mut sleep: Option<Pending<'static, ()>> = None;
        poll_fn(|cx| turn.poll(length, &mut sleep, cx)).await
    }

    /// Gives back what was claimed and not used.
    fn refund(&self, length: u64, used: u64) {
        let mut bank = self.lock();
        bank.granted = bank
            .granted
            .saturating_add(u128::from(length.saturating_sub(used)) * UNIT);
        bank.wake_first();
    }
}

impl Bank {
    fn wake_first(&mut self) {
        if let Some(waker) = self.queue.front_mut().and_then(|(_, waker)| waker.take()) {
            waker.wake();
        }
    }
}

/// A place in the queue; given up on drop.
struct Turn<'a> {
    layer: &'a LimitLayer,
    number: u64,
}

impl<'a> Turn<'a> {
    fn new(layer: &'a LimitLayer) -> Self {
        let mut bank = layer.lock();
        let number = bank.next_turn;
        bank.next_turn += 1;
        bank.queue.push_back((number, None));
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
                let mut bank = self.layer.lock();
                let first = bank
                    .queue
                    .front()
                    .is_some_and(|(number, _)| *number == self.number);
                let claimed = bank.claimed;
                let wait = self.layer.owed(&mut bank, claimed);
                if first && wait.is_none() {
                    bank.claimed = claimed.saturating_add(u128::from(length) * UNIT);
                    return Poll::Ready(bank.claimed);
                }
                if let Some(place) = bank.queue.iter_mut().find(|(number, _)| *number == self.number) {
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
        let mut bank = self.layer.lock();
        bank.queue.retain(|(number, _)| *number != self.number);
        bank.wake_first();
    }
}

impl Layer for LimitLayer {
    const WHOLE_SMALL: bool = true;

    async fn around<'a, T, F>(&'a self, call: Call<'a>, attempt: F) -> Result<Done<T>>
    where
        T: Send + 'a,
        F: Fn(u32) -> Pending<'a, Result<Done<T>>> + Send + Sync + 'a,
    {
        if !matches!(call.action, Action::Read | Action::GetSmall) {
            return attempt(0).await;
        }
        let claim = self.begin(call.length).await;
        let result = attempt(0).await;
        let used = result.as_ref().map_or(0, |done| done.amount).min(call.length);
        self.refund(call.length, used);
        loop {
            let wait = {
                let mut bank = self.lock();
                self.owed(&mut bank, claim)
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
