//! The task that owns one connection and its socket.
//!
//! ```text
//!  requests (bounded) ─┐                         ┌─ readv: READ data straight into its block
//!  side: cancel, close ┼─> Connection (sans-I/O) ┤
//!  deadline ───────────┘        │   ▲            └─ writev: heads and blocks as they are
//!                               ▼   │
//!                     workers: big frames of slow algorithms
//! ```
//! Every request that reaches the task gets one [`Answer`], also when the connection ends. A request whose future was
//! dropped is cancelled; the connection keeps its blocks until the server has answered; what such a request opened is
//! closed.

mod aside;
mod overdue;
mod parting;
mod workers;

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ropeway_smb_proto::auth::spnego::SpnegoClient;
use ropeway_smb_proto::client::{Connection, EndReason, Event, LoginError, Misuse, Part, Reply, Ticket};
use ropeway_smb_wire::create::{CreateResponse, OplockLevel};
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::negotiate::Capabilities;
use ropeway_smb_wire::{FileId, TreeId};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};

use self::workers::Workers;
use crate::channel::{Answer, Awaiting, Request, Shared, Side};
use crate::depth::{Depth, Stamp};
use crate::login::{Authenticator, Renewal};
use crate::{Error, LostReason, Result, Unprotected, wire_log};

pub(crate) use self::workers::jobs;

/// Slices of one writev. A guess: 32 small messages and 32 blocks; the kernel takes 1024.
const SLICES: usize = 64;
/// Bytes taken from the connection before the socket has taken them. A guess: what a socket buffer swallows at once.
const STAGED_MAX: usize = 4 << 20;
/// Reads before others get their turn. A guess.
const READS_MAX: usize = 32;
/// Requests taken from the queue at once.
const BATCH: usize = 64;
/// Chains under way, half of what the connection allows, so that CLOSE and acknowledgments always fit.
const CHAINS_MAX: usize = ropeway_smb_proto::client::CHAINS_MAX / 2;
/// What a driver starts with.
pub(crate) struct Driver {
    stream: TcpStream,
    connection: Connection,
    workers: Workers,
    started: Instant,
    authenticator: Arc<Authenticator>,
    renewal: Renewal,
    shared: Arc<Shared>,
    requests: mpsc::Receiver<Request>,
    side: mpsc::UnboundedReceiver<Side>,
    ready: Option<oneshot::Sender<Result<Ready>>>,
    depth: Depth,
    window: u64,
    /// Whether the session has this connection.
    counts: bool,
    pending: HashMap<Ticket, Pending>,
    tickets: HashMap<u64, Ticket>,
    staged: VecDeque<Part>,
    staged_bytes: usize,
    /// Bytes of the first staged part that are gone already.
    skip: usize,
    first_sent: Option<Duration>,
    parting: Option<Duration>,
    /// Whether the session knows that this channel goes, and whether it was the last.
    has_left: bool,
    is_last: bool,
    /// Whether the answer to LOGOFF is awaited.
    waits: bool,
    ended: Option<LostReason>,
    /// [`ClientOptions::timeout`](crate::ClientOptions::timeout).
    timeout: Duration,
    /// When to look for overdue requests.
    look_at: Duration,
}

/// What a new connection agreed on.
pub(crate) struct Ready {
    pub(crate) negotiated: ropeway_smb_proto::client::Negotiated,
    pub(crate) session: Option<ropeway_smb_proto::client::SessionSecret>,
    pub(crate) flags: ropeway_smb_wire::session_setup::SessionFlags,
}

struct Pending {
    id: u64,
    answer: Option<oneshot::Sender<Answer>>,
    tree: TreeId,
    encrypt: bool,
    bytes: u64,
    sent_at: Duration,
    stamp: Option<Stamp>,
    is_plain: bool,
    /// CHANGE_NOTIFY.
    is_endless: bool,
    /// When it is overdue, and whether it was found so.
    due: Option<Duration>,
    is_overdue: bool,
    until: Option<Awaiting>,
}

/// The ends of the queues that lead to a driver.
pub(crate) struct Queues {
    pub(crate) requests: mpsc::Receiver<Request>,
    pub(crate) side: mpsc::UnboundedReceiver<Side>,
}

impl Driver {
    pub(crate) fn new(
        stream: TcpStream,
        connection: Connection,
        authenticator: Arc<Authenticator>,
        shared: Arc<Shared>,
        queues: Queues,
        (ready, timeout): (oneshot::Sender<Result<Ready>>, Duration),
    ) -> Self {
        let depth = Depth::new(shared.window_max());
        shared.common.join();
        Self {
            stream,
            connection,
            workers: Workers::default(),
            started: Instant::now(),
            authenticator,
            renewal: Renewal::default(),
            shared,
            requests: queues.requests,
            side: queues.side,
            ready: Some(ready),
            depth,
            window: 0,
            counts: false,
            pending: HashMap::new(),
            tickets: HashMap::new(),
            staged: VecDeque::with_capacity(SLICES),
            staged_bytes: 0,
            skip: 0,
            first_sent: None,
            parting: None,
            has_left: false,
            is_last: false,
            waits: true,
            ended: None,
            timeout,
            look_at: Duration::ZERO,
        }
    }

    /// Runs until the connection ends.
    pub(crate) async fn run(mut self) {
        let mut batch = Vec::with_capacity(BATCH);
        let timer = tokio::time::sleep(Duration::ZERO);
        tokio::pin!(timer);
        loop {
            self.turn();
            if self.ended.is_some() || self.is_parted() {
                break;
            }
            let deadline = self.deadline();
            if let Some(at) = deadline {
                let at = tokio::time::Instant::from_std(self.started + at);
                if timer.deadline() != at {
                    timer.as_mut().reset(at);
                }
            }
            let interest = match self.staged.is_empty() {
                true => Interest::READABLE,
                false => Interest::READABLE | Interest::WRITABLE,
            };
            let takes = self.parting.is_none() && self.pending.len() < CHAINS_MAX && self.ready.is_none();
            tokio::select! {
                ready = self.stream.ready(interest) => match ready {
                    Ok(ready) if ready.is_readable() || ready.is_read_closed() => self.read(),
                    Ok(_) => {}
                    Err(fault) => self.fail(&fault),
                },
                count = self.requests.recv_many(&mut batch, BATCH), if takes => {
                    if count == 0 {
                        self.part();
                    }
                    // A file that was let go before these were asked is closed before they are.
                    while let Ok(side) = self.side.try_recv() {
                        self.aside(Some(side));
                    }
                    for request in batch.drain(..) {
                        self.take(request);
                    }
                }
                side = self.side.recv(), if self.parting.is_none() => self.aside(side),
                Some(worked) = self.workers.done(), if self.workers.are_busy() => self.worked(worked),
                mechanisms = self.renewal.made() => self.renew(mechanisms),
                () = timer.as_mut(), if deadline.is_some() => {
                    let now = self.now();
                    self.connection.handle_deadline(now);
                    self.look_for_overdue();
                }
            }
            tokio::task::consume_budget().await;
        }
        self.finish().await;
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn deadline(&self) -> Option<Duration> {
        [self.connection.deadline(), self.parting, self.next_look()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Events, and what is to be sent.
    fn turn(&mut self) {
        self.events();
        self.transmit();
        while self.hand_out() {
            self.events();
            self.transmit();
        }
        // Sending may have ended the connection.
        self.events();
        // Its last events come with the last job.
        if let Some(reason) = self.connection.ended()
            && self.ended.is_none()
        {
            self.ended = Some(lost_reason(&reason, None));
        }
    }

    fn events(&mut self) {
        if self.connection.ended().is_some() {
            // Parts hold handles on blocks: one that was sealed in place is opened again only by its sole owner.
            self.staged.clear();
        }
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::Negotiated => {
                    wire_log::passed(self.now(), "negotiated");
                    if let Some(sent) = self.first_sent {
                        let took = self.now() - sent;
                        self.depth.answered(took);
                    }
                }
                Event::Authenticated { flags } => self.authenticated(flags),
                Event::LoginFailed(fault) => self.login_failed(fault),
                Event::SessionExpired => {
                    tracing::debug!("the session expired; logging in again");
                    self.renewal.begin(&self.authenticator);
                }
                Event::Replied { ticket, replies } => self.replied(ticket, replies),
                Event::Dropped {
                    ticket,
                    operations,
                    sent,
                    reason,
                } => {
                    if let Some(pending) = self.forget(ticket) {
                        self.depth.lost(pending.bytes);
                        let answer = match pending.is_overdue {
                            true => Answer::Overdue(operations),
                            false => Answer::Dropped {
                                operations,
                                sent,
                                reason,
                            },
                        };
                        if let Some(sender) = pending.answer {
                            let _ = sender.send(answer);
                        }
                    }
                }
                Event::Broke(notification) => self.acknowledge(&notification),
                Event::Ended(reason) => self.ended = Some(lost_reason(&reason, self.ended.take())),
            }
        }
    }

    fn renew(&mut self, mechanisms: Result<SpnegoClient>) {
        let begun = mechanisms.map(|mechanisms| self.connection.log_in(mechanisms));
        if !matches!(begun, Ok(Ok(()))) {
            self.ended = Some(LostReason::SessionEnded);
        }
    }

    fn authenticated(&mut self, flags: ropeway_smb_wire::session_setup::SessionFlags) {
        let Some(ready) = self.ready.take() else { return };
        let Some(negotiated) = self.connection.negotiated().cloned() else {
            return;
        };
        if negotiated.capabilities.contains(Capabilities::MULTI_CHANNEL) {
            self.depth.share(u32::from(self.shared.together));
        }
        let session = self.connection.session();
        wire_log::passed(self.now(), "logged in");
        self.publish_window();
        let _ = ready.send(Ok(Ready {
            negotiated,
            session,
            flags,
        }));
    }

    fn login_failed(&mut self, fault: LoginError) {
        let error = match fault {
            LoginError::Refused(status) => self.authenticator.refused(status),
            LoginError::Auth(fault) => Error::Login(fault),
            LoginError::Unprotected => Error::Unprotected(Unprotected::Guest),
            LoginError::NoEncryption => Error::Unprotected(Unprotected::NoEncryption),
            _ => Error::PeerMisbehaved(fault.to_string()),
        };
        if let Some(ready) = self.ready.take() {
            let _ = ready.send(Err(error));
        }
        self.ended = Some(LostReason::SessionEnded);
    }

    fn take(&mut self, request: Request) {
        let Request {
            id,
            chain,
            bytes,
            answer,
        } = request;
        if answer.is_closed() {
            return;
        }
        let first = chain.operations.first();
        let tree = first.map_or(TreeId(0), |operation| operation.tree);
        let encrypt = chain.encrypt;
        let is_endless = first.is_some_and(|operation| operation.command == Command::ChangeNotify);
        let is_plain = bytes == 0 && !is_endless;
        let commands = wire_log::commands(&chain);
        let allowance = overdue::allowance(&chain, self.timeout);
        match self.connection.submit(chain) {
            Ok(ticket) => {
                let now = self.now();
                wire_log::asked(now, ticket, commands, bytes);
                let stamp = (bytes > 0).then(|| self.depth.sent(now, bytes));
                self.tickets.insert(id, ticket);
                self.pending.insert(
                    ticket,
                    Pending {
                        id,
                        answer: Some(answer),
                        tree,
                        encrypt,
                        bytes,
                        sent_at: now,
                        stamp,
                        is_plain,
                        is_endless,
                        due: allowance.map(|allowance| now + allowance),
                        is_overdue: false,
                        until: None,
                    },
                );
            }
            Err((fault, chain)) => {
                let _ = answer.send(Answer::Refused(fault, chain.operations));
            }
        }
    }

    fn forget(&mut self, ticket: Ticket) -> Option<Pending> {
        let pending = self.pending.remove(&ticket)?;
        self.tickets.remove(&pending.id);
        Some(pending)
    }

    fn replied(&mut self, ticket: Ticket, replies: Vec<Reply>) {
        let Some(pending) = self.forget(ticket) else {
            return;
        };
        let now = self.now();
        wire_log::answered(now, pending.sent_at, ticket, &replies);
        match pending.stamp {
            Some(stamp) => {
                self.depth.delivered(now, stamp, pending.bytes);
                self.publish_window();
            }
            None if pending.is_plain => self.depth.answered(now - pending.sent_at),
            None => {}
        }
        // What the same chain closed again has no oplock.
        if let Some(file_id) = left_open(&replies) {
            for reply in &replies {
                self.keep_oplock(reply, file_id, pending.tree, pending.encrypt);
            }
        }
        if let Some(Awaiting::Answer(answered)) = pending.until {
            // Nobody waits any more when the runtime ends.
            let _ = answered.send(());
        }
        let unheard = match pending.answer {
            Some(sender) => sender.send(Answer::Replied(replies)).err(),
            None => Some(Answer::Replied(replies)),
        };
        if let Some(Answer::Replied(replies)) = unheard
            && let Some(file_id) = left_open(&replies)
        {
            self.close(pending.tree, file_id, pending.encrypt, None);
        }
    }

    /// Notes an oplock before anybody hears of its file: its break may be the next message.
    fn keep_oplock(&self, reply: &Reply, open: FileId, tree: TreeId, encrypt: bool) {
        if reply.header.command == Command::Create
            && reply.status().is_success()
            && let Ok(created) = CreateResponse::decode(&mut reply.body())
            && created.file_id == open
            && !matches!(created.oplock_level, OplockLevel::None | OplockLevel::Lease)
        {
            let oplocks = &self.shared.common.oplocks;
            oplocks.insert(created.file_id, (tree, encrypt));
        }
    }

    fn publish_window(&mut self) {
        let window = match self.counts {
            true => self.depth.window(),
            false => 0,
        };
        self.shared.publish((self.window, window), &self.depth);
        self.window = window;
    }

    fn read(&mut self) {
        for _ in 0..READS_MAX {
            let target = self.connection.receive();
            let mut slices = [IoSliceMut::new(target.first), IoSliceMut::new(target.second)];
            let filled = match slices[0].is_empty() {
                true => &mut slices[1..],
                false => &mut slices[..],
            };
            match self.stream.try_read_vectored(filled) {
                Ok(0) => return self.close_with(LostReason::Closed),
                Ok(count) => {
                    let now = self.now();
                    if let Err(fault) = self.connection.received(now, count) {
                        tracing::warn!(%fault, "the server broke the protocol");
                        self.ended = Some(LostReason::Misbehaved(fault));
                        return;
                    }
                    // Answers free blocks and depth: let them go before reading on.
                    while self.hand_out() {}
                    self.events();
                }
                Err(fault) if fault.kind() == ErrorKind::WouldBlock => return,
                Err(fault) if fault.kind() == ErrorKind::Interrupted => {}
                Err(fault) => return self.fail(&fault),
            }
        }
    }

    fn fail(&mut self, fault: &io::Error) {
        self.close_with(match fault.kind() {
            ErrorKind::TimedOut => LostReason::TimedOut,
            kind => LostReason::Network(kind),
        });
    }

    fn close_with(&mut self, reason: LostReason) {
        // What ended it first is why: after LOGOFF servers close.
        self.ended.get_or_insert(reason);
        self.connection.closed();
    }

    fn transmit(&mut self) {
        loop {
            while self.staged_bytes < STAGED_MAX {
                let Some(transmit) = self.connection.poll_transmit() else {
                    break;
                };
                self.first_sent.get_or_insert_with(|| self.started.elapsed());
                for part in transmit.parts {
                    self.staged_bytes += part.as_slice().len();
                    self.staged.push_back(part);
                }
            }
            if self.staged.is_empty() {
                return;
            }
            let mut slices = [IoSlice::new(&[]); SLICES];
            let mut count = 0;
            for (slice, part) in slices.iter_mut().zip(&self.staged) {
                let bytes = part.as_slice();
                *slice = IoSlice::new(if count == 0 { &bytes[self.skip..] } else { bytes });
                count += 1;
            }
            match self.stream.try_write_vectored(&slices[..count]) {
                Ok(written) => self.gone(written),
                Err(fault) if fault.kind() == ErrorKind::WouldBlock => return,
                Err(fault) if fault.kind() == ErrorKind::Interrupted => {}
                Err(fault) => return self.fail(&fault),
            }
        }
    }

    /// The socket has taken `written` bytes.
    fn gone(&mut self, written: usize) {
        let mut left = written + self.skip;
        while let Some(part) = self.staged.front() {
            let len = part.as_slice().len();
            if left < len {
                break;
            }
            left -= len;
            self.staged_bytes -= len;
            self.staged.pop_front();
        }
        self.skip = left;
    }

    /// Gives everything back.
    async fn finish(mut self) {
        let reason = self.ended.clone().unwrap_or(LostReason::ClientClosed);
        tracing::debug!(%reason, "the connection ended");
        if !self.has_left {
            self.shared.common.leave();
        }
        self.shared.end(self.window, reason.clone());
        self.close_with(reason.clone());
        self.settle_jobs().await;
        self.events();
        if let Some(ready) = self.ready.take() {
            let _ = ready.send(Err(match reason {
                LostReason::Misbehaved(fault) => Error::misbehaved(fault),
                reason => Error::Lost(reason),
            }));
        }
        self.requests.close();
        // Waits for those who have a place in the queue and are about to use it.
        while let Some(request) = self.requests.recv().await {
            let _ = request
                .answer
                .send(Answer::Refused(Misuse::Ended, request.chain.operations));
        }
    }
}

/// The file that a chain opened and did not close.
pub(crate) fn left_open(replies: &[Reply]) -> Option<FileId> {
    let is_success = |reply: &&Reply| reply.status().is_success();
    let mut file_id = None;
    for reply in replies.iter().filter(is_success) {
        match reply.header.command {
            Command::Create => {
                file_id = CreateResponse::decode(&mut reply.body())
                    .ok()
                    .map(|created| created.file_id);
            }
            Command::Close => file_id = None,
            _ => {}
        }
    }
    file_id
}

fn lost_reason(reason: &EndReason, known: Option<LostReason>) -> LostReason {
    match reason {
        EndReason::Closed => known.unwrap_or(LostReason::Closed),
        EndReason::Misbehaved(fault) => LostReason::Misbehaved(*fault),
        EndReason::Silent => LostReason::TimedOut,
        EndReason::SessionDeleted | EndReason::KeysUsedUp => LostReason::SessionEnded,
        EndReason::LoggedOff => LostReason::ClientClosed,
        EndReason::AnsweredInPart => LostReason::AnsweredInPart,
    }
}
