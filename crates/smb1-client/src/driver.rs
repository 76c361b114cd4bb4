//! The task that owns one connection and its socket.
//!
//! Every request that reaches the task gets exactly one [`Answer`], also when the connection ends. If
//! the future of a request is dropped, the request runs to its end, and what it opened is closed.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind, IoSlice};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ropeway_smb_client::{Error, LostReason, NtStatus, Result, Unprotected};
use ropeway_smb1::client::{
    Connection, EndReason, Event, LoginError, Misuse, Part, PeerMisbehaved, Reply, Request, Ticket,
};
use ropeway_smb1::wire::close::CloseRequest;
use ropeway_smb1::wire::create::CreateResponse;
use ropeway_smb1::wire::echo::Echo;
use ropeway_smb1::wire::locking::{LockType, LockingRequest, LockingWords};
use ropeway_smb1::{Command, Header};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::channel::{Answer, Control, Job, Queues, Ready};
use crate::frames::{Frame, Frames, frame_header, session_request};
use crate::options::Smb1Options;

/// Slices in one writev. A guess.
const SLICES: usize = 32;
/// Bytes staged for the socket ahead of its acceptance. A guess.
const STAGED_MAX: usize = 1 << 20;

/// A silent server gets an ECHO after this fraction of the time-out, and then twice as long to
/// answer.
const ECHOS: u32 = 3;

/// A request may take this many time-outs while the server answers others: a disk may take long.
const PATIENCE: u32 = 10;

/// Longest time to wait for the replies in flight when the client closes.
const SHUTDOWN_MAX: Duration = Duration::from_secs(2);

/// The task that owns one connection.
pub(crate) struct Driver {
    stream: TcpStream,
    frames: Frames,
    connection: Connection,
    queues: Queues,
    ready: Option<oneshot::Sender<Result<Ready>>>,
    ended: Arc<OnceLock<Error>>,
    /// Whether the session request of NetBIOS is not answered yet.
    awaits_session: bool,
    timeout: Duration,
    pause: Duration,
    pending: HashMap<Ticket, Pending>,
    /// A request that waits for room.
    next: Option<Job>,
    /// No request is sent before this time.
    not_before: Instant,
    parts: VecDeque<Part>,
    staged_bytes: usize,
    skip: usize,
    /// When the server last sent something, or the first request after a silence was sent.
    heard_at: Instant,
    has_echoed: bool,
    shutdown_until: Option<Instant>,
    reason: Option<Error>,
}

struct Pending {
    answer: Option<oneshot::Sender<Answer>>,
    command: Command,
    tid: u16,
    sent_at: Instant,
}

impl Driver {
    pub(crate) fn new(
        stream: TcpStream,
        connection: Connection,
        queues: Queues,
        options: &Smb1Options,
        is_netbios: bool,
        (ready, ended): (oneshot::Sender<Result<Ready>>, Arc<OnceLock<Error>>),
    ) -> Self {
        let now = Instant::now();
        let mut driver = Self {
            stream,
            frames: Frames::new(),
            connection,
            queues,
            ready: Some(ready),
            ended,
            awaits_session: is_netbios,
            timeout: options.timeout,
            pause: options.pace.between_requests,
            pending: HashMap::new(),
            next: None,
            not_before: now,
            parts: VecDeque::new(),
            staged_bytes: 0,
            skip: 0,
            heard_at: now,
            has_echoed: false,
            shutdown_until: None,
            reason: None,
        };
        if is_netbios {
            driver.stage(Part::Bytes(session_request()));
        }
        driver
    }

    /// Runs the connection until it ends.
    pub(crate) async fn run(mut self) {
        loop {
            self.turn();
            if self.reason.is_some() || self.is_shut_down() {
                break;
            }
            let interest = match self.parts.is_empty() {
                true => Interest::READABLE,
                false => Interest::READABLE | Interest::WRITABLE,
            };
            let takes = self.next.is_none() && self.ready.is_none() && self.shutdown_until.is_none();
            let deadline = self.deadline();
            tokio::select! {
                ready = self.stream.ready(interest) => match ready {
                    Ok(ready) if ready.is_readable() || ready.is_read_closed() => self.read(),
                    Ok(_) => {}
                    Err(fault) => self.fail(&fault),
                },
                job = self.queues.jobs.recv(), if takes => match job {
                    Some(job) => self.next = Some(job),
                    None => self.begin_shutdown(),
                },
                control = self.queues.control.recv(), if self.shutdown_until.is_none() => match control {
                    Some(Control::Cancel(_)) => {}
                    Some(Control::Shutdown) | None => self.begin_shutdown(),
                },
                () = tokio::time::sleep_until(deadline) => self.check_time(),
            }
            tokio::task::consume_budget().await;
        }
        self.finish().await;
    }

    /// Handles events, sends what may be sent.
    fn turn(&mut self) {
        self.events();
        self.submit_next();
        self.transmit();
        self.events();
    }

    fn begin_shutdown(&mut self) {
        self.shutdown_until
            .get_or_insert_with(|| Instant::now() + SHUTDOWN_MAX);
    }

    fn is_shut_down(&self) -> bool {
        self.shutdown_until.is_some_and(|until| {
            (self.pending.is_empty() && self.parts.is_empty()) || Instant::now() >= until
        })
    }

    /// Returns the time at which something is due.
    fn deadline(&self) -> Instant {
        let mut due = Instant::now() + self.timeout;
        if self.is_waiting() {
            let patience = match self.has_echoed {
                true => self.timeout,
                false => self.timeout / ECHOS,
            };
            due = due.min(self.heard_at + patience);
        }
        if self.next.is_some() && self.connection.room() > 0 {
            due = due.min(self.not_before);
        }
        if let Some(until) = self.shutdown_until {
            due = due.min(until);
        }
        due
    }

    /// Whether the server owes a reply.
    fn is_waiting(&self) -> bool {
        !self.pending.is_empty() || self.ready.is_some()
    }

    fn check_time(&mut self) {
        if !self.is_waiting() {
            return;
        }
        let (now, silence) = (Instant::now(), self.heard_at.elapsed());
        let longest = self.pending.values().map(|pending| now - pending.sent_at).max();
        if silence >= self.timeout || longest.is_some_and(|longest| longest >= self.timeout * PATIENCE) {
            self.reason = Some(Error::Lost(LostReason::TimedOut));
        } else if silence >= self.timeout / ECHOS && !self.has_echoed {
            self.has_echoed = true;
            // A server that allows no further request gets none.
            let echo = Request::new(Command::ECHO, Header::NONE, |w| {
                let echo = Echo {
                    number: 1,
                    data: b"ropeway",
                };
                echo.encode(w);
            });
            if self.connection.room() > 0 {
                self.submit(echo, None);
            }
        }
    }

    fn submit_next(&mut self) {
        if self.connection.room() == 0 || self.staged_bytes >= STAGED_MAX || Instant::now() < self.not_before
        {
            return;
        }
        let Some(job) = self.next.take() else { return };
        if job.answer.is_closed() && job.request.command != Command::CLOSE {
            return;
        }
        self.not_before = Instant::now() + self.pause;
        self.submit(job.request, Some(job.answer));
    }

    fn submit(&mut self, request: Request, answer: Option<oneshot::Sender<Answer>>) {
        let (command, tid) = (request.command, request.tid);
        match self.connection.submit(request) {
            Ok(ticket) => {
                let now = Instant::now();
                if self.pending.is_empty() {
                    // The silence before does not count.
                    self.heard_at = now;
                    self.has_echoed = false;
                }
                let pending = Pending {
                    answer,
                    command,
                    tid,
                    sent_at: now,
                };
                self.pending.insert(ticket, pending);
            }
            Err((fault, _)) => {
                let outcome = match fault {
                    Misuse::TooLong => Answer::TooLong,
                    Misuse::TooMany | Misuse::NotReady => Answer::Lost { sent: false },
                };
                if let Some(answer) = answer {
                    let _ = answer.send(outcome);
                }
            }
        }
    }

    fn events(&mut self) {
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::Ready => self.is_ready(),
                Event::Replied { ticket, reply } => self.replied(ticket, reply),
                Event::Break { tid, request } => self.give_up_oplock(tid, &request),
                Event::Ended(reason) => {
                    self.reason.get_or_insert_with(|| error_of(reason));
                }
            }
        }
    }

    fn is_ready(&mut self) {
        let Some(negotiated) = self.connection.negotiated().cloned() else {
            return;
        };
        if let Some(ready) = self.ready.take() {
            let _ = ready.send(Ok(Ready {
                negotiated,
                signs: self.connection.is_signing(),
                share_password: self.connection.share_password(),
            }));
        }
    }

    fn replied(&mut self, ticket: Ticket, reply: Box<Reply>) {
        let Some(pending) = self.pending.remove(&ticket) else {
            return;
        };
        let answer = match pending.answer {
            Some(answer) => answer.send(Answer::Replied(reply)),
            None => Ok(()),
        };
        // Nobody waits any more. What was opened must not stay open.
        if let Err(Answer::Replied(reply)) = answer
            && pending.command == Command::NT_CREATE_ANDX
            && reply.header.status == NtStatus::SUCCESS
            && let Some(opened) = reply
                .block()
                .ok()
                .and_then(|block| CreateResponse::decode(&block).ok())
        {
            let close = Request::new(Command::CLOSE, pending.tid, |w| {
                let close = CloseRequest {
                    fid: opened.fid,
                    last_write_time: u32::MAX,
                };
                close.encode(w);
            });
            if self.connection.room() > 0 {
                self.submit(close, None);
            }
        }
    }

    /// This client asks for no oplocks; a server that breaks one nevertheless gets it back.
    fn give_up_oplock(&mut self, tid: u16, request: &LockingRequest) {
        let words = LockingWords {
            fid: request.words.fid,
            lock_type: LockType::OPLOCK_RELEASE,
            ..LockingWords::default()
        };
        let release = LockingRequest {
            words,
            ..LockingRequest::default()
        };
        self.connection.acknowledge_break(tid, &release);
    }

    fn read(&mut self) {
        loop {
            match self.stream.try_read(self.frames.room()) {
                Ok(0) => {
                    self.reason.get_or_insert(Error::Lost(LostReason::Closed));
                    return;
                }
                Ok(count) => {
                    self.heard_at = Instant::now();
                    self.has_echoed = false;
                    self.frames.filled(count);
                }
                Err(fault) if fault.kind() == ErrorKind::WouldBlock => return,
                Err(fault) if fault.kind() == ErrorKind::Interrupted => continue,
                Err(fault) => return self.fail(&fault),
            }
            loop {
                match self.frames.next() {
                    Ok(None) => break,
                    Ok(Some(Frame::Message(message))) => self.connection.receive(message),
                    Ok(Some(Frame::Accepted)) => self.awaits_session = false,
                    Ok(Some(Frame::Refused)) => {
                        let sentence = "the server refuses the NetBIOS session";
                        self.reason = Some(Error::PeerMisbehaved(sentence.to_owned()));
                    }
                    Ok(Some(Frame::KeepAlive)) => {}
                    Err(fault) => {
                        self.reason = Some(Error::PeerMisbehaved(format!("the server sent {}", fault.0)));
                    }
                }
                if self.reason.is_some() {
                    return;
                }
            }
            self.turn();
        }
    }

    fn fail(&mut self, fault: &io::Error) {
        self.reason
            .get_or_insert(Error::Lost(LostReason::Network(fault.kind())));
    }

    fn stage(&mut self, part: Part) {
        self.staged_bytes += part.as_slice().len();
        self.parts.push_back(part);
    }

    fn transmit(&mut self) {
        loop {
            while self.staged_bytes < STAGED_MAX && !self.awaits_session {
                let Some(parts) = self.connection.poll_transmit() else {
                    break;
                };
                let length = parts.iter().map(|part| part.as_slice().len()).sum();
                self.stage(Part::Bytes(frame_header(length).to_vec()));
                parts.into_iter().for_each(|part| self.stage(part));
            }
            if self.parts.is_empty() {
                return;
            }
            let mut slices = [IoSlice::new(&[]); SLICES];
            let mut count = 0;
            for (slice, part) in slices.iter_mut().zip(&self.parts) {
                let bytes = part.as_slice();
                *slice = IoSlice::new(if count == 0 { &bytes[self.skip..] } else { bytes });
                count += 1;
            }
            match self.stream.try_write_vectored(&slices[..count]) {
                Ok(written) => self.written(written),
                Err(fault) if fault.kind() == ErrorKind::WouldBlock => return,
                Err(fault) if fault.kind() == ErrorKind::Interrupted => {}
                Err(fault) => return self.fail(&fault),
            }
        }
    }

    /// Removes bytes that the socket has taken.
    fn written(&mut self, written: usize) {
        let mut left = written + self.skip;
        while let Some(part) = self.parts.front() {
            let length = part.as_slice().len();
            if left < length {
                break;
            }
            left -= length;
            self.staged_bytes -= length;
            self.parts.pop_front();
        }
        self.skip = left;
    }

    /// Ends the driver: publishes the reason, and answers every request.
    async fn finish(mut self) {
        let reason = self
            .reason
            .clone()
            .unwrap_or(Error::Lost(LostReason::ClientClosed));
        tracing::debug!(%reason, "the connection ended");
        let _ = self.ended.set(reason.clone());
        if let Some(ready) = self.ready.take() {
            let _ = ready.send(Err(reason));
        }
        self.connection.end(EndReason::Closed);
        for pending in std::mem::take(&mut self.pending).into_values() {
            if let Some(answer) = pending.answer {
                let _ = answer.send(Answer::Lost { sent: true });
            }
        }
        self.queues.jobs.close();
        let waiting = self.next.take();
        for job in waiting.into_iter() {
            let _ = job.answer.send(Answer::Lost { sent: false });
        }
        while let Some(job) = self.queues.jobs.recv().await {
            let _ = job.answer.send(Answer::Lost { sent: false });
        }
    }
}

/// Returns the client's error for the end of a connection.
fn error_of(reason: EndReason) -> Error {
    match reason {
        EndReason::Closed => Error::Lost(LostReason::Closed),
        EndReason::SessionEnded => Error::Lost(LostReason::SessionEnded),
        EndReason::Misbehaved(PeerMisbehaved::BadSignature) => {
            Error::Tampered(ropeway_smb_proto::client::PeerMisbehaved::BadSignature)
        }
        EndReason::Misbehaved(fault) => Error::PeerMisbehaved(fault.to_string()),
        EndReason::Login(LoginError::Refused(status)) => Error::PeerRefused { op: "log in", status },
        EndReason::Login(LoginError::Auth(fault)) => Error::Login(fault),
        EndReason::Login(LoginError::Guest) => Error::Unprotected(Unprotected::Guest),
        EndReason::Login(LoginError::NoSigning) => Error::Unprotected(Unprotected::NoSigning),
        EndReason::Login(LoginError::ClearText) => Error::Unprotected(Unprotected::ClearText),
        EndReason::Login(LoginError::NoDialect) => Error::NoSmb1,
        EndReason::Login(fault @ LoginError::NegotiationRefused(_)) => {
            Error::PeerMisbehaved(fault.to_string())
        }
    }
}
