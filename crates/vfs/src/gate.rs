//! A gate that holds new operations while a job is paused.
//!
//! Operations under way are not touched. [`Gate::active`] is a time that stands still during pauses,
//! for everything that measures how fast a job is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use event_listener::{Event, listener};
use parking_lot::Mutex;

use crate::Clock;

/// Holds new operations while it is closed. Open at first.
pub struct Gate {
    clock: Arc<dyn Clock>,
    paused: AtomicBool,
    times: Mutex<Times>,
    opened: Event,
}

#[derive(Default)]
struct Times {
    /// When the present pause began.
    since: Option<Duration>,
    /// Length of the pauses before it.
    before: Duration,
    /// When the last pause ended.
    resumed: Duration,
}

impl Gate {
    /// Makes an open gate.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            paused: AtomicBool::new(false),
            times: Mutex::default(),
            opened: Event::new(),
        }
    }

    /// Holds new operations. Returns whether it was open.
    pub fn pause(&self) -> bool {
        let mut times = self.times.lock();
        if times.since.is_some() {
            return false;
        }
        times.since = Some(self.clock.now());
        self.paused.store(true, Ordering::SeqCst);
        true
    }

    /// Lets operations pass again. Returns whether it was closed.
    pub fn resume(&self) -> bool {
        let mut times = self.times.lock();
        let Some(since) = times.since.take() else {
            return false;
        };
        let now = self.clock.now();
        times.before += now.saturating_sub(since);
        times.resumed = now;
        self.paused.store(false, Ordering::SeqCst);
        drop(times);
        self.opened.notify(usize::MAX);
        true
    }

    /// Whether new operations are held.
    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::SeqCst)
    }

    /// Returns the length of all pauses.
    pub fn paused_for(&self) -> Duration {
        let times = self.times.lock();
        let now = times.since.map(|since| self.clock.now().saturating_sub(since));
        times.before + now.unwrap_or_default()
    }

    /// Returns the time of the clock without pauses.
    pub fn active(&self) -> Duration {
        self.clock.now().saturating_sub(self.paused_for())
    }

    /// Returns when the last pause ended; zero if there was none.
    pub fn resumed_at(&self) -> Duration {
        self.times.lock().resumed
    }

    /// Completes when operations may pass.
    pub async fn pass(&self) {
        while self.is_paused() {
            listener!(self.opened => opened);
            if self.is_paused() {
                opened.await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VirtualClock;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    #[test]
    fn operations_wait_until_the_pause_ends() {
        let clock = VirtualClock::new();
        let gate = Gate::new(Arc::new(clock.clone()));
        let mut context = Context::from_waker(Waker::noop());
        assert!(pin!(gate.pass()).poll(&mut context).is_ready());
        assert!(gate.pause() && !gate.pause());
        let mut held = pin!(gate.pass());
        assert!(held.as_mut().poll(&mut context).is_pending());
        clock.advance(Duration::from_secs(5));
        assert!(held.as_mut().poll(&mut context).is_pending());
        assert!(gate.resume() && !gate.resume());
        assert!(held.as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn time_stands_still_during_a_pause() {
        let clock = VirtualClock::new();
        let gate = Gate::new(Arc::new(clock.clone()));
        let seconds = Duration::from_secs;
        clock.advance(seconds(2));
        gate.pause();
        clock.advance(seconds(10));
        assert_eq!((gate.active(), gate.paused_for()), (seconds(2), seconds(10)));
        gate.resume();
        clock.advance(seconds(1));
        assert_eq!((gate.active(), gate.paused_for()), (seconds(3), seconds(10)));
        assert_eq!(gate.resumed_at(), seconds(12));
    }
}
