//! What goes in and what comes out: requests, replies, events.

use ropeway_block::{Block, BlockMut};

use super::{EndReason, LoginError};
use ropeway_smb_wire::header::{Command, Header, HeaderFlags};
use ropeway_smb_wire::oplock_break::BreakNotification;
use ropeway_smb_wire::session_setup::SessionFlags;
use ropeway_smb_wire::{NtStatus, TreeId};

/// One or several requests, sent in one frame.
#[derive(Debug, Default)]
pub struct Chain {
    /// At least one.
    pub operations: Vec<Operation>,
    /// Each takes session, tree and file over from the one before ([MS-SMB2] 3.2.4.1.4); a related operation names the
    /// file [`ropeway_smb_wire::FileId::RELATED`] in its body.
    pub related: bool,
    /// The share demands encryption.
    pub encrypt: bool,
}

impl Chain {
    /// A single request.
    pub fn one(operation: Operation) -> Self {
        Self {
            operations: vec![operation],
            ..Self::default()
        }
    }

    /// Related requests.
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
    /// What is asked.
    pub command: Command,
    /// In which tree; 0 for none.
    pub tree: TreeId,
    /// More flags for the header: [`HeaderFlags::DFS_OPERATIONS`], [`HeaderFlags::REPLAY_OPERATION`].
    pub flags: HeaderFlags,
    /// The encoded body, offsets as if the 64 bytes of the header were in front.
    pub body: Vec<u8>,
    /// The data of a WRITE, which follows the body.
    pub payload: Option<Block>,
    /// Where the data of a READ goes; as large as the length in the body, at least.
    pub receive: Option<BlockMut>,
    /// The longest answer expected, in bytes, for the credit charge ([MS-SMB2] 3.2.4.1.5).
    pub response_max: u32,
}

impl Operation {
    /// A request without data and with a short answer.
    pub fn new(command: Command, tree: TreeId, body: Vec<u8>) -> Self {
        Self {
            command,
            tree,
            flags: HeaderFlags::default(),
            body,
            payload: None,
            receive: None,
            response_max: 0,
        }
    }

    /// A request whose body `encode` writes.
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

/// The answer to one operation.
#[derive(Debug)]
pub struct Reply {
    /// Its header; the status is there.
    pub header: Header,
    /// The whole message from its header on, without a READ's data.
    pub message: Vec<u8>,
    /// A READ's block with as many bytes as were read. The block may be another one than the operation's, no smaller
    /// than what was asked for.
    pub payload: Option<BlockMut>,
    /// A WRITE's payload as it was submitted, where a request of its chain failed: for whoever goes another way then.
    /// `None` also if it cannot be had any more, since it was sealed in its place and somebody else holds the block.
    pub returned: Option<Block>,
}

impl Reply {
    /// The outcome.
    pub fn status(&self) -> NtStatus {
        self.header.status
    }

    /// A reader of the message that stands at its body.
    pub fn body(&self) -> ropeway_smb_wire::Reader<'_> {
        ropeway_smb_wire::Reader::at(
            &self.message,
            ropeway_smb_wire::header::HEADER_LEN,
            "SMB2 response",
        )
    }
}

/// A submitted chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub(super) u64);

/// Why a chain has no answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// [`super::Connection::cancel`] before it was sent.
    Cancelled,
    /// The server does not grant enough credits for it; a smaller one may pass.
    CreditsShort,
    /// Encryption was asked for and the session has none.
    NoEncryption,
    /// The connection ended.
    Ended,
    /// The server refused it unheard (STATUS_FILE_NOT_AVAILABLE): a channel was lost meanwhile, and this may be from
    /// before. Send it again, as [`HeaderFlags::REPLAY_OPERATION`] ([MS-SMB2] 3.2.5.12, 3.2.5.14, 3.2.5.18).
    Outdated,
}

/// Something happened.
#[derive(Debug)]
pub enum Event {
    /// [`super::Connection::negotiated`] is there now.
    Negotiated,
    /// The session stands; requests flow.
    Authenticated {
        /// What kind of session.
        flags: SessionFlags,
    },
    /// There is no session; another login may be tried.
    LoginFailed(LoginError),
    /// The session has expired: log in again ([`super::Connection::log_in`]). Chains submitted from now on wait until then;
    /// those that were answered with `NETWORK_SESSION_EXPIRED` may be submitted again at once.
    SessionExpired,
    /// All answers of a chain, in its operations' order.
    Replied {
        /// Which.
        ticket: Ticket,
        /// The answers.
        replies: Vec<Reply>,
    },
    /// A chain will have no answers.
    Dropped {
        /// Which.
        ticket: Ticket,
        /// What was submitted. A sent operation's payload is missing if it was sealed in place and another handle on
        /// its block is still held, such as a [`super::Part`] not dropped.
        operations: Vec<Operation>,
        /// Whether the server may have seen it.
        sent: bool,
        /// Why.
        reason: DropReason,
    },
    /// The server calls a right to cache back.
    Broke(BreakNotification),
    /// Nothing more will come.
    Ended(EndReason),
}

/// Bytes to send, in order.
#[derive(Debug, Default)]
pub struct Transmit {
    /// The pieces.
    pub parts: Vec<Part>,
}

impl Transmit {
    /// Bytes of all parts.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.as_slice().len()).sum()
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

/// A piece of what is to be sent; drop it once it is.
#[derive(Debug)]
pub enum Part {
    /// Heads and small messages.
    Bytes(Vec<u8>),
    /// A block, and this many bytes of its headroom.
    Framed(Block, usize),
}

impl Part {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Framed(block, head) => block.framed(*head),
        }
    }
}

/// Where received bytes go: fill `first`, then `second`.
#[derive(Debug)]
pub struct Receive<'a> {
    /// The rest of what is being received; may be empty.
    pub first: &'a mut [u8],
    /// Room for what comes next.
    pub second: &'a mut [u8],
}
