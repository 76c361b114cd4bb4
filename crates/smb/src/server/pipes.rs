//! Named pipes of `IPC$`: `srvsvc` (which shares there are) and `wkssvc` (what the host is called), enough for
//! `smbclient -L`, Windows' Explorer and macOS' Finder.
//!
//! ```text
//! write ──▶ fragments ──▶ bind / request ──▶ answer, as fragments ──▶ read, a fragment at a time
//! ```
//! A pipe holds one request's stub of at most [`REQUEST_LEN_MAX`] bytes and its answer; what is no RPC breaks it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

use ropeway_smb_proto::rpc::server::{self, Call};
use ropeway_smb_proto::rpc::srvsvc::{self, ServerInfo, ShareInfo, ShareKind};
use ropeway_smb_proto::rpc::wkssvc::{self, WkstaInfo};
use ropeway_smb_proto::rpc::{
    BindAckResult, Body, FRAGMENT_LEN_MAX, Fragments, Pdu, Reassembly, SyntaxId, response_fragments,
};
use ropeway_smb_proto::upcase;
use ropeway_smb_proto::wire::info::{
    FileInfoClass, FilePipeInformation, FileStandardInformation, Information,
};
use ropeway_smb_proto::wire::{NtStatus, Text};

use super::answer::{self, Answer};

/// Longest request taken, in bytes: a guess; names are short and nothing else is asked.
const REQUEST_LEN_MAX: usize = 64 << 10;
/// Most contexts of one connection: a guess; Windows proposes three.
const CONTEXTS_MAX: usize = 16;
/// SV_PLATFORM_ID_NT ([MS-SRVS] 2.2.2.6).
const PLATFORM_NT: u32 = 500;
/// SV_TYPE_WORKSTATION, SERVER and NT ([MS-SRVS] 2.2.2.7).
const SERVER_TYPE: u32 = 0x1 | 0x2 | 0x1000;
/// The version that is claimed, Windows 10's: some clients look.
const VERSION: (u32, u32) = (10, 0);
/// Share of the pipes themselves.
const IPC: &str = "IPC$";

/// What the pipes tell.
#[derive(Clone, Debug, Default)]
pub(crate) struct PipeHost {
    /// NetBIOS name.
    pub(crate) name: String,
    /// Domain or workgroup.
    pub(crate) domain: String,
    /// What the server's owner says of it.
    pub(crate) comment: String,
    /// Shares that this user may see: name and comment.
    pub(crate) shares: Vec<(String, String)>,
}

/// A pipe that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    Srvsvc,
    Wkssvc,
}

/// The server's end of one opened pipe.
pub(crate) struct PipeServer {
    service: Service,
    host: Arc<PipeHost>,
    input: Fragments,
    /// Bytes in `input` that are not a whole fragment yet.
    input_len: usize,
    reassembly: Reassembly,
    /// Bytes in `reassembly`.
    request_len: usize,
    contexts: Vec<(u16, SyntaxId)>,
    /// Longest fragment that the client takes.
    send_max: u16,
    output: VecDeque<Vec<u8>>,
    /// Bytes of the first fragment of `output` that were read.
    read: usize,
    broken: bool,
}

impl PipeServer {
    /// Opens a pipe by its name, with or without `\pipe\` before it, in any case.
    ///
    /// # Errors
    /// STATUS_OBJECT_NAME_NOT_FOUND.
    pub(crate) fn open(name: &Text, host: &Arc<PipeHost>) -> Result<Self, NtStatus> {
        let name = name.to_string_lossy().to_ascii_lowercase();
        let name = name.trim_start_matches('\\');
        let service = match name.strip_prefix("pipe\\").unwrap_or(name) {
            srvsvc::PIPE => Service::Srvsvc,
            wkssvc::PIPE => Service::Wkssvc,
            _ => return Err(NtStatus::OBJECT_NAME_NOT_FOUND),
        };
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
            broken: false,
        })
    }

    /// Takes what a client writes; answers wait to be read.
    ///
    /// # Errors
    /// STATUS_PIPE_DISCONNECTED once something came that is no RPC; STATUS_PIPE_BUSY while an answer waits.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), NtStatus> {
        if self.broken {
            return Err(NtStatus::PIPE_DISCONNECTED);
        }
        if !self.output.is_empty() {
            return Err(NtStatus::PIPE_BUSY);
        }
        if bytes.len() > REQUEST_LEN_MAX - self.input_len.min(REQUEST_LEN_MAX) {
            return self.break_off();
        }
        self.input.push(bytes);
        self.input_len += bytes.len();
        loop {
            let Ok(fragment) = self.input.take() else {
                return self.break_off();
            };
            let Some(fragment) = fragment else { return Ok(()) };
            self.input_len -= fragment.len();
            if self.take(&fragment).is_none() {
                return self.break_off();
            }
        }
    }

    fn break_off(&mut self) -> Result<(), NtStatus> {
        self.broken = true;
        self.input = Fragments::default();
        self.reassembly = Reassembly::default();
        self.output.clear();
        Err(NtStatus::PIPE_DISCONNECTED)
    }

    /// Reads from the answer: one fragment, or a part (STATUS_BUFFER_OVERFLOW), as pipes of messages do.
    ///
    /// # Errors
    /// STATUS_PIPE_EMPTY, STATUS_PIPE_DISCONNECTED.
    pub(crate) fn read(&mut self, length_max: usize) -> Answer {
        let Some(fragment) = self.output.front() else {
            return Err(if self.broken {
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

    /// FSCTL_PIPE_TRANSCEIVE ([MS-SMB2] 3.3.5.15.10): both at once.
    ///
    /// # Errors
    /// As [`Self::write`] and [`Self::read`].
    pub(crate) fn transceive(&mut self, bytes: &[u8], length_max: usize) -> Answer {
        self.write(bytes)?;
        self.read(length_max)
    }

    /// Bytes that can be read at once.
    pub(crate) fn available(&self) -> usize {
        self.output
            .front()
            .map_or(0, |fragment| fragment.len() - self.read)
    }

    /// QUERY_INFO of a pipe.
    ///
    /// # Errors
    /// STATUS_INVALID_INFO_CLASS, STATUS_INFO_LENGTH_MISMATCH.
    pub(crate) fn query(&self, class: u8, length_max: usize) -> Answer {
        let available = u32::try_from(self.available()).unwrap_or(u32::MAX);
        let quota = u32::from(FRAGMENT_LEN_MAX);
        let bytes = match FileInfoClass::from_u8(class) {
            Some(FileInfoClass::Standard) => FileStandardInformation {
                allocation_size: u64::from(quota),
                number_of_links: 1,
                // Windows' pipes go when they are closed.
                delete_pending: true,
                ..FileStandardInformation::default()
            }
            .to_bytes(),
            Some(FileInfoClass::Pipe) => FilePipeInformation {
                read_mode: 1,
                completion_mode: 0,
            }
            .to_bytes(),
            // FilePipeLocalInformation ([MS-FSCC] 2.4.38): messages, full duplex, any number of instances, connected,
            // the server's end.
            Some(FileInfoClass::PipeLocal) => answer::encoded(|w| {
                for number in [1, 2, u32::MAX, 1, quota, available, quota, quota, 3, 1] {
                    w.u32(number);
                }
            }),
            _ => return Err(NtStatus::INVALID_INFO_CLASS),
        };
        let fixed = bytes.len();
        answer::cut(bytes, fixed, length_max)
    }

    /// One fragment; `None` breaks the pipe.
    fn take(&mut self, fragment: &[u8]) -> Option<()> {
        let pdu = Pdu::decode(fragment).ok()?;
        match pdu.body {
            Body::Bind {
                max_recv_frag,
                contexts,
                assoc_group_id,
                ..
            } => {
                // Fragments of less than everyone takes are not made (C706 12.6.3.1).
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

    fn interface(&self) -> SyntaxId {
        match self.service {
            Service::Srvsvc => srvsvc::INTERFACE,
            Service::Wkssvc => wkssvc::INTERFACE,
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
        let interface = self.interface();
        let mut results = Vec::with_capacity(contexts.len());
        for (id, wanted, syntaxes) in contexts {
            let has_interface = wanted.uuid == interface.uuid && wanted.major == interface.major;
            let refused = |reason| BindAckResult {
                result: 2,
                reason,
                transfer_syntax: SyntaxId::new(0, 0, 0),
            };
            // C706 12.6.3.1: 1, abstract syntax; 2, transfer syntaxes not supported.
            results.push(if !has_interface {
                refused(1)
            } else if !syntaxes.contains(&SyntaxId::NDR) {
                refused(2)
            } else {
                self.contexts.push((*id, interface));
                BindAckResult {
                    result: 0,
                    reason: 0,
                    transfer_syntax: SyntaxId::NDR,
                }
            });
        }
        let secondary_address: &[u8] = match self.service {
            Service::Srvsvc => b"\\PIPE\\srvsvc\0",
            Service::Wkssvc => b"\\PIPE\\wkssvc\0",
        };
        let body = Body::BindAck {
            max_xmit_frag: FRAGMENT_LEN_MAX,
            max_recv_frag: FRAGMENT_LEN_MAX,
            // A group of its own; 0 would be none.
            assoc_group_id: assoc_group_id.max(1),
            secondary_address,
            results,
        };
        self.output.push_back(Pdu::whole(call_id, body).to_bytes());
        Some(())
    }

    fn call(&mut self, call_id: u32, context_id: u16, opnum: u16, stub: &[u8]) {
        let interface = self.contexts.iter().find(|(id, _)| *id == context_id);
        let fault = match interface {
            None => server::FAULT_UNKNOWN_INTERFACE,
            Some((_, interface)) => match Call::decode(*interface, opnum, stub) {
                Err(_) => server::FAULT_BAD_STUB,
                Ok(None) => server::FAULT_OP_RANGE,
                Ok(Some(call)) => {
                    let stub = self.host.answer(&call);
                    let fragments = response_fragments(call_id, context_id, &stub, self.send_max);
                    self.output.extend(fragments);
                    return;
                }
            },
        };
        self.output.push_back(server::fault(call_id, context_id, fault));
    }
}

impl PipeHost {
    fn answer(&self, call: &Call) -> Vec<u8> {
        match call {
            Call::ShareEnum { level } => server::share_enum(*level, &self.share_infos()),
            Call::ShareGetInfo { share, level } => {
                let shares = self.share_infos();
                let found = shares.iter().find(|info| upcase::equal(&info.name, share));
                server::share_get_info(*level, found)
            }
            Call::ServerGetInfo { level } => server::server_get_info(
                *level,
                &ServerInfo {
                    platform_id: PLATFORM_NT,
                    name: self.name.as_str().into(),
                    version_major: VERSION.0,
                    version_minor: VERSION.1,
                    server_type: SERVER_TYPE,
                    comment: self.comment.as_str().into(),
                },
            ),
            Call::RemoteTod => {
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                server::remote_tod(now.map_or(0, |since| since.as_secs()))
            }
            Call::WkstaGetInfo { level } => server::wksta_get_info(
                *level,
                &WkstaInfo {
                    platform_id: PLATFORM_NT,
                    computer_name: self.name.as_str().into(),
                    domain: self.domain.as_str().into(),
                    version_major: VERSION.0,
                    version_minor: VERSION.1,
                },
            ),
        }
    }

    fn share_infos(&self) -> Vec<ShareInfo> {
        let ipc = ShareInfo {
            name: IPC.into(),
            kind: ShareKind(ShareKind::IPC.0 | ShareKind::SPECIAL),
            remark: "Remote IPC".into(),
        };
        let disks = self.shares.iter().map(|(name, comment)| ShareInfo {
            name: name.as_str().into(),
            kind: ShareKind::DISK,
            remark: comment.as_str().into(),
        });
        disks.chain([ipc]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_smb_proto::rpc::client::{RpcClient, Step};
    use ropeway_smb_proto::rpc::srvsvc::{
        LENGTH_ANY, ServerGetInfoRequest, ServerGetInfoResponse, ShareEnumRequest, ShareEnumResponse,
        ShareLevel,
    };
    use ropeway_smb_proto::rpc::wkssvc::{WkstaGetInfoRequest, WkstaGetInfoResponse};

    fn host(shares: usize) -> Arc<PipeHost> {
        Arc::new(PipeHost {
            name: "ROPEWAY".into(),
            domain: "WORKGROUP".into(),
            comment: "a test".into(),
            shares: (0..shares)
                .map(|at| (format!("share {at}"), "data".into()))
                .collect(),
        })
    }

    /// A call over a pipe, read in pieces of `piece` bytes.
    fn call(pipe: &mut PipeServer, interface: SyntaxId, opnum: u16, stub: Vec<u8>, piece: usize) -> Vec<u8> {
        let mut client = RpcClient::new(interface, opnum, stub);
        pipe.write(&client.start()).unwrap();
        loop {
            let (_, bytes) = pipe.read(piece).unwrap();
            match client.handle_input(&bytes).unwrap() {
                Step::Send(fragments) => fragments.iter().for_each(|part| pipe.write(part).unwrap()),
                Step::Receive => {}
                Step::Done(stub) => return stub,
            }
        }
    }

    #[test]
    fn shares_are_listed_over_many_fragments() {
        let host = host(500);
        for piece in [100, 4280] {
            let mut pipe = PipeServer::open(&r"\PIPE\SRVSVC".into(), &host).unwrap();
            let request = ShareEnumRequest {
                server_name: None,
                level: ShareLevel::Info,
                length_max: LENGTH_ANY,
                resume_handle: None,
            };
            let stub = call(
                &mut pipe,
                srvsvc::INTERFACE,
                ShareEnumRequest::OPNUM,
                request.to_stub(),
                piece,
            );
            let answer = ShareEnumResponse::decode(&stub).unwrap();
            assert_eq!((answer.shares.len(), answer.total_entries), (501, 501));
            assert_eq!(answer.shares[500].name, "IPC$".into());
            assert_eq!(pipe.read(100), Err(NtStatus::PIPE_EMPTY));
        }
    }

    #[test]
    fn the_host_says_who_it_is() {
        let host = host(0);
        let mut pipe = PipeServer::open(&"wkssvc".into(), &host).unwrap();
        let request = WkstaGetInfoRequest { server_name: None }.to_stub();
        let stub = call(
            &mut pipe,
            wkssvc::INTERFACE,
            WkstaGetInfoRequest::OPNUM,
            request,
            4280,
        );
        let answer = WkstaGetInfoResponse::decode(&stub).unwrap().workstation.unwrap();
        assert_eq!(answer.domain, "WORKGROUP".into());
        let mut pipe = PipeServer::open(&"srvsvc".into(), &host).unwrap();
        let request = ServerGetInfoRequest { server_name: None }.to_stub();
        let stub = call(
            &mut pipe,
            srvsvc::INTERFACE,
            ServerGetInfoRequest::OPNUM,
            request,
            4280,
        );
        let answer = ServerGetInfoResponse::decode(&stub).unwrap().server.unwrap();
        assert_eq!(answer.comment, "a test".into());
    }

    #[test]
    fn other_pipes_are_not_there_and_other_calls_are_faults() {
        let host = host(1);
        let refused = PipeServer::open(&"lsarpc".into(), &host).err();
        assert_eq!(refused, Some(NtStatus::OBJECT_NAME_NOT_FOUND));
        let mut pipe = PipeServer::open(&"srvsvc".into(), &host).unwrap();
        let client = RpcClient::new(srvsvc::INTERFACE, 99, Vec::new());
        pipe.transceive(&client.start(), 4280).unwrap();
        for (opnum, context_id, expected) in [
            (99, 0, server::FAULT_OP_RANGE),
            (15, 0, server::FAULT_BAD_STUB),
            (15, 7, server::FAULT_UNKNOWN_INTERFACE),
        ] {
            let body = Body::Request {
                alloc_hint: 0,
                context_id,
                opnum,
                stub: &[],
            };
            let (_, answer) = pipe.transceive(&Pdu::whole(5, body).to_bytes(), 4280).unwrap();
            let fault = Body::Fault {
                context_id,
                status: expected,
            };
            assert_eq!(Pdu::decode(&answer).unwrap(), Pdu::whole(5, fault));
        }
    }

    #[test]
    fn hostile_bytes_break_the_pipe_and_nothing_else() {
        let host = host(1);
        let open = || PipeServer::open(&"srvsvc".into(), &host).unwrap();
        let start = RpcClient::new(srvsvc::INTERFACE, 15, Vec::new()).start();
        for at in 0..start.len() {
            for value in [0, 1, 0x7F, 0xFF] {
                let mut bytes = start.clone();
                bytes[at] = value;
                let mut pipe = open();
                let _ = pipe.transceive(&bytes, 100);
                let _ = pipe.write(&bytes[..at]);
            }
        }
        let mut pipe = open();
        assert_eq!(
            pipe.write(&vec![0; REQUEST_LEN_MAX + 1]),
            Err(NtStatus::PIPE_DISCONNECTED)
        );
        assert_eq!(pipe.read(1), Err(NtStatus::PIPE_DISCONNECTED));
        assert_eq!(pipe.write(&start), Err(NtStatus::PIPE_DISCONNECTED));
    }
}
