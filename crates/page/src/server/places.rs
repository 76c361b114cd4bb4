//! The places of connections, and their deadlines.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Maximum number of connections without those that receive a stream. A guess: many times some
/// browsers, a scraper and a prober.
pub(super) const PLACES: usize = 64;
/// Time from accepting a connection to the end of its request.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(5);
/// Time from then to the end of the reply. A guess: a page over a slow line.
const REPLY_TIME_MAX: Duration = Duration::from_secs(20);
/// Time after which a client is dropped that takes nothing of its stream. There is an event each
/// second.
const STALLED_MAX: Duration = Duration::from_secs(20);

/// The connections that have a place.
#[derive(Default)]
pub(super) struct Places {
    taken: Mutex<VecDeque<(Arc<Connection>, AbortHandle)>>,
}

/// One connection.
pub(super) struct Connection {
    state: Mutex<State>,
    places: Weak<Places>,
}

#[derive(Clone, Copy)]
enum State {
    /// Its request is not complete.
    Asking(Instant),
    /// It receives a reply.
    Answered(Instant),
    /// It receives a stream, and took some of it then.
    Streaming(Instant),
}

impl Places {
    /// Makes a connection that begins now.
    pub(super) fn connection(self: &Arc<Self>) -> Arc<Connection> {
        Arc::new(Connection {
            state: Mutex::new(State::Asking(Instant::now())),
            places: Arc::downgrade(self),
        })
    }

    /// Gives a connection a place. If there is none, the oldest one that has not asked yet loses its
    /// place, or else the oldest one.
    pub(super) fn take(&self, connection: Arc<Connection>, task: AbortHandle) {
        let mut taken = self.taken.lock();
        taken.retain(|(_, task)| !task.is_finished());
        if taken.len() >= PLACES {
            let slow = taken.iter().position(|(connection, _)| connection.is_asking());
            if let Some((_, task)) = taken.remove(slow.unwrap_or(0)) {
                tracing::debug!("too many HTTP clients: the slowest one is dropped");
                task.abort();
            }
        }
        taken.push_back((connection, task));
    }

    fn leave(&self, connection: &Connection) {
        let mut taken = self.taken.lock();
        taken.retain(|(other, _)| !std::ptr::eq(&raw const **other, connection));
    }
}

impl Connection {
    /// Notes that the head of its request is complete.
    pub(super) fn asked(&self) {
        *self.state.lock() = State::Answered(Instant::now());
    }

    /// Notes that it receives a stream, and takes some of it.
    pub(super) fn streams(&self) {
        let before = std::mem::replace(&mut *self.state.lock(), State::Streaming(Instant::now()));
        if let (false, Some(places)) = (matches!(before, State::Streaming(_)), self.places.upgrade()) {
            places.leave(self);
        }
    }

    /// Returns when it ends.
    pub(super) fn deadline(&self) -> Instant {
        match *self.state.lock() {
            State::Asking(since) => since + REQUEST_TIME_MAX,
            State::Answered(since) => since + REPLY_TIME_MAX,
            State::Streaming(since) => since + STALLED_MAX,
        }
    }

    fn is_asking(&self) -> bool {
        matches!(*self.state.lock(), State::Asking(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        let runtime = tokio::runtime::Builder::new_current_thread();
        { runtime }.enable_all().build().unwrap()
    }

    #[test]
    fn the_oldest_that_has_not_asked_gives_up_its_place() {
        runtime().block_on(async {
            let places = Arc::new(Places::default());
            let mut tasks = Vec::new();
            for number in 0..=PLACES {
                let connection = places.connection();
                if number == 0 {
                    connection.asked();
                }
                let task = tokio::spawn(std::future::pending::<()>());
                places.take(connection, task.abort_handle());
                tasks.push(task);
            }
            tokio::task::yield_now().await;
            let ended: Vec<usize> = (0..tasks.len())
                .filter(|index| tasks[*index].is_finished())
                .collect();
            assert_eq!(ended, [1]);
        });
    }

    #[test]
    fn a_stream_has_no_place_and_ends_when_nobody_takes_it() {
        runtime().block_on(async {
            let places = Arc::new(Places::default());
            let connection = places.connection();
            let first = connection.deadline();
            let task = tokio::spawn(std::future::pending::<()>());
            places.take(Arc::clone(&connection), task.abort_handle());
            assert_eq!(places.taken.lock().len(), 1);
            connection.streams();
            assert_eq!(places.taken.lock().len(), 0);
            assert!(connection.deadline() > first);
        });
    }
}
