//! Operations that wait for their turn, first come first served.

use std::collections::VecDeque;
use std::task::Waker;

/// A queue of operations. Only the first one may look for a place; the others are woken when they become it.
#[derive(Debug, Default)]
pub(super) struct Turns {
    next: u64,
    waiting: VecDeque<(u64, Option<Waker>)>,
}

impl Turns {
    /// Joins at the end. Returns the number of the operation in this queue.
    pub(super) fn join(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        self.waiting.push_back((number, None));
        number
    }

    /// Whether it is the turn of an operation.
    pub(super) fn is_first(&self, number: u64) -> bool {
        self.waiting.front().is_some_and(|(first, _)| *first == number)
    }

    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Notes whom to wake for an operation that is in the queue.
    pub(super) fn waits(&mut self, number: u64, waker: &Waker) {
        if let Some(place) = self.waiting.iter_mut().find(|(other, _)| *other == number) {
            place.1 = Some(waker.clone());
        }
    }

    /// Leaves the queue, from whatever place.
    pub(super) fn leave(&mut self, number: u64) {
        self.waiting.retain(|(other, _)| *other != number);
    }

    /// Wakes the first operation.
    pub(super) fn wake_first(&mut self) {
        if let Some(waker) = self.waiting.front_mut().and_then(|(_, waker)| waker.take()) {
            waker.wake();
        }
    }
}
