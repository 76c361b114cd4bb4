//! One connection: what may be asked on it, by whom, and how the answers are protected ([MS-SMB2] 3.3.1.7, 3.3.5.2).

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use super::channel::Channel;
use super::compound::Compound;
use super::config::Config;
use super::hub::ConnectionId;
use super::login::Login;
use super::negotiate::Negotiated;
use super::reply::ReplyFrame;
use super::sessions::{Session, Sessions, Tree};
use super::window::Window;
use crate::compression;
use crate::crypto::{Preauth, Sender, TRANSFORM_HEADER_LEN};
use ropeway_smb_wire::bare::{EchoRequest, EchoResponse, LogoffRequest, LogoffResponse};
use ropeway_smb_wire::frame::{FRAME_HEADER_LEN, FRAME_LEN_MAX, Protocol};
use ropeway_smb_wire::header::{Command, HEADER_LEN, Header, HeaderFlags, Target};
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_smb_wire::transform::TransformHeader;
use ropeway_smb_wire::{AsyncId, FileTime, MessageId, NtStatus, Reader, SessionId, TreeId};

/// Why a connection ends at once: what came was no SMB 2, or not in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client sent {0}")]
pub struct Hangup(pub &'static str);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    New,
    /// Answered an SMB 1 NEGOTIATE; one of SMB 2 is to follow.
    Smb1Seen,
    Negotiated,
}

/// The server's end of one connection. It is told frames and gives frames; what lies between, the operations, is its
/// owner's.
pub struct Connection {
    pub(super) config: Arc<Config>,
    pub(super) id: ConnectionId,
    pub(super) phase: Phase,
    pub(super) preauth: Preauth,
    pub(super) negotiated: Option<Negotiated>,
    pub(super) window: Window,
    pub(super) channels: HashMap<SessionId, Channel>,
    pub(super) logins: HashMap<SessionId, Login>,
    /// The session's own key, while a further channel of it is being set up.
    pub(super) binding: Option<(SessionId, Channel)>,
    /// The login whose hash takes in the next frame as it is sent.
    pub(super) hash_next: Option<SessionId>,
    async_last: u64,
}

/// A frame whose messages can be read.
#[derive(Debug)]
pub struct OpenedFrame {
    /// Where in the frame they begin.
    pub start: usize,
    /// The messages, if the frame was compressed.
    pub decompressed: Option<Vec<u8>>,
    /// The session whose key opened it.
    pub sealed: Option<SessionId>,
    /// It asks for SMB 1's NEGOTIATE.
    pub is_smb1: bool,
}

/// A request that may be executed, or has to be answered.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its header as received.
    pub header: Header,
    /// The session meant.
    pub session: SessionId,
    /// The tree meant; 0 for commands without.
    pub tree: TreeId,
    /// Whose key signs the reply.
    pub signer: Option<SessionId>,
    /// It takes over from the one before.
    pub related: bool,
    /// The connection's share of a session-wide number: set once it is answered later.
    pub async_id: Option<AsyncId>,
}

/// What is to become of a message.
#[derive(Debug)]
pub enum Admitted {
    /// Execute it, in this tree if the command has one.
    Run(Request, Option<Tree>),
    /// Answer with this status.
    Refused(Request, NtStatus),
    /// Withdraw a request of that session; there is no answer.
    Cancel(SessionId, Cancel),
    /// Do nothing, and do not answer: somebody without the right to it wants a request withdrawn. An answer would bear the
    /// id of that request, and be taken for its own.
    Ignored,
}

/// Which request to withdraw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancel {
    /// The one that was answered with STATUS_PENDING under this id.
    Async(AsyncId),
    /// The one with this message id.
    Sync(MessageId),
}

/// What the connection did with a request itself.
#[derive(Debug)]
pub enum Own {
    /// It is not the connection's: execute it.
    No,
    /// The reply was pushed.
    Replied,
    /// A login ended well; a session that the client had before is to be ended too, its durable opens kept.
    LoggedIn {
        /// The session.
        session: SessionId,
        /// The session that it replaces, taken off the table.
        replaced: Option<Box<Session>>,
    },
    /// To be answered with this status; somebody tried to log in, as this user if one was named, and failed. A failed renewal
    /// ends the session.
    LoginFailed(NtStatus, Option<Box<Session>>, Option<String>),
    /// To be answered with this status.
    Failed(NtStatus),
    /// The reply was pushed; the session is off the table, its opens are to be closed.
    LoggedOff(Box<Session>),
}

impl Connection {
    /// Before its first frame.
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
            binding: None,
            hash_next: None,
            async_last: 0,
        }
    }

    /// Its id.
    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// What was agreed on, once it was.
    pub fn negotiated(&self) -> Option<&Negotiated> {
        self.negotiated.as_ref()
    }

    /// The dialect; the oldest before it is agreed on.
    pub fn dialect(&self) -> Dialect {
        self.negotiated
            .as_ref()
            .map_or(Dialect::Smb202, |negotiated| negotiated.dialect)
    }

    /// The most bytes of a frame that this connection takes: little before anybody has logged in.
    pub fn frame_len_max(&self) -> usize {
        /// Tokens are no longer than 64 KiB; a NEGOTIATE is much shorter.
        const UNKNOWN_MAX: usize = 128 << 10;
        /// Room for what is not payload: other requests of the compound.
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
    /// It does not open, or is no SMB 2.
    pub fn open_frame(&self, frame: &mut [u8]) -> Result<OpenedFrame, Hangup> {
        let mut opened = OpenedFrame {
            start: 0,
            decompressed: None,
            sealed: None,
            is_smb1: false,
        };
        let protocol = |bytes: &[u8]| Protocol::of(bytes).map_err(|_| Hangup("no SMB"));
        let mut kind = protocol(frame)?;
        if kind == Protocol::Transform {
            opened.sealed = Some(self.unseal(frame)?);
            opened.start = TRANSFORM_HEADER_LEN;
            kind = protocol(&frame[TRANSFORM_HEADER_LEN..])?;
        }
        if kind == Protocol::Compression {
            let Some((algorithms, chained)) = self.negotiated.as_ref().and_then(|both| both.compression)
            else {
                return Err(Hangup("a compressed message that was not negotiated"));
            };
            let limit = self.frame_len_max();
            let plain = compression::decompress(&frame[opened.start..], algorithms, chained, limit)
                .map_err(|_| Hangup("a compressed message that does not decompress"))?;
            kind = protocol(&plain)?;
            opened.decompressed = Some(plain);
        }
        match kind {
            Protocol::Smb2 => Ok(opened),
            Protocol::Smb1 if opened.sealed.is_none() => {
                opened.is_smb1 = true;
                Ok(opened)
            }
            _ => Err(Hangup("a transform within a transform")),
        }
    }

    fn unseal(&self, frame: &mut [u8]) -> Result<SessionId, Hangup> {
        let Some((head, message)) = frame.split_first_chunk_mut::<TRANSFORM_HEADER_LEN>() else {
            return Err(Hangup("a truncated transform header"));
        };
        let header = TransformHeader::decode(&mut Reader::new(head, "SMB2 TRANSFORM_HEADER"))
            .map_err(|_| Hangup("a malformed transform header"))?;
        // [MS-SMB2] 3.3.5.2.1.1.
        let opener = self.channels.get(&header.session_id).and_then(Channel::opener);
        let opener = opener.ok_or(Hangup("a sealed message of no session"))?;
        if header.original_message_size as usize != message.len() {
            return Err(Hangup("a sealed message of another length than it says"));
        }
        opener
            .open(head, message)
            .map_err(|_| Hangup("a sealed message that does not open"))?;
        Ok(header.session_id)
    }

    /// The reply to an SMB 1 NEGOTIATE, in SMB 2.
    ///
    /// # Errors
    /// It offers no SMB 2, or comes too late.
    pub fn accept_smb1(&mut self, message: &[u8], now: FileTime) -> Result<Vec<u8>, Hangup> {
        let frame = self.negotiate_smb1(message, now)?;
        self.finish(frame, None)
    }

    /// Whether the next message of a frame may be executed. `message` goes from its header to the next one. The table of
    /// sessions, which may be a lock that others wait for, is let go before a signature is checked.
    ///
    /// # Errors
    /// The connection is to end.
    pub fn admit(
        &mut self,
        compound: &mut Compound,
        message: &[u8],
        sessions: impl Deref<Target = Sessions>,
    ) -> Result<Admitted, Hangup> {
        let header = Header::decode(&mut Reader::new(message, "SMB2 header"))
            .map_err(|_| Hangup("no SMB 2 header"))?;
        if header.is_response() {
            return Err(Hangup("a response"));
        }
        if header.command == Command::Cancel && self.phase == Phase::Negotiated {
            drop(sessions);
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
            return Err(Hangup("a request before NEGOTIATE"));
        }
        let multi_credit = self
            .negotiated
            .as_ref()
            .is_some_and(|negotiated| negotiated.multi_credit);
        let charge = if multi_credit { header.credit_charge } else { 1 };
        self.window
            .take(header.message_id.0, charge)
            .map_err(|_| Hangup("a message id that it was not granted"))?;
        let related = header.flags.contains(HeaderFlags::RELATED_OPERATIONS);
        let is_first = compound.count == 0;
        compound.count += 1;
        if !related {
            compound.session = header.session_id;
            compound.tree = header.tree_id().unwrap_or_default();
            compound.file = None;
            compound.is_lost = false;
        }
        if is_first && related {
            compound.session = header.session_id;
            compound.tree = header.tree_id().unwrap_or_default();
            compound.is_lost = true;
        }
        let mut request = Request {
            session: compound.session,
            tree: compound.tree,
            signer: None,
            related,
            async_id: None,
            header,
        };
        // What takes over from nothing, or from one that had no session (smb2.compound.invalid1, invalid2).
        if related && compound.is_lost {
            return Ok(Admitted::Refused(request, NtStatus::INVALID_PARAMETER));
        }
        Ok(match self.check(compound, &mut request, message, sessions)? {
            Ok(tree) => Admitted::Run(request, tree),
            Err(status) => {
                compound.is_lost = status == NtStatus::USER_SESSION_DELETED;
                compound.status = status;
                Admitted::Refused(request, status)
            }
        })
    }

    /// [MS-SMB2] 3.3.5.16, 3.3.5.2.4: a CANCEL is signed or sealed like any other request of its session.
    fn may_cancel(&self, compound: &Compound, header: &Header, message: &[u8]) -> bool {
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
        let signer = channel.signer();
        signer.is_some_and(|signer| signer.verify(Sender::Client, &[message]).is_ok())
    }

    /// Session, signature, encryption, tree ([MS-SMB2] 3.3.5.2.4, .9, .11).
    fn check(
        &mut self,
        compound: &Compound,
        request: &mut Request,
        message: &[u8],
        sessions: impl Deref<Target = Sessions>,
    ) -> Result<Result<Option<Tree>, NtStatus>, Hangup> {
        let header = &request.header;
        let command = header.command;
        if compound
            .sealed
            .is_some_and(|sealed| sealed != request.session && !request.related)
        {
            return Err(Hangup("a message of another session than the one that sealed it"));
        }
        if matches!(command, Command::Negotiate | Command::SessionSetup) {
            return Ok(Ok(None));
        }
        if command == Command::Echo && request.session == SessionId::default() {
            return Ok(Ok(None));
        }
        let sealed = compound.sealed.is_some();
        let tree = sessions
            .get(request.session)
            .map(|session| tree_of(request, session, sealed));
        drop(sessions);
        let (Some(channel), Some(tree)) = (self.channels.get(&request.session), tree) else {
            self.channels.remove(&request.session);
            return Ok(Err(NtStatus::USER_SESSION_DELETED));
        };
        let signed = header.flags.contains(HeaderFlags::SIGNED);
        if compound.sealed.is_none() {
            if signed {
                let Some(signer) = channel.signer() else {
                    return Ok(Err(NtStatus::ACCESS_DENIED));
                };
                if signer.verify(Sender::Client, &[message]).is_err() {
                    return Ok(Err(NtStatus::ACCESS_DENIED));
                }
                request.signer = Some(request.session);
            } else if channel.signing_required {
                return Ok(Err(NtStatus::ACCESS_DENIED));
            }
            if channel.sealing_required {
                return Ok(Err(NtStatus::ACCESS_DENIED));
            }
            // [MS-SMB2] 3.3.5.7: whoever is in the middle must not choose the share.
            let is_protected = signed || channel.signer().is_none();
            if command == Command::TreeConnect && self.dialect() == Dialect::Smb311 && !is_protected {
                return Err(Hangup("an unsigned TREE_CONNECT"));
            }
        }
        Ok(tree)
    }

    /// Does what is the connection's own: NEGOTIATE, SESSION_SETUP, LOGOFF, ECHO.
    ///
    /// # Errors
    /// The connection is to end.
    pub fn run_own(
        &mut self,
        request: &mut Request,
        message: &[u8],
        sealed: bool,
        sessions: &mut Sessions,
        now: FileTime,
        frame: &mut ReplyFrame,
    ) -> Result<Own, Hangup> {
        let body = || Reader::at(message, HEADER_LEN, "SMB2 request");
        Ok(match request.header.command {
            Command::Negotiate => match self.negotiate(&request.header, message, now, frame)? {
                Ok(()) => Own::Replied,
                Err(status) => Own::Failed(status),
            },
            Command::SessionSetup => self.session_setup(request, message, sealed, sessions, now, frame)?,
            Command::Logoff => {
                if LogoffRequest::decode(&mut body()).is_err() {
                    return Ok(Own::Failed(NtStatus::INVALID_PARAMETER));
                }
                let Some(session) = sessions.remove(request.session) else {
                    return Ok(Own::Failed(NtStatus::USER_SESSION_DELETED));
                };
                let header = self.reply(request, NtStatus::SUCCESS);
                frame.push(&header, request.signer, |w| LogoffResponse.encode(w));
                Own::LoggedOff(Box::new(session))
            }
            Command::Echo => {
                if EchoRequest::decode(&mut body()).is_err() {
                    return Ok(Own::Failed(NtStatus::INVALID_PARAMETER));
                }
                let header = self.reply(request, NtStatus::SUCCESS);
                frame.push(&header, request.signer, |w| EchoResponse.encode(w));
                Own::Replied
            }
            _ => Own::No,
        })
    }

    /// The header of a request's reply, with the credits that it grants. A request that was answered with STATUS_PENDING
    /// got its credits then ([MS-SMB2] 3.3.4.1.2).
    pub fn reply(&mut self, request: &Request, status: NtStatus) -> Header {
        let mut header = request.header.reply(status);
        header.session_id = request.session;
        let is_signed = request.header.flags.contains(HeaderFlags::SIGNED);
        if is_signed && request.signer.is_none() && status.is_error() {
            // Windows and Samba give a signature that they could not check back: clients want to see one, and do not
            // look at it where the status says that there is no session.
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
                header.credits = self.window.grant(request.header.credits);
            }
        }
        header
    }

    /// The interim reply that says that the answer comes later ([MS-SMB2] 3.3.4.2).
    pub fn interim(&mut self, request: &mut Request) -> Header {
        let credits = self.window.grant(request.header.credits);
        self.async_last += 1;
        request.async_id = Some(AsyncId(self.async_last));
        let mut header = self.reply(request, NtStatus::PENDING);
        header.credits = credits;
        header
    }

    /// The header of a message that no request asked for: a break.
    pub fn unsolicited(&self, command: Command) -> Header {
        let mut header = Header::request(command, MessageId::UNSOLICITED).reply(NtStatus::SUCCESS);
        header.credit_charge = 0;
        header
    }

    /// Whether a request may be of `size` bytes, of its own or of its answer ([MS-SMB2] 3.3.5.2.5).
    ///
    /// # Errors
    /// [`NtStatus::INVALID_PARAMETER`]: more than was agreed on, or than was paid for.
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
    pub fn finish(&mut self, frame: ReplyFrame, sealed: Option<SessionId>) -> Result<Vec<u8>, Hangup> {
        let bound = self.binding.take().map(|(session, channel)| {
            self.channels.insert(session, channel);
            session
        });
        let compression = self.negotiated.as_ref().and_then(|both| both.compression);
        let finished = frame.finish(&mut self.channels, sealed, compression);
        if let Some(session) = bound {
            self.channels.remove(&session);
        }
        let frame = finished.map_err(|_| Hangup("more messages than a key may seal"))?;
        if let Some(login) = self
            .hash_next
            .take()
            .and_then(|login| self.logins.get_mut(&login))
        {
            login.preauth.update(&[&frame[FRAME_HEADER_LEN..]]);
        }
        Ok(frame)
    }

    /// Whether a session has keys to seal with.
    pub fn can_seal(&self, session: SessionId) -> bool {
        self.channels.get(&session).is_some_and(Channel::can_seal)
    }

    /// Whether breaks to a session are sealed: everything of it is.
    pub fn seals_everything(&self, session: SessionId) -> bool {
        self.channels
            .get(&session)
            .is_some_and(|channel| channel.sealing_required)
    }

    /// The sessions that have a channel here.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.channels.keys().copied()
    }

    /// Whether a login under that id is under way here.
    pub fn is_logging_in(&self, session: SessionId) -> bool {
        self.logins.contains_key(&session)
    }

    /// Forgets a session that ended elsewhere or was logged off; call it once its last reply was finished.
    pub fn forget(&mut self, session: SessionId) {
        self.channels.remove(&session);
    }
}

/// The tree that a request is for.
fn tree_of(request: &Request, session: &Session, sealed: bool) -> Result<Option<Tree>, NtStatus> {
    match request.header.command {
        Command::Logoff | Command::Echo | Command::TreeConnect | Command::OplockBreak => Ok(None),
        _ => {
            let tree = session.tree(request.tree).ok_or(NtStatus::NETWORK_NAME_DELETED)?;
            if tree.encrypt && !sealed {
                return Err(NtStatus::ACCESS_DENIED);
            }
            Ok(Some(tree.clone()))
        }
    }
}
