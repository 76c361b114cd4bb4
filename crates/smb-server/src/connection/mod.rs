//! The thread that serves one connection.
//!
//! It waits for its socket and its mailbox. It executes what does not block, passes requests that
//! may wait for a device to the [workers](crate::state::workers), and keeps requests that wait for
//! other clients until the hub reports them. Only this thread touches the protocol state of its
//! connection.

mod breaks;
mod error;
mod execute;
mod foreign;
mod frames;
#[cfg(feature = "fuzzing")]
mod fuzz_frames;
mod input;
mod line;
mod login;
mod messages;
mod output;
mod pending;

use std::collections::{HashMap, VecDeque};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ropeway_smb_proto::server::{CompoundState, Connection, ConnectionId};
use ropeway_smb_wire::SessionId;
use ropeway_vfs::trace::Requester;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::breaks::SentBreaks;
use self::error::DriverError;
use self::execute::OffloadedWrite;
use self::input::{Input, Received};
use self::line::LineWatch;
use self::output::Output;
use self::pending::PendingRequest;
use crate::login::throttle::{LoginAttempt, LoginThrottle};
use crate::login::unauthenticated::UnauthenticatedSlot;
use crate::ops;
use crate::ops::deliver::deliver;
use crate::state::SharedState;
use crate::state::figures::SessionFigures;
use crate::state::mailbox::Mailbox;

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

/// If a connection had this many unsent bytes, memory is given back to the system as soon as it ends (a
/// guess).
const RELEASE_MEMORY_MIN: usize = 4 << 20;

/// Divisor of the send timeout while all connections together have too many unsent bytes (a guess).
const OVERLOAD_DIVISOR: u32 = 6;

/// One connection with everything in progress on it.
pub(super) struct Driver {
    shared: Arc<SharedState>,
    /// The client's socket, or a line to a translator.
    socket: OwnedFd,
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
    /// Since when no session is on the connection; `None` while one is.
    unauthenticated_since: Option<Instant>,
    /// Received frames may not have been executed yet.
    has_frames: bool,
    /// The current frame has its own buffer and is neither decompressed nor moved.
    frame_is_large: bool,
    /// The client has sent more than the current large frame, or waits for other replies.
    frame_is_followed: bool,
    /// The WRITE to execute from that buffer.
    write: Option<OffloadedWrite>,
    stopped: bool,
    /// Something was received since buffers were last freed.
    is_used: bool,
    sent_breaks: SentBreaks,
    line: LineWatch,
    /// What the requests of the last session are counted in.
    figures: Option<(SessionId, Arc<SessionFigures>)>,
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
        let mailbox = Arc::new(Mailbox::new(peer, shared.uptime())?);
        shared.add_mailbox(id, Arc::clone(&mailbox));
        let output = Output::new(Arc::clone(&shared.unsent));
        Ok(Self {
            protocol: Connection::new(Arc::clone(&shared.config), id),
            shared,
            local: socket.local_addr()?,
            socket: socket.into(),
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
            unauthenticated_since: Some(Instant::now()),
            has_frames: false,
            frame_is_large: false,
            frame_is_followed: false,
            write: None,
            stopped: false,
            is_used: false,
            sent_breaks: SentBreaks::default(),
            line: LineWatch::default(),
            figures: None,
            logging_off: None,
            #[cfg(feature = "fuzzing")]
            handled: 0,
        })
    }

    /// Serves until the client leaves or misbehaves, or the server stops.
    pub(super) fn run(mut self) {
        let id = self.protocol.id();
        let span = tracing::debug_span!(parent: None, "connection", id = id.0, peer = %self.peer);
        let _entered = span.enter();
        // A panic ends the connection as if it was lost, so that its sessions and files do not stay
        // open. Locks do not poison, and tables change only by whole method calls.
        let requester = Requester {
            connection: Some(id.0),
            process: None,
        };
        let serve = AssertUnwindSafe(|| requester.ask(|| self.serve_any()));
        let outcome = catch_unwind(serve).unwrap_or(Err(DriverError::Panicked));
        match outcome {
            Ok(()) => tracing::debug!(peer = %self.peer, "connection closed"),
            Err(DriverError::Lost(error)) => tracing::debug!(peer = %self.peer, %error, "connection lost"),
            Err(DriverError::Foreign(_)) => {
                tracing::warn!(peer = %self.peer, "connection ended by the server: a second translator")
            }
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
        self.shared.remove_mailbox(id);
        // Jobs hold their files by themselves.
        let sessions: Vec<_> = self.protocol.sessions().collect();
        ops::session::connection_lost(&self.shared, id, &sessions);
        self.resend_breaks();
        deliver(&self.shared);
        let was_large = self.output.peak() >= RELEASE_MEMORY_MIN;
        let shared = Arc::clone(&self.shared);
        drop(self);
        match was_large {
            true => shared.memory.release(),
            false => shared.memory.freed(),
        }
    }

    /// Whether there has been no session for too long. The time begins anew with each logoff.
    fn is_login_late(&mut self) -> bool {
        let since = self.unauthenticated_since.get_or_insert_with(Instant::now);
        since.elapsed() > self.shared.login_timeout
    }

    fn serve(&mut self) -> Result<(), DriverError> {
        loop {
            self.process_messages()?;
            if self.stopped {
                return Ok(());
            }
            self.sent_breaks.lift_limit(self.socket.as_fd());
            self.output.send(&self.socket)?;
            self.line.look(self.socket.as_fd(), &mut self.protocol);
            self.check_send_timeout()?;
            if self.resume()? {
                continue;
            }
            if self.protocol.sessions().next().is_some() {
                self.unauthenticated_since = None;
            } else if self.is_login_late() {
                return Err(DriverError::Limit("no login in time"));
            }
            let accepts_requests = self.accepts_requests();
            if self.wait(accepts_requests)? && accepts_requests {
                match self.input.receive(&self.socket)? {
                    Received::End => return Ok(()),
                    Received::Nothing => {}
                    Received::Some => {
                        self.is_used = true;
                        self.take_frames()?;
                    }
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
            if std::mem::take(&mut self.is_used) {
                self.shared.memory.idle();
            }
            self.sent_breaks.lift_limit(self.socket.as_fd());
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
}
