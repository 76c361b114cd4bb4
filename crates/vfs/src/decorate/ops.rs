//! Limits operations on names and attributes to a rate, for a budget that several machines share.
//!
//! Operations begin one after the other, evenly spaced, in the order in which they were asked for. Reads and
//! writes of open files pass: their bytes have a limit of their own ([`limit`](super::limit)). A small file that
//! is read or written in one call counts once, and each name of a lookup counts, since a server looks at each.

use std::sync::Arc;
use std::time::Duration;

use super::limit::RateLimit;
use super::{Action, Call, Done, Layer, Layered, Operation};
use crate::{Clock, Result, Tree};

/// A tree whose operations on names and attributes keep to a rate.
pub type LimitOps = Layered<OpsLimit>;

/// Units of one operation, so that a share may be less than one operation a second.
const PARTS: u64 = 1_000;

impl Layered<OpsLimit> {
    /// Makes the operations of `inner` keep to a limit that other trees may share.
    #[expect(
        clippy::new_ret_no_self,
        reason = "so that the layer is compiled in this crate"
    )]
    pub fn new(inner: Arc<dyn Tree>, limit: Arc<OpsLimit>) -> Arc<dyn Tree> {
        Self::wrap_shared(inner, limit)
    }
}

/// A limit in operations a second for one tree or several together.
pub struct OpsLimit {
    limit: Arc<RateLimit>,
}

impl OpsLimit {
    /// Makes a limit of `per_second` operations, of which this process gets one of `sharers()` equal shares
    /// (0 counts as 1). `sharers` is asked before each operation and at least once a second.
    pub fn new<S>(per_second: u64, sharers: S, clock: Arc<dyn Clock>) -> Arc<Self>
    where
        S: Fn() -> u64 + Send + Sync + 'static,
    {
        let all = per_second.saturating_mul(PARTS);
        let rate = move || Some((all / sharers().max(1)).max(1));
        Arc::new(Self {
            limit: RateLimit::new(rate, clock),
        })
    }

    /// Returns the time in which at least one operation waited for the limit.
    pub fn held_back(&self) -> Duration {
        self.limit.held_back()
    }
}

/// Returns how many operations on names and attributes a call is.
fn count(call: &Call<'_>) -> u64 {
    match call.action {
        // The bytes of open files, and hints to the cache of this machine.
        Action::Read
        | Action::Write
        | Action::StartWriteback
        | Action::WaitWriteback
        | Action::DropCache
        | Action::Cached
        | Action::Watch => 0,
        Action::Lookup => call.length.max(1),
        _ => 1,
    }
}

impl Layer for OpsLimit {
    const WHOLE_SMALL: bool = true;
    const BOUNDS_RATE: bool = true;

    async fn around<'a, T: Send + 'a>(
        &'a self,
        call: Call<'a>,
        operation: Operation<'a, T>,
    ) -> Result<Done<T>> {
        self.limit.charge(count(&call) * PARTS).await;
        operation().await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures_util::future::join_all;
    use ropeway_block::Pool;

    use super::super::test_kit::{clock, path, read, reader, source};
    use super::*;
    use crate::Name;
    use crate::clock::simulate;

    const SECOND: Duration = Duration::from_secs(1);

    /// What an idle limit saved up, and rounding.
    fn assert_about(span: Duration, expected: Duration) {
        let apart = span.abs_diff(expected);
        assert!(apart <= Duration::from_millis(25), "{span:?} {expected:?}");
    }

    #[test]
    fn names_keep_to_the_rate_and_bytes_pass() {
        let (time, clock) = clock();
        let limit = OpsLimit::new(10, || 1, Arc::clone(&clock));
        let tree = LimitOps::new(source(1_000_000), Arc::clone(&limit));
        let pool = Pool::new(1_000, 1);
        simulate(&time, async {
            let file = reader(&*tree).await;
            let begun = clock.now();
            for part in 0..100 {
                assert_eq!(read(&*file, &pool, part * 1_000, 1_000).await.unwrap(), 1_000);
            }
            assert_eq!(clock.now(), begun);
            let paths: Vec<_> = (0..20).map(|number| path(&format!("d{number}"))).collect();
            let made = join_all(paths.iter().map(|path| tree.make_dir(path, 0o755))).await;
            assert!(made.iter().all(Result::is_ok));
            assert_about(clock.now() - begun, 2 * SECOND);
            let names: Vec<_> = (0..20)
                .map(|number| Name::new(format!("d{number}").as_bytes()).unwrap())
                .collect();
            let found = tree.lookup(&crate::RelPath::root(), &names).await.unwrap();
            assert_eq!(found.len(), 20);
            assert_about(clock.now() - begun, 4 * SECOND);
            // One operation before the measurement, and forty in it.
            assert_about(limit.held_back(), 4 * SECOND + SECOND / 10);
        });
    }

    #[test]
    fn workers_share_a_rate_that_is_less_than_one_operation_each() {
        let (time, clock) = clock();
        let sharers = Arc::new(AtomicU64::new(4));
        let tree: Arc<dyn Tree> = source(1);
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let sharers = Arc::clone(&sharers);
                let limit = OpsLimit::new(2, move || sharers.load(Ordering::Relaxed), Arc::clone(&clock));
                LimitOps::new(Arc::clone(&tree), limit)
            })
            .collect();
        simulate(&time, async {
            let work = |worker: usize, count: usize| {
                let (workers, clock) = (&workers, &clock);
                async move {
                    for _ in 0..count {
                        workers[worker].metadata(&path("file")).await.unwrap();
                    }
                    clock.now()
                }
            };
            let ends = join_all((0..4).map(|worker| work(worker, 5))).await;
            ends.iter().for_each(|end| assert_about(*end, 10 * SECOND));
            // One that goes on alone has all of it.
            sharers.store(1, Ordering::Relaxed);
            assert_about(work(0, 20).await, 20 * SECOND);
        });
    }
}
