//! The thread that serves one connection.
//!
//! It waits for its socket and its mailbox, executes what it can on the spot, has the [pool](super::pool) do what may
//! wait for a device, and parks what waits for others until the hub says so. It is the only one that touches the
//! connection's protocol state.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;

use ropeway_smb_proto::server::hub::WaiterId;
use ropeway_smb_proto::server::{
    Admitted, Cancel, Compound, Connection, ConnectionId, Hangup, Own, ReplyFrame, Request,
};
use ropeway_smb_proto::wire::change_notify::FileNotifyInformation;
use ropeway_smb_proto::wire::header::{Chain, Command, Header};
use ropeway_smb_proto::wire::oplock_break::BreakNotification;
use ropeway_smb_proto::wire::{NtStatus, SessionId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::audit::Record;
use super::input::{Frame, Input, Received};
use super::mailbox::{Mailbox, Message};
use super::ops::{self, Context, Done};
use super::output::Output;
use super::shared::{Counters, Shared};

/// After so long without anything to do, memory is given back.
const IDLE: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

/// Jobs of one connection in the pool before it is read from again.
const JOBS_MAX: usize = 64;

/// One connection and all that is under way on it.
pub(super) struct Serving {
    shared: Arc<Shared>,
    socket: TcpStream,
    peer: SocketAddr,
    local: SocketAddr,
    protocol: Connection,
    mailbox: Arc<Mailbox>,
    input: Input,
    output: Output,
    /// Requests that wait, by the number that others know them by.
    parked: HashMap<u64, Parked>,
    number_last: u64,
    /// Requests in the pool: whether a compound goes on after them.
    jobs: HashMap<u64, Option<SessionId>>,
    failures: super::failures::Delay,
    /// The frame that is being executed has a buffer of its own, and lies in it as it was received.
    big_frame: bool,
    /// What is to be written from that buffer.
    write: Option<BigWrite>,
    stopped: bool,
}

/// A WRITE that the pool is to do, once its frame can be given away.
struct BigWrite {
    number: u64,
    /// Where the message begins in the frame.
    start: usize,
    job: Box<dyn FnOnce(&[u8]) -> ReplyFrame + Send>,
}

/// A request that waits, and what comes after it.
struct Parked {
    request: Request,
    message: Vec<u8>,
    rest: Vec<u8>,
    compound: Compound,
    session: SessionId,
}

impl Serving {
    pub(super) fn new(
        shared: Arc<Shared>,
        id: ConnectionId,
        socket: TcpStream,
        peer: SocketAddr,
        failures: super::failures::Delay,
    ) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let mailbox = Arc::new(Mailbox::new()?);
        shared.add_mailbox(id, Arc::clone(&mailbox));
        Ok(Self {
            protocol: Connection::new(Arc::clone(&shared.config), id),
            shared,
            local: socket.local_addr()?,
            socket,
            peer,
            mailbox,
            input: Input::default(),
            output: Output::default(),
            parked: HashMap::new(),
            number_last: 0,
            jobs: HashMap::new(),
            failures,
            big_frame: false,
            write: None,
            stopped: false,
        })
    }

    /// Serves until the client goes, misbehaves, or the server stops.
    pub(super) fn run(mut self) {
        let outcome = self.serve();
        match outcome {
            Ok(()) => tracing::debug!(peer = %self.peer, "connection closed"),
            Err(Ended::Lost(error)) => tracing::debug!(peer = %self.peer, %error, "connection lost"),
            Err(Ended::Hangup(fault)) => tracing::warn!(peer = %self.peer, "hung up: {fault}"),
        }
        let id = self.protocol.id();
        self.shared.remove_mailbox(id);
        // What is in the pool holds its files by itself.
        let sessions: Vec<_> = self.protocol.sessions().collect();
        ops::session::connection_lost(&self.shared, id, &sessions);
        self.shared.deliver();
    }

    fn serve(&mut self) -> Result<(), Ended> {
        loop {
            self.read_mail()?;
            if self.stopped {
                return Ok(());
            }
            self.output.send(&self.socket)?;
            let takes = !self.output.is_full() && self.jobs.len() < JOBS_MAX;
            if !self.wait(takes)? {
                continue;
            }
            if takes {
                match self.input.receive(&self.socket)? {
                    Received::End => return Ok(()),
                    Received::Nothing => {}
                    Received::Some => self.take_frames()?,
                }
            }
        }
    }

    /// Waits for the socket and the mailbox; whether the socket has something to say.
    fn wait(&mut self, takes: bool) -> Result<bool, Ended> {
        let mut flags = PollFlags::empty();
        if takes {
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
                match poll(&mut fds, Some(&IDLE)) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(std::io::Error::from(error).into()),
                }
                (fds[0].revents(), !fds[1].revents().is_empty())
            };
            if mail {
                self.mailbox.clear();
            }
            if !socket_events.is_empty() || mail {
                // An error or a hang-up is told by the next receive.
                return Ok(socket_events.intersects(PollFlags::IN | PollFlags::ERR | PollFlags::HUP));
            }
            self.input.shrink();
            self.output.shrink();
        }
    }

    fn take_frames(&mut self) -> Result<(), Ended> {
        loop {
            let length_max = self.protocol.frame_len_max();
            match self.input.next(length_max)? {
                None => return Ok(()),
                Some(Frame::Small(range)) => {
                    let mut buffer = self.input.take_buffer();
                    let outcome = self.take_frame(&mut buffer[range]);
                    self.input.put_back(buffer);
                    outcome?;
                }
                Some(Frame::Large(mut frame)) => {
                    self.big_frame = true;
                    let outcome = self.take_frame(&mut frame);
                    self.big_frame = false;
                    outcome?;
                    match self.write.take() {
                        Some(write) => self.have_written(write, frame),
                        None => self.input.recycle(frame),
                    }
                }
            }
        }
    }

    fn take_frame(&mut self, frame: &mut [u8]) -> Result<(), Ended> {
        let opened = self.protocol.open_frame(frame)?;
        if opened.is_smb1 {
            let reply = self.protocol.accept_smb1(frame, Shared::now())?;
            self.output.push(reply);
            return Ok(());
        }
        let compound = Compound::new(opened.sealed);
        let messages = match &opened.decompressed {
            Some(plain) => {
                self.big_frame = false;
                plain
            }
            None => &frame[opened.start..],
        };
        self.run_chain(messages, compound)?;
        if let Some(write) = &mut self.write {
            write.start = opened.start;
        }
        Ok(())
    }

    /// Has the pool write what a frame holds; the frame comes back for another one.
    fn have_written(&mut self, write: BigWrite, frame: Vec<u8>) {
        let BigWrite { number, start, job } = write;
        let mailbox = Arc::clone(&self.mailbox);
        self.shared.pool.run(Box::new(move || {
            let reply = job(&frame[start..]);
            mailbox.send(Message::Done(number, reply, Some(frame)));
        }));
    }

    /// Executes the messages of a frame, or what is left of them.
    fn run_chain(&mut self, messages: &[u8], mut compound: Compound) -> Result<(), Ended> {
        let mut frame = self.frame(compound.sealed);
        let mut after = 0;
        for message in Chain::new(messages) {
            let message = message.map_err(|_| Hangup("a malformed compound"))?;
            after += message.len();
            let rest = &messages[after..];
            if !self.run_message(message, rest, &mut compound, &mut frame)? {
                // The rest of the compound goes on when this one does.
                break;
            }
        }
        self.push(frame, compound.sealed)
    }

    fn frame(&mut self, sealed: Option<SessionId>) -> ReplyFrame {
        ReplyFrame::new(self.output.buffer(), sealed.is_some())
    }

    fn push(&mut self, frame: ReplyFrame, sealed: Option<SessionId>) -> Result<(), Ended> {
        if !frame.is_empty() {
            let finished = self.protocol.finish(frame, sealed)?;
            self.output.push(finished);
        }
        Ok(())
    }

    /// Executes one message; `false` if the compound does not go on now.
    fn run_message(
        &mut self,
        message: &[u8],
        rest: &[u8],
        compound: &mut Compound,
        frame: &mut ReplyFrame,
    ) -> Result<bool, Ended> {
        let admitted = {
            let sessions = self.shared.sessions();
            self.protocol.admit(compound, message, &sessions)?
        };
        Counters::add(&self.shared.counters.requests, 1);
        let (mut request, tree) = match admitted {
            Admitted::Run(request, tree) => (request, tree),
            Admitted::Refused(request, status) => {
                compound.status = status;
                let header = self.protocol.reply(&request, status);
                frame.push_error(&header, request.signer);
                return Ok(true);
            }
            Admitted::Cancel(cancel) => {
                self.cancel(cancel)?;
                return Ok(true);
            }
        };
        let own = {
            let mut sessions = self.shared.sessions();
            let sealed = compound.sealed.is_some();
            self.protocol
                .run_own(&mut request, message, sealed, &mut sessions, Shared::now(), frame)?
        };
        match own {
            Own::No => self.execute(request, tree, message, rest, compound, frame, None),
            own => self.after_own(own, &request, compound, frame).map(|()| true),
        }
    }

    fn after_own(
        &mut self,
        own: Own,
        request: &Request,
        compound: &mut Compound,
        frame: &mut ReplyFrame,
    ) -> Result<(), Ended> {
        match own {
            Own::Replied | Own::No => {}
            Own::LoggedIn { session, replaced } => {
                self.failures.forgive(self.peer.ip());
                ops::session::logged_in(&self.shared, session, replaced.as_deref(), self.peer);
            }
            Own::LoggedOff(session) => {
                // What waits is answered first, with the key that is about to be forgotten.
                ops::session::ended(&self.shared, &session);
                self.read_mail()?;
                self.answer_parked(session.id)?;
                let reply = std::mem::replace(frame, ReplyFrame::new(Vec::new(), compound.sealed.is_some()));
                self.push(reply, compound.sealed)?;
                self.protocol.forget(session.id);
            }
            Own::LoginFailed(status, ended) => {
                Counters::add(&self.shared.counters.logins_failed, 1);
                self.shared.record(&Record {
                    action: "login",
                    peer: Some(self.peer),
                    user: None,
                    share: None,
                    path: None,
                    target: None,
                    status,
                });
                // Whoever guesses passwords waits, on a thread of its own.
                std::thread::sleep(self.failures.failed(self.peer.ip()));
                if let Some(session) = ended {
                    ops::session::ended(&self.shared, &session);
                    self.protocol.forget(session.id);
                }
                self.refuse(status, request, compound, frame);
            }
            Own::Failed(status) => self.refuse(status, request, compound, frame),
        }
        Ok(())
    }

    fn refuse(
        &mut self,
        status: NtStatus,
        request: &Request,
        compound: &mut Compound,
        frame: &mut ReplyFrame,
    ) {
        compound.status = status;
        let header = self.protocol.reply(request, status);
        frame.push_error(&header, request.signer);
    }

    /// Executes a request that is not the connection's own; `again`: the number of one that has waited.
    #[allow(clippy::too_many_arguments, reason = "a request and where it stands")]
    fn execute(
        &mut self,
        mut request: Request,
        tree: Option<ropeway_smb_proto::server::Tree>,
        message: &[u8],
        rest: &[u8],
        compound: &mut Compound,
        frame: &mut ReplyFrame,
        again: Option<u64>,
    ) -> Result<bool, Ended> {
        let number = again.unwrap_or_else(|| {
            self.number_last += 1;
            self.number_last
        });
        let waiter = WaiterId {
            connection: self.protocol.id(),
            request: number,
        };
        let may_offload = rest.is_empty() && compound.count() == 1;
        let mut context = Context {
            shared: &self.shared,
            protocol: &mut self.protocol,
            peer: self.peer,
            local: self.local,
            request: &request,
            tree: tree.as_ref(),
            message,
            compound,
            frame,
            waiter,
            may_offload,
            may_offload_write: may_offload && self.big_frame,
            again: again.is_some(),
            ticket: None,
        };
        let outcome = ops::execute(&mut context);
        let ticket = context.ticket.take();
        if ticket.is_some() || again.is_some() {
            let mut hub = self.shared.hub();
            if let Some(ticket) = ticket {
                hub.end_request(ticket);
            }
            if !matches!(outcome, Ok(Done::Wait)) {
                hub.forget(waiter);
            }
        }
        match outcome {
            Ok(Done::Replied) => {}
            Ok(Done::Wait) => {
                if request.async_id.is_none() {
                    let before =
                        std::mem::replace(frame, ReplyFrame::new(Vec::new(), compound.sealed.is_some()));
                    self.push(before, compound.sealed)?;
                    let header = self.protocol.interim(&mut request);
                    frame.push_error(&header, request.signer);
                }
                let parked = Parked {
                    session: request.session,
                    request,
                    message: message.to_vec(),
                    rest: rest.to_vec(),
                    compound: compound.clone(),
                };
                self.parked.insert(number, parked);
                self.shared.deliver();
                return Ok(false);
            }
            Ok(Done::Job(header, job)) => {
                let header = header.unwrap_or_else(|| self.protocol.reply(&request, NtStatus::SUCCESS));
                let reply = self.frame(compound.sealed);
                self.jobs.insert(number, compound.sealed);
                let mailbox = Arc::clone(&self.mailbox);
                let signer = request.signer;
                self.shared.pool.run(Box::new(move || {
                    mailbox.send(Message::Done(number, job(reply, header, signer), None));
                }));
                return Ok(true);
            }
            Ok(Done::Write(job)) => {
                let header = self.protocol.reply(&request, NtStatus::SUCCESS);
                let reply = self.frame(compound.sealed);
                self.jobs.insert(number, compound.sealed);
                let signer = request.signer;
                self.write = Some(BigWrite {
                    number,
                    start: 0,
                    job: Box::new(move |message| job(message, reply, header, signer)),
                });
                return Ok(true);
            }
            Ok(Done::Hangup(fault)) => return Err(Hangup(fault).into()),
            Err(status) => self.refuse(status, &request, compound, frame),
        }
        self.shared.deliver();
        Ok(true)
    }

    fn read_mail(&mut self) -> Result<(), Ended> {
        while let Some(message) = self.mailbox.take() {
            match message {
                Message::Wake(number) => self.wake(number)?,
                Message::Notify(number, status, changes) => self.notify(number, status, &changes)?,
                Message::Break(session, notification) => self.send_break(session, &notification)?,
                Message::Done(number, frame, buffer) => {
                    let sealed = self.jobs.remove(&number).flatten();
                    self.push(frame, sealed)?;
                    if let Some(buffer) = buffer {
                        self.input.recycle(buffer);
                    }
                }
                Message::Ended(session) => {
                    self.answer_parked(session)?;
                    if !self.shared.has_session(session) {
                        self.protocol.forget(session);
                    }
                }
                Message::Stop => self.stopped = true,
            }
        }
        Ok(())
    }

    /// Executes a request again that waited.
    fn wake(&mut self, number: u64) -> Result<(), Ended> {
        let Some(mut parked) = self.parked.remove(&number) else {
            return Ok(());
        };
        let mut frame = self.frame(parked.compound.sealed);
        let tree = {
            let sessions = self.shared.sessions();
            let session = sessions.get(parked.request.session);
            session.and_then(|session| session.tree(parked.request.tree).cloned())
        };
        let goes_on = if tree.is_none() {
            let status = status_of_gone(&parked.request, NtStatus::NETWORK_NAME_DELETED);
            self.refuse(status, &parked.request, &mut parked.compound, &mut frame);
            true
        } else {
            self.execute(
                parked.request,
                tree,
                &parked.message,
                &parked.rest,
                &mut parked.compound,
                &mut frame,
                Some(number),
            )?
        };
        let sealed = parked.compound.sealed;
        self.push(frame, sealed)?;
        if goes_on && !parked.rest.is_empty() {
            self.run_chain(&parked.rest, parked.compound)?;
        }
        Ok(())
    }

    fn notify(
        &mut self,
        number: u64,
        status: NtStatus,
        changes: &[FileNotifyInformation],
    ) -> Result<(), Ended> {
        let Some(mut parked) = self.parked.remove(&number) else {
            return Ok(());
        };
        let mut frame = self.frame(parked.compound.sealed);
        parked.compound.status = status;
        ops::notify::answer(
            &mut self.protocol,
            &parked.request,
            &parked.message,
            status,
            changes,
            &mut frame,
        );
        self.push(frame, parked.compound.sealed)?;
        if !parked.rest.is_empty() {
            self.run_chain(&parked.rest, parked.compound)?;
        }
        Ok(())
    }

    /// [MS-SMB2] 3.3.4.6, 3.3.4.7: not signed; sealed only where everything is.
    fn send_break(&mut self, session: SessionId, notification: &BreakNotification) -> Result<(), Ended> {
        let sealed = self.protocol.seals_everything(session).then_some(session);
        let mut header: Header = self.protocol.unsolicited(Command::OplockBreak);
        if sealed.is_some() {
            header.session_id = session;
        }
        let mut frame = self.frame(sealed);
        frame.push(&header, None, |w| notification.encode(w));
        self.push(frame, sealed)
    }

    /// [MS-SMB2] 3.3.5.16.
    fn cancel(&mut self, cancel: Cancel) -> Result<(), Ended> {
        let found = self.parked.iter().find(|(_, parked)| match cancel {
            Cancel::Async(id) => parked.request.async_id == Some(id),
            Cancel::Sync(id) => parked.request.header.message_id == id,
        });
        let Some(number) = found.map(|(number, _)| *number) else {
            return Ok(());
        };
        let Some(mut parked) = self.parked.remove(&number) else {
            return Ok(());
        };
        self.shared.hub().forget(WaiterId {
            connection: self.protocol.id(),
            request: number,
        });
        let mut frame = self.frame(parked.compound.sealed);
        self.refuse(
            NtStatus::CANCELLED,
            &parked.request,
            &mut parked.compound,
            &mut frame,
        );
        self.push(frame, parked.compound.sealed)?;
        if !parked.rest.is_empty() {
            self.run_chain(&parked.rest, parked.compound)?;
        }
        Ok(())
    }

    /// Answers all that still waits of a session that has ended.
    fn answer_parked(&mut self, session: SessionId) -> Result<(), Ended> {
        let connection = self.protocol.id();
        let of_session = self.parked.iter().filter(|(_, parked)| parked.session == session);
        let numbers: Vec<u64> = of_session.map(|(number, _)| *number).collect();
        for number in numbers {
            self.shared.hub().forget(WaiterId {
                connection,
                request: number,
            });
            let Some(mut parked) = self.parked.remove(&number) else {
                continue;
            };
            let mut frame = self.frame(parked.compound.sealed);
            let status = status_of_gone(&parked.request, NtStatus::USER_SESSION_DELETED);
            self.refuse(status, &parked.request, &mut parked.compound, &mut frame);
            self.push(frame, parked.compound.sealed)?;
        }
        Ok(())
    }
}

/// What a request is answered with that waited for something that is gone: a lock was never there.
fn status_of_gone(request: &Request, status: NtStatus) -> NtStatus {
    match request.header.command {
        Command::Lock => NtStatus::RANGE_NOT_LOCKED,
        Command::ChangeNotify => NtStatus::NOTIFY_CLEANUP,
        _ => status,
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let connection = self.protocol.id();
        let mut hub = self.shared.hub();
        for number in self.parked.keys() {
            hub.forget(WaiterId {
                connection,
                request: *number,
            });
        }
    }
}

/// Why serving ended.
enum Ended {
    Lost(std::io::Error),
    Hangup(Hangup),
}

impl From<std::io::Error> for Ended {
    fn from(error: std::io::Error) -> Self {
        Self::Lost(error)
    }
}

impl From<Hangup> for Ended {
    fn from(fault: Hangup) -> Self {
        Self::Hangup(fault)
    }
}
