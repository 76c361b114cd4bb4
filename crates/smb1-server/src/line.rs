//! The line to the server in this process: one request of SMB 2.1 after the other.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use ropeway_smb_wire::frame::{FRAME_HEADER_LEN, FRAME_LEN_MAX, frame_header, frame_len};
use ropeway_smb_wire::header::{Command, HEADER_LEN, Header, HeaderFlags, Target};
use ropeway_smb_wire::negotiate::{Capabilities, Dialect, NegotiateRequest, SecurityMode};
use ropeway_smb_wire::{DecodeError, Guid, MessageId, NtStatus, Reader, SessionId, TreeId, Writer};
use ropeway_smb1::dos_error::status::INVALID_SMB;

/// Credits asked for with each request. One request at a time needs one.
const CREDITS: u16 = 4;

/// Why a command is not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The client gets this status.
    Status(NtStatus),
    /// The connection ends, for this reason.
    End(&'static str),
}

impl From<NtStatus> for Fault {
    fn from(status: NtStatus) -> Self {
        Self::Status(status)
    }
}

/// A message of the client is malformed.
impl From<DecodeError> for Fault {
    fn from(_: DecodeError) -> Self {
        Self::Status(INVALID_SMB)
    }
}

/// The server has ended the line.
impl From<std::io::Error> for Fault {
    fn from(_: std::io::Error) -> Self {
        Self::End("the server has ended the session")
    }
}

/// Session and tree of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) session: SessionId,
    pub(crate) tree: TreeId,
}

/// A response.
pub(crate) struct Reply {
    pub(crate) header: Header,
    message: Vec<u8>,
}

impl Reply {
    /// Decodes the body.
    pub(crate) fn body<'a, T>(
        &'a self,
        decode: impl FnOnce(&mut Reader<'a>) -> ropeway_smb_wire::Result<T>,
    ) -> Result<T, Fault> {
        let mut reader = Reader::at(&self.message, HEADER_LEN, "SMB2 response");
        decode(&mut reader).map_err(|_| Fault::End("a malformed response of the server"))
    }
}

/// The line.
pub(crate) struct Line {
    stream: UnixStream,
    next_id: u64,
}

impl Line {
    /// Begins with a negotiation.
    pub(crate) fn open(stream: UnixStream, client: Guid) -> Result<Self, Fault> {
        let mut line = Self { stream, next_id: 0 };
        let request = NegotiateRequest {
            security_mode: SecurityMode::SIGNING_ENABLED,
            capabilities: Capabilities::default(),
            client_guid: client,
            dialects: vec![Dialect::Smb210],
            contexts: Vec::new(),
        };
        line.ask(Command::Negotiate, Place::default(), |w| request.encode(w))?;
        Ok(line)
    }

    /// Returns the end that becomes readable when the server ends the line.
    pub(crate) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Sends a request and waits for its response. A warning is no error.
    pub(crate) fn ask(
        &mut self,
        command: Command,
        place: Place,
        encode: impl FnOnce(&mut Writer<'_>),
    ) -> Result<Reply, Fault> {
        let reply = self.ask_any(command, place, encode)?;
        match reply.header.status.is_error() {
            true => Err(reply.header.status.into()),
            false => Ok(reply),
        }
    }

    /// As [`Self::ask`], but errors are responses, too.
    pub(crate) fn ask_any(
        &mut self,
        command: Command,
        place: Place,
        encode: impl FnOnce(&mut Writer<'_>),
    ) -> Result<Reply, Fault> {
        let id = MessageId(self.next_id);
        self.next_id += 1;
        let mut header = Header::request(command, id);
        header.credits = CREDITS;
        header.credit_charge = 1;
        header.session_id = place.session;
        header.target = Target::Sync(place.tree);
        let mut frame = vec![0; FRAME_HEADER_LEN];
        let mut w = Writer::within(&mut frame, FRAME_HEADER_LEN);
        header.encode(&mut w);
        encode(&mut w);
        let length = frame.len() - FRAME_HEADER_LEN;
        if length > FRAME_LEN_MAX {
            return Err(NtStatus::INVALID_PARAMETER.into());
        }
        frame[..FRAME_HEADER_LEN].copy_from_slice(&frame_header(length));
        self.stream.write_all(&frame)?;
        loop {
            let reply = self.receive()?;
            let is_interim = reply.header.status == NtStatus::PENDING
                && reply.header.flags.contains(HeaderFlags::ASYNC_COMMAND);
            // Anything else answers nothing that was asked.
            if reply.header.message_id == id && !is_interim {
                return Ok(reply);
            }
        }
    }

    fn receive(&mut self) -> Result<Reply, Fault> {
        let mut head = [0; FRAME_HEADER_LEN];
        self.stream.read_exact(&mut head)?;
        let length = frame_len(head).map_err(|_| Fault::End("a malformed response of the server"))?;
        let mut message = vec![0; length];
        self.stream.read_exact(&mut message)?;
        let header = Header::decode(&mut Reader::new(&message, "SMB2 header"))
            .map_err(|_| Fault::End("a malformed response of the server"))?;
        Ok(Reply { header, message })
    }
}
