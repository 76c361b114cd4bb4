//! Relieves an end that slows down, for `--latency-goal`: fewer operations in flight while they take longer than
//! their goal.
//!
//! A window bounds the operations in flight, as that of TCP does: it grows by a constant after each round in which
//! all was well, and shrinks in proportion after one that took too long. Every machine follows the same rule and none knows of the
//! others, so an end that slows down is given less by all of them, and their windows become about equal. A window
//! of less than one is a pause after each operation. It never closes, so nobody starves.
//!
//! An operation on up to 64 KiB should take no longer than the goal; a longer read or write, and a lookup of several
//! names, may take longer in proportion. Flushes are not measured: they take as long as there is something to flush.
//! The goal must be more than an idle end needs; otherwise the window stays as small as it can be. It cannot be told
//! here whether an end is far away or others keep it busy.
//!
//! An operation that hangs counts as in flight for ten seconds only, so that it does not keep the others away. The window
//! then shrinks once for all that hang together. So an end where everything hangs gets fewer and fewer operations, at
//! last one in that time.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;

use super::turns::Turns;
use super::{Action, Call, Done, Layer, Layered, Operation};
use crate::{Clock, Pending, Result, Tree};

/// A tree that is relieved.
pub type Relieved = Layered<Relief>;

/// Operations in flight at the start. A guess.
const WINDOW_FIRST: f64 = 8.0;
/// Most operations in flight.
const WINDOW_MAX: f64 = 1_024.0;
/// A pause of seven times an operation after each: what the least window means. A guess; a hundred workers then
/// have about twelve operations in flight together.
const WINDOW_MIN: f64 = 1.0 / 8.0;
/// Longest pause between two operations. A guess.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// The window shrinks to this part in one round at most (TCP halves its own).
const SHRINK_MAX: f64 = 0.5;
/// After a slow round the window shrinks to what would take this part of the goal, to leave room for growth. A guess.
const AIM: f64 = 0.8;
/// Operations that the window grows by in a round in which they took no time; less near the goal. A guess.
const GROWTH: f64 = 2.0;
/// Bytes that an operation may have within the goal: what SMB transfers for one credit.
const GOAL_BYTES: u64 = 64 << 10;
/// Operations after which a round may end, if the window has so many. A guess, against noise.
const ROUND: f64 = 8.0;
/// Time after which an operation counts as hanging. A guess: slow devices take seconds.
const STUCK: Duration = Duration::from_secs(10);

impl Layered<Relief> {
    /// Relieves `inner`. Other trees of the same end may share the relief.
    #[expect(
        clippy::new_ret_no_self,
        reason = "so that the layer is compiled in this crate"
    )]
    pub fn new(inner: Arc<dyn Tree>, relief: Arc<Relief>) -> Arc<dyn Tree> {
        Self::wrap_shared(inner, relief)
    }
}

/// Bounds the operations in flight at one end by how long they take.
pub struct Relief {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

impl Relief {
    /// Makes a relief with a goal for the time of one operation.
    pub fn new(goal: Duration, clock: Arc<dyn Clock>) -> Arc<Self> {
        let state = Mutex::new(State::new(goal));
        Arc::new(Self { clock, state })
    }

    /// Returns how many operations may be in flight. Less than one means pauses between them.
    pub fn window(&self) -> f64 {
        self.state.lock().window.size
    }

    /// Returns the time in which at least one operation waited.
    pub fn held_back(&self) -> Duration {
        let state = self.state.lock();
        let waiting = state.waiting_since;
        state.held_back + waiting.map_or(Duration::ZERO, |since| self.clock.now().saturating_sub(since))
    }

    /// Returns the time that an operation may take that is as large as `size` small ones.
    fn allowed(&self, size: f64) -> Duration {
        let seconds = self.state.lock().window.goal * size;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// Waits for a place. `allowed`: the time that the operation may take; `None` if it is not measured.
    async fn admit(&self, allowed: Option<Duration>) -> Admitted<'_> {
        let turn = Turn::new(self, allowed);
        let mut sleep: Option<Pending<'static, ()>> = None;
        poll_fn(|cx| turn.poll(&mut sleep, cx)).await
    }
}

struct State {
    window: Window,
    /// Operations that wait.
    queue: Turns,
    /// The operations in flight.
    flying: BTreeMap<u64, Flying>,
    /// With a window of less than one: no operation begins before.
    pause_until: Duration,
    /// Since when at least one operation has been waiting.
    waiting_since: Option<Duration>,
    held_back: Duration,
}

/// An operation in flight.
struct Flying {
    begun: Duration,
    /// The time that it may take; `None` if it is not measured, or if it is known to hang.
    allowed: Option<Duration>,
}

impl State {
    fn new(goal: Duration) -> Self {
        Self {
            window: Window::new(goal),
            queue: Turns::default(),
            flying: BTreeMap::new(),
            pause_until: Duration::ZERO,
            waiting_since: None,
            held_back: Duration::ZERO,
        }
    }

    /// Returns how long the next operation has to wait at most; `None` if it may begin.
    fn wait(&mut self, now: Duration) -> Option<Duration> {
        let mut flying = 0;
        for operation in self.flying.values_mut() {
            let time = now.saturating_sub(operation.begun);
            if time < STUCK {
                flying += 1;
            } else if let Some(allowed) = operation.allowed.take_if(|allowed| time > *allowed) {
                let part = time.as_secs_f64() / allowed.as_secs_f64();
                self.window.hangs(part, (operation.begun, now));
            }
        }
        if flying >= self.window.places() {
            self.window.is_used = true;
            return Some(STUCK / 10);
        }
        let pause = self.pause_until.saturating_sub(now);
        (!pause.is_zero()).then_some(pause)
    }
}

/// The size of the window, and what it follows from.
struct Window {
    goal: f64,
    size: f64,
    /// Whether it still doubles.
    is_new: bool,
    /// Whether somebody waited for a place in this round.
    is_used: bool,
    /// Operations that began earlier say nothing of the present size.
    since: Duration,
    /// Measured operations of this round, and the sums of their seconds and of their parts of the goal.
    count: u32,
    seconds: f64,
    parts: f64,
}

impl Window {
    fn new(goal: Duration) -> Self {
        Self {
            goal: goal.as_secs_f64(),
            size: WINDOW_FIRST,
            is_new: true,
            is_used: false,
            since: Duration::ZERO,
            count: 0,
            seconds: 0.0,
            parts: 0.0,
        }
    }

    fn places(&self) -> usize {
        (self.size as usize).max(1)
    }

    /// Returns the pause after an operation that took so long.
    fn pause(&self, took: Duration) -> Duration {
        match self.size < 1.0 {
            true => took.mul_f64(1.0 / self.size - 1.0).min(PAUSE_MAX),
            false => Duration::ZERO,
        }
    }

    /// Takes an operation that is over, and that was as large as `size` small ones.
    fn took(&mut self, action: Action, size: f64, (begun, now): (Duration, Duration)) {
        if begun < self.since || !is_measured(action) {
            return;
        }
        let seconds = now.saturating_sub(begun).as_secs_f64();
        self.count += 1;
        self.seconds += seconds;
        self.parts += seconds / size / self.goal;
        let mean = self.seconds / f64::from(self.count);
        // A round takes as long as an operation: then the change of the size has shown.
        let has_shown = now.saturating_sub(self.since).as_secs_f64() >= mean;
        if has_shown && f64::from(self.count) >= (self.size / 2.0).min(ROUND) {
            self.turn(self.parts / f64::from(self.count), now);
        }
    }

    /// Takes an operation that hangs, and has taken this part of what it may take. When it ends, if it does, it began
    /// too early to count again.
    fn hangs(&mut self, part: f64, (begun, now): (Duration, Duration)) {
        if begun >= self.since {
            self.turn(part, now);
        }
    }

    /// Ends a round whose operations took this part of what they may take.
    fn turn(&mut self, part: f64, now: Duration) {
        let size = match part > 1.0 {
            true => {
                self.is_new = false;
                self.size * (AIM / part).max(SHRINK_MAX)
            }
            // What nobody waits for is not tried.
            false if !self.is_used && self.size >= 1.0 => self.size,
            false if self.is_new || self.size < 1.0 => self.size * 2.0,
            false => self.size + GROWTH * (1.0 - part),
        };
        self.size = size.clamp(WINDOW_MIN, WINDOW_MAX);
        self.is_used = false;
        (self.since, self.count, self.seconds, self.parts) = (now, 0, 0.0, 0.0);
    }
}

/// Whether the time of an operation says how busy the end is.
fn is_measured(action: Action) -> bool {
    !matches!(
        action,
        Action::SyncFile | Action::SyncDir | Action::SyncTree | Action::WaitWriteback | Action::Allocate
    )
}

/// Whether an operation waits for a place. Hints to the cache of this machine do not.
fn needs_place(action: Action) -> bool {
    !matches!(
        action,
        Action::Watch | Action::Cached | Action::DropCache | Action::StartWriteback
    )
}

/// A place in the queue; dropping it leaves the queue.
struct Turn<'a> {
    relief: &'a Relief,
    number: u64,
    allowed: Option<Duration>,
}

impl<'a> Turn<'a> {
    fn new(relief: &'a Relief, allowed: Option<Duration>) -> Self {
        let mut state = relief.state.lock();
        let number = state.queue.join();
        if state.waiting_since.is_none() {
            state.waiting_since = Some(relief.clock.now());
        }
        Self {
            relief,
            number,
            allowed,
        }
    }

    fn poll(&self, sleep: &mut Option<Pending<'static, ()>>, cx: &mut Context<'_>) -> Poll<Admitted<'a>> {
        loop {
            {
                let mut state = self.relief.state.lock();
                let now = self.relief.clock.now();
                let is_first = state.queue.is_first(self.number);
                let wait = state.wait(now);
                if is_first && wait.is_none() {
                    let flying = Flying {
                        begun: now,
                        allowed: self.allowed,
                    };
                    state.flying.insert(self.number, flying);
                    return Poll::Ready(Admitted {
                        relief: self.relief,
                        number: self.number,
                        begun: now,
                    });
                }
                state.queue.waits(self.number, cx.waker());
                match wait.filter(|_| is_first) {
                    Some(wait) => *sleep = Some(self.relief.clock.sleep_until(now + wait)),
                    None => return Poll::Pending,
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
        let mut state = self.relief.state.lock();
        state.queue.leave(self.number);
        if state.queue.is_empty()
            && let Some(since) = state.waiting_since.take()
        {
            state.held_back += self.relief.clock.now().saturating_sub(since);
        }
        state.queue.wake_first();
    }
}

/// An operation in flight; dropping it frees its place.
struct Admitted<'a> {
    relief: &'a Relief,
    number: u64,
    begun: Duration,
}

impl Admitted<'_> {
    /// Notes that the operation is over.
    fn done(self, action: Action, size: f64) {
        let now = self.relief.clock.now();
        let mut state = self.relief.state.lock();
        state.window.took(action, size, (self.begun, now));
        if is_measured(action) {
            let pause = state.window.pause(now.saturating_sub(self.begun));
            state.pause_until = state.pause_until.max(now + pause);
        }
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        let mut state = self.relief.state.lock();
        state.flying.remove(&self.number);
        state.queue.wake_first();
    }
}

impl Layer for Relief {
    const WHOLE_SMALL: bool = true;
    const BOUNDS_RATE: bool = true;

    async fn around<'a, T: Send + 'a>(
        &'a self,
        call: Call<'a>,
        operation: Operation<'a, T>,
    ) -> Result<Done<T>> {
        if !needs_place(call.action) {
            return operation().await;
        }
        let bytes = |bytes: u64| bytes as f64 / GOAL_BYTES as f64;
        let asked = match call.action {
            Action::Read | Action::GetSmall | Action::Write | Action::PutSmall => bytes(call.length),
            Action::Lookup => call.length as f64,
            _ => 1.0,
        };
        let allowed = is_measured(call.action).then(|| self.allowed(asked.max(1.0)));
        let admitted = self.admit(allowed).await;
        let result = operation().await;
        let size = match call.action {
            Action::Read | Action::GetSmall => bytes(result.as_ref().map_or(0, |done| done.amount)),
            _ => asked,
        };
        admitted.done(call.action, size.max(1.0));
        result
    }
}

#[cfg(test)]
#[path = "relief_tests.rs"]
mod tests;
