//! Requests.

use ropeway_block::Block as Payload;
use ropeway_smb_wire::Writer;

use crate::header::{Command, Flags2, HEADER_LEN};
use crate::wire::transaction::{self, Kind, Limits};

/// A request before it has its header.
#[derive(Clone, Debug)]
pub struct Request {
    /// The command.
    pub command: Command,
    /// The tree.
    pub tid: u16,
    /// Flags besides those of the connection.
    pub flags2: Flags2,
    /// The message, with room for its header.
    pub(super) message: Vec<u8>,
    /// Data that follows the message, for WRITE_ANDX.
    pub payload: Option<Payload>,
    /// For a transaction: which one, and what may come back.
    pub(super) transaction: Option<(Kind, Limits)>,
}

impl Request {
    /// Makes a request. `encode` appends its block.
    pub fn new(command: Command, tid: u16, encode: impl FnOnce(&mut Writer<'_>)) -> Self {
        let mut message = vec![0; HEADER_LEN];
        encode(&mut Writer::within(&mut message, 0));
        Self {
            command,
            tid,
            flags2: Flags2::empty(),
            message,
            payload: None,
            transaction: None,
        }
    }

    /// Makes a transaction.
    pub fn transaction(tid: u16, request: &transaction::Request<'_>) -> Self {
        Self {
            transaction: Some((request.kind, request.limits)),
            ..Self::new(request.kind.command(), tid, |w| request.encode(w))
        }
    }

    /// Returns the request with data after its message.
    #[must_use]
    pub fn with_payload(self, payload: Payload) -> Self {
        Self {
            payload: Some(payload),
            ..self
        }
    }

    /// Returns the length of the whole message in bytes.
    pub fn len(&self) -> usize {
        self.message.len() + self.payload.as_ref().map_or(0, |payload| payload.len())
    }

    /// Returns whether the message has no bytes; it always has some.
    pub fn is_empty(&self) -> bool {
        self.message.is_empty()
    }
}
