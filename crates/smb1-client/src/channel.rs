//! The handle on a connection's driver.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use ropeway_smb_client::Error;
use ropeway_smb1::client::{Negotiated, Reply, Request};
use tokio::sync::{mpsc, oneshot};

/// Capacity of the request queue; when it is full, callers wait. A guess: what a server takes at
/// once.
const QUEUE: usize = 64;

/// A request on its way to the driver.
pub(crate) struct Job {
    pub(crate) request: Request,
    pub(crate) answer: oneshot::Sender<Answer>,
}

/// The outcome of a request.
pub(crate) enum Answer {
    /// The server answered, maybe with an error.
    Replied(Box<Reply>),
    /// The connection was lost.
    Lost {
        /// Whether the request had been sent.
        sent: bool,
    },
    /// The request cannot be sent: it is too long.
    TooLong,
}

/// Control messages for a driver.
#[derive(Debug)]
pub(crate) enum Control {
    /// Ends the connection once nothing is in flight.
    Shutdown,
    /// A future was dropped; cancel its request if it waits for long.
    #[expect(dead_code, reason = "for watches, which come later")]
    Cancel(u64),
}

/// The handle on a connection's driver. Dropping it ends the driver.
pub(crate) struct Channel {
    jobs: mpsc::Sender<Job>,
    control: mpsc::UnboundedSender<Control>,
    /// Number of this connection among those of its link.
    pub(crate) generation: u64,
    pub(crate) negotiated: Negotiated,
    pub(crate) signs: bool,
    pub(crate) share_password: Vec<u8>,
    pub(crate) ended: std::sync::Arc<OnceLock<Error>>,
    load: AtomicUsize,
}

/// The queues that a driver reads.
pub(crate) struct Queues {
    pub(crate) jobs: mpsc::Receiver<Job>,
    pub(crate) control: mpsc::UnboundedReceiver<Control>,
}

/// The sending ends of these queues, before the connection is ready.
pub(crate) struct Senders {
    pub(crate) jobs: mpsc::Sender<Job>,
    pub(crate) control: mpsc::UnboundedSender<Control>,
}

/// Makes the queues of a driver.
pub(crate) fn queues() -> (Senders, Queues) {
    let (jobs, jobs_out) = mpsc::channel(QUEUE);
    let (control, control_out) = mpsc::unbounded_channel();
    let senders = Senders { jobs, control };
    let queues = Queues {
        jobs: jobs_out,
        control: control_out,
    };
    (senders, queues)
}

/// What a login settled.
pub(crate) struct Ready {
    pub(crate) negotiated: Negotiated,
    pub(crate) signs: bool,
    pub(crate) share_password: Vec<u8>,
}

impl Channel {
    pub(crate) fn new(
        senders: Senders,
        generation: u64,
        ready: Ready,
        ended: std::sync::Arc<OnceLock<Error>>,
    ) -> Self {
        Self {
            jobs: senders.jobs,
            control: senders.control,
            generation,
            negotiated: ready.negotiated,
            signs: ready.signs,
            share_password: ready.share_password,
            ended,
            load: AtomicUsize::new(0),
        }
    }

    /// Sends a request and waits for its outcome.
    pub(crate) async fn exchange(&self, request: Request) -> Answer {
        let (answer, receiver) = oneshot::channel();
        self.load.fetch_add(1, Ordering::Relaxed);
        let sent = self.jobs.send(Job { request, answer }).await;
        let answer = match sent {
            Ok(()) => receiver.await.unwrap_or(Answer::Lost { sent: true }),
            Err(_) => Answer::Lost { sent: false },
        };
        self.load.fetch_sub(1, Ordering::Relaxed);
        answer
    }

    /// Queues a request without waiting for its answer; drops it if the queue is full.
    pub(crate) fn post(&self, request: Request) {
        let (answer, _) = oneshot::channel();
        // A handle that is not closed ends with its connection.
        let _ = self.jobs.try_send(Job { request, answer });
    }

    /// Whether the connection has not ended.
    pub(crate) fn is_alive(&self) -> bool {
        self.ended.get().is_none() && !self.jobs.is_closed()
    }

    /// Asks the driver to end.
    pub(crate) fn shut_down(&self) {
        let _ = self.control.send(Control::Shutdown);
    }

    /// Waits until the driver has ended.
    pub(crate) async fn closed(&self) {
        self.jobs.closed().await;
    }
}
