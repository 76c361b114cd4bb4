//! RPC calls of a client, without I/O.
//!
//! ```text
//! start() -> bind ──▶ AwaitsBindAck ── ack ──▶ request ──▶ AwaitsResponse ── fragments ──▶ stub
//!                                                    ▲─────────── another call ────────────┘
//! ```
//!
//! The owner opens the pipe, writes the fragments of [`Step::Send`], and passes in the bytes it
//! reads, in pieces of any size. FSCTL_PIPE_TRANSCEIVE makes a write and the read of its answer one
//! request.

use super::srvsvc::{
    self, ERROR_MORE_DATA, LENGTH_ANY, ShareEnumRequest, ShareEnumResponse, ShareInfo, ShareLevel,
};
use super::{Body, Fragments, Pdu, Reassembly, SyntaxId, pdu, request_fragments};
use crate::{Malformed, Text};

/// Number of the only presentation context that the client proposes.
const CONTEXT_ID: u16 = 0;
/// Most times that the client asks for the rest of a list. A guess, far above what servers need
/// that are asked for everything at once.
const ROUNDS_MAX: u32 = 64;

/// Reasons for a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RpcError {
    /// The peer's bytes are not valid RPC.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The peer sent a PDU that was not awaited, or one of another call.
    #[error("the server answered with something else than what was asked for")]
    Unexpected,
    /// The peer does not support the interface or the transfer syntax.
    #[error("the server refused the interface (result {result}, reason {reason})")]
    BindRefused {
        /// `result` of bind_ack; 2 for bind_nak.
        result: u16,
        /// `reason` of bind_ack or `reject_reason` of bind_nak.
        reason: u16,
    },
    /// The call did not reach its procedure.
    #[error("the call failed with status {status:#010x}")]
    Fault {
        /// `nca_*` (C706 appendix E) or a Win32 code; 5 is ERROR_ACCESS_DENIED.
        status: u32,
    },
    /// The procedure returned an error.
    #[error("the server refused with error {status}")]
    Refused {
        /// A Win32 code; 5 is ERROR_ACCESS_DENIED.
        status: u32,
    },
    /// The server's list does not end.
    #[error("the server's list does not end")]
    Endless,
}

/// Next action of the pipe's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<T> {
    /// Write these fragments to the pipe, each in one write, then read.
    Send(Vec<Vec<u8>>),
    /// Read from the pipe.
    Receive,
    /// The call is complete.
    Done(T),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    AwaitsBindAck,
    AwaitsResponse,
    Idle,
}

/// A connection to one interface: binds, then makes one call after the other.
#[derive(Clone, Debug)]
pub struct RpcClient {
    interface: SyntaxId,
    state: State,
    call_id: u32,
    /// Longest fragment that the server accepts, in bytes.
    send_max: u16,
    input: Fragments,
    reassembly: Reassembly,
    /// Procedure and parameters of the first call, until the bind is acknowledged.
    first: Option<(u16, Vec<u8>)>,
}

impl RpcClient {
    /// Creates a client of an interface whose first call is procedure `opnum` with the parameters
    /// in `stub`.
    pub fn new(interface: SyntaxId, opnum: u16, stub: Vec<u8>) -> Self {
        Self {
            interface,
            state: State::AwaitsBindAck,
            call_id: 1,
            send_max: pdu::FRAGMENT_LEN_MAX,
            input: Fragments::default(),
            reassembly: Reassembly::default(),
            first: Some((opnum, stub)),
        }
    }

    /// Returns the bind PDU, to be written first.
    pub fn start(&self) -> Vec<u8> {
        let body = Body::Bind {
            max_xmit_frag: pdu::FRAGMENT_LEN_MAX,
            max_recv_frag: pdu::FRAGMENT_LEN_MAX,
            assoc_group_id: 0,
            contexts: vec![(CONTEXT_ID, self.interface, vec![SyntaxId::NDR])],
        };
        Pdu::whole(self.call_id, body).to_bytes()
    }

    /// Processes bytes read from the pipe. Returns the stub of the call's results when they are
    /// complete.
    ///
    /// # Errors
    /// The call failed. The connection stays usable after [`RpcError::Fault`] only.
    pub fn handle_input(&mut self, bytes: &[u8]) -> Result<Step<Vec<u8>>, RpcError> {
        self.input.push(bytes);
        while let Some(fragment) = self.input.take()? {
            let step = self.handle_fragment(&fragment)?;
            if step != Step::Receive {
                return Ok(step);
            }
        }
        Ok(Step::Receive)
    }

    /// Starts the next call. Returns its fragments.
    ///
    /// # Panics
    /// Panics if a call is still running.
    pub fn call(&mut self, opnum: u16, stub: &[u8]) -> Vec<Vec<u8>> {
        assert_eq!(self.state, State::Idle, "calls go one after the other");
        self.state = State::AwaitsResponse;
        self.call_id = self.call_id.wrapping_add(1);
        request_fragments(self.call_id, CONTEXT_ID, opnum, stub, self.send_max)
    }

    fn handle_fragment(&mut self, fragment: &[u8]) -> Result<Step<Vec<u8>>, RpcError> {
        let pdu = Pdu::decode(fragment)?;
        if pdu.call_id != self.call_id {
            return Err(RpcError::Unexpected);
        }
        match (self.state, pdu.body) {
            (
                State::AwaitsBindAck,
                Body::BindAck {
                    max_recv_frag,
                    results,
                    ..
                },
            ) => {
                let result = results.first().ok_or(RpcError::Unexpected)?;
                if result.result != 0 || result.transfer_syntax != SyntaxId::NDR {
                    let (result, reason) = (result.result, result.reason);
                    return Err(RpcError::BindRefused { result, reason });
                }
                self.send_max = max_recv_frag;
                self.state = State::Idle;
                let (opnum, stub) = self.first.take().ok_or(RpcError::Unexpected)?;
                Ok(Step::Send(self.call(opnum, &stub)))
            }
            (State::AwaitsBindAck, Body::BindNak { reject_reason }) => Err(RpcError::BindRefused {
                result: 2,
                reason: reject_reason,
            }),
            (State::AwaitsResponse, Body::Response { stub, .. }) => {
                match self.reassembly.push(pdu.flags, stub)? {
                    Some(stub) => {
                        self.state = State::Idle;
                        Ok(Step::Done(stub))
                    }
                    None => Ok(Step::Receive),
                }
            }
            (State::AwaitsResponse, Body::Fault { status, .. }) => {
                self.state = State::Idle;
                self.reassembly = Reassembly::default();
                Err(RpcError::Fault { status })
            }
            _ => Err(RpcError::Unexpected),
        }
    }
}

/// Lists a server's shares: NetrShareEnum at level 1, on the pipe [`srvsvc::PIPE`].
#[derive(Clone, Debug)]
pub struct ShareEnum {
    client: RpcClient,
    request: ShareEnumRequest,
    shares: Vec<ShareInfo>,
    rounds: u32,
}

impl ShareEnum {
    /// Creates a request for the list of `host`'s shares. Servers do not need the host's name; the
    /// request omits it if it is longer than a DNS name can be.
    pub fn new(host: &str) -> Self {
        let server_name = Text::from(format!(r"\\{host}").as_str());
        let request = ShareEnumRequest {
            // 255 units: the longest DNS name.
            server_name: Some(server_name).filter(|name| name.units().len() <= 257),
            level: ShareLevel::Info,
            length_max: LENGTH_ANY,
            resume_handle: Some(0),
        };
        Self {
            client: RpcClient::new(srvsvc::INTERFACE, ShareEnumRequest::OPNUM, request.to_stub()),
            request,
            shares: Vec::new(),
            rounds: 0,
        }
    }

    /// Returns the bind PDU, to be written first.
    pub fn start(&self) -> Vec<u8> {
        self.client.start()
    }

    /// Processes bytes read from the pipe.
    ///
    /// # Errors
    /// The call failed.
    pub fn handle_input(&mut self, bytes: &[u8]) -> Result<Step<Vec<ShareInfo>>, RpcError> {
        let stub = match self.client.handle_input(bytes)? {
            Step::Send(fragments) => return Ok(Step::Send(fragments)),
            Step::Receive => return Ok(Step::Receive),
            Step::Done(stub) => stub,
        };
        let response = ShareEnumResponse::decode(&stub)?;
        let is_more = response.status == ERROR_MORE_DATA;
        if response.status != 0 && !is_more {
            let status = response.status;
            return Err(RpcError::Refused { status });
        }
        let is_progress = !response.shares.is_empty();
        self.shares.extend(response.shares);
        let handle = response.resume_handle.filter(|handle| is_more && *handle != 0);
        let Some(handle) = handle else {
            return Ok(Step::Done(std::mem::take(&mut self.shares)));
        };
        self.rounds += 1;
        if !is_progress || self.rounds >= ROUNDS_MAX {
            return Err(RpcError::Endless);
        }
        self.request.resume_handle = Some(handle);
        let fragments = self.client.call(ShareEnumRequest::OPNUM, &self.request.to_stub());
        Ok(Step::Send(fragments))
    }
}
