//! What takes long on one connection of a lossy line is asked for on another one as well.
//!
//! Nobody can take back what a connection was asked for: under losses it may need seconds for what the others
//! would bring at once.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

/// Time after which something is asked for once more, and interval at which the caller is asked whether that is
/// possible. Guesses: some round trips of a long line.
const AFTER: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(100);
/// Number of requests for the same at most.
const MAX: usize = 4;

/// Returns the first answer to `first` or to the further requests that `again` makes while there is none; `None`
/// if it cannot make one now. The others are dropped.
pub(super) async fn asked_again<F: Future>(first: F, mut again: impl FnMut() -> Option<F>) -> F::Output {
    let mut asked = FuturesUnordered::from_iter([first]);
    let mut pause = AFTER;
    while asked.len() < MAX {
        tokio::select! {
            Some(answer) = asked.next() => return answer,
            () = tokio::time::sleep(pause) => {}
        }
        pause = LOOK;
        if let Some(request) = again() {
            asked.push(request);
            pause = AFTER;
        }
    }
    asked.next().await.expect("several were asked")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{Instant, sleep};

    /// Asks with answers after so many milliseconds, each as a name; no more are possible then. Returns the first
    /// answer, and the milliseconds until then.
    async fn ask(after_ms: &[u64]) -> (usize, u128) {
        let begun = Instant::now();
        let mut requests = after_ms.iter().enumerate().map(|(name, ms)| async move {
            sleep(Duration::from_millis(*ms)).await;
            name
        });
        let first = requests.next().unwrap();
        let name = asked_again(first, || requests.next()).await;
        (name, begun.elapsed().as_millis())
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_answer_counts() {
        assert_eq!(ask(&[400, 0]).await, (0, 400));
        assert_eq!(ask(&[10_000, 200]).await, (1, 700));
        assert_eq!(ask(&[900, 5_000]).await, (0, 900));
        assert_eq!(ask(&[10_000, 10_000, 100]).await, (2, 1_100));
    }

    #[tokio::test(start_paused = true)]
    async fn there_are_four_at_most() {
        assert_eq!(ask(&[60_000, 60_000, 60_000, 30_000, 1]).await, (3, 31_500));
    }

    #[tokio::test(start_paused = true)]
    async fn it_waits_until_another_request_is_possible() {
        let (begun, mut looks) = (Instant::now(), 0);
        let request = |ms| Box::pin(sleep(Duration::from_millis(ms)));
        asked_again(request(60_000), || {
            looks += 1;
            (looks == 6).then(|| request(50))
        })
        .await;
        assert_eq!(begun.elapsed(), Duration::from_millis(500 + 5 * 100 + 50));
    }
}
