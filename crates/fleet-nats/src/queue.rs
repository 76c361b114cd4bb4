//! The queue.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::context::{DeleteStreamErrorKind, PublishError};
use async_nats::jetstream::kv::Config as BucketConfig;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::StorageType;
use async_nats::jetstream::{self, AckKind, Context, ErrorCode};
use async_nats::{Client, connection::State};
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use ropeway_fleet::claim::{ClaimId, Epoch};
use ropeway_fleet::error::{Error, Result};
use ropeway_fleet::queue::{Message, Queue, ShareQueue};
use ropeway_fleet::store::Store;
use ropeway_fleet::task::{Task, TaskId};
use ropeway_vfs::{Clock, Pending};

use crate::epochs::Epochs;
use crate::options::NatsOptions;
use crate::settings::{check_stream, stream};

/// Messages that are thrown away in one call since they are no tasks.
const STRANGERS_MAX: usize = 100;

/// Messages of claims that are remembered. A worker has one task at a time; more are claims that it lost.
const HELD_MAX: usize = 64;

/// Messages in one call of tasks on which others work.
const HELD_BY_OTHERS_MAX: usize = 16;

/// Looks in the time of a lease at a task on which another one works.
const LOOKS_PER_LEASE: u32 = 4;

/// Name of the consumer.
const CONSUMER: &str = "workers";

/// Longest time for an answer of the server.
const ANSWER: Duration = Duration::from_secs(5);

/// Returns the time that the server has for an answer: signs of life must not wait long for it.
fn answer_time(lease: Duration) -> Duration {
    ANSWER.min(lease / 4)
}

/// Hands out tasks by a server of NATS.
pub struct NatsQueue {
    client: Client,
    context: Context,
    wanted: Wanted,
    /// `None` after a failure.
    served: Mutex<Option<Arc<Served>>>,
    store: Arc<Store>,
    /// Who works on what, as the catalog knows it.
    claims: ShareQueue,
    /// The messages of claims of this worker.
    held: Mutex<HashMap<ClaimId, jetstream::Message>>,
}

/// Returns the name of the job on the server: letters, digits and `-`.
fn job_of(store: &Store) -> String {
    let name = store.root().file_name().map(|name| name.to_string());
    let name = name.unwrap_or_default();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric();
    name.chars()
        .map(|letter| if is_plain(letter) { letter } else { '-' })
        .collect()
}

fn failed(what: &str, error: impl std::fmt::Display) -> Error {
    Error::queue(format!("{what}: {error}"))
}

/// What the server has for a job.
struct Served {
    consumer: PullConsumer,
    epochs: Epochs,
}

/// Times that a worker makes stream and bucket again when it starts. A guess: one is enough for one that was removed.
const MAKE_TRIES: u32 = 2;

/// What a worker makes of a message.
enum Judged {
    /// It has this claim of the task.
    Mine(ClaimId),
    /// Somebody who is alive works on it.
    Later,
    /// The task is done, or the job has no such task: whoever may write to the server could otherwise let a later phase
    /// begin before its time.
    NoTask,
}

/// What stream, consumer and bucket of a job are like.
struct Wanted {
    job: String,
    replicas: usize,
    lease: Duration,
}

impl Wanted {
    fn stream(&self) -> String {
        format!("ROPEWAY_FLEET_{}", self.job)
    }

    fn bucket(&self) -> String {
        format!("ROPEWAY_EPOCHS_{}", self.job)
    }

    fn subject(&self) -> String {
        format!("ropeway.fleet.{}", self.job)
    }

    /// Makes what is not there, and examines what is.
    async fn make(&self, context: &Context) -> Result<Served> {
        let wanted = stream(&self.stream(), &format!("{}.>", self.subject()), self.replicas);
        let made = context.get_or_create_stream(wanted.clone()).await;
        let mut made = made.map_err(|error| failed("the stream cannot be made", error))?;
        let info = made.info().await;
        let info = info.map_err(|error| failed("the stream cannot be examined", error))?;
        let faults = check_stream(&info.config, &wanted);
        if !faults.is_empty() {
            let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
            return Err(failed(&format!("the stream {}", wanted.name), faults.join("; ")));
        }
        let consumer = pull::Config {
            durable_name: Some(CONSUMER.to_owned()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.lease,
            max_ack_pending: -1,
            ..pull::Config::default()
        };
        // One that is there keeps its time, which workers with another lease keep to as well.
        let consumer = made.get_or_create_consumer(CONSUMER, consumer).await;
        let consumer = consumer.map_err(|error| failed("the consumer cannot be made", error))?;
        let bucket = BucketConfig {
            bucket: self.bucket(),
            history: 1,
            storage: StorageType::File,
            num_replicas: self.replicas.max(1),
            ..BucketConfig::default()
        };
        let bucket = context.create_or_update_key_value(bucket).await;
        let bucket = bucket.map_err(|error| failed("the bucket of epochs cannot be made", error))?;
        Ok(Served {
            consumer,
            epochs: Epochs::new(bucket),
        })
    }
}

impl NatsQueue {
    /// Connects, and makes stream, consumer and bucket of a job if they are not there. `lease` is the time after
    /// which a silent worker loses its task.
    ///
    /// # Errors
    /// [`Error::Queue`]: the server does not answer or refuses, or the stream is not as it must be.
    pub async fn open(
        options: &NatsOptions,
        store: Arc<Store>,
        clock: Arc<dyn Clock>,
        lease: Duration,
    ) -> Result<Self> {
        let job = job_of(&store);
        Self::open_as(&job, options, (store, clock), lease).await
    }

    /// Does what [`NatsQueue::open`] does for a job of this name, of letters, digits and `-`.
    ///
    /// # Errors
    /// As [`NatsQueue::open`].
    pub async fn open_as(
        job: &str,
        options: &NatsOptions,
        (store, clock): (Arc<Store>, Arc<dyn Clock>),
        lease: Duration,
    ) -> Result<Self> {
        let client = options.connect().await?;
        let wanted = Wanted {
            job: job.to_owned(),
            replicas: options.replicas,
            lease,
        };
        let mut context = jetstream::new(client.clone());
        context.set_timeout(ANSWER);
        let mut tries = 0;
        let served = loop {
            match wanted.make(&context).await {
                // Another worker may have found the job complete meanwhile, and removed what this one has just seen.
                Err(Error::Queue(reason)) if tries < MAKE_TRIES => {
                    tries += 1;
                    tracing::debug!(reason, "stream and bucket are made again");
                }
                made => break made?,
            }
        };
        Ok(Self {
            client,
            context,
            wanted,
            served: Mutex::new(Some(Arc::new(served))),
            claims: ShareQueue::new(Arc::clone(&store), clock, lease, store.worker().0),
            store,
            held: Mutex::default(),
        })
    }

    /// Finds out whether a job could use the server: makes what one needs, sends a message, and removes all of it.
    ///
    /// # Errors
    /// As [`NatsQueue::open`]; or no message can be sent.
    pub async fn check(
        options: &NatsOptions,
        (store, clock): (Arc<Store>, Arc<dyn Clock>),
        lease: Duration,
    ) -> Result<()> {
        let name = format!("check-{}", store.worker());
        let queue = Self::open_as(&name, options, (store, clock), lease).await?;
        let sent = queue.at_server(queue.publish(&Task::root())).await;
        queue.remove().await?;
        sent
    }

    /// Does something at the server, which gets a bounded time. Fails at once while there is no connection; the client
    /// makes a new one meanwhile.
    async fn at_server<T>(&self, does: impl Future<Output = Result<T>>) -> Result<T> {
        if self.client.connection_state() != State::Connected {
            return Err(Error::queue("there is no connection to the server"));
        }
        let span = answer_time(self.wanted.lease);
        match tokio::time::timeout(span, does).await {
            Ok(done) => done,
            Err(_) => Err(Error::queue(format!(
                "the server has not answered for {} s",
                span.as_secs_f32()
            ))),
        }
    }

    /// Returns what the server has. After a failure it is made again: the server may have lost it.
    async fn served(&self) -> Result<Arc<Served>> {
        let known = self.served.lock().clone();
        if let Some(served) = known {
            return Ok(served);
        }
        let served = Arc::new(self.wanted.make(&self.context).await?);
        *self.served.lock() = Some(Arc::clone(&served));
        Ok(served)
    }

    /// Removes stream and bucket of a job that is over.
    async fn remove(&self) -> Result<()> {
        // A bucket is a stream of this name.
        for stream in [self.wanted.stream(), format!("KV_{}", self.wanted.bucket())] {
            match self.context.delete_stream(&stream).await {
                Ok(_) => {}
                // Another worker was faster.
                Err(error) if is_absent(error.kind()) => {}
                Err(error) => return Err(failed(&format!("{stream} cannot be removed"), error)),
            }
        }
        Ok(())
    }

    async fn publish(&self, task: &Task) -> Result<()> {
        let subject = format!("{}.{}", self.wanted.subject(), task.id());
        let message = PublishMessage::build().payload(task.encode().into());
        let sent = self.context.send_publish(subject, message).await;
        let stored = match sent {
            Ok(stored) => stored.await,
            Err(error) => Err(error),
        };
        match stored {
            Ok(_) => Ok(()),
            Err(error) if is_there(&error) => Ok(()),
            Err(error) => Err(failed("a task cannot be offered", error)),
        }
    }

    /// Takes one message that is a task; `None` if there is none now.
    async fn next(&self, served: &Served) -> Result<Option<(Task, jetstream::Message)>> {
        for _ in 0..STRANGERS_MAX {
            let batch = served.consumer.fetch().max_messages(1).messages().await;
            let mut batch = batch.map_err(|error| failed("no task can be taken", error))?;
            let Some(message) = batch.next().await else {
                return Ok(None);
            };
            let message = message.map_err(|error| failed("no task can be taken", error))?;
            let task = Task::decode(&message.payload);
            let named = message
                .subject
                .rsplit('.')
                .next()
                .and_then(|id| TaskId::parse(id.as_bytes()));
            match task.filter(|task| Some(task.id()) == named) {
                Some(task) => return Ok(Some((task, message))),
                None => {
                    tracing::warn!(subject = %message.subject, "a message that is no task is thrown away");
                    let _ = message.ack_with(AckKind::Term).await;
                }
            }
        }
        Ok(None)
    }

    async fn take_one(&self) -> Result<Option<Message>> {
        for _ in 0..HELD_BY_OTHERS_MAX {
            let fetched = self.at_server(async {
                let served = self.served().await?;
                let next = self.next(&served).await?;
                Ok(next.map(|(task, message)| (served, task, message)))
            });
            let Some((served, task, message)) = fetched.await? else {
                return Ok(None);
            };
            let judged = self.judge(&served, &task).await;
            let kind = match judged {
                Ok(Judged::Mine(claim)) => {
                    let mut held = self.held.lock();
                    if held.len() >= HELD_MAX {
                        held.clear();
                    }
                    held.insert(claim, message);
                    return Ok(Some(Message { task, claim }));
                }
                Ok(Judged::NoTask) => AckKind::Term,
                Ok(Judged::Later) | Err(_) => AckKind::Nak(Some(self.wanted.lease / LOOKS_PER_LEASE)),
            };
            let told = self.at_server(tell(&message, kind)).await;
            judged.and(told)?;
        }
        Ok(None)
    }

    /// Makes the claim of a task, unless it is done, or somebody who is alive works on it: a server repeats messages, and
    /// a task may have been taken from the catalog.
    async fn judge(&self, served: &Served, task: &Task) -> Result<Judged> {
        let id = task.id();
        if self.store.task(id).await?.as_ref() != Some(task) {
            if !self.store.is_done(id).await? {
                tracing::warn!(task = %id, "a message is thrown away: the job has no such task");
            }
            return Ok(Judged::NoTask);
        }
        let Some(least) = self.claims.next_if_free(id).await? else {
            return Ok(Judged::Later);
        };
        let epoch = self.at_server(served.epochs.raise(id, least)).await?;
        Ok(Judged::Mine(ClaimId { task: id, epoch }))
    }

    fn message_of(&self, claim: ClaimId) -> Option<jetstream::Message> {
        self.held.lock().get(&claim).cloned()
    }

    async fn answer(&self, claim: ClaimId, kind: AckKind) -> Result<()> {
        match self.message_of(claim) {
            Some(message) => tell(&message, kind).await,
            None => Ok(()),
        }
    }
}

/// Answers a message, and waits until the server has the answer.
async fn tell(message: &jetstream::Message, kind: AckKind) -> Result<()> {
    let told = message.double_ack_with(kind).await;
    told.map_err(|error| failed("no answer can be sent", error))
}

fn is_absent(kind: DeleteStreamErrorKind) -> bool {
    matches!(kind, DeleteStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

/// Whether a message was refused since there is one of its subject.
fn is_there(error: &PublishError) -> bool {
    let source = std::error::Error::source(error);
    let refused = source.and_then(|source| source.downcast_ref::<jetstream::Error>());
    refused.is_some_and(|refused| refused.error_code() == ErrorCode::STREAM_STORE_FAILED)
}

impl Queue for NatsQueue {
    fn offer<'a>(&'a self, task: &'a Task, _: Epoch) -> Pending<'a, Result<()>> {
        Box::pin(self.at_server(self.publish(task)))
    }

    fn take(&self) -> Pending<'_, Result<Option<Message>>> {
        Box::pin(async move {
            let taken = self.take_one().await;
            if matches!(taken, Err(Error::Queue(_))) {
                *self.served.lock() = None;
            }
            taken
        })
    }

    fn renew<'a>(&'a self, message: &'a Message) -> Pending<'a, Result<()>> {
        Box::pin(self.at_server(self.answer(message.claim, AckKind::Progress)))
    }

    fn ack<'a>(&'a self, message: &'a Message) -> Pending<'a, Result<()>> {
        Box::pin(async move {
            let claim = message.claim;
            let held = self.held.lock().remove(&claim);
            self.at_server(async {
                if let Some(held) = held {
                    tell(&held, AckKind::Ack).await?;
                }
                self.served().await?.epochs.forget(claim.task).await;
                Ok(())
            })
            .await
        })
    }

    fn release<'a>(&'a self, message: &'a Message) -> Pending<'a, Result<()>> {
        Box::pin(async move {
            let told = self
                .at_server(self.answer(message.claim, AckKind::Nak(None)))
                .await;
            self.held.lock().remove(&message.claim);
            // For those who look into the catalog.
            self.store.release(message.claim).await?;
            told
        })
    }

    fn lease(&self) -> Option<Duration> {
        let served = self.served.lock().clone();
        served.map(|served| served.consumer.cached_info().config.ack_wait)
    }

    fn close(&self) -> Pending<'_, Result<()>> {
        Box::pin(self.at_server(self.remove()))
    }
}
