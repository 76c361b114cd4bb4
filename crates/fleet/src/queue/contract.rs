//! The rules that every queue keeps, as a suite.
//!
//! [`check_queue`] runs each rule with two workers on a fresh catalog. A queue with faults breaks
//! some of them on purpose; the catalog bears it, which the simulation shows.

use std::sync::Arc;
use std::time::Duration;

use ropeway_vfs::{Clock, Name, Pending, RelPath, Tree};

use super::{Message, Queue};
use crate::catalog::Done;
use crate::claim::Epoch;
use crate::job::JobFile;
use crate::store::Store;
use crate::task::{Scope, Task};
use crate::workers::{Beat, WorkerId};

/// What the suite runs on.
pub struct QueueStage {
    clock: Arc<dyn Clock>,
    lease: Duration,
    workers: [(Arc<Store>, Arc<dyn Queue>); 2],
}

/// A rule. It panics when the queue breaks it.
type Rule = for<'a> fn(&'a QueueStage) -> Pending<'a, ()>;

const RULES: &[(&str, Rule)] = &[
    ("a task is handed out once while it is held", |stage| {
        Box::pin(held_once(stage))
    }),
    ("a task that is done is never handed out again", |stage| {
        Box::pin(done_is_done(stage))
    }),
    (
        "a task that was given back is free at once, as a later claim",
        |stage| Box::pin(given_back(stage)),
    ),
    (
        "without a sign of life a task is handed out again, as a later claim",
        |stage| Box::pin(taken_over(stage)),
    ),
    ("a worker that shows signs of life keeps its task", |stage| {
        Box::pin(kept(stage))
    }),
    ("a task that is offered twice is one task", |stage| {
        Box::pin(offered_twice(stage))
    }),
];

/// Runs every rule. `make` makes the queue of one worker; all queues of one call with the same
/// catalog are one queue. `lease` is the time after which a silent worker loses its task.
///
/// # Panics
/// At the first rule that is broken.
pub async fn check_queue<M>(tree: impl Fn() -> Arc<dyn Tree>, clock: Arc<dyn Clock>, lease: Duration, make: M)
where
    M: Fn(u64, Arc<Store>) -> Arc<dyn Queue>,
{
    for ((name, rule), run) in RULES.iter().zip(0..) {
        tracing::debug!(rule = name);
        let tree = tree();
        let root = Name::new(b"catalog").map(|name| RelPath::root().join(&name));
        let root = root.expect("letters are a name");
        let worker = |number: u64| {
            let store = Arc::new(Store::new(Arc::clone(&tree), root.clone(), WorkerId(number)));
            (Arc::clone(&store), make(run, store))
        };
        let stage = QueueStage {
            clock: Arc::clone(&clock),
            lease,
            workers: [worker(1), worker(2)],
        };
        let job = JobFile::new("source".to_owned(), "target".to_owned());
        stage.workers[0]
            .0
            .create(&job)
            .await
            .expect("the catalog can be made");
        stage.workers[0]
            .0
            .forget(Task::root().id())
            .await
            .expect("an empty list of tasks");
        rule(&stage).await;
    }
}

impl QueueStage {
    async fn offer(&self, path: &str) -> Task {
        let task = task(path);
        let (store, queue) = &self.workers[0];
        store.birth(&task).await.expect("the task can be made");
        queue
            .offer(&task, Epoch(1))
            .await
            .expect("the task can be offered");
        task
    }

    /// Takes a task and begins its claim.
    async fn take(&self, worker: usize) -> Option<Message> {
        let (store, queue) = &self.workers[worker];
        let message = queue.take().await.expect("the queue answers")?;
        store.begin(message.claim).await.expect("the claim is the last");
        Some(message)
    }

    async fn finish(&self, worker: usize, message: &Message) {
        let (store, queue) = &self.workers[worker];
        let done = store.finish(message.claim, &Done::default()).await;
        done.expect("the claim is the last");
        queue.ack(message).await.expect("the queue answers");
    }

    async fn live(&self, worker: usize, beat: u64, message: &Message) {
        let (store, queue) = &self.workers[worker];
        let beat = Beat {
            beat,
            progress: beat,
            ..Beat::default()
        };
        store.beat(&beat).await.expect("the catalog can be written to");
        queue.renew(message).await.expect("the queue answers");
    }

    async fn sleep(&self, leases: f64) {
        let until = self.clock.now() + self.lease.mul_f64(leases);
        self.clock.sleep_until(until).await;
    }
}

fn task(path: &str) -> Task {
    let path = RelPath::parse(path.as_bytes()).expect("letters are a path");
    Task::folder(0, path, Scope::all())
}

async fn held_once(stage: &QueueStage) {
    assert_eq!(stage.take(0).await, None);
    let task = stage.offer("a").await;
    let message = stage.take(1).await.expect("a task is there");
    assert_eq!((message.task, message.claim.epoch), (task, Epoch(1)));
    assert_eq!(stage.take(0).await, None);
}

async fn done_is_done(stage: &QueueStage) {
    stage.offer("a").await;
    let message = stage.take(0).await.expect("a task is there");
    stage.finish(0, &message).await;
    stage.sleep(20.0).await;
    assert_eq!(stage.take(1).await, None);
    // A second offer of the same task changes nothing in the catalog.
    let (store, _) = &stage.workers[1];
    store.birth(&message.task).await.expect("the catalog answers");
    assert_eq!(store.tasks().await.expect("the catalog answers"), []);
}

async fn given_back(stage: &QueueStage) {
    stage.offer("a").await;
    let first = stage.take(0).await.expect("a task is there");
    stage.workers[0]
        .1
        .release(&first)
        .await
        .expect("the queue answers");
    let second = stage.take(1).await.expect("the task is free");
    assert!(second.claim.epoch > first.claim.epoch);
}

async fn taken_over(stage: &QueueStage) {
    stage.offer("a").await;
    let first = stage.take(0).await.expect("a task is there");
    stage.live(0, 1, &first).await;
    assert_eq!(stage.take(1).await, None);
    stage.sleep(1.1).await;
    // A worker that looks at the holder for the first time must wait for signs of life, too.
    let mut second = stage.take(1).await;
    for _ in 0..10 {
        if second.is_none() {
            stage.sleep(0.3).await;
            second = stage.take(1).await;
        }
    }
    let second = second.expect("the holder shows no sign of life");
    assert!(second.claim.epoch > first.claim.epoch);
    let (store, _) = &stage.workers[0];
    assert!(store.fence(second.claim).await.is_ok());
    let late = store.finish(first.claim, &Done::default()).await;
    assert!(late.is_err_and(|error| error.ends_claim_only()));
    stage.finish(1, &second).await;
}

async fn kept(stage: &QueueStage) {
    stage.offer("a").await;
    let message = stage.take(0).await.expect("a task is there");
    for beat in 0..12 {
        stage.live(0, beat, &message).await;
        assert_eq!(stage.take(1).await, None, "beat {beat}");
        stage.sleep(0.4).await;
    }
    stage.finish(0, &message).await;
}

async fn offered_twice(stage: &QueueStage) {
    stage.offer("a").await;
    stage.offer("a").await;
    let one = stage.take(0).await.expect("a task is there");
    assert_eq!(stage.take(1).await, None);
    stage.offer("b").await;
    let two = stage.take(1).await.expect("another task is there");
    assert_ne!(one.task, two.task);
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use ropeway_vfs::clock::simulate;
    use ropeway_vfs::{MemoryTree, VirtualClock};

    use super::super::memory::QueueFaults;
    use super::super::{MemoryQueue, ShareQueue};
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    #[test]
    fn the_share_keeps_the_contract() {
        let clock = VirtualClock::new();
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let make = |seed, store| -> Arc<dyn Queue> {
            Arc::new(ShareQueue::new(store, Arc::new(clock.clone()), LEASE, seed))
        };
        simulate(
            &clock,
            check_queue(|| Arc::new(MemoryTree::new()), shared, LEASE, make),
        );
    }

    #[test]
    fn the_queue_in_memory_keeps_the_contract() {
        let clock = VirtualClock::new();
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let queues = Mutex::new(std::collections::HashMap::new());
        let make = |run, _| -> Arc<dyn Queue> {
            let clock: Arc<dyn Clock> = Arc::new(clock.clone());
            let new = || MemoryQueue::new(clock, LEASE, QueueFaults::default(), run);
            Arc::new(queues.lock().entry(run).or_insert_with(new).clone())
        };
        simulate(
            &clock,
            check_queue(|| Arc::new(MemoryTree::new()), shared, LEASE, make),
        );
    }
}
