//! The handle on a connection's driver: its queues and its published status.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ropeway_smb_proto::auth::spnego::SpnegoClient;
use ropeway_smb_proto::client::{Compound, DropReason, Misuse, Operation, Reply, SessionSecret};
use ropeway_smb_wire::oplock_break::BreakAcknowledgment;
use ropeway_smb_wire::{FileId, TreeId};
use tokio::sync::{mpsc, oneshot};

use crate::budget::Budget;
use crate::caching::{AckTarget, Leases, Oplocks};
use crate::channel_policy::Backlog;
use crate::error::LostReason;
use crate::line::LineTotals;
use crate::reach::Reach;
use crate::replies::left_open;
use crate::window::WindowGovernor;

/// Capacity of the request queue; when it is full, callers wait. A guess: what the driver takes in
/// four turns.
const QUEUE: usize = 256;

/// A compound on its way to the driver.
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) compound: Compound,
    /// Payload bytes, for the window governor; 0 for a request without payload.
    pub(crate) bytes: u64,
    pub(crate) answer: oneshot::Sender<Answer>,
    /// Counts the request as outstanding, also when nobody waits for it any more.
    pub(crate) load: Load,
}

/// The outcome of a request.
pub(crate) enum Answer {
    Replied(Vec<Reply>),
    Dropped {
        operations: Vec<Operation>,
        sent: bool,
        reason: DropReason,
    },
    Refused(Misuse, Vec<Operation>),
    /// The server did not answer in time, even if it kept sending other messages.
    Overdue(Vec<Operation>),
}

/// Held while a file is being closed. A writer of the lock waits for all closes in progress.
pub(crate) type CloseGuard = tokio::sync::OwnedRwLockReadGuard<()>;

/// What to do when the reply to a CLOSE arrives.
pub(crate) enum CloseNotice {
    /// Dropped with the reply, or with the connection.
    Guard(#[expect(dead_code, reason = "it is dropped with this")] CloseGuard),
    /// Signalled by the reply. If it is dropped without a signal, the connection was lost first.
    Answer(oneshot::Sender<()>),
}

/// Messages that overtake requests. The queue is unbounded by type and bounded by use: one message
/// for each live request or handle.
pub(crate) enum Control {
    Cancel(u64),
    Close {
        tree: TreeId,
        file_id: FileId,
        encrypt: bool,
        notice: Option<CloseNotice>,
    },
    /// Logs in a connection that has only negotiated, as a further channel of this session.
    Bind(Box<(SessionSecret, SpnegoClient)>),
    /// The session has admitted this connection, so its window counts from now on. Before that,
    /// requests go to the other connections.
    Admitted,
    /// Acknowledges the break of a lease, now that its holder has done what the break asks.
    Acknowledge {
        answer: BreakAcknowledgment,
        place: AckTarget,
    },
    /// Sends TREE_DISCONNECT: the share is no longer in use.
    TreeDisconnect {
        tree: TreeId,
        encrypt: bool,
    },
    /// Gives back the requests with data that were not sent yet: another connection is there.
    GiveBack,
    /// Ends the connection as if the network had reported its loss: another one has reached the
    /// server.
    GiveUp,
    /// Takes no more requests and ends when those under way are answered: others are there to go on.
    Retire,
    /// Takes no more requests. The last channel logs off, and waits for the reply if `waits` is
    /// set.
    Shutdown {
        waits: bool,
    },
}

/// State that all channels of a session share.
#[derive(Debug, Default)]
pub(crate) struct SessionShared {
    pub(crate) oplocks: Oplocks,
    /// The leases of the client, across all its sessions.
    pub(crate) leases: Arc<Leases>,
    /// Whether the server can be reached, also across sessions.
    pub(crate) reach: Arc<Reach>,
    /// What TCP reports, also across sessions.
    pub(crate) line: Arc<LineTotals>,
    channels: AtomicUsize,
}

impl SessionShared {
    pub(crate) fn new(leases: Arc<Leases>, reach: Arc<Reach>, line: Arc<LineTotals>) -> Self {
        Self {
            leases,
            reach,
            line,
            ..Self::default()
        }
    }

    /// Registers a channel.
    pub(crate) fn join(&self) {
        self.channels.fetch_add(1, Ordering::AcqRel);
    }

    /// Removes a channel that has nothing more to do. Returns whether it was the last. The leases
    /// are suspended with it.
    pub(crate) fn leave(&self) -> bool {
        let is_last = self.channels.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last {
            self.leases.suspend();
        }
        is_last
    }
}

/// The status that a driver publishes.
#[derive(Debug)]
pub(crate) struct ChannelStatus {
    budget: Arc<Budget>,
    pub(crate) window_max: u64,
    pub(crate) gives_way: bool,
    /// Number of connections that start together, including this one.
    pub(crate) starting_channels: u16,
    pub(crate) session: Arc<SessionShared>,
    window: AtomicU64,
    delivered: AtomicU64,
    /// Rate in bytes a second, 0 until known.
    rate: AtomicU64,
    round_trip_us: AtomicU64,
    steady: AtomicBool,
    ended: OnceLock<LostReason>,
}

impl ChannelStatus {
    pub(crate) fn new(
        budget: Arc<Budget>,
        (window_max, gives_way): (u64, bool),
        starting_channels: u16,
        session: Arc<SessionShared>,
    ) -> Self {
        Self {
            budget,
            window_max,
            gives_way,
            starting_channels,
            session,
            window: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            round_trip_us: AtomicU64::new(u64::MAX),
            steady: AtomicBool::new(false),
            ended: OnceLock::new(),
        }
    }

    /// Publishes the governor's state. The connection's window was `old` bytes and is now `window`.
    pub(crate) fn publish(&self, (old, window): (u64, u64), governor: &WindowGovernor) {
        if window != old {
            self.budget.update(old, window);
            self.window.store(window, Ordering::Relaxed);
        }
        self.delivered.store(governor.total(), Ordering::Relaxed);
        self.rate.store(governor.pace(), Ordering::Relaxed);
        self.steady.store(governor.is_steady(), Ordering::Relaxed);
        if let Some(round_trip) = governor.round_trip() {
            let us = u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX);
            self.round_trip_us.store(us, Ordering::Relaxed);
        }
    }

    /// Publishes why the connection ends, before its requests are answered.
    pub(crate) fn misbehaved(&self, reason: &LostReason) {
        let _ = self.ended.set(reason.clone());
    }

    /// Publishes the end of the driver, whose window was `old` bytes.
    pub(crate) fn end(&self, old: u64, reason: LostReason) {
        self.budget.update(old, 0);
        self.window.store(0, Ordering::Relaxed);
        let _ = self.ended.set(reason);
    }
}

/// The receiving ends of a driver's queues.
pub(crate) struct Queues {
    pub(crate) requests: mpsc::Receiver<Request>,
    pub(crate) control: mpsc::UnboundedReceiver<Control>,
}

/// The handle on a connection's driver. Dropping the last handle ends the driver.
#[derive(Debug)]
pub(crate) struct Channel {
    /// Unique in the process, for records of operations.
    number: u64,
    requests: mpsc::Sender<Request>,
    control: mpsc::UnboundedSender<Control>,
    next_id: AtomicU64,
    /// Outstanding bytes, plus one for each request; the channel for the next request is chosen by
    /// it.
    load: Arc<AtomicU64>,
    status: Arc<ChannelStatus>,
}

impl Channel {
    /// Creates a channel, and the queue ends that its driver reads.
    pub(crate) fn new(status: Arc<ChannelStatus>) -> (Self, Queues) {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let (requests, requests_out) = mpsc::channel(QUEUE);
        let (control, control_out) = mpsc::unbounded_channel();
        let channel = Self {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            requests,
            control,
            next_id: AtomicU64::new(1),
            load: Arc::default(),
            status,
        };
        let queues = Queues {
            requests: requests_out,
            control: control_out,
        };
        (channel, queues)
    }

    /// Returns the number of this connection.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Sends a compound and waits for its outcome. If the future is dropped, the driver cancels the
    /// request and closes what it opened.
    pub(crate) async fn exchange(&self, compound: Compound, bytes: u64) -> Answer {
        let first = compound.operations.first();
        let tree = first.map_or(TreeId(0), |operation| operation.tree);
        let encrypt = compound.encrypt;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (answer, receiver) = oneshot::channel();
        let request = Request {
            id,
            compound,
            bytes,
            answer,
            load: Load::new(&self.load, bytes + 1),
        };
        if let Err(mpsc::error::SendError(request)) = self.requests.send(request).await {
            return Answer::Refused(Misuse::Ended, request.compound.operations);
        }
        let mut awaited = CancelGuard {
            receiver,
            control: &self.control,
            id,
            tree,
            encrypt,
        };
        // The driver answers every request that it took, or that was in its queue when it ended.
        (&mut awaited.receiver)
            .await
            .expect("a driver answers every request unless it panicked")
    }

    /// Sends a control message, and does not wait.
    pub(crate) fn send_control(&self, control: Control) {
        // A driver that has ended needs no control messages.
        let _ = self.control.send(control);
    }

    /// Waits until the driver has ended.
    pub(crate) async fn closed(&self) {
        self.requests.closed().await;
    }

    /// Returns the outstanding work and the rate of the connection.
    pub(crate) fn backlog(&self) -> Backlog {
        Backlog {
            bytes: self.load.load(Ordering::Relaxed),
            rate: self.status.rate.load(Ordering::Relaxed),
        }
    }

    /// Returns why the driver ended, if it has.
    pub(crate) fn ended(&self) -> Option<LostReason> {
        self.status.ended.get().cloned()
    }

    pub(crate) fn window(&self) -> u64 {
        self.status.window.load(Ordering::Relaxed)
    }

    pub(crate) fn delivered(&self) -> u64 {
        self.status.delivered.load(Ordering::Relaxed)
    }

    pub(crate) fn is_steady(&self) -> bool {
        self.status.steady.load(Ordering::Relaxed)
    }

    pub(crate) fn round_trip(&self) -> Option<Duration> {
        let us = self.status.round_trip_us.load(Ordering::Relaxed);
        (us != u64::MAX).then(|| Duration::from_micros(us))
    }
}

/// Cancels a request when its future is dropped before the reply.
struct CancelGuard<'a> {
    receiver: oneshot::Receiver<Answer>,
    control: &'a mpsc::UnboundedSender<Control>,
    id: u64,
    tree: TreeId,
    encrypt: bool,
}

impl Drop for CancelGuard<'_> {
    fn drop(&mut self) {
        if self.receiver.is_terminated() {
            return;
        }
        // From here on the driver cannot deliver a reply; one delivered before is in the channel.
        self.receiver.close();
        match self.receiver.try_recv() {
            Ok(Answer::Replied(replies)) => {
                if let Some(file_id) = left_open(&replies) {
                    let _ = self.control.send(Control::Close {
                        tree: self.tree,
                        file_id,
                        encrypt: self.encrypt,
                        notice: None,
                    });
                }
            }
            Ok(_) => {}
            Err(_) => {
                let _ = self.control.send(Control::Cancel(self.id));
            }
        }
    }
}

/// Counts an amount while it lives.
#[derive(Debug)]
pub(crate) struct Load(Arc<AtomicU64>, u64);

impl Load {
    pub(crate) fn new(load: &Arc<AtomicU64>, amount: u64) -> Self {
        load.fetch_add(amount, Ordering::Relaxed);
        Self(Arc::clone(load), amount)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}
