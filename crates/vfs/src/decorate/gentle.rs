//! Spares devices that others use, for `--gentle`: a rest after each operation as long as it took.
//!
//! What another process asks of the device then finds it idle half of the time. All trees of a job share one
//! [`Pace`]. Nothing is held during an operation or a rest, so an operation that hangs keeps no other away.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::{Action, Call, Done, Layer, Layered, Operation};
use crate::{Clock, Result, Tree};

/// Time that operations must have taken before there is a rest. Most take microseconds, since the kernel has
/// the answer in memory, and a timer cannot rest for so short. A guess.
const REST_MIN: Duration = Duration::from_millis(1);
/// Longest rest. A flush may take seconds. A guess.
const REST_MAX: Duration = Duration::from_millis(250);

/// A tree whose operations are spread over time.
pub type Gentle = Layered<Pace>;

impl Layered<Pace> {
    /// Makes the operations of `inner` keep to a pace that other trees may share.
    #[expect(
        clippy::new_ret_no_self,
        reason = "so that the layer is compiled in this crate"
    )]
    pub fn new(inner: Arc<dyn Tree>, pace: Arc<Pace>) -> Arc<dyn Tree> {
        Self::wrap_shared(inner, pace)
    }
}

/// The pace of a job: operations with rests between them.
pub struct Pace {
    clock: Arc<dyn Clock>,
    rest: Mutex<Rest>,
}

#[derive(Default)]
struct Rest {
    /// Time of the operations that no rest has followed yet.
    owed: Duration,
    /// No operation begins before.
    until: Duration,
}

impl Pace {
    /// Makes the pace of a job.
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            clock,
            rest: Mutex::default(),
        })
    }

    /// Waits until the rest is over.
    async fn turn(&self) {
        loop {
            let until = self.rest.lock().until;
            if self.clock.now() >= until {
                return;
            }
            self.clock.sleep_until(until).await;
        }
    }

    /// Notes that an operation took so long.
    fn took(&self, span: Duration) {
        let mut rest = self.rest.lock();
        rest.owed += span;
        if rest.owed >= REST_MIN {
            let owed = std::mem::take(&mut rest.owed).min(REST_MAX);
            rest.until = rest.until.max(self.clock.now()) + owed;
        }
    }
}

impl Layer for Pace {
    async fn around<'a, T: Send + 'a>(
        &'a self,
        call: Call<'a>,
        operation: Operation<'a, T>,
    ) -> Result<Done<T>> {
        // It only begins to listen, and may go on for as long as the job.
        if call.action == Action::Watch {
            return operation().await;
        }
        self.turn().await;
        let begun = self.clock.now();
        let result = operation().await;
        self.took(self.clock.now().saturating_sub(begun));
        result
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use ropeway_block::Pool;

    use super::super::faults::{FaultRule, Faults};
    use super::super::slow::{DeviceModel, Slow};
    use super::super::test_kit::{clock, read, reader, source};
    use super::*;
    use crate::clock::simulate;

    #[test]
    fn a_device_rests_as_long_as_it_worked() {
        let (time, clock) = clock();
        let model = DeviceModel::parse("read=1MB").unwrap();
        let slow = Slow::new(source(1_000_000), model, Arc::clone(&clock));
        let pace = Pace::new(Arc::clone(&clock));
        let trees = [
            Gentle::new(Arc::clone(&slow) as Arc<dyn Tree>, Arc::clone(&pace)),
            Gentle::new(slow, pace),
        ];
        let pool = Pool::new(100_000, 4);
        simulate(&time, async {
            let files = join_all(trees.iter().map(|tree| reader(&**tree))).await;
            let begun = clock.now();
            for part in 0..10 {
                let length = read(&*files[part % 2], &pool, part as u64 * 100_000, 100_000).await;
                assert_eq!(length.unwrap(), 100_000);
            }
            // Ten times 100 ms, and nine rests between them.
            assert_eq!(clock.now() - begun, Duration::from_millis(1_900));
        });
    }

    #[test]
    fn an_operation_that_hangs_keeps_no_other_away() {
        let (time, clock) = clock();
        let tree = Gentle::new(source(10), Pace::new(Arc::clone(&clock)));
        let hanging = Faults::new(
            tree.clone(),
            FaultRule::parse("read:delay=forever").unwrap(),
            clock,
        );
        let pool = Pool::new(4096, 2);
        simulate(&time, async {
            let (hangs, reads) = (reader(&*hanging).await, reader(&*tree).await);
            let hung = read(&*hangs, &pool, 0, 10);
            let done = async {
                for _ in 0..10 {
                    assert_eq!(read(&*reads, &pool, 0, 10).await.unwrap(), 10);
                }
            };
            futures_util::pin_mut!(hung, done);
            let first = futures_util::future::select(hung, done).await;
            assert!(matches!(first, futures_util::future::Either::Right(_)));
        });
    }

    #[test]
    fn a_rest_is_bounded_and_short_operations_need_none() {
        let (time, clock) = clock();
        let model = DeviceModel::parse("read=100000").unwrap();
        let slow = Slow::new(source(1_000_000), model, Arc::clone(&clock));
        let tree = Gentle::new(slow, Pace::new(Arc::clone(&clock)));
        let pool = Pool::new(100_000, 1);
        simulate(&time, async {
            let file = reader(&*tree).await;
            let begun = clock.now();
            read(&*file, &pool, 0, 10).await.unwrap();
            read(&*file, &pool, 10, 10).await.unwrap();
            assert!(
                clock.now() - begun < Duration::from_millis(1),
                "0.1 ms each, and no rest"
            );
            let begun = clock.now();
            read(&*file, &pool, 0, 100_000).await.unwrap();
            read(&*file, &pool, 0, 1).await.unwrap();
            let took = clock.now() - begun;
            assert!(took >= Duration::from_secs(1) + REST_MAX && took < Duration::from_millis(1_300));
        });
    }
}
