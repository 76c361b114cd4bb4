//! The rules of a queue, and what a server may do that breaks none of them.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream;
use ropeway_copy::RuntimeClock;
use ropeway_fleet::catalog::Done;
use ropeway_fleet::claim::{ClaimId, Epoch};
use ropeway_fleet::error::Error;
use ropeway_fleet::job::JobFile;
use ropeway_fleet::queue::contract::check_queue;
use ropeway_fleet::queue::{Message, Queue};
use ropeway_fleet::store::Store;
use ropeway_fleet::task::{Scope, Task, Work};
use ropeway_fleet::workers::{Activity, Beat, WorkerId};
use ropeway_fleet_nats::{NatsOptions, NatsQueue};
use ropeway_vfs::{Clock, MemoryTree, RelPath, Tree};

use ropeway_peers::{Instance, Nats, or_skip};

/// The server looks about once a second for messages whose time is over.
const LEASE: Duration = Duration::from_secs(2);

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

fn options(server: &Instance) -> NatsOptions {
    NatsOptions {
        servers: format!("nats://{}", server.address()),
        replicas: 1,
        ..NatsOptions::default()
    }
}

fn store(tree: &Arc<dyn Tree>, job: &str, worker: u64) -> Arc<Store> {
    let root = RelPath::parse(job.as_bytes()).unwrap();
    Arc::new(Store::new(Arc::clone(tree), root, WorkerId(worker)))
}

fn task(path: &str) -> Task {
    Task::folder(0, RelPath::parse(path.as_bytes()).unwrap(), Scope::all())
}

async fn open(options: &NatsOptions, store: Arc<Store>) -> ropeway_fleet::error::Result<NatsQueue> {
    NatsQueue::open(options, store, Arc::new(RuntimeClock::new()), LEASE).await
}

/// Makes a job, and opens its queue.
async fn begun(options: &NatsOptions) -> (Arc<Store>, NatsQueue) {
    let store = store(&new_tree(), "job", 1);
    let job = JobFile::new("s".to_owned(), "t".to_owned());
    store.create(&job).await.unwrap();
    let queue = open(options, Arc::clone(&store)).await.unwrap();
    (store, queue)
}

fn new_tree() -> Arc<dyn Tree> {
    Arc::new(MemoryTree::new())
}

/// Takes a task once the client has found the server again.
async fn soon(queue: &NatsQueue) -> Message {
    for _ in 0..200 {
        if let Ok(Some(message)) = queue.take().await {
            return message;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("there is no task after 10 s");
}

#[test]
fn a_server_that_lost_everything_is_given_stream_and_bucket_again() {
    let server = or_skip!(Nats::new().start());
    let options = options(&server);
    runtime().block_on(async {
        let (store, queue) = begun(&options).await;
        let context = jetstream::new(async_nats::connect(&options.servers).await.unwrap());
        context.delete_stream("ROPEWAY_FLEET_job").await.unwrap();
        context.delete_key_value("ROPEWAY_EPOCHS_job").await.unwrap();
        assert!(matches!(queue.take().await, Err(Error::Queue(_))));
        assert_eq!(queue.take().await.unwrap(), None);
        store.birth(&task("a")).await.unwrap();
        queue.offer(&task("a"), Epoch(1)).await.unwrap();
        assert_eq!(soon(&queue).await.task, task("a"));
        queue.close().await.unwrap();
        assert!(context.get_stream("ROPEWAY_FLEET_job").await.is_err());
    });
}

/// A server hands a message out again when its time is over, also if its task is in good hands: a worker may have taken
/// it from the catalog.
#[test]
fn a_repeated_message_takes_no_task_from_a_worker_that_is_alive() {
    let server = or_skip!(Nats::new().start());
    let options = options(&server);
    runtime().block_on(async {
        let tree = new_tree();
        let (one, two) = (store(&tree, "job", 1), store(&tree, "job", 2));
        let job = JobFile::new("s".to_owned(), "t".to_owned());
        one.create(&job).await.unwrap();
        let queue = open(&options, Arc::clone(&two)).await.unwrap();
        one.birth(&task("a")).await.unwrap();
        queue.offer(&task("a"), Epoch(1)).await.unwrap();
        let claim = ClaimId {
            task: task("a").id(),
            epoch: Epoch(1),
        };
        one.begin(claim).await.unwrap();
        for beat in 1..=8 {
            let beat = Beat {
                beat,
                activity: Activity::Working,
                ..Beat::default()
            };
            one.beat(&beat).await.unwrap();
            assert_eq!(queue.take().await.unwrap(), None);
            tokio::time::sleep(LEASE / 4).await;
        }
        // It falls silent.
        let taken = soon(&queue).await;
        assert_eq!((taken.task, taken.claim.epoch), (task("a"), Epoch(2)));
    });
}

#[test]
fn a_login_that_is_refused_is_an_error_of_the_queue() {
    let server = or_skip!(Nats::new().user("ann", "secret").start());
    let options = options(&server);
    runtime().block_on(async {
        let tree: Arc<dyn Tree> = Arc::new(MemoryTree::new());
        let wrong = Some(("ann".to_owned(), "wrong".to_owned()));
        for user in [None, wrong] {
            let options = NatsOptions {
                user,
                ..options.clone()
            };
            let refused = open(&options, store(&tree, "job", 1)).await;
            assert!(matches!(refused, Err(Error::QueueLogin(_))));
        }
        let options = NatsOptions {
            user: Some(("ann".to_owned(), "secret".to_owned())),
            ..options
        };
        let queue = open(&options, store(&tree, "job", 1)).await;
        assert_eq!(queue.unwrap().take().await.unwrap(), None);
    });
}

#[test]
fn a_server_keeps_the_contract() {
    let server = or_skip!(Nats::new().start());
    let clock: Arc<dyn Clock> = Arc::new(RuntimeClock::new());
    let options = options(&server);
    let runtime = runtime();
    let make = |run: u64, own: Arc<Store>| -> Arc<dyn Queue> {
        // All jobs of the suite have the same folder, so their names on the server are given.
        let queue = std::thread::scope(|scope| {
            let opened = scope.spawn(|| {
                let handle = runtime.handle();
                handle.block_on(NatsQueue::open_as(
                    &format!("run-{run}"),
                    &options,
                    (own, Arc::clone(&clock)),
                    LEASE,
                ))
            });
            opened.join().unwrap()
        });
        Arc::new(queue.unwrap())
    };
    let of_suite = Arc::clone(&clock);
    runtime.block_on(check_queue(|| Arc::new(MemoryTree::new()), of_suite, LEASE, make));
}

#[test]
fn tasks_and_epochs_outlive_the_server_and_a_lost_bucket_gives_no_old_epoch() {
    let mut server = or_skip!(Nats::new().start());
    let options = options(&server);
    runtime().block_on(async {
        let (store, queue) = begun(&options).await;
        for path in ["a", "b"] {
            store.birth(&task(path)).await.unwrap();
            queue.offer(&task(path), Epoch(1)).await.unwrap();
            queue.offer(&task(path), Epoch(1)).await.unwrap();
        }
        let first = queue.take().await.unwrap().unwrap();
        store.begin(first.claim).await.unwrap();
        server.kill();
        // Without a server nothing waits long.
        assert!(matches!(queue.take().await, Err(Error::Queue(_))));
        assert!(matches!(queue.renew(&first).await, Err(Error::Queue(_))));
        server.restart().unwrap();
        let other = soon(&queue).await;
        assert_ne!(other.task, first.task);
        assert_eq!(queue.take().await.unwrap(), None);
        // Epochs are lost, and the claim in the catalog is known.
        let client = async_nats::connect(&options.servers).await.unwrap();
        let context = jetstream::new(client);
        context.delete_key_value("ROPEWAY_EPOCHS_job").await.unwrap();
        let queue = open(&options, Arc::clone(&store)).await.unwrap();
        tokio::time::sleep(LEASE * 2).await;
        let mut again = vec![
            queue.take().await.unwrap().unwrap(),
            queue.take().await.unwrap().unwrap(),
        ];
        again.retain(|message| message.task == first.task);
        assert_eq!(again[0].claim.epoch, Epoch(2));
    });
}

#[test]
fn a_stream_that_somebody_else_made_otherwise_is_refused_by_name() {
    let server = or_skip!(Nats::new().start());
    let options = options(&server);
    runtime().block_on(async {
        let client = async_nats::connect(&options.servers).await.unwrap();
        let context = jetstream::new(client);
        let made = context.create_stream(jetstream::stream::Config {
            name: "ROPEWAY_FLEET_job".to_owned(),
            subjects: vec!["ropeway.fleet.job.>".to_owned()],
            storage: jetstream::stream::StorageType::Memory,
            ..jetstream::stream::Config::default()
        });
        made.await.unwrap();
        let refused = open(&options, store(&new_tree(), "job", 1)).await;
        let Err(Error::Queue(reason)) = refused else {
            panic!("it was not refused");
        };
        for setting in ["storage", "retention", "max_messages_per_subject"] {
            assert!(reason.contains(setting), "{reason}");
        }
    });
}

#[test]
fn strange_messages_are_thrown_away() {
    let server = or_skip!(Nats::new().start());
    let options = options(&server);
    runtime().block_on(async {
        let (store, queue) = begun(&options).await;
        let context = jetstream::new(async_nats::connect(&options.servers).await.unwrap());
        let (named, other) = (task("a").id(), task("b"));
        let strange = [
            (format!("ropeway.fleet.job.{named}"), b"no task".to_vec()),
            (format!("ropeway.fleet.job.{}", "0".repeat(32)), other.encode()),
            ("ropeway.fleet.job.x.y".to_owned(), Vec::new()),
        ];
        for (subject, payload) in strange {
            context
                .publish(subject, payload.into())
                .await
                .unwrap()
                .await
                .unwrap();
        }
        // These are tasks, and the job has none of them: a later phase, and one that is done.
        let (early, done) = (
            Task {
                round: 0,
                work: Work::FolderTimes,
            },
            task("c"),
        );
        store.birth(&done).await.unwrap();
        queue.offer(&done, Epoch(1)).await.unwrap();
        let message = queue.take().await.unwrap().unwrap();
        store.begin(message.claim).await.unwrap();
        store.finish(message.claim, &Done::default()).await.unwrap();
        queue.ack(&message).await.unwrap();
        for strange in [&early, &done] {
            queue.offer(strange, Epoch(1)).await.unwrap();
        }
        store.birth(&other).await.unwrap();
        queue.offer(&other, Epoch(1)).await.unwrap();
        let message = queue.take().await.unwrap().unwrap();
        assert_eq!(message.task, other);
        assert_eq!(queue.take().await.unwrap(), None);
    });
}

#[test]
fn a_server_that_does_not_answer_is_an_error_of_the_queue() {
    let options = NatsOptions {
        servers: "nats://127.0.0.1:1".to_owned(),
        replicas: 1,
        ..NatsOptions::default()
    };
    runtime().block_on(async {
        let refused = open(&options, store(&new_tree(), "job", 1)).await;
        assert!(matches!(refused, Err(Error::Queue(_))));
    });
}
