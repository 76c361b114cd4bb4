//! What others hold of a driver: its queues, and what it tells of itself.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ropeway_smb_proto::auth::spnego::SpnegoClient;
use ropeway_smb_proto::client::{Chain, DropReason, Misuse, Reply, SessionSecret};
use ropeway_smb_wire::{FileId, TreeId};
use tokio::sync::{mpsc, oneshot};

use crate::budget::Budget;
use crate::channels::Work;
use crate::depth::Depth;
use crate::driver::{Queues, left_open};
use crate::rights::{Leases, Oplocks};
use crate::{LostReason, Operation};

/// Requests that wait for the driver's turn; beyond it, callers wait. A guess: what the driver takes in four turns.
const QUEUE: usize = 256;

/// A chain on its way to the driver.
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) chain: Chain,
    /// Bytes of data, for the governor; 0 for a request without.
    pub(crate) bytes: u64,
    pub(crate) answer: oneshot::Sender<Answer>,
}

/// What became of a request.
pub(crate) enum Answer {
    Replied(Vec<Reply>),
    Dropped {
        operations: Vec<Operation>,
        sent: bool,
        reason: DropReason,
    },
    Refused(Misuse, Vec<Operation>),
    /// Not answered in its time, however long the server goes on to say other things.
    Overdue(Vec<Operation>),
}

/// Held as long as a file is being closed.
pub(crate) type Closing = tokio::sync::OwnedRwLockReadGuard<()>;

/// Who waits for the answer to a CLOSE.
pub(crate) enum Awaiting {
    /// Let go with the answer, or with the connection.
    Closing(#[expect(dead_code, reason = "it is dropped with this")] Closing),
    /// Told of the answer. Dropped without, the connection was lost before.
    Answer(oneshot::Sender<()>),
}

/// What overtakes requests. Unbounded by type, bounded by use: one for each request or handle that lives.
pub(crate) enum Side {
    Cancel(u64),
    Close {
        tree: TreeId,
        file_id: FileId,
        encrypt: bool,
        until: Option<Awaiting>,
    },
    /// Logs a connection in that has none, as a further channel of this session.
    Bind(Box<(SessionSecret, SpnegoClient)>),
    /// The session has this connection now: what it may have under way counts. Before, others would send it.
    Counts,
    /// TREE_DISCONNECT: nobody uses the share any more.
    Leave {
        tree: TreeId,
        encrypt: bool,
    },
    /// No more requests; the last channel ends the session, and waits for the answer to that or not.
    Shut {
        waits: bool,
    },
}

/// What all channels of a session share.
#[derive(Debug, Default)]
pub(crate) struct Common {
    pub(crate) oplocks: Oplocks,
    /// The client's, over all its sessions.
    pub(crate) leases: Arc<Leases>,
    channels: AtomicUsize,
}

impl Common {
    pub(crate) fn new(leases: Arc<Leases>) -> Self {
        Self {
            leases,
            ..Self::default()
        }
    }

    /// A channel begins.
    pub(crate) fn join(&self) {
        self.channels.fetch_add(1, Ordering::AcqRel);
    }

    /// A channel has nothing more to do; whether it was the last.
    pub(crate) fn leave(&self) -> bool {
        self.channels.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// What a driver tells of itself.
#[derive(Debug)]
pub(crate) struct Shared {
    budget: Arc<Budget>,
    window_max: u64,
    /// Connections that begin together, this one among them.
    pub(crate) together: u16,
    pub(crate) common: Arc<Common>,
    window: AtomicU64,
    delivered: AtomicU64,
    /// Bytes each second, 0 until known.
    rate: AtomicU64,
    round_trip_us: AtomicU64,
    steady: AtomicBool,
    ended: OnceLock<LostReason>,
}

impl Shared {
    pub(crate) fn new(budget: Arc<Budget>, window_max: u64, together: u16, common: Arc<Common>) -> Self {
        Self {
            budget,
            window_max,
            together,
            common,
            window: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            round_trip_us: AtomicU64::new(u64::MAX),
            steady: AtomicBool::new(false),
            ended: OnceLock::new(),
        }
    }

    pub(crate) fn window_max(&self) -> u64 {
        self.window_max
    }

    /// The driver's governor has news; its window was `old`, and `window` is what counts now.
    pub(crate) fn publish(&self, (old, window): (u64, u64), depth: &Depth) {
        if window != old {
            self.budget.update(old, window);
            self.window.store(window, Ordering::Relaxed);
        }
        self.delivered.store(depth.total(), Ordering::Relaxed);
        self.rate.store(depth.rate(), Ordering::Relaxed);
        self.steady.store(depth.is_steady(), Ordering::Relaxed);
        if let Some(round_trip) = depth.round_trip() {
            let us = u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX);
            self.round_trip_us.store(us, Ordering::Relaxed);
        }
    }

    /// The driver is about to end; its window was `old`.
    pub(crate) fn end(&self, old: u64, reason: LostReason) {
        self.budget.update(old, 0);
        self.window.store(0, Ordering::Relaxed);
        let _ = self.ended.set(reason);
    }
}

/// A connection's driver, as others see it. Dropping the last handle ends it.
#[derive(Debug)]
pub(crate) struct Channel {
    requests: mpsc::Sender<Request>,
    side: mpsc::UnboundedSender<Side>,
    next_id: AtomicU64,
    /// Bytes, and one for each request: what the next request is compared by.
    load: AtomicU64,
    shared: Arc<Shared>,
}

impl Channel {
    /// A channel and the ends that its driver reads.
    pub(crate) fn new(shared: Arc<Shared>) -> (Self, Queues) {
        let (requests, requests_out) = mpsc::channel(QUEUE);
        let (side, side_out) = mpsc::unbounded_channel();
        let channel = Self {
            requests,
            side,
            next_id: AtomicU64::new(1),
            load: AtomicU64::new(0),
            shared,
        };
        let queues = Queues {
            requests: requests_out,
            side: side_out,
        };
        (channel, queues)
    }

    /// Sends a chain and waits for its answer. Dropped meanwhile, the request is cancelled, and what it opened closed.
    pub(crate) async fn exchange(&self, chain: Chain, bytes: u64) -> Answer {
        let first = chain.operations.first();
        let tree = first.map_or(TreeId(0), |operation| operation.tree);
        let encrypt = chain.encrypt;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (answer, receiver) = oneshot::channel();
        let request = Request {
            id,
            chain,
            bytes,
            answer,
        };
        let _load = Load::new(&self.load, bytes + 1);
        if let Err(mpsc::error::SendError(request)) = self.requests.send(request).await {
            return Answer::Refused(Misuse::Ended, request.chain.operations);
        }
        let mut awaited = Awaited {
            receiver,
            side: &self.side,
            id,
            tree,
            encrypt,
        };
        // The driver answers everything that it took or that was in its queue when it ended.
        (&mut awaited.receiver)
            .await
            .expect("a driver answers every request unless it panicked")
    }

    /// Sends what nobody waits for.
    pub(crate) fn aside(&self, side: Side) {
        // An ended driver needs none of it.
        let _ = self.side.send(side);
    }

    /// Waits until the driver is gone.
    pub(crate) async fn gone(&self) {
        self.requests.closed().await;
    }

    /// What it has to do, and how fast it is.
    pub(crate) fn work(&self) -> Work {
        Work {
            bytes: self.load.load(Ordering::Relaxed),
            rate: self.shared.rate.load(Ordering::Relaxed),
        }
    }

    /// Why it ended, if it did.
    pub(crate) fn ended(&self) -> Option<LostReason> {
        self.shared.ended.get().cloned()
    }

    pub(crate) fn window(&self) -> u64 {
        self.shared.window.load(Ordering::Relaxed)
    }

    pub(crate) fn delivered(&self) -> u64 {
        self.shared.delivered.load(Ordering::Relaxed)
    }

    pub(crate) fn is_steady(&self) -> bool {
        self.shared.steady.load(Ordering::Relaxed)
    }

    pub(crate) fn round_trip(&self) -> Option<Duration> {
        let us = self.shared.round_trip_us.load(Ordering::Relaxed);
        (us != u64::MAX).then(|| Duration::from_micros(us))
    }
}

/// An answer that is awaited, and what to do when nobody waits any more.
struct Awaited<'a> {
    receiver: oneshot::Receiver<Answer>,
    side: &'a mpsc::UnboundedSender<Side>,
    id: u64,
    tree: TreeId,
    encrypt: bool,
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        if self.receiver.is_terminated() {
            return;
        }
        // After this the driver either finds nobody to answer, or its answer is here.
        self.receiver.close();
        match self.receiver.try_recv() {
            Ok(Answer::Replied(replies)) => {
                if let Some(file_id) = left_open(&replies) {
                    let _ = self.side.send(Side::Close {
                        tree: self.tree,
                        file_id,
                        encrypt: self.encrypt,
                        until: None,
                    });
                }
            }
            Ok(_) => {}
            Err(_) => {
                let _ = self.side.send(Side::Cancel(self.id));
            }
        }
    }
}

struct Load<'a>(&'a AtomicU64, u64);

impl<'a> Load<'a> {
    fn new(load: &'a AtomicU64, amount: u64) -> Self {
        load.fetch_add(amount, Ordering::Relaxed);
        Self(load, amount)
    }
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}
