//! One connection: which requests are admitted, in which session, and how replies are protected
//! ([MS-SMB2] 3.3.1.7, 3.3.5.2).

use std::collections::HashMap;
use std::sync::Arc;

use ropeway_smb_wire::bare::{EchoRequest, EchoResponse, LogoffRequest, LogoffResponse};
use ropeway_smb_wire::frame::{FRAME_HEADER_LEN, FRAME_LEN_MAX, Protocol};
use ropeway_smb_wire::header::{Command, HEADER_LEN, Header, HeaderFlags, Target};
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_smb_wire::transform::TransformHeader;
use ropeway_smb_wire::{AsyncId, FileTime, MessageId, NtStatus, Reader, SessionId, TreeId};

use super::channel::Channel;
use super::compound::CompoundState;
use super::config::Config;
use super::hub::ConnectionId;
use super::login::Login;
use super::negotiate::Negotiated;
use super::reply::ReplyFrame;
use super::sessions::{Session, SessionSnapshot, Sessions, Tree};
use super::window::Window;
use crate::compression;
use crate::crypto::{Preauth, TRANSFORM_HEADER_LEN};

/// The client violated the protocol. The connection must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client sent {0}")]
pub struct PeerMisbehaved(pub &'static str);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    New,
    /// An SMB 1 NEGOTIATE was answered; one of SMB 2 must follow.
    Smb1Seen,
    Negotiated,
}

/// The server end of one connection. Frames go in and frames come out; the owner executes the
/// operations in between.
pub struct Connection {
    pub(super) config: Arc<Config>,
    pub(super) id: ConnectionId,
    pub(super) phase: Phase,
    pub(super) preauth: Preauth,
    pub(super) negotiated: Option<Negotiated>,
    pub(super) window: Window,
    pub(super) channels: HashMap<SessionId, Channel>,
    pub(super) logins: HashMap<SessionId, Login>,
    /// `ConstrainedConnection` ([MS-SMB2] 3.3.1.7): no user has logged in yet.
    pub(super) is_constrained: bool,
    /// The session's own key, while a further channel is being bound.
    pub(super) binding: Option<(SessionId, Channel)>,
    /// The login whose preauthentication hash includes the next frame sent.
    pub(super) hash_next: Option<SessionId>,
    async_last: u64,
}

/// A frame whose messages can be read.
#[derive(Debug)]
pub struct OpenedFrame {
    /// Offset of the messages in the frame.
    pub start: usize,
    /// The messages, if the frame was compressed.
    pub decompressed: Option<Vec<u8>>,
    /// The session whose key opened it.
    pub sealed: Option<SessionId>,
    /// Whether it is an SMB 1 NEGOTIATE.
    pub is_smb1: bool,
}

/// A request to execute or to answer.
#[derive(Clone, Debug)]
pub struct Request {
    /// The header as received.
    pub header: Header,
    /// The session.
    pub session: SessionId,
    /// The tree; 0 for commands without one.
    pub tree: TreeId,
    /// The session whose key signs the reply.
    pub signer: Option<SessionId>,
    /// Whether it continues the request before it.
    pub related: bool,
    /// The id of a request that is answered later, unique on this connection.
    pub async_id: Option<AsyncId>,
}

/// What to do with a message.
#[derive(Debug)]
pub enum Admitted {
    /// Execute it, in this tree if the command has one.
    Run(Request, Option<Tree>),
    /// Answer with this status.
    Refused(Request, NtStatus),
    /// Cancel a request of that session. A CANCEL has no reply.
    Cancel(SessionId, Cancel),
    /// Do nothing and send no reply: the sender of a CANCEL lacks the right to it. A reply would
    /// carry the id of the request to cancel, and be taken for its reply.
    Ignored,
}

/// The request to cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancel {
    /// The request that was answered with STATUS_PENDING and this id.
    Async(AsyncId),
    /// The request with this message id.
    Sync(MessageId),
}

/// The outcome of [`Connection::run_connection_command`].
#[derive(Debug)]
pub enum ConnectionOutcome {
    /// The command is not handled by the connection. Execute it.
    Execute,
    /// The reply was pushed.
    Replied,
    /// A login succeeded.
    LoggedIn {
        /// The session.
        session: SessionId,
        /// The client's earlier session, already removed from the table. End it and keep its
        /// durable opens.
        replaced: Option<Box<Session>>,
    },
    /// The login failed. Answer with this status. The session is present if a failed
    /// reauthentication ended it, the user if the client named one.
    LoginFailed(NtStatus, Option<Box<Session>>, Option<String>),
    /// Answer with this status.
    Failed(NtStatus),
    /// The reply was pushed and the session removed from the table. Close its opens.
    LoggedOff(Box<Session>),
}

impl Connection {
    /// Creates a connection before its first frame.
    pub fn new(config: Arc<Config>, id: ConnectionId) -> Self {
        let window = Window::new(config.credits_max);
        Self {
            config,
            id,
            phase: Phase::New,
            preauth: Preauth::new(),
            negotiated: None,
            window,
            channels: HashMap::new(),
            logins: HashMap::new(),
            is_constrained: true,
            binding: None,
            hash_next: None,
            async_last: 0,
        }
    }

    /// Returns the id.
    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// Returns whether no NEGOTIATE has been answered.
    pub fn is_new(&self) -> bool {
        self.phase == Phase::New
    }

    /// Returns the result of NEGOTIATE.
    pub fn negotiated(&self) -> Option<&Negotiated> {
        self.negotiated.as_ref()
    }

    /// Returns the dialect; the oldest one before the negotiation.
    pub fn dialect(&self) -> Dialect {
        self.negotiated
            .as_ref()
            .map_or(Dialect::Smb202, |negotiated| negotiated.dialect)
    }

    /// Returns the maximum length of a frame in bytes. It is small until a login succeeds.
    pub fn frame_len_max(&self) -> usize {
        /// Tokens are at most 64 KiB long. A NEGOTIATE is much shorter.
        const UNKNOWN_MAX: usize = 128 << 10;
        /// Allowance for headers and the small requests of a compound.
        const HEADERS_MAX: usize = 1 << 20;
        match &self.negotiated {
            Some(negotiated) if !self.channels.is_empty() => {
                (negotiated.io_max as usize + HEADERS_MAX).min(FRAME_LEN_MAX)
            }
            _ => UNKNOWN_MAX,
        }
    }

    /// Decrypts and decompresses a frame, given without its 4 bytes of length.
    ///
    /// # Errors
    /// The frame does not decrypt, or is not SMB 2.
    pub fn open_frame(&self, frame: &mut [u8]) -> Result<OpenedFrame, PeerMisbehaved> {
        let mut opened = OpenedFrame {
            start: 0,
            decompressed: None,
            sealed: None,
            is_smb1: false,
        };
        let protocol =
            |bytes: &[u8]| Protocol::of(bytes).map_err(|_| PeerMisbehaved("bytes that are not SMB"));
        let mut kind = protocol(frame)?;
        if kind == Protocol::Transform {
            opened.sealed = Some(self.unseal(frame)?);
            opened.start = TRANSFORM_HEADER_LEN;
            kind = protocol(&frame[TRANSFORM_HEADER_LEN..])?;
        }
        if kind == Protocol::Compression {
            let both = self.accepted_compression();
            if !both.is_some() {
                return Err(PeerMisbehaved("a compressed message, which was not negotiated"));
            }
            let limit = self.frame_len_max();
            let plain = compression::decompress(&frame[opened.start..], both.algorithms, both.chained, limit)
                .map_err(|_| PeerMisbehaved("a compressed message that does not decompress"))?;
            kind = protocol(&plain)?;
            opened.decompressed = Some(plain);
        }
        match kind {
            Protocol::Smb2 => Ok(opened),
            Protocol::Smb1 if opened.sealed.is_none() => {
                opened.is_smb1 = true;
                Ok(opened)
            }
            _ => Err(PeerMisbehaved("a transform within a transform")),
        }
    }

    fn unseal(&self, frame: &mut [u8]) -> Result<SessionId, PeerMisbehaved> {
        let Some((head, message)) = frame.split_first_chunk_mut::<TRANSFORM_HEADER_LEN>() else {
            return Err(PeerMisbehaved("a truncated transform header"));
        };
        let header = TransformHeader::decode(&mut Reader::new(head, "SMB2 TRANSFORM_HEADER"))
            .map_err(|_| PeerMisbehaved("a malformed transform header"))?;
        // [MS-SMB2] 3.3.5.2.1.1.
        let channel = self.channels.get(&header.session_id);
        if self.is_constrained && channel.is_some_and(|channel| channel.is_anonymous) {
            return Err(PeerMisbehaved("a sealed message before a user has logged in"));
        }
        let opener = channel.and_then(Channel::opener);
        let opener = opener.ok_or(PeerMisbehaved("a sealed message without a session"))?;
        if header.original_message_size as usize != message.len() {
            return Err(PeerMisbehaved("a sealed message with a wrong length"));
        }
        opener
            .open(head, message)
            .map_err(|_| PeerMisbehaved("a sealed message that does not decrypt"))?;
        Ok(header.session_id)
    }

    /// Answers an SMB 1 NEGOTIATE with an SMB 2 reply.
    ///
    /// # Errors
    /// The request does not offer SMB 2, or comes too late.
    pub fn accept_smb1(&mut self, message: &[u8], wall_time: FileTime) -> Result<Vec<u8>, PeerMisbehaved> {
        let frame = self.negotiate_smb1(message, wall_time)?;
        self.finish(frame, None)
    }

    /// Checks whether the next message of a frame may be executed. `message` extends from its
    /// header to the next one. `session` is a snapshot of the session and tree that [`CompoundState::scope`]
    /// returns for the message; `None` if the session does not exist. No lock is needed while the
    /// signature is checked.
    ///
    /// # Errors
    /// The connection must end.
    pub fn admit(
        &mut self,
        compound: &mut CompoundState,
        message: &[u8],
        session: Option<SessionSnapshot>,
    ) -> Result<Admitted, PeerMisbehaved> {
        let mut header = Header::decode(&mut Reader::new(message, "SMB2 header"))
            .map_err(|_| PeerMisbehaved("a message without an SMB 2 header"))?;
        if let Some(signature) = compound.signature.take() {
            header.signature = signature;
        }
        if header.is_response() {
            return Err(PeerMisbehaved("a response"));
        }
        if header.command == Command::Cancel && self.phase == Phase::Negotiated {
            if !self.may_cancel(compound, &header, message) {
                return Ok(Admitted::Ignored);
            }
            let which = match header.target {
                Target::Async(id) => Cancel::Async(id),
                Target::Sync(_) => Cancel::Sync(header.message_id),
            };
            return Ok(Admitted::Cancel(header.session_id, which));
        }
        if self.phase != Phase::Negotiated && header.command != Command::Negotiate {
            return Err(PeerMisbehaved("a request before NEGOTIATE"));
        }
        let multi_credit = self
            .negotiated
            .as_ref()
            .is_some_and(|negotiated| negotiated.multi_credit);
        let charge = if multi_credit { header.credit_charge } else { 1 };
        self.window
            .take(header.message_id.0, charge)
            .map_err(|_| PeerMisbehaved("a message id that it was not granted"))?;
        let related = header.flags.contains(HeaderFlags::RELATED_OPERATIONS);
        compound.scope = compound.scope_of(&header);
        if !related {
            compound.file = None;
            compound.is_lost = false;
        } else if compound.count == 0 {
            compound.is_lost = true;
        }
        compound.count += 1;
        let mut request = Request {
            session: compound.scope.session,
            tree: compound.scope.tree,
            signer: None,
            related,
            async_id: None,
            header,
        };
        // A related request without a predecessor, or after one without a session
        // (smb2.compound.invalid1, invalid2).
        if related && compound.is_lost {
            return Ok(Admitted::Refused(request, NtStatus::INVALID_PARAMETER));
        }
        Ok(match self.check(compound, &mut request, message, session)? {
            Ok(tree) => Admitted::Run(request, tree),
            Err(status) => {
                compound.is_lost = status == NtStatus::USER_SESSION_DELETED;
                compound.status = status;
                Admitted::Refused(request, status)
            }
        })
    }

    /// Returns whether a CANCEL is signed or sealed like any other request of its session
    /// ([MS-SMB2] 3.3.5.16, 3.3.5.2.4).
    fn may_cancel(&self, compound: &CompoundState, header: &Header, message: &[u8]) -> bool {
        if let Some(sealed) = compound.sealed {
            return sealed == header.session_id;
        }
        let Some(channel) = self.channels.get(&header.session_id) else {
            return false;
        };
        if channel.sealing_required {
            return false;
        }
        if !header.flags.contains(HeaderFlags::SIGNED) {
            return !channel.signing_required;
        }
        channel.verifies(header, message)
    }

    /// Checks session, signature, encryption and tree ([MS-SMB2] 3.3.5.2.4, .9, .11).
    fn check(
        &mut self,
        compound: &CompoundState,
        request: &mut Request,
        message: &[u8],
        session: Option<SessionSnapshot>,
    ) -> Result<Result<Option<Tree>, NtStatus>, PeerMisbehaved> {
        let header = &request.header;
        let command = header.command;
        // The keys of one session prove nothing about another, least of all those of an anonymous one.
        let (session_id, may_differ) = match command {
            Command::SessionSetup => (header.session_id, false),
            _ => (request.session, request.related),
        };
        if !may_differ && compound.sealed.is_some_and(|sealed| sealed != session_id) {
            return Err(PeerMisbehaved("sealed for another session"));
        }
        if matches!(command, Command::Negotiate | Command::SessionSetup) {
            return Ok(Ok(None));
        }
        if command == Command::Echo && request.session == SessionId::default() {
            return Ok(Ok(None));
        }
        let sealed = compound.sealed.is_some();
        let tree = session.map(|session| {
            assert_eq!(
                session.scope, compound.scope,
                "the snapshot is of the request's session and tree"
            );
            tree_of(request, session, sealed)
        });
        let (Some(channel), Some(tree)) = (self.channels.get(&request.session), tree) else {
            self.channels.remove(&request.session);
            return Ok(Err(NtStatus::USER_SESSION_DELETED));
        };
        let signed = header.flags.contains(HeaderFlags::SIGNED);
        if compound.sealed.is_none() {
            if signed {
                if !channel.verifies(header, message) {
                    return Ok(Err(NtStatus::ACCESS_DENIED));
                }
                request.signer = Some(request.session);
            } else if channel.signing_required {
                return Ok(Err(NtStatus::ACCESS_DENIED));
            }
            if channel.sealing_required {
                return Ok(Err(NtStatus::ACCESS_DENIED));
            }
            // [MS-SMB2] 3.3.5.7: a third party must not be able to choose the share.
            let is_protected = signed || channel.is_anonymous;
            if command == Command::TreeConnect && self.dialect() == Dialect::Smb311 && !is_protected {
                return Err(PeerMisbehaved("an unsigned TREE_CONNECT"));
            }
        }
        Ok(tree)
    }

    /// Handles the commands of the connection itself: NEGOTIATE, SESSION_SETUP, LOGOFF, ECHO.
    ///
    /// # Errors
    /// The connection must end.
    pub fn run_connection_command(
        &mut self,
        request: &mut Request,
        message: &[u8],
        sealed: bool,
        sessions: &mut Sessions,
        wall_time: FileTime,
        frame: &mut ReplyFrame,
    ) -> Result<ConnectionOutcome, PeerMisbehaved> {
        let body = || Reader::at(message, HEADER_LEN, "SMB2 request");
        Ok(match request.header.command {
            Command::Negotiate => match self.negotiate(&request.header, message, wall_time, frame)? {
                Ok(()) => ConnectionOutcome::Replied,
                Err(status) => ConnectionOutcome::Failed(status),
            },
            Command::SessionSetup => {
                self.session_setup(request, message, sealed, sessions, wall_time, frame)?
            }
            Command::Logoff => {
                if LogoffRequest::decode(&mut body()).is_err() {
                    return Ok(ConnectionOutcome::Failed(NtStatus::INVALID_PARAMETER));
                }
                let Some(session) = sessions.remove(request.session) else {
                    return Ok(ConnectionOutcome::Failed(NtStatus::USER_SESSION_DELETED));
                };
                let header = self.reply(request, NtStatus::SUCCESS);
                frame.push(&header, request.signer, |w| LogoffResponse.encode(w));
                ConnectionOutcome::LoggedOff(Box::new(session))
            }
            Command::Echo => {
                if EchoRequest::decode(&mut body()).is_err() {
                    return Ok(ConnectionOutcome::Failed(NtStatus::INVALID_PARAMETER));
                }
                let header = self.reply(request, NtStatus::SUCCESS);
                frame.push(&header, request.signer, |w| EchoResponse.encode(w));
                ConnectionOutcome::Replied
            }
            _ => ConnectionOutcome::Execute,
        })
    }

    /// Returns the header of a request's reply, with the credits it grants. A request that was
    /// answered with STATUS_PENDING received its credits then ([MS-SMB2] 3.3.4.1.2).
    pub fn reply(&mut self, request: &Request, status: NtStatus) -> Header {
        let mut header = request.header.reply(status);
        header.session_id = request.session;
        let is_signed = request.header.flags.contains(HeaderFlags::SIGNED);
        if is_signed && request.signer.is_none() && status.is_error() {
            // Windows and Samba return the signature that they could not verify. Clients expect
            // one, and do not verify it if the status says that there is no session.
            header.flags |= HeaderFlags::SIGNED;
            header.signature = request.header.signature;
        }
        match request.async_id {
            Some(id) => {
                header.flags |= HeaderFlags::ASYNC_COMMAND;
                header.target = Target::Async(id);
            }
            None => {
                header.flags = header.flags.difference(HeaderFlags::ASYNC_COMMAND);
                header.target = Target::Sync(request.tree);
                // A client that has not logged in yet has no use for more than one request at a time
                // ([MS-SMB2] 3.3.1.2).
                header.credits = match status {
                    NtStatus::MORE_PROCESSING_REQUIRED => self.window.grant(1),
                    _ => self.window.grant(request.header.credits),
                };
            }
        }
        header
    }

    /// Returns the header of an interim reply, which announces that the final reply comes later
    /// ([MS-SMB2] 3.3.4.2).
    pub fn interim(&mut self, request: &mut Request) -> Header {
        let credits = self.window.grant(request.header.credits);
        self.async_last += 1;
        request.async_id = Some(AsyncId(self.async_last));
        let mut header = self.reply(request, NtStatus::PENDING);
        header.credits = credits;
        header
    }

    /// Returns the header of a break notification, which answers no request.
    pub fn unsolicited(&self, command: Command) -> Header {
        let mut header = Header::request(command, MessageId::UNSOLICITED).reply(NtStatus::SUCCESS);
        header.credit_charge = 0;
        header
    }

    /// Checks that a request or its reply may have `size` bytes ([MS-SMB2] 3.3.5.2.5).
    ///
    /// # Errors
    /// [`NtStatus::INVALID_PARAMETER`]: more than negotiated, or more than the credits cover.
    pub fn check_size(&self, header: &Header, size: usize) -> Result<(), NtStatus> {
        let Some(negotiated) = &self.negotiated else {
            return Err(NtStatus::INVALID_PARAMETER);
        };
        let paid = if negotiated.multi_credit {
            usize::from(header.credit_charge.max(1))
        } else {
            1
        };
        if size > negotiated.io_max as usize || size.saturating_sub(1) / 65_536 >= paid {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        Ok(())
    }

    /// Signs, compresses or seals a frame.
    ///
    /// # Errors
    /// The key is used up.
    pub fn finish(
        &mut self,
        frame: ReplyFrame,
        sealed: Option<SessionId>,
    ) -> Result<Vec<u8>, PeerMisbehaved> {
        let bound = self.binding.take().map(|(session, channel)| {
            self.channels.insert(session, channel);
            session
        });
        let chained = self
            .negotiated
            .as_ref()
            .is_some_and(|both| both.compression.chained);
        let finished = frame.finish(&mut self.channels, sealed, chained);
        if let Some(session) = bound {
            self.channels.remove(&session);
        }
        let frame = finished.map_err(|_| PeerMisbehaved("more messages than a key may seal"))?;
        if let Some(login) = self
            .hash_next
            .take()
            .and_then(|login| self.logins.get_mut(&login))
        {
            login.preauth.update(&[&frame[FRAME_HEADER_LEN..]]);
        }
        Ok(frame)
    }

    /// Returns whether a session has keys to seal with.
    pub fn can_seal(&self, session: SessionId) -> bool {
        self.channels.get(&session).is_some_and(Channel::can_seal)
    }

    /// Returns whether every message of a session is sealed, break notifications included.
    pub fn seals_everything(&self, session: SessionId) -> bool {
        self.channels
            .get(&session)
            .is_some_and(|channel| channel.sealing_required)
    }

    /// Returns the sessions that have a channel on this connection.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.channels.keys().copied()
    }

    /// Returns whether a login with that session id is in progress on this connection.
    pub fn is_logging_in(&self, session: SessionId) -> bool {
        self.logins.contains_key(&session)
    }

    /// Forgets a session that ended elsewhere or was logged off. Call it after its last reply is
    /// finished.
    pub fn forget(&mut self, session: SessionId) {
        self.channels.remove(&session);
    }
}

/// Returns the tree of a request.
fn tree_of(request: &Request, session: SessionSnapshot, sealed: bool) -> Result<Option<Tree>, NtStatus> {
    match request.header.command {
        Command::Logoff | Command::Echo | Command::TreeConnect | Command::OplockBreak => Ok(None),
        _ => {
            let tree = session.tree.ok_or(NtStatus::NETWORK_NAME_DELETED)?;
            if tree.encrypt && !sealed {
                return Err(NtStatus::ACCESS_DENIED);
            }
            Ok(Some(tree))
        }
    }
}
