//! The events that open pages receive: one each second, made once for all of them.
//!
//! A page that is slow misses events and costs no memory: there is only the newest one.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, Stream};
use hyper::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{MissedTickBehavior, interval};

/// Most open pages. A guess: several times the screens that look at one process.
const PAGES_MAX: usize = 32;
/// Time from one event to the next.
const EVERY: Duration = Duration::from_secs(1);
/// Longest wait at the end of the process for pages to take the last event.
const LAST_MAX: Duration = Duration::from_millis(300);

/// What the pages of one moment show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    /// For those who may only look.
    pub(crate) reader: Bytes,
    /// For those who may change something.
    pub(crate) owner: Bytes,
}

#[derive(Clone, Default)]
enum State {
    /// Nothing yet.
    #[default]
    Waiting,
    /// The newest moment.
    Now(Moment),
    /// The last one: the process ends.
    Last(Moment),
}

/// Sends moments to open pages.
pub(crate) struct Feed {
    newest: watch::Sender<State>,
    places: Arc<Semaphore>,
}

struct Subscription {
    first: Option<Moment>,
    receiver: watch::Receiver<State>,
    is_owner: bool,
    ended: bool,
    _place: OwnedSemaphorePermit,
}

impl Default for Feed {
    fn default() -> Self {
        Self {
            newest: watch::Sender::new(State::Waiting),
            places: Arc::new(Semaphore::new(PAGES_MAX)),
        }
    }
}

impl Feed {
    /// Returns the events for one more page, of which `first` is the first; `None` if there are too
    /// many pages.
    pub(crate) fn subscribe(
        &self,
        is_owner: bool,
        first: impl FnOnce() -> Moment,
    ) -> Option<impl Stream<Item = Bytes> + Send + 'static> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        let mut receiver = self.newest.subscribe();
        receiver.mark_unchanged();
        let subscription = Subscription {
            first: Some(first()),
            receiver,
            is_owner,
            ended: false,
            _place: place,
        };
        Some(stream::unfold(subscription, |mut subscription| async move {
            let event = subscription.next().await?;
            Some((event, subscription))
        }))
    }

    /// Sends moments as long as there are pages, until `stop` is done; then the last one.
    pub(crate) async fn run(&self, moment: impl Fn() -> Moment, stop: impl Future<Output = ()>) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                _ = ticks.tick() => {
                    if self.newest.receiver_count() > 0 {
                        self.newest.send_replace(State::Now(moment()));
                    }
                }
            }
        }
        if self.newest.receiver_count() == 0 {
            return;
        }
        self.newest.send_replace(State::Last(moment()));
        let all = Arc::clone(&self.places).acquire_many_owned(PAGES_MAX as u32);
        _ = tokio::time::timeout(LAST_MAX, all).await;
        // The connections send what they have.
        tokio::time::sleep(LAST_MAX / 10).await;
    }
}

impl Subscription {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(self.event("view", &first));
        }
        if self.ended {
            return None;
        }
        // An error: the process ends.
        self.receiver.changed().await.ok()?;
        let state = self.receiver.borrow_and_update().clone();
        match state {
            State::Waiting => Some(Bytes::from_static(b":\n\n")),
            State::Now(moment) => Some(self.event("view", &moment)),
            State::Last(moment) => {
                self.ended = true;
                Some(self.event("end", &moment))
            }
        }
    }

    /// Returns an event of a stream (HTML standard, 9.2). The data is one line of JSON.
    fn event(&self, name: &str, moment: &Moment) -> Bytes {
        let data = match self.is_owner {
            true => &moment.owner,
            false => &moment.reader,
        };
        [b"event: ", name.as_bytes(), b"\ndata: ", data, b"\n\n"]
            .concat()
            .into()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::StreamExt as _;

    use super::*;

    fn moment(number: usize) -> Moment {
        Moment {
            reader: format!("r{number}").into(),
            owner: format!("o{number}").into(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pages_get_the_newest_moment_and_the_last_one() {
        let feed = Feed::default();
        let made = Cell::new(0);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let make = || {
            made.set(made.get() + 1);
            moment(made.get())
        };
        let mut reader = feed.subscribe(false, || moment(0)).unwrap().boxed();
        let mut owner = feed.subscribe(true, || moment(0)).unwrap().boxed();
        let run = feed.run(make, async { _ = stopped.await });
        let look = async {
            assert_eq!(reader.next().await.unwrap(), "event: view\ndata: r0\n\n");
            assert_eq!(reader.next().await.unwrap(), "event: view\ndata: r1\n\n");
            tokio::time::sleep(Duration::from_secs(10)).await;
            // Nine were missed.
            let event = reader.next().await.unwrap();
            assert!(event.starts_with(b"event: view\ndata: r1"), "{event:?}");
            assert_eq!(owner.next().await.unwrap(), "event: view\ndata: o0\n\n");
            _ = stop.send(());
            let mut last = Vec::new();
            while let Some(event) = reader.next().await {
                last.push(event);
            }
            assert!(last.last().unwrap().starts_with(b"event: end\n"), "{last:?}");
            drop((reader, owner));
        };
        tokio::join!(run, look);
        let before = made.get();
        assert!(before < 20, "{before}");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_made_without_pages() {
        let feed = Feed::default();
        let stop = tokio::time::sleep(Duration::from_secs(3600));
        feed.run(|| unreachable!("nobody looks"), stop).await;
    }

    #[tokio::test]
    async fn the_number_of_pages_is_bounded() {
        let feed = Feed::default();
        let mut pages: Vec<_> = (0..PAGES_MAX)
            .map(|_| feed.subscribe(false, Moment::default).unwrap())
            .collect();
        assert!(feed.subscribe(true, Moment::default).is_none());
        pages.pop();
        assert!(feed.subscribe(true, Moment::default).is_some());
    }
}
