//! Named pipes of IPC$. They list shares and sessions, and name the server and its accounts, as
//! `smbclient -L`, `rpcclient`, Windows Explorer and macOS Finder need it.
//!
//! ```text
//! write ─▶ fragments ─▶ bind / request ─▶ response fragments ─▶ read, one fragment at a time
//!                           │
//!       host.rs  srvsvc, wkssvc      lsa.rs  lsarpc      samr.rs  samr
//! ```
//!
//! A pipe holds one request stub of at most [`REQUEST_LEN_MAX`] bytes and its response. Input that
//! is not RPC disconnects the pipe.

mod host;
mod lsa;
mod samr;

use std::collections::VecDeque;
use std::sync::Arc;

use ropeway_smb_wire::info::{FileInfoClass, FilePipeInformation, FileStandardInformation, Information};
use ropeway_smb_wire::rpc::server::{self, Call};
use ropeway_smb_wire::rpc::{
    BindAckResult, Body, FRAGMENT_LEN_MAX, Fragments, Pdu, Reassembly, SyntaxId, lsa as lsarpc,
    response_fragments, samr as sam, srvsvc, wkssvc,
};
use ropeway_smb_wire::{DecodeError, NtStatus, Text};

use crate::files::output_buffer;
use crate::files::output_buffer::OutputResult;
use lsa::Lsa;
use samr::Samr;

pub(crate) use host::PipeHost;

/// Longest request in bytes: a guess; requests contain only names and SIDs.
const REQUEST_LEN_MAX: usize = 64 << 10;
/// Maximum number of contexts in a bind: a guess; Windows proposes three.
const CONTEXTS_MAX: usize = 16;
/// authentication_type_not_recognized ([MS-RPCE] 2.2.2.5): the session protects the pipe, RPC adds
/// nothing.
const NAK_AUTHENTICATION: u16 = 8;

/// The service behind a pipe.
enum Service {
    Srvsvc,
    Wkssvc,
    Lsa(Lsa),
    Samr(Samr),
}

impl Service {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            srvsvc::PIPE => Self::Srvsvc,
            wkssvc::PIPE => Self::Wkssvc,
            lsarpc::PIPE => Self::Lsa(Lsa::default()),
            sam::PIPE => Self::Samr(Samr::default()),
            _ => return None,
        })
    }

    fn interface(&self) -> SyntaxId {
        match self {
            Self::Srvsvc => srvsvc::INTERFACE,
            Self::Wkssvc => wkssvc::INTERFACE,
            Self::Lsa(_) => lsarpc::INTERFACE,
            Self::Samr(_) => sam::INTERFACE,
        }
    }

    /// Returns the `secondary_address` of bind_ack.
    fn address(&self) -> &'static [u8] {
        match self {
            Self::Srvsvc => b"\\PIPE\\srvsvc\0",
            Self::Wkssvc => b"\\PIPE\\wkssvc\0",
            Self::Lsa(_) => b"\\PIPE\\lsarpc\0",
            Self::Samr(_) => b"\\PIPE\\samr\0",
        }
    }

    /// Executes a call.
    ///
    /// # Errors
    /// The status of a fault.
    fn call(&mut self, host: &PipeHost, opnum: u16, stub: &[u8]) -> Result<Vec<u8>, u32> {
        match self {
            Self::Srvsvc | Self::Wkssvc => {
                let call = Call::decode(self.interface(), opnum, stub);
                understood(call).map(|call| host.answer(&call))
            }
            Self::Lsa(lsa) => lsa.answer(host, &understood(lsarpc::Call::decode(opnum, stub))?),
            Self::Samr(samr) => samr.answer(host, &understood(sam::Call::decode(opnum, stub))?),
        }
    }
}

/// Returns a decoded call.
///
/// # Errors
/// The fault for a malformed stub or an unknown operation number.
fn understood<T>(call: Result<Option<T>, DecodeError>) -> Result<T, u32> {
    match call {
        Err(_) => Err(server::FAULT_BAD_STUB),
        Ok(None) => Err(server::FAULT_OP_RANGE),
        Ok(Some(call)) => Ok(call),
    }
}

/// The server's end of one open pipe.
pub(crate) struct PipeServer {
    service: Service,
    host: Arc<PipeHost>,
    input: Fragments,
    /// Number of bytes in `input` that are not a complete fragment yet.
    input_len: usize,
    reassembly: Reassembly,
    /// Number of bytes in `reassembly`.
    request_len: usize,
    /// Ids of the accepted contexts.
    contexts: Vec<u16>,
    /// Longest fragment that the client accepts.
    send_max: u16,
    output: VecDeque<Vec<u8>>,
    /// Number of bytes of the first fragment of `output` that were read.
    read: usize,
    disconnected: bool,
}

impl PipeServer {
    /// Opens a pipe by its name, with or without a leading `\pipe\`, in any case.
    ///
    /// # Errors
    /// STATUS_OBJECT_NAME_NOT_FOUND.
    pub(crate) fn open(name: &Text, host: &Arc<PipeHost>) -> Result<Self, NtStatus> {
        let name = name.to_string_lossy().to_ascii_lowercase();
        let name = name.trim_start_matches('\\');
        let name = name.strip_prefix("pipe\\").unwrap_or(name);
        let service = Service::of(name).ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
        Ok(Self {
            service,
            host: Arc::clone(host),
            input: Fragments::default(),
            input_len: 0,
            reassembly: Reassembly::default(),
            request_len: 0,
            contexts: Vec::new(),
            send_max: FRAGMENT_LEN_MAX,
            output: VecDeque::new(),
            read: 0,
            disconnected: false,
        })
    }

    /// Takes bytes that the client writes. Responses wait to be read.
    ///
    /// # Errors
    /// STATUS_PIPE_DISCONNECTED after input that is not RPC; STATUS_PIPE_BUSY while a response
    /// waits.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), NtStatus> {
        if self.disconnected {
            return Err(NtStatus::PIPE_DISCONNECTED);
        }
        if !self.output.is_empty() {
            return Err(NtStatus::PIPE_BUSY);
        }
        if bytes.len() > REQUEST_LEN_MAX - self.input_len.min(REQUEST_LEN_MAX) {
            return self.disconnect();
        }
        self.input.push(bytes);
        self.input_len += bytes.len();
        loop {
            let Ok(fragment) = self.input.take() else {
                return self.disconnect();
            };
            let Some(fragment) = fragment else { return Ok(()) };
            self.input_len -= fragment.len();
            if self.take(&fragment).is_none() {
                return self.disconnect();
            }
        }
    }

    fn disconnect(&mut self) -> Result<(), NtStatus> {
        self.disconnected = true;
        self.input = Fragments::default();
        self.reassembly = Reassembly::default();
        self.output.clear();
        Err(NtStatus::PIPE_DISCONNECTED)
    }

    /// Reads one fragment of the response, or a part of it (STATUS_BUFFER_OVERFLOW), as message
    /// pipes do.
    ///
    /// # Errors
    /// STATUS_PIPE_EMPTY, STATUS_PIPE_DISCONNECTED.
    pub(crate) fn read(&mut self, length_max: usize) -> OutputResult {
        let Some(fragment) = self.output.front() else {
            return Err(if self.disconnected {
                NtStatus::PIPE_DISCONNECTED
            } else {
                NtStatus::PIPE_EMPTY
            });
        };
        let rest = &fragment[self.read..];
        if rest.len() > length_max {
            let bytes = rest[..length_max].to_vec();
            self.read += length_max;
            return Ok((NtStatus::BUFFER_OVERFLOW, bytes));
        }
        let bytes = rest.to_vec();
        self.output.pop_front();
        self.read = 0;
        Ok((NtStatus::SUCCESS, bytes))
    }

    /// Writes and reads at once: FSCTL_PIPE_TRANSCEIVE ([MS-SMB2] 3.3.5.15.10).
    ///
    /// # Errors
    /// As [`Self::write`] and [`Self::read`].
    pub(crate) fn transceive(&mut self, bytes: &[u8], length_max: usize) -> OutputResult {
        self.write(bytes)?;
        self.read(length_max)
    }

    /// Returns the number of bytes that can be read at once.
    pub(crate) fn available(&self) -> usize {
        self.output
            .front()
            .map_or(0, |fragment| fragment.len() - self.read)
    }

    /// Answers QUERY_INFO for a pipe.
    ///
    /// # Errors
    /// STATUS_INVALID_INFO_CLASS, STATUS_INFO_LENGTH_MISMATCH.
    pub(crate) fn query(&self, class: u8, length_max: usize) -> OutputResult {
        let available = u32::try_from(self.available()).unwrap_or(u32::MAX);
        let quota = u32::from(FRAGMENT_LEN_MAX);
        let bytes = match FileInfoClass::from_u8(class) {
            Some(FileInfoClass::Standard) => FileStandardInformation {
                allocation_size: u64::from(quota),
                number_of_links: 1,
                // Pipes disappear when they are closed, as in Windows.
                delete_pending: true,
                ..FileStandardInformation::default()
            }
            .to_bytes(),
            Some(FileInfoClass::Pipe) => FilePipeInformation {
                read_mode: 1,
                completion_mode: 0,
            }
            .to_bytes(),
            // FilePipeLocalInformation ([MS-FSCC] 2.4.38): message type, full duplex, unlimited
            // instances, connected, server end.
            Some(FileInfoClass::PipeLocal) => output_buffer::encoded(|w| {
                for number in [1, 2, u32::MAX, 1, quota, available, quota, quota, 3, 1] {
                    w.u32(number);
                }
            }),
            _ => return Err(NtStatus::INVALID_INFO_CLASS),
        };
        let fixed = bytes.len();
        output_buffer::truncated(bytes, fixed, length_max)
    }

    /// Takes one fragment. Returns `None` to disconnect the pipe.
    fn take(&mut self, fragment: &[u8]) -> Option<()> {
        if let Some(call_id) = Pdu::authenticated_bind(fragment) {
            let reject_reason = NAK_AUTHENTICATION;
            let nak = Pdu::whole(call_id, Body::BindNak { reject_reason });
            self.output.push_back(nak.to_bytes());
            return Some(());
        }
        let pdu = Pdu::decode(fragment).ok()?;
        match pdu.body {
            Body::Bind {
                max_recv_frag,
                contexts,
                assoc_group_id,
                ..
            } => {
                // Fragments are never shorter than the minimum that every client accepts (C706
                // 12.6.3.1).
                self.send_max = max_recv_frag.min(FRAGMENT_LEN_MAX);
                self.bind(pdu.call_id, assoc_group_id, &contexts)
            }
            Body::Request {
                context_id,
                opnum,
                stub,
                ..
            } => {
                self.request_len += stub.len();
                if self.request_len > REQUEST_LEN_MAX {
                    return None;
                }
                if let Some(stub) = self.reassembly.push(pdu.flags, stub).ok()? {
                    self.request_len = 0;
                    self.call(pdu.call_id, context_id, opnum, &stub);
                }
                Some(())
            }
            _ => None,
        }
    }

    fn bind(
        &mut self,
        call_id: u32,
        assoc_group_id: u32,
        contexts: &[(u16, SyntaxId, Vec<SyntaxId>)],
    ) -> Option<()> {
        if contexts.len() > CONTEXTS_MAX {
            return None;
        }
        self.contexts.clear();
        let interface = self.service.interface();
        let mut results = Vec::with_capacity(contexts.len());
        for (id, wanted, syntaxes) in contexts {
            let has_interface = wanted.uuid == interface.uuid && wanted.major == interface.major;
            let refused = |reason| BindAckResult {
                result: 2,
                reason,
                transfer_syntax: SyntaxId::new(0, 0, 0),
            };
            // C706 12.6.3.1: 1 is an unsupported abstract syntax, 2 unsupported transfer syntaxes.
            results.push(if !has_interface {
                refused(1)
            } else if !syntaxes.contains(&SyntaxId::NDR) {
                refused(2)
            } else {
                self.contexts.push(*id);
                BindAckResult {
                    result: 0,
                    reason: 0,
                    transfer_syntax: SyntaxId::NDR,
                }
            });
        }
        let body = Body::BindAck {
            max_xmit_frag: FRAGMENT_LEN_MAX,
            max_recv_frag: FRAGMENT_LEN_MAX,
            // The client's association group, or a new one; 0 is invalid.
            assoc_group_id: assoc_group_id.max(1),
            secondary_address: self.service.address(),
            results,
        };
        self.output.push_back(Pdu::whole(call_id, body).to_bytes());
        Some(())
    }

    fn call(&mut self, call_id: u32, context_id: u16, opnum: u16, stub: &[u8]) {
        let is_bound = self.contexts.contains(&context_id);
        let outcome = match is_bound {
            true => self.service.call(&self.host, opnum, stub),
            false => Err(server::FAULT_UNKNOWN_INTERFACE),
        };
        match outcome {
            Ok(stub) => {
                let fragments = response_fragments(call_id, context_id, &stub, self.send_max);
                self.output.extend(fragments);
            }
            Err(fault) => self.output.push_back(server::fault(call_id, context_id, fault)),
        }
    }
}

#[cfg(test)]
mod tests;
