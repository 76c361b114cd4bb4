//! The thread that serves one connection.
//!
//! It waits for its socket and its mailbox. It executes what does not block, passes requests that
//! may wait for a device to the [workers](crate::state::workers), and keeps requests that wait for
//! other clients until the hub reports them. Only this thread touches the protocol state of its
//! connection.

mod error;
mod execute;
#[cfg(feature = "fuzzing")]
mod fuzz_frames;
mod input;
mod output;
mod pending;

use std::collections::{HashMap, VecDeque};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ropeway_smb_proto::server::{
    Admitted, CompoundState, Connection, ConnectionId, ConnectionOutcome, PeerMisbehaved, ReplyFrame, Request,
};
use ropeway_smb_wire::header::{Command, CompoundMessages, Header};
use ropeway_smb_wire::oplock_break::BreakNotification;
use ropeway_smb_wire::{NtStatus, SessionId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::error::DriverError;
use self::execute::{Invocation, OffloadedWrite};
use self::input::{Frame, Input, LargeFrame, Received};
use self::output::Output;
use self::pending::PendingRequest;
use crate::audit::Record;
use crate::login::throttle::{LoginAttempt, LoginThrottle};
use crate::login::unauthenticated::UnauthenticatedSlot;
use crate::ops;
use crate::ops::deliver::deliver;
use crate::state::mailbox::{JobReply, Mailbox, Message};
use crate::state::{Counters, SharedState};

/// Idle time after which buffers are freed.
const IDLE: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

/// Maximum number of jobs of one connection before it stops reading requests.
const JOBS_MAX: usize = 64;
/// Maximum number of bytes of these jobs; one job may have 8 MiB. A guess, enough for a fast
/// device.
const JOB_BYTES_MAX: usize = 64 << 20;

/// Maximum of unsent response bytes for a client without a login. A normal client has one or two
/// responses at a time.
const UNAUTHENTICATED_OUTPUT_MAX: usize = 128 << 10;

/// Responses to a compound are sent together up to this many bytes. With another one of 8 MiB they
/// still fit a frame.
const REPLY_BATCH_MAX: usize = 1 << 20;

/// If a connection had this many unsent bytes, memory is released when it ends (a guess).
const RELEASE_MEMORY_MIN: usize = 4 << 20;

/// Divisor of the send timeout while all connections together have too many unsent bytes (a guess).
const OVERLOAD_DIVISOR: u32 = 6;

/// One connection with everything in progress on it.
pub(super) struct Driver {
    shared: Arc<SharedState>,
    socket: TcpStream,
    peer: SocketAddr,
    local: SocketAddr,
    protocol: Connection,
    mailbox: Arc<Mailbox>,
    input: Input,
    output: Output,
    /// Requests that wait, by the number that the hub knows them by.
    pending: HashMap<u64, PendingRequest>,
    /// Remaining messages of compounds; they continue before anything else is received.
    remaining: VecDeque<(Vec<u8>, CompoundState)>,
    last_number: u64,
    /// Requests with the workers: the session that seals the response, and the bytes they are
    /// charged for.
    jobs: HashMap<u64, (Option<SessionId>, usize)>,
    throttle: LoginThrottle,
    /// Logins in progress.
    attempts: HashMap<SessionId, LoginAttempt>,
    /// The connection's place among those without a login.
    unauthenticated: Option<UnauthenticatedSlot>,
    unauthenticated_since: Instant,
    /// Received frames may not have been executed yet.
    has_frames: bool,
    /// The current frame has its own buffer and is neither decompressed nor moved.
    frame_is_large: bool,
    /// The WRITE to execute from that buffer.
    write: Option<OffloadedWrite>,
    stopped: bool,
    /// The session whose LOGOFF is being answered; the response needs its key.
    logging_off: Option<SessionId>,
    /// Number of requests that reached the code of their command.
    #[cfg(feature = "fuzzing")]
    handled: u64,
}

impl Driver {
    pub(super) fn new(
        shared: Arc<SharedState>,
        id: ConnectionId,
        socket: TcpStream,
        peer: SocketAddr,
        throttle: LoginThrottle,
        unauthenticated: UnauthenticatedSlot,
    ) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let mailbox = Arc::new(Mailbox::new(peer.ip(), shared.uptime())?);
        shared.add_mailbox(id, Arc::clone(&mailbox));
        let output = Output::new(Arc::clone(&shared.unsent));
        Ok(Self {
            protocol: Connection::new(Arc::clone(&shared.config), id),
            shared,
            local: socket.local_addr()?,
            socket,
            peer,
            mailbox,
            input: Input::default(),
            output,
            pending: HashMap::new(),
            remaining: VecDeque::new(),
            last_number: 0,
            jobs: HashMap::new(),
            throttle,
            attempts: HashMap::new(),
            unauthenticated: Some(unauthenticated),
            unauthenticated_since: Instant::now(),
            has_frames: false,
            frame_is_large: false,
            write: None,
            stopped: false,
            logging_off: None,
            #[cfg(feature = "fuzzing")]
            handled: 0,
        })
    }

    /// Serves until the client leaves or misbehaves, or the server stops.
    pub(super) fn run(mut self) {
        // A panic ends the connection as if it was lost, so that its sessions and files do not stay
        // open. Locks do not poison, and tables change only by whole method calls.
        let outcome = catch_unwind(AssertUnwindSafe(|| self.serve())).unwrap_or(Err(DriverError::Panicked));
        match outcome {
            Ok(()) => tracing::debug!(peer = %self.peer, "connection closed"),
            Err(DriverError::Lost(error)) => tracing::debug!(peer = %self.peer, %error, "connection lost"),
            Err(DriverError::Panicked) => {
                tracing::error!(peer = %self.peer, "the thread of the connection panicked")
            }
            Err(DriverError::Peer(fault)) => {
                tracing::warn!(peer = %self.peer, "connection ended by the server: {fault}")
            }
            Err(DriverError::Limit(reason)) => {
                tracing::warn!(peer = %self.peer, "connection ended by the server: {reason}")
            }
        }
        let id = self.protocol.id();
        self.shared.remove_mailbox(id);
        // Jobs hold their files by themselves.
        let sessions: Vec<_> = self.protocol.sessions().collect();
        ops::session::connection_lost(&self.shared, id, &sessions);
        deliver(&self.shared);
        let release_memory = self
            .shared
            .release_memory
            .filter(|_| self.output.peak() >= RELEASE_MEMORY_MIN);
        drop(self);
        if let Some(release_memory) = release_memory {
            release_memory();
        }
    }

    fn serve(&mut self) -> Result<(), DriverError> {
        loop {
            self.process_messages()?;
            if self.stopped {
                return Ok(());
            }
            self.output.send(&self.socket)?;
            self.check_send_timeout()?;
            if self.resume()? {
                continue;
            }
            if self.protocol.sessions().next().is_some() {
                self.unauthenticated_since = Instant::now();
            } else if self.unauthenticated_since.elapsed() > self.shared.login_timeout {
                return Err(DriverError::Limit("no login in time"));
            }
            let accepts_requests = self.accepts_requests();
            if self.wait(accepts_requests)? && accepts_requests {
                match self.input.receive(&self.socket)? {
                    Received::End => return Ok(()),
                    Received::Nothing => {}
                    Received::Some => self.take_frames()?,
                }
            }
        }
    }

    /// Whether the client may have more requests executed before it receives its responses.
    fn accepts_requests(&self) -> bool {
        if self.shared.unsent.is_full() && (self.output.waiting() > 0 || !self.jobs.is_empty()) {
            // One response at a time until clients have received theirs.
            return false;
        }
        let job_bytes: usize = self.jobs.values().map(|(_, bytes)| *bytes).sum();
        let is_known = self.protocol.sessions().next().is_some();
        let waiting_max = if is_known {
            Output::WAITING_MAX
        } else {
            UNAUTHENTICATED_OUTPUT_MAX
        };
        self.output.waiting() < waiting_max && self.jobs.len() < JOBS_MAX && job_bytes < JOB_BYTES_MAX
    }

    /// Ends a connection whose client does not receive its responses, sooner while all connections
    /// together have too many.
    fn check_send_timeout(&self) -> Result<(), DriverError> {
        let poll_timeout = match self.shared.unsent.is_full() {
            true => self.shared.send_timeout / OVERLOAD_DIVISOR,
            false => self.shared.send_timeout,
        };
        if self.output.stalled() > poll_timeout {
            return Err(DriverError::Limit("the client does not receive its responses"));
        }
        Ok(())
    }

    /// Continues with postponed work. Returns whether there was any.
    fn resume(&mut self) -> Result<bool, DriverError> {
        if !self.accepts_requests() {
            return Ok(false);
        }
        if let Some((rest, compound)) = self.remaining.pop_front() {
            self.run_compound(&rest, compound)?;
            return Ok(true);
        }
        if !self.has_frames {
            return Ok(false);
        }
        self.take_frames()?;
        Ok(true)
    }

    /// Waits for the socket and the mailbox. Returns whether the socket can be read.
    fn wait(&mut self, accepts_requests: bool) -> Result<bool, DriverError> {
        let mut flags = PollFlags::empty();
        if accepts_requests {
            flags |= PollFlags::IN;
        }
        if !self.output.is_empty() {
            flags |= PollFlags::OUT;
        }
        loop {
            let (socket_events, mail) = {
                let mut fds = [
                    PollFd::from_borrowed_fd(self.socket.as_fd(), flags),
                    PollFd::from_borrowed_fd(self.mailbox.wake_fd(), PollFlags::IN),
                ];
                match poll(&mut fds, Some(&self.poll_timeout())) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(std::io::Error::from(error).into()),
                }
                (fds[0].revents(), !fds[1].revents().is_empty())
            };
            if mail {
                self.mailbox.clear();
            }
            if !socket_events.is_empty() || mail {
                // The next receive reports an error or a hang-up.
                return Ok(socket_events.intersects(PollFlags::IN | PollFlags::ERR | PollFlags::HUP));
            }
            self.input.shrink();
            self.output.shrink();
            self.check_send_timeout()?;
            if self.protocol.sessions().next().is_none() {
                return Ok(false);
            }
        }
    }

    /// Returns how long the thread may wait without an event.
    fn poll_timeout(&self) -> Timespec {
        let login_timeout = self.shared.login_timeout;
        if self.protocol.sessions().next().is_some() || login_timeout >= Duration::from_secs(5) {
            return IDLE;
        }
        Timespec {
            tv_sec: login_timeout.as_secs() as i64,
            tv_nsec: i64::from(login_timeout.subsec_nanos()),
        }
    }

    /// Executes received frames as long as the client may have more executed.
    fn take_frames(&mut self) -> Result<(), DriverError> {
        self.has_frames = true;
        while self.accepts_requests() && self.remaining.is_empty() {
            let length_max = self.protocol.frame_len_max();
            match self.input.next(length_max)? {
                None => {
                    self.has_frames = false;
                    return Ok(());
                }
                Some(Frame::Small(range)) => {
                    let mut buffer = self.input.take_buffer();
                    let outcome = self.take_frame(&mut buffer[range]);
                    self.input.put_back(buffer);
                    outcome?;
                }
                Some(Frame::Large(mut frame)) => {
                    self.frame_is_large = true;
                    let outcome = self.take_frame(&mut frame.buffer[frame.range.clone()]);
                    self.frame_is_large = false;
                    outcome?;
                    match self.write.take() {
                        Some(write) => self.submit_write(write, frame),
                        None => self.input.recycle(frame.buffer),
                    }
                }
            }
            // A break that a request caused is sent before the responses to later requests
            // (smb2.lease.rename_wait).
            self.process_messages()?;
        }
        Ok(())
    }

    fn take_frame(&mut self, frame: &mut [u8]) -> Result<(), DriverError> {
        let opened = self.protocol.open_frame(frame)?;
        if opened.is_smb1 {
            let reply = self.protocol.accept_smb1(frame, SharedState::wall_time())?;
            self.output.push(reply);
            return Ok(());
        }
        let compound = CompoundState::new(opened.sealed);
        let messages = match &opened.decompressed {
            Some(plain) => {
                self.frame_is_large = false;
                plain
            }
            None => &frame[opened.start..],
        };
        self.run_compound(messages, compound)?;
        if let Some(write) = &mut self.write {
            write.start = opened.start;
        }
        Ok(())
    }

    /// Passes the write of a frame's payload to a worker, which returns the buffer afterwards.
    fn submit_write(&mut self, write: OffloadedWrite, frame: LargeFrame) {
        let OffloadedWrite { number, start, job } = write;
        let answer = JobReply::of(number, &self.mailbox);
        self.shared.workers.run(Box::new(move || {
            let reply = job(&frame.buffer[frame.range][start..]);
            answer.send(reply, Some(frame.buffer));
        }));
    }

    /// Executes the messages of a frame, or the remaining ones.
    fn run_compound(&mut self, messages: &[u8], mut compound: CompoundState) -> Result<(), DriverError> {
        let mut frame = self.frame(compound.sealed);
        let mut after = 0;
        for message in CompoundMessages::new(messages) {
            let message = message.map_err(|_| PeerMisbehaved("a malformed compound"))?;
            if frame.len() >= REPLY_BATCH_MAX {
                let next = self.frame(compound.sealed);
                self.push(std::mem::replace(&mut frame, next), compound.sealed)?;
            }
            if after > 0 && !self.accepts_requests() {
                self.remaining
                    .push_front((messages[after..].to_vec(), compound.clone()));
                break;
            }
            after += message.len();
            let rest = &messages[after..];
            if !self.run_message(message, rest, &mut compound, &mut frame)? {
                // The rest of the compound continues when this request does.
                break;
            }
        }
        self.push(frame, compound.sealed)
    }

    fn frame(&mut self, sealed: Option<SessionId>) -> ReplyFrame {
        ReplyFrame::new(self.output.buffer(), sealed.is_some())
    }

    fn push(&mut self, frame: ReplyFrame, sealed: Option<SessionId>) -> Result<(), DriverError> {
        if !frame.is_empty() {
            #[cfg(feature = "fuzzing")]
            if self.push_mutated(&frame, sealed)? {
                return Ok(());
            }
            let finished = self.protocol.finish(frame, sealed)?;
            self.output.push(finished);
        }
        Ok(())
    }

    /// Executes one message. Returns `false` if the compound does not continue now.
    fn run_message(
        &mut self,
        message: &[u8],
        rest: &[u8],
        compound: &mut CompoundState,
        frame: &mut ReplyFrame,
    ) -> Result<bool, DriverError> {
        let session = self.shared.sessions().snapshot(compound.scope(message));
        let admitted = self.protocol.admit(compound, message, session)?;
        Counters::add(&self.shared.counters.requests, 1);
        self.mailbox.used(self.shared.uptime());
        let (mut request, tree) = match admitted {
            Admitted::Run(request, tree) => (request, tree),
            Admitted::Refused(request, status) => {
                let header = self.protocol.reply(&request, status);
                frame.push_error(&header, request.signer);
                return Ok(true);
            }
            Admitted::Cancel(session, cancel) => {
                self.cancel(session, cancel)?;
                return Ok(true);
            }
            Admitted::Ignored => return Ok(true),
        };
        #[cfg(feature = "fuzzing")]
        {
            self.handled += 1;
        }
        let is_login = request.header.command == Command::SessionSetup;
        let mut attempt = None;
        if is_login && !self.protocol.is_logging_in(request.session) {
            // A client that guesses passwords waits here before the next attempt, on its own
            // thread.
            let guid = self.protocol.negotiated().map(|both| both.client_guid);
            let begun = self.throttle.begin(self.peer.ip(), guid.unwrap_or_default());
            attempt = Some(begun.ok_or(DriverError::Limit("too many failed logins from its address"))?);
        }
        let outcome = {
            let mut sessions = self.shared.sessions();
            let sealed = compound.sealed.is_some();
            self.protocol.run_connection_command(
                &mut request,
                message,
                sealed,
                &mut sessions,
                SharedState::wall_time(),
                frame,
            )?
        };
        if let Some(attempt) = attempt {
            // A new login has its session id now.
            self.attempts.insert(request.session, attempt);
        }
        match outcome {
            ConnectionOutcome::Execute => self.execute(
                request,
                Invocation {
                    tree,
                    message,
                    rest,
                    compound,
                    frame,
                    retry_of: None,
                },
            ),
            outcome => self
                .finish_connection_command(outcome, &request, compound, frame)
                .map(|()| true),
        }
    }

    fn finish_connection_command(
        &mut self,
        outcome: ConnectionOutcome,
        request: &Request,
        compound: &mut CompoundState,
        frame: &mut ReplyFrame,
    ) -> Result<(), DriverError> {
        match outcome {
            ConnectionOutcome::Replied | ConnectionOutcome::Execute => {}
            ConnectionOutcome::LoggedIn { session, replaced } => {
                self.unauthenticated = None;
                let attempt = self.attempts.remove(&session);
                ops::session::logged_in(&self.shared, session, replaced.as_deref(), self.peer);
                let token = self.shared.token(session);
                // An anonymous login proves no identity, so its attempt is abandoned.
                let token = token.filter(|token| !token.is_anonymous);
                if let (Some(attempt), Some(token)) = (attempt, token)
                    && !attempt.succeeded(Some(&token.name))
                {
                    return Err(DriverError::Limit("too many failed logins of its user"));
                }
            }
            ConnectionOutcome::LoggedOff(session) => {
                // Waiting requests are answered first, because the key is dropped afterwards.
                ops::session::ended(&self.shared, &session);
                self.logging_off = Some(session.id);
                self.process_messages()?;
                self.logging_off = None;
                self.fail_pending(session.id)?;
                let reply = std::mem::replace(frame, ReplyFrame::new(Vec::new(), compound.sealed.is_some()));
                self.push(reply, compound.sealed)?;
                self.protocol.forget(session.id);
            }
            ConnectionOutcome::LoginFailed(status, ended, user) => {
                Counters::add(&self.shared.counters.logins_failed, 1);
                self.shared.record(&Record {
                    action: "login",
                    peer: Some(self.peer),
                    user: user.as_deref(),
                    share: None,
                    path: None,
                    target: None,
                    status,
                });
                let attempt = self.attempts.remove(&request.session);
                let may_report = attempt.is_none_or(|attempt| attempt.failed(user.as_deref()));
                if let Some(session) = ended {
                    ops::session::ended(&self.shared, &session);
                    self.protocol.forget(session.id);
                }
                if !may_report {
                    return Err(DriverError::Limit("too many failed logins of its user"));
                }
                self.refuse(status, request, compound, frame);
            }
            ConnectionOutcome::Failed(status) => {
                // No credentials were checked.
                if !self.protocol.is_logging_in(request.session) {
                    self.attempts.remove(&request.session);
                }
                self.refuse(status, request, compound, frame);
            }
        }
        Ok(())
    }

    fn refuse(
        &mut self,
        status: NtStatus,
        request: &Request,
        compound: &mut CompoundState,
        frame: &mut ReplyFrame,
    ) {
        compound.status = status;
        let header = self.protocol.reply(request, status);
        frame.push_error(&header, request.signer);
    }

    fn process_messages(&mut self) -> Result<(), DriverError> {
        while let Some(message) = self.mailbox.take() {
            match message {
                Message::Retry(number) => self.retry(number)?,
                Message::ChangeNotify(number, status, changes) => self.notify(number, status, &changes)?,
                Message::Break(session, notification) => self.send_break(session, &notification)?,
                Message::JobDone(number, frame, buffer) => {
                    let sealed = self.jobs.remove(&number).and_then(|(sealed, _)| sealed);
                    self.push(frame, sealed)?;
                    if let Some(buffer) = buffer {
                        self.input.recycle(buffer);
                    }
                }
                Message::SessionEnded(session) => {
                    self.fail_pending(session)?;
                    if !self.shared.has_session(session) && self.logging_off != Some(session) {
                        self.protocol.forget(session);
                    }
                }
                Message::Stop => self.stopped = true,
                Message::Evict => self.stopped |= self.unauthenticated.is_some(),
            }
        }
        Ok(())
    }

    /// Sends a break notification: not signed, and encrypted only if the session encrypts
    /// everything ([MS-SMB2] 3.3.4.6, 3.3.4.7).
    fn send_break(
        &mut self,
        session: SessionId,
        notification: &BreakNotification,
    ) -> Result<(), DriverError> {
        let sealed = self.protocol.seals_everything(session).then_some(session);
        let mut header: Header = self.protocol.unsolicited(Command::OplockBreak);
        if sealed.is_some() {
            header.session_id = session;
        }
        let mut frame = self.frame(sealed);
        frame.push(&header, None, |w| notification.encode(w));
        self.push(frame, sealed)
    }
}
