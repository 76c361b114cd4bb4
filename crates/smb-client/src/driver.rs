//! The task that owns one connection and its socket.
//!
//! ```text
//!  requests (bounded) ─┐                         ┌─ readv: READ data straight into its block
//!  control messages ───┼─> Connection (sans-I/O) ┤
//!  deadline ───────────┘        │   ▲            └─ writev: heads and blocks as they are
//!                               ▼   │
//!                     workers: large frames of slow algorithms
//! ```
//! Every request that reaches the task gets exactly one [`Answer`], also when the connection ends.
//! If the future of a request is dropped, the driver cancels the request, keeps its blocks until
//! the server has answered, and closes what the request opened.

mod control;
mod overdue;
mod receive;
mod shutdown;
mod workers;

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ropeway_smb_proto::auth::spnego::SpnegoClient;
use ropeway_smb_proto::client::{Connection, EndReason, Event, LoginError, Misuse, Part, Reply, Ticket};
use ropeway_smb_wire::create::{CreateResponse, OplockLevel};
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::negotiate::Capabilities;
use ropeway_smb_wire::{FileId, TreeId};
use ropeway_tcp::LowWater;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};

use self::workers::Workers;
pub(crate) use self::workers::jobs;
use crate::channel::{Answer, ChannelStatus, CloseNotice, Control, Load, Queues, Request};
use crate::error::{Error, LostReason, Result, Unprotected};
use crate::line::LineWatch;
use crate::login::{Authenticator, Renewal};
use crate::reach::{Sending, Wanted};
use crate::replies::left_open;
use crate::window::{Stamp, WindowGovernor};
use crate::wire_log;

/// Slices in one writev. A guess: 32 small messages and 32 blocks; the kernel takes 1024.
const SLICES: usize = 64;
/// Bytes staged for the socket ahead of its acceptance. A guess: what a socket buffer takes at
/// once.
const STAGED_MAX: usize = 4 << 20;
/// The same on a long line: what is staged cannot be given to another connection any more.
const STAGED_FAR_MAX: usize = 1 << 20;
/// Reads in a row before requests get their turn. A guess.
const READS_MAX: usize = 32;
/// Requests taken from the queue in one turn.
const BATCH: usize = 64;
/// Compounds in flight: half of what the connection allows, so that CLOSE and acknowledgments
/// always fit.
const COMPOUNDS_MAX: usize = ropeway_smb_proto::client::COMPOUNDS_MAX / 2;
/// The task that owns one connection.
pub(crate) struct Driver {
    stream: TcpStream,
    low_water: LowWater,
    connection: Connection,
    workers: Workers,
    started: Instant,
    authenticator: Arc<Authenticator>,
    renewal: Renewal,
    status: Arc<ChannelStatus>,
    line: LineWatch,
    requests: mpsc::Receiver<Request>,
    control: mpsc::UnboundedReceiver<Control>,
    ready: Option<oneshot::Sender<Result<Ready>>>,
    governor: WindowGovernor,
    window: u64,
    /// Whether the session has admitted this connection.
    is_admitted: bool,
    pending: HashMap<Ticket, Pending>,
    tickets: HashMap<u64, Ticket>,
    staged: VecDeque<Part>,
    staged_bytes: usize,
    /// Bytes of the first staged part that have been written already.
    skip: usize,
    first_sent: Option<Duration>,
    shutdown_until: Option<Duration>,
    /// Whether this channel has left the session, and whether it was the last.
    has_left_session: bool,
    is_last: bool,
    /// Whether shutting down waits for the reply to LOGOFF.
    waits: bool,
    ended: Option<LostReason>,
    /// Held while the server owes a reply.
    wanted: Option<Wanted>,
    /// [`ClientOptions::timeout`](crate::ClientOptions::timeout).
    timeout: Duration,
    /// Time of the next check for overdue requests.
    next_check_at: Duration,
}

/// The result of a login on a new connection.
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
    #[expect(dead_code, reason = "it is dropped with the request")]
    sending: Option<Sending>,
    #[expect(dead_code, reason = "it is dropped with the request")]
    load: Option<Load>,
    sent_at: Duration,
    stamp: Option<Stamp>,
    is_timed: bool,
    /// CHANGE_NOTIFY.
    is_notify: bool,
    /// READ: nothing is lost if nobody waits for its reply.
    is_read: bool,
    /// When the request becomes overdue, and whether it has.
    due: Option<Duration>,
    is_overdue: bool,
    notice: Option<CloseNotice>,
}

impl Driver {
    pub(crate) fn new(
        stream: TcpStream,
        connection: Connection,
        authenticator: Arc<Authenticator>,
        status: Arc<ChannelStatus>,
        queues: Queues,
        (ready, timeout): (oneshot::Sender<Result<Ready>>, Duration),
    ) -> Self {
        let governor = WindowGovernor::new(status.window_max, status.gives_way);
        status.session.join();
        Self {
            stream,
            low_water: LowWater::default(),
            connection,
            workers: Workers::default(),
            started: Instant::now(),
            authenticator,
            renewal: Renewal::default(),
            status,
            line: LineWatch::default(),
            requests: queues.requests,
            control: queues.control,
            ready: Some(ready),
            governor,
            window: 0,
            is_admitted: false,
            pending: HashMap::new(),
            tickets: HashMap::new(),
            staged: VecDeque::with_capacity(SLICES),
            staged_bytes: 0,
            skip: 0,
            first_sent: None,
            shutdown_until: None,
            has_left_session: false,
            is_last: false,
            waits: true,
            ended: None,
            wanted: None,
            timeout,
            next_check_at: Duration::ZERO,
        }
    }

    /// Runs the connection until it ends.
    pub(crate) async fn run(mut self) {
        let mut batch = Vec::with_capacity(BATCH);
        let timer = tokio::time::sleep(Duration::ZERO);
        tokio::pin!(timer);
        loop {
            self.turn();
            if self.ended.is_some() || self.is_shut_down() {
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
            let takes =
                self.shutdown_until.is_none() && self.pending.len() < COMPOUNDS_MAX && self.ready.is_none();
            tokio::select! {
                ready = self.stream.ready(interest) => match ready {
                    Ok(ready) if ready.is_readable() || ready.is_read_closed() => self.read(),
                    Ok(_) => {}
                    Err(fault) => self.fail(&fault),
                },
                count = self.requests.recv_many(&mut batch, BATCH), if takes => {
                    if count == 0 {
                        self.begin_shutdown(shutdown::SHUTDOWN_MAX);
                    }
                    // Control messages go first: a file dropped before these requests is closed
                    // before they run.
                    while let Ok(control) = self.control.try_recv() {
                        self.handle_control(Some(control));
                    }
                    for request in batch.drain(..) {
                        self.submit(request);
                    }
                }
                control = self.control.recv(), if self.shutdown_until.is_none() => self.handle_control(control),
                Some(finished) = self.workers.done(), if self.workers.are_busy() => self.finish_job(finished),
                mechanisms = self.renewal.made() => self.renew(mechanisms),
                () = timer.as_mut(), if deadline.is_some() => {
                    let now = self.now();
                    self.connection.handle_deadline(now);
                    self.check_overdue();
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
        [self.connection.deadline(), self.shutdown_until, self.next_check()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Handles the connection's events and sends its output.
    fn turn(&mut self) {
        let (now, totals) = (self.now(), &self.status.session.line);
        if self.line.look(now, &self.stream, &mut self.connection, totals) {
            self.governor.set_losses(totals.chance_losses());
        }
        self.events();
        self.transmit();
        while self.start_jobs() {
            self.events();
            self.transmit();
        }
        // Sending can end the connection.
        self.events();
        if self.connection.owes_reply() != self.wanted.is_some() {
            self.wanted = match self.wanted {
                None => Some(self.status.session.reach.want()),
                Some(_) => None,
            };
        }
        // The connection's last events come with its last job.
        if let Some(reason) = self.connection.ended()
            && self.ended.is_none()
        {
            self.ended = Some(lost_reason(&reason, None));
        }
    }

    fn events(&mut self) {
        if self.connection.ended().is_some() {
            // Parts hold references to blocks. A block that was sealed in place can be opened again
            // only by its sole owner.
            self.staged.clear();
        }
        let mut dropped = Vec::new();
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::Negotiated => {
                    wire_log::passed(self.now(), "negotiated");
                    if let Some(sent) = self.first_sent {
                        let took = self.now() - sent;
                        self.governor.answered(took);
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
                        self.governor.lost(pending.bytes);
                        let answer = match pending.is_overdue {
                            true => Answer::Overdue(operations),
                            false => Answer::Dropped {
                                operations,
                                sent,
                                reason,
                            },
                        };
                        dropped.extend(pending.answer.map(|sender| (sender, answer)));
                    }
                }
                Event::Broke(notification) => self.acknowledge(&notification),
                Event::Ended(reason) => self.ended = Some(lost_reason(&reason, self.ended.take())),
            }
        }
        if let Some(reason @ LostReason::Misbehaved(_)) = &self.ended {
            // Before anybody hears that a request was dropped, and asks why.
            self.status.misbehaved(reason);
        }
        for (sender, answer) in dropped {
            let _ = sender.send(answer);
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
            self.governor.divide(u32::from(self.status.starting_channels));
        }
        let session = self.connection.session();
        wire_log::passed(self.now(), "logged in");
        self.status.session.reach.heard();
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

    fn submit(&mut self, request: Request) {
        let Request {
            id,
            compound,
            bytes,
            answer,
            load,
        } = request;
        if answer.is_closed() {
            return;
        }
        let first = compound.operations.first();
        let tree = first.map_or(TreeId(0), |operation| operation.tree);
        let encrypt = compound.encrypt;
        let is_notify = first.is_some_and(|operation| operation.command == Command::ChangeNotify);
        let is_read = first.is_some_and(|operation| operation.command == Command::Read);
        let is_timed = bytes == 0 && !is_notify;
        let commands = wire_log::commands(&compound);
        let allowance = overdue::allowance(&compound, self.timeout);
        let has_payload = || {
            compound
                .operations
                .iter()
                .any(|operation| operation.payload.is_some())
        };
        let is_write = bytes > 0 && has_payload();
        let is_flushed = (compound.operations.iter()).any(|operation| operation.command == Command::Flush);
        let sending = is_write.then(|| self.status.session.reach.send(bytes, self.governor.rate()));
        match self.connection.submit(compound) {
            Ok(ticket) => {
                let now = self.now();
                wire_log::asked(now, ticket, commands, bytes);
                let stamp = match (bytes, is_flushed) {
                    (0, _) => None,
                    (_, true) => Some(self.governor.sent_with_flush(now, bytes)),
                    (_, false) => Some(self.governor.sent(now, bytes)),
                };
                self.tickets.insert(id, ticket);
                self.pending.insert(
                    ticket,
                    Pending {
                        id,
                        answer: Some(answer),
                        tree,
                        encrypt,
                        bytes,
                        sending,
                        load: Some(load),
                        sent_at: now,
                        stamp,
                        is_timed,
                        is_notify,
                        is_read,
                        due: allowance.map(|allowance| now + allowance),
                        is_overdue: false,
                        notice: None,
                    },
                );
            }
            Err((fault, compound)) => {
                let _ = answer.send(Answer::Refused(fault, compound.operations));
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
                self.governor.delivered(now, stamp, pending.bytes);
                self.publish_window();
            }
            None if pending.is_timed => self.governor.answered(now - pending.sent_at),
            None => {}
        }
        // A file that the same compound closed has no oplock.
        if let Some(file_id) = left_open(&replies) {
            for reply in &replies {
                self.record_oplock(reply, file_id, pending.tree, pending.encrypt);
            }
        }
        if let Some(CloseNotice::Answer(answered)) = pending.notice {
            // The receiver is gone when the runtime shuts down.
            let _ = answered.send(());
        }
        let undelivered = match pending.answer {
            Some(sender) => sender.send(Answer::Replied(replies)).err(),
            None => Some(Answer::Replied(replies)),
        };
        if let Some(Answer::Replied(replies)) = undelivered
            && let Some(file_id) = left_open(&replies)
        {
            self.close(pending.tree, file_id, pending.encrypt, None);
        }
    }

    /// Records an oplock before the reply is delivered, since its break may be the next message.
    fn record_oplock(&self, reply: &Reply, open: FileId, tree: TreeId, encrypt: bool) {
        if reply.header.command == Command::Create
            && reply.status().is_success()
            && let Ok(created) = CreateResponse::decode(&mut reply.body())
            && created.file_id == open
            && !matches!(created.oplock_level, OplockLevel::None | OplockLevel::Lease)
        {
            let oplocks = &self.status.session.oplocks;
            oplocks.insert(created.file_id, (tree, encrypt));
        }
    }

    fn publish_window(&mut self) {
        let window = match self.is_admitted {
            true => self.governor.window(),
            false => 0,
        };
        self.status.publish((self.window, window), &self.governor);
        self.window = window;
    }

    fn fail(&mut self, fault: &io::Error) {
        self.close_with(match fault.kind() {
            ErrorKind::TimedOut => LostReason::TimedOut,
            kind => LostReason::Network(kind),
        });
    }

    fn close_with(&mut self, reason: LostReason) {
        // The first reason counts: after LOGOFF servers close the connection.
        self.ended.get_or_insert(reason);
        self.connection.closed();
    }

    fn transmit(&mut self) {
        let is_far = self.governor.is_far();
        let staged_max = if is_far { STAGED_FAR_MAX } else { STAGED_MAX };
        loop {
            while self.staged_bytes < staged_max {
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
                Ok(written) => self.advance_staged(written),
                Err(fault) if fault.kind() == ErrorKind::WouldBlock => return,
                Err(fault) if fault.kind() == ErrorKind::Interrupted => {}
                Err(fault) => return self.fail(&fault),
            }
        }
    }

    /// Removes `written` bytes, which the socket has taken, from the staged parts.
    fn advance_staged(&mut self, written: usize) {
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

    /// Ends the driver: publishes the reason, waits for running jobs, and answers every request.
    async fn finish(mut self) {
        let reason = self.ended.clone().unwrap_or(LostReason::ClientClosed);
        tracing::debug!(%reason, "the connection ended");
        self.line
            .look_now(&self.stream, &self.connection, &self.status.session.line);
        if !self.has_left_session {
            self.status.session.leave();
        }
        self.status.end(self.window, reason.clone());
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
        // Waits for senders that hold a queue slot and are about to use it.
        while let Some(request) = self.requests.recv().await {
            let _ = request
                .answer
                .send(Answer::Refused(Misuse::Ended, request.compound.operations));
        }
    }
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
