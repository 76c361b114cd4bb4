//! An asynchronous bound on how many things are queued or running.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// Lets at most a fixed number in; others wait their turn without blocking a thread.
pub(crate) struct Gate {
    state: Mutex<State>,
}

struct State {
    free: usize,
    waiters: std::collections::VecDeque<Waker>,
}

impl Gate {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        let state = State {
            free: limit,
            waiters: std::collections::VecDeque::new(),
        };
        Arc::new(Self {
            state: Mutex::new(state),
        })
    }

    /// Waits for a place; the ticket's drop gives it back.
    pub(crate) fn enter(self: &Arc<Self>) -> Enter {
        Enter {
            gate: Arc::clone(self),
            waiting: false,
        }
    }

    fn wake_one(&self) {
        let waker = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.free == 0 {
                None
            } else {
                state.waiters.pop_front()
            }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A place behind the gate.
pub(crate) struct Ticket(Arc<Gate>);

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).free += 1;
        self.0.wake_one();
    }
}

/// Future of [`Gate::enter`].
pub(crate) struct Enter {
    gate: Arc<Gate>,
    waiting: bool,
}

impl Future for Enter {
    type Output = Ticket;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Ticket> {
        let gate = Arc::clone(&self.gate);
        let mut state = gate.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.free > 0 {
            state.free -= 1;
            drop(state);
            self.waiting = false;
            // Several places may have come free while only one wake-up was pending.
            gate.wake_one();
            return Poll::Ready(Ticket(gate));
        }
        if !state.waiters.iter().any(|waker| waker.will_wake(context.waker())) {
            state.waiters.push_back(context.waker().clone());
        }
        drop(state);
        self.waiting = true;
        Poll::Pending
    }
}

impl Drop for Enter {
    fn drop(&mut self) {
        if self.waiting {
            // It may have swallowed a wake-up: pass it on.
            self.gate.wake_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_gate_opens_when_a_ticket_goes() {
        let gate = Gate::new(1);
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(held) = Box::pin(gate.enter()).as_mut().poll(&mut context) else {
            panic!("an empty gate lets in")
        };
        let mut second = Box::pin(gate.enter());
        assert!(second.as_mut().poll(&mut context).is_pending());
        drop(held);
        assert!(second.as_mut().poll(&mut context).is_ready());
    }
}
