//! The connection: numbers, signatures, and which response belongs to which request.

use std::collections::{HashMap, VecDeque};

use ropeway_block::Block as Payload;
use ropeway_smb_wire::{NtStatus, Writer};

use super::config::{Config, Entropy, Negotiated};
use super::error::{EndReason, LoginError, Misuse, PeerMisbehaved};
use super::login::Login;
use super::request::Request;
use crate::header::{Command, Flags, Flags2, HEADER_LEN, Header};
use crate::message::Block;
use crate::signing::Signer;
use crate::wire::assembly::Assembly;
use crate::wire::locking::LockingRequest;
use crate::wire::transaction::{Kind, Limits, Piece, Totals};

/// Longest message in bytes. The largest have 65,535 bytes, and large reads up to 128 KiB of data
/// ([MS-SMB] 3.3.5.7); with room for headers.
pub const MESSAGE_LEN_MAX: usize = (128 << 10) + 4096;

/// Maximum number of events that the owner has not collected. A guess; each request causes one.
const EVENTS_MAX: usize = 1024;

/// Number of a submitted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A part of a message to send.
#[derive(Clone, Debug)]
pub enum Part {
    /// Bytes.
    Bytes(Vec<u8>),
    /// Data of a caller.
    Payload(Payload),
}

impl Part {
    /// Returns the bytes.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Payload(payload) => payload,
        }
    }
}

/// A response.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Its header.
    pub header: Header,
    /// The whole message; of a transaction the last one.
    pub message: Vec<u8>,
    /// What a transaction returned.
    pub transaction: Option<TransactionReply>,
}

impl Reply {
    /// Returns the block after the header.
    ///
    /// # Errors
    /// Truncation.
    pub fn block(&self) -> ropeway_smb_wire::Result<Block<'_>> {
        Block::first(&self.message)
    }
}

/// What a transaction returned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransactionReply {
    /// Setup words.
    pub setup: Vec<u16>,
    /// Parameters.
    pub parameters: Vec<u8>,
    /// Data.
    pub data: Vec<u8>,
}

/// What the owner has to know.
#[derive(Clone, Debug)]
pub enum Event {
    /// The login succeeded.
    Ready,
    /// A response. `ticket` is that of its request.
    Replied {
        /// The request.
        ticket: Ticket,
        /// The response, also one with an error.
        reply: Box<Reply>,
    },
    /// The server breaks an oplock.
    Break {
        /// The tree.
        tid: u16,
        /// What the server asks for.
        request: LockingRequest,
    },
    /// The connection has ended.
    Ended(EndReason),
}

/// The phase of a connection.
pub(super) enum Phase {
    /// NEGOTIATE was sent.
    Negotiating,
    /// SESSION_SETUP was sent.
    LoggingIn(Box<Login>),
    Ready,
    Ended,
}

/// A request in flight.
struct Pending {
    ticket: Ticket,
    command: Command,
    tid: u16,
    /// Sequence number of the response's signature.
    sequence: u32,
    transaction: Option<PendingTransaction>,
}

struct PendingTransaction {
    kind: Kind,
    limits: Limits,
    assembly: Option<Assembly>,
    setup: Vec<u16>,
}

/// The client end of one connection.
pub struct Connection {
    pub(super) config: Config,
    pub(super) entropy: Entropy,
    pub(super) phase: Phase,
    pub(super) negotiated: Option<Negotiated>,
    pub(super) uid: u16,
    pub(super) signer: Option<Signer>,
    /// Sequence number of the next request's signature.
    pub(super) sequence: u32,
    pending: HashMap<u16, Pending>,
    mid_last: u16,
    ticket_last: u64,
    output: VecDeque<Vec<Part>>,
    events: VecDeque<Event>,
}

impl Connection {
    /// Begins a connection with NEGOTIATE.
    pub fn new(config: Config, entropy: Entropy) -> Self {
        let mut connection = Self {
            config,
            entropy,
            phase: Phase::Negotiating,
            negotiated: None,
            uid: 0,
            signer: None,
            sequence: 0,
            pending: HashMap::new(),
            mid_last: 0,
            ticket_last: 0,
            output: VecDeque::new(),
            events: VecDeque::new(),
        };
        connection.negotiate();
        connection
    }

    /// Returns what the negotiation settled.
    pub fn negotiated(&self) -> Option<&Negotiated> {
        self.negotiated.as_ref()
    }

    /// Returns the settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns whether messages are signed.
    pub fn is_signing(&self) -> bool {
        self.signer.is_some()
    }

    /// Returns the number of requests in flight.
    pub fn in_flight(&self) -> usize {
        self.pending.len()
    }

    /// Returns how many more requests may be submitted now.
    pub fn room(&self) -> usize {
        match (&self.phase, &self.negotiated) {
            (Phase::Ready, Some(negotiated)) => {
                usize::from(negotiated.in_flight_max).saturating_sub(self.pending.len())
            }
            _ => 0,
        }
    }

    /// Returns the password for a share of a server that has passwords for shares, as
    /// TREE_CONNECT_ANDX carries it; a zero byte for all other servers.
    pub fn share_password(&self) -> Vec<u8> {
        self.password_of_share().unwrap_or_else(|| vec![0])
    }

    /// Sends a request.
    ///
    /// # Errors
    /// The reason, with the request.
    pub fn submit(&mut self, request: Request) -> Result<Ticket, (Misuse, Request)> {
        let Some(negotiated) = self
            .negotiated
            .as_ref()
            .filter(|_| matches!(self.phase, Phase::Ready))
        else {
            return Err((Misuse::NotReady, request));
        };
        if self.room() == 0 {
            return Err((Misuse::TooMany, request));
        }
        let most = match request.payload {
            Some(_) => MESSAGE_LEN_MAX,
            // What has no payload has a 16-bit count of bytes.
            None => usize::try_from(negotiated.max_buffer_size.min(u32::from(u16::MAX))).unwrap_or(0),
        };
        if request.len() > most {
            return Err((Misuse::TooLong, request));
        }
        let is_transaction = request.transaction.map(|(kind, limits)| PendingTransaction {
            kind,
            limits,
            assembly: None,
            setup: Vec::new(),
        });
        Ok(self.send(request, is_transaction))
    }

    /// Numbers, signs and queues a request.
    fn send(&mut self, request: Request, transaction: Option<PendingTransaction>) -> Ticket {
        let mid = self.next_mid();
        let ticket = self.next_ticket();
        let Request {
            command,
            tid,
            flags2,
            mut message,
            payload,
            ..
        } = request;
        let header = Header {
            command,
            flags: Flags::CASE_INSENSITIVE | Flags::CANONICALIZED_PATHS,
            flags2: self.flags2() | flags2,
            pid: self.config.pid,
            tid,
            uid: self.uid,
            mid,
            ..Header::default()
        };
        let sequence = self.seal(&header, &mut message, payload.as_ref());
        self.pending.insert(
            mid,
            Pending {
                ticket,
                command,
                tid,
                sequence: sequence.wrapping_add(1),
                transaction,
            },
        );
        let mut parts = vec![Part::Bytes(message)];
        parts.extend(payload.map(Part::Payload));
        self.output.push_back(parts);
        ticket
    }

    /// Writes the header into a message and signs it. Returns its sequence number.
    fn seal(&mut self, header: &Header, message: &mut [u8], payload: Option<&Payload>) -> u32 {
        let mut head = Vec::with_capacity(HEADER_LEN);
        header.encode(&mut Writer::new(&mut head));
        message[..HEADER_LEN].copy_from_slice(&head);
        let sequence = self.sequence;
        if let Some(signer) = &self.signer {
            let rest: &[&[u8]] = match payload {
                Some(payload) => &[payload],
                None => &[],
            };
            signer.sign(message, rest, sequence);
            // A response takes the number in between ([MS-CIFS] 3.2.4.1.1). A cancelled request is
            // answered with its own number, so NT_CANCEL takes one only.
            let step = if header.command == Command::NT_CANCEL {
                1
            } else {
                2
            };
            self.sequence = sequence.wrapping_add(step);
        }
        sequence
    }

    fn flags2(&self) -> Flags2 {
        let mut flags2 = Flags2::LONG_NAMES | Flags2::IS_LONG_NAME | Flags2::EAS;
        match &self.negotiated {
            Some(negotiated) => {
                use crate::wire::negotiate::Capabilities;
                if negotiated.unicode {
                    flags2 |= Flags2::UNICODE;
                }
                if negotiated.capabilities.contains(Capabilities::STATUS32) {
                    flags2 |= Flags2::NT_STATUS;
                }
                if negotiated.challenge.is_none() {
                    flags2 |= Flags2::EXTENDED_SECURITY;
                }
                if negotiated.signs {
                    flags2 |= Flags2::SECURITY_SIGNATURE;
                }
            }
            None => {
                flags2 |= Flags2::NT_STATUS | Flags2::SECURITY_SIGNATURE;
                if self.config.unicode {
                    flags2 |= Flags2::UNICODE;
                }
                if self.config.extended_security {
                    flags2 |= Flags2::EXTENDED_SECURITY;
                }
                if self.config.signing == ropeway_smb_proto::client::Signing::Required {
                    flags2 |= Flags2::SECURITY_SIGNATURE_REQUIRED;
                }
            }
        }
        flags2
    }

    /// Sends a request of the login.
    pub(super) fn send_login(&mut self, command: Command, encode: impl FnOnce(&mut Writer<'_>)) {
        let request = Request::new(command, Header::NONE, encode);
        self.send(request, None);
    }

    /// Returns a number that no request in flight has; 0 and that of oplock breaks are not used.
    fn next_mid(&mut self) -> u16 {
        loop {
            self.mid_last = self.mid_last.wrapping_add(1);
            let is_free = !self.pending.contains_key(&self.mid_last);
            if self.mid_last != 0 && self.mid_last != Header::MID_BREAK && is_free {
                return self.mid_last;
            }
        }
    }

    fn next_ticket(&mut self) -> Ticket {
        self.ticket_last += 1;
        Ticket(self.ticket_last)
    }

    /// Asks the server to hurry a request that may wait for long. Its response comes nevertheless.
    pub fn cancel(&mut self, ticket: Ticket) {
        let found = self.pending.iter().find(|(_, pending)| pending.ticket == ticket);
        let Some((mid, pending)) = found else { return };
        let header = Header {
            command: Command::NT_CANCEL,
            flags: Flags::CASE_INSENSITIVE | Flags::CANONICALIZED_PATHS,
            flags2: self.flags2(),
            pid: self.config.pid,
            tid: pending.tid,
            uid: self.uid,
            mid: *mid,
            ..Header::default()
        };
        let mut message =
            Request::new(Command::NT_CANCEL, pending.tid, crate::wire::close::encode_empty).message;
        self.seal(&header, &mut message, None);
        self.output.push_back(vec![Part::Bytes(message)]);
    }

    /// Acknowledges the break of an oplock: the client gives it up. The server does not answer.
    pub fn acknowledge_break(&mut self, tid: u16, request: &LockingRequest) {
        if !matches!(self.phase, Phase::Ready) {
            return;
        }
        let mid = self.next_mid();
        let header = Header {
            command: Command::LOCKING_ANDX,
            flags: Flags::CASE_INSENSITIVE | Flags::CANONICALIZED_PATHS,
            flags2: self.flags2(),
            pid: self.config.pid,
            tid,
            uid: self.uid,
            mid,
            ..Header::default()
        };
        let mut message = Request::new(Command::LOCKING_ANDX, tid, |w| request.encode(w)).message;
        self.seal(&header, &mut message, None);
        self.output.push_back(vec![Part::Bytes(message)]);
    }

    /// Processes a message of the server.
    pub fn receive(&mut self, message: Vec<u8>) {
        if matches!(self.phase, Phase::Ended) {
            return;
        }
        if let Err(fault) = self.accept(message) {
            self.end(fault.into());
        }
    }

    fn accept(&mut self, message: Vec<u8>) -> Result<(), PeerMisbehaved> {
        if message.len() > MESSAGE_LEN_MAX {
            return Err(PeerMisbehaved::TooLong);
        }
        let header = Header::decode(&message)?;
        if header.mid == Header::MID_BREAK && header.command == Command::LOCKING_ANDX {
            let request = LockingRequest::decode(&Block::first(&message)?)?;
            return self.push(Event::Break {
                tid: header.tid,
                request,
            });
        }
        if !header.flags.contains(Flags::REPLY) {
            return Err(PeerMisbehaved::NotAReply);
        }
        let Some(pending) = self.pending.get_mut(&header.mid) else {
            return Err(PeerMisbehaved::Unasked(header.mid));
        };
        if pending.command != header.command {
            return Err(PeerMisbehaved::WrongCommand(header.command));
        }
        if let Some(signer) = &self.signer {
            signer
                .verify(&message, pending.sequence)
                .map_err(|_| PeerMisbehaved::BadSignature)?;
        }
        if let Some(transaction) = &mut pending.transaction
            && !transaction.add(&header, &message)?
        {
            return Ok(());
        }
        let Some(pending) = self.pending.remove(&header.mid) else {
            return Ok(());
        };
        if !matches!(self.phase, Phase::Ready) {
            return self.continue_login(&header, &message, pending.sequence);
        }
        let reply = Reply {
            header,
            message,
            transaction: pending.transaction.map(PendingTransaction::finish),
        };
        self.push(Event::Replied {
            ticket: pending.ticket,
            reply: Box::new(reply),
        })
    }

    fn push(&mut self, event: Event) -> Result<(), PeerMisbehaved> {
        if self.events.len() >= EVENTS_MAX {
            return Err(PeerMisbehaved::Flood);
        }
        self.events.push_back(event);
        Ok(())
    }

    /// Notes that the login succeeded.
    pub(super) fn ready(&mut self) {
        self.phase = Phase::Ready;
        self.events.push_back(Event::Ready);
    }

    /// Ends the connection because the login failed.
    pub(super) fn login_failed(&mut self, fault: LoginError) {
        self.end(fault.into());
    }

    /// Ends the connection: its requests will not be answered.
    pub fn end(&mut self, reason: EndReason) {
        if !matches!(self.phase, Phase::Ended) {
            self.phase = Phase::Ended;
            self.pending.clear();
            self.output.clear();
            self.events.push_back(Event::Ended(reason));
        }
    }

    /// Returns the next message to send.
    pub fn poll_transmit(&mut self) -> Option<Vec<Part>> {
        self.output.pop_front()
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

impl PendingTransaction {
    /// Adds a response. Returns whether it was the last.
    fn add(&mut self, header: &Header, message: &[u8]) -> Result<bool, PeerMisbehaved> {
        let block = Block::first(message)?;
        if block.word_count() == 0 {
            // An error, or an empty success of an old server. Interim responses do not come: this
            // client sends no secondary requests.
            return Ok(true);
        }
        let piece = Piece::decode_response(self.kind, &block)?.unwrap_or_default();
        let limits = Totals {
            parameters: usize::try_from(self.limits.parameters).unwrap_or(usize::MAX),
            data: usize::try_from(self.limits.data).unwrap_or(usize::MAX),
        };
        if piece.totals.parameters > limits.parameters
            || piece.totals.data > limits.data
            || piece.setup.len() > usize::from(self.limits.setup)
        {
            return Err(PeerMisbehaved::TooLong);
        }
        let assembly = self.assembly.get_or_insert_with(|| Assembly::new(piece.totals));
        if !piece.setup.is_empty() {
            self.setup.clone_from(&piece.setup);
        }
        let is_whole = assembly.add(&piece)?;
        // A piece of nothing would let the server keep the request for ever.
        let is_empty = piece.parameters.1.is_empty() && piece.data.1.is_empty();
        if is_empty && !is_whole && header.status != NtStatus::BUFFER_OVERFLOW {
            return Err(PeerMisbehaved::TooLong);
        }
        Ok(is_whole || is_empty)
    }

    fn finish(self) -> TransactionReply {
        let (parameters, data) = self.assembly.unwrap_or_default().into_parts();
        TransactionReply {
            setup: self.setup,
            parameters,
            data,
        }
    }
}
