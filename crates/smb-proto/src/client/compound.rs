//! The values that enter and leave a connection: compounds, replies, events, bytes to send.

use ropeway_block::{Block, BlockMut};
use ropeway_smb_wire::header::{Command, Header, HeaderFlags};
use ropeway_smb_wire::oplock_break::BreakNotification;
use ropeway_smb_wire::session_setup::SessionFlags;
use ropeway_smb_wire::{NtStatus, TreeId};

use super::{EndReason, LoginError};

/// One or several requests, sent in one frame.
#[derive(Debug, Default)]
pub struct Compound {
    /// The requests. At least one.
    pub operations: Vec<Operation>,
    /// Whether each operation inherits session, tree and file from the one before it ([MS-SMB2]
    /// 3.2.4.1.4). A related operation names the file [`ropeway_smb_wire::FileId::RELATED`] in its body.
    pub related: bool,
    /// Whether the frame must be encrypted, because the share demands it.
    pub encrypt: bool,
}

impl Compound {
    /// Returns a compound of a single request.
    pub fn one(operation: Operation) -> Self {
        Self {
            operations: vec![operation],
            ..Self::default()
        }
    }

    /// Returns a compound of related requests.
    pub fn related(operations: Vec<Operation>) -> Self {
        Self {
            operations,
            related: true,
            encrypt: false,
        }
    }
}

/// One request.
#[derive(Debug)]
pub struct Operation {
    /// The command.
    pub command: Command,
    /// The tree connect; 0 for commands without one.
    pub tree: TreeId,
    /// Additional header flags: [`HeaderFlags::DFS_OPERATIONS`], [`HeaderFlags::REPLAY_OPERATION`].
    pub flags: HeaderFlags,
    /// The encoded body. Its offsets count the 64 bytes of the header that precede it.
    pub body: Vec<u8>,
    /// Whether the body is dropped once the request is built, and so missing when the operation comes back:
    /// for a long one whose caller keeps what it consists of.
    pub forget_body: bool,
    /// The data of a WRITE. It follows the body.
    pub payload: Option<Block>,
    /// The block for the data of a READ. It must hold at least the length that the body asks for.
    pub receive: Option<BlockMut>,
    /// Length of the longest expected reply, in bytes. It determines the credit charge ([MS-SMB2]
    /// 3.2.4.1.5).
    pub response_max: u32,
}

impl Operation {
    /// Creates a request without data whose reply is short.
    pub fn new(command: Command, tree: TreeId, body: Vec<u8>) -> Self {
        Self {
            command,
            tree,
            flags: HeaderFlags::default(),
            body,
            forget_body: false,
            payload: None,
            receive: None,
            response_max: 0,
        }
    }

    /// Creates a request whose body is written by `encode`.
    pub fn encoded(
        command: Command,
        tree: TreeId,
        encode: impl FnOnce(&mut ropeway_smb_wire::Writer<'_>),
    ) -> Self {
        let mut message = vec![0; ropeway_smb_wire::header::HEADER_LEN];
        encode(&mut ropeway_smb_wire::Writer::within(&mut message, 0));
        message.drain(..ropeway_smb_wire::header::HEADER_LEN);
        Self::new(command, tree, message)
    }
}

/// The reply to one operation.
#[derive(Debug)]
pub struct Reply {
    /// The header, which carries the status.
    pub header: Header,
    /// The message from its header on, without the data of a READ.
    pub message: Vec<u8>,
    /// The block with the data of a READ, cut to the bytes that were read. It may be a different
    /// block than the operation's, but never smaller than the length asked for.
    pub payload: Option<BlockMut>,
    /// The payload of a WRITE as submitted, if any request of its compound failed, so that the
    /// caller can write it by another route. `None` if the payload was sealed in place and another
    /// handle to the block still exists.
    pub returned: Option<Block>,
}

impl Reply {
    /// Returns the status of the reply.
    pub fn status(&self) -> NtStatus {
        self.header.status
    }

    /// Returns a reader positioned at the body.
    pub fn body(&self) -> ropeway_smb_wire::Reader<'_> {
        ropeway_smb_wire::Reader::at(
            &self.message,
            ropeway_smb_wire::header::HEADER_LEN,
            "SMB2 response",
        )
    }
}

/// Identifies a submitted compound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub(super) u64);

/// Why a compound has no replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// [`super::Connection::cancel`] withdrew it before it was sent.
    Cancelled,
    /// [`super::Connection::take_back`] took it back before it was sent.
    TakenBack,
    /// The server does not grant enough credits for it. A smaller compound may pass.
    CreditsShort,
    /// It asked for encryption and the session cannot encrypt.
    NoEncryption,
    /// The connection ended.
    Ended,
    /// The server rejected it unexecuted (STATUS_FILE_NOT_AVAILABLE): a channel was lost, and the
    /// request may date from before the loss. Send it again with [`HeaderFlags::REPLAY_OPERATION`]
    /// ([MS-SMB2] 3.2.5.12, 3.2.5.14, 3.2.5.18).
    Outdated,
}

/// Reports a change of the connection's state, or the outcome of a compound.
#[derive(Debug)]
pub enum Event {
    /// The negotiation is complete; [`super::Connection::negotiated`] returns its result.
    Negotiated,
    /// The session is established; queued requests are sent from now on.
    Authenticated {
        /// The kind of session.
        flags: SessionFlags,
    },
    /// The login failed and there is no session. Another login may be tried.
    LoginFailed(LoginError),
    /// The session has expired: log in again ([`super::Connection::log_in`]). Compounds submitted
    /// from now on wait for the login. Those answered with `NETWORK_SESSION_EXPIRED` may be
    /// submitted again at once.
    SessionExpired,
    /// All replies of a compound, in the order of its operations.
    Replied {
        /// The compound.
        ticket: Ticket,
        /// The replies.
        replies: Vec<Reply>,
    },
    /// A compound will have no replies.
    Dropped {
        /// The compound.
        ticket: Ticket,
        /// The operations as submitted. A body that was sent is missing if
        /// [`forget_body`](Operation::forget_body) is set. The payload of an operation that was sent is missing if it
        /// was sealed in place and another handle to its block still exists, such as an undropped
        /// [`super::Part`].
        operations: Vec<Operation>,
        /// Whether the server may have received it.
        sent: bool,
        /// The reason.
        reason: DropReason,
    },
    /// The server breaks an oplock or a lease.
    Broke(BreakNotification),
    /// The connection ended. No event follows.
    Ended(EndReason),
}

/// Bytes to send, in order.
#[derive(Debug, Default)]
pub struct Transmit {
    /// The parts, in order.
    pub parts: Vec<Part>,
}

impl Transmit {
    /// Returns the number of bytes in all parts.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.as_slice().len()).sum()
    }

    /// Returns whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

/// A part of a transmit. Drop it once it has been sent.
#[derive(Debug)]
pub enum Part {
    /// Headers and small messages.
    Bytes(Vec<u8>),
    /// A block, preceded by this many bytes of its headroom.
    Framed(Block, usize),
}

impl Part {
    /// Returns the bytes.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Framed(block, head) => block.framed(*head),
        }
    }
}

/// Where to receive: fill `first`, then `second`.
#[derive(Debug)]
pub struct Receive<'a> {
    /// The rest of the message being received; may be empty.
    pub first: &'a mut [u8],
    /// Buffer space for the messages that follow.
    pub second: &'a mut [u8],
}
