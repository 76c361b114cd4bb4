//! Calls over pipes, read in pieces, and input that is not a call.

use super::*;
use crate::accounts::tests::names;
use ropeway_smb_wire::Writer;
use ropeway_smb_wire::rpc::client::{RpcClient, RpcError, Step};
use ropeway_smb_wire::rpc::request_fragments;
use ropeway_smb_wire::rpc::sessions::SessionInfo;
use ropeway_smb_wire::rpc::srvsvc::{
    LENGTH_ANY, ServerGetInfoRequest, ServerGetInfoResponse, ShareEnumRequest, ShareEnumResponse, ShareLevel,
};
use ropeway_smb_wire::rpc::wkssvc::{WkstaGetInfoRequest, WkstaGetInfoResponse};
use ropeway_smb_wire::security::Sid;

fn host(shares: usize) -> Arc<PipeHost> {
    host_of(shares, Some("ann"))
}

fn host_of(shares: usize, user: Option<&str>) -> Arc<PipeHost> {
    Arc::new(PipeHost {
        name: "ROPEWAY".into(),
        domain: "WORKGROUP".into(),
        comment: "a test".into(),
        shares: (0..shares)
            .map(|at| (format!("share {at}"), "data".into()))
            .collect(),
        user: user.map(str::to_owned),
        names: names(),
        sessions: Box::new(|user| {
            vec![SessionInfo {
                client: "192.0.2.7".into(),
                user: user.into(),
                opens: 3,
                time_s: 60,
                idle_s: 1,
            }]
        }),
    })
}

/// Sends a call over a pipe and reads the response in pieces of `piece` bytes.
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
fn the_host_reports_its_names() {
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
fn unknown_pipes_do_not_exist_and_unknown_calls_are_faults() {
    let host = host(1);
    let refused = PipeServer::open(&"spoolss".into(), &host).err();
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
fn hostile_bytes_disconnect_the_pipe_and_nothing_else() {
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

/// Calls of one client over a pipe that is read in pieces of 100 bytes.
struct Dialog {
    pipe: PipeServer,
    client: RpcClient,
    is_bound: bool,
}

impl Dialog {
    fn open(name: &str, user: Option<&str>) -> Self {
        let pipe = PipeServer::open(&name.into(), &host_of(1, user)).unwrap();
        let client = RpcClient::new(pipe.service.interface(), 0, Vec::new());
        Self {
            pipe,
            client,
            is_bound: false,
        }
    }

    fn call(&mut self, opnum: u16, stub: Vec<u8>) -> Result<Vec<u8>, RpcError> {
        let mut fragments = if self.is_bound {
            self.client.call(opnum, &stub)
        } else {
            self.is_bound = true;
            self.client = RpcClient::new(self.pipe.service.interface(), opnum, stub);
            vec![self.client.start()]
        };
        loop {
            for fragment in &fragments {
                self.pipe.write(fragment).unwrap();
            }
            fragments = loop {
                let (_, bytes) = self.pipe.read(100).unwrap();
                match self.client.handle_input(&bytes)? {
                    Step::Send(fragments) => break fragments,
                    Step::Receive => {}
                    Step::Done(stub) => return Ok(stub),
                }
            };
        }
    }

    /// Returns the handle and the status of a call that opens something.
    fn opened(&mut self, opnum: u16, stub: Vec<u8>) -> (Vec<u8>, NtStatus) {
        let answer = self.call(opnum, stub).unwrap();
        (answer[..20].to_vec(), status(&answer))
    }
}

fn status(answer: &[u8]) -> NtStatus {
    NtStatus(u32::from_le_bytes(*answer.last_chunk().unwrap()))
}

fn words(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Encodes RPC_SID in NDR.
fn sid_of(text: &str) -> Vec<u8> {
    let sid: Sid = text.parse().unwrap();
    let mut bytes = words(&[u32::try_from(sid.sub_authorities().len()).unwrap()]);
    sid.encode(&mut Writer::new(&mut bytes));
    bytes
}

/// Encodes the parameters of LsarLookupSids, as far as they are read.
fn lookup_of(handle: &[u8], sids: &[&str]) -> Vec<u8> {
    let count = u32::try_from(sids.len()).unwrap();
    let pointers = vec![1; sids.len()];
    let mut stub = [handle.to_vec(), words(&[count, 1, count]), words(&pointers)].concat();
    sids.iter().for_each(|sid| stub.extend(sid_of(sid)));
    stub
}

fn holds(answer: &[u8], text: &str) -> bool {
    let units: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    answer.windows(units.len()).any(|window| window == units)
}

#[test]
fn names_are_looked_up_over_many_fragments_of_both_ends() {
    let mut lsa = Dialog::open("lsarpc", Some("ann"));
    let (handle, done) = lsa.opened(44, Vec::new());
    assert_eq!(done, NtStatus::SUCCESS);
    let sids: Vec<&str> = ["S-1-22-1-1000", "S-1-5-32-544", "S-1-1-0"].repeat(500);
    let request = lookup_of(&handle, &sids);
    assert!(request.len() > 2 * usize::from(FRAGMENT_LEN_MAX));
    let answer = lsa.call(15, request).unwrap();
    assert!(answer.len() > 2 * usize::from(FRAGMENT_LEN_MAX));
    assert_eq!(status(&answer), NtStatus::SUCCESS);
    assert!(
        ["ropeway", "Unix User", "Administrators"]
            .iter()
            .all(|name| holds(&answer, name))
    );
    for (sids, expected) in [
        (["S-1-22-1-7", "S-1-1-0"], NtStatus::SOME_NOT_MAPPED),
        (["S-1-22-1-7", "S-1-9-9"], NtStatus::NONE_MAPPED),
    ] {
        let answer = lsa.call(57, lookup_of(&handle, &sids)).unwrap();
        assert_eq!(status(&answer), expected);
        assert!(holds(&answer, "S-1-22-1-7"));
    }
    assert_eq!(status(&lsa.call(0, handle.clone()).unwrap()), NtStatus::SUCCESS);
    let closed = lsa.call(0, handle);
    assert_eq!(
        closed,
        Err(RpcError::Fault {
            status: server::FAULT_CONTEXT_MISMATCH
        })
    );
}

#[test]
fn the_users_of_the_server_are_listed() {
    let mut samr = Dialog::open(r"\pipe\samr", Some("ann"));
    let (server, _) = samr.opened(57, Vec::new());
    let own = [server.clone(), words(&[0]), sid_of("S-1-5-21-1-2-3")].concat();
    let (domain, done) = samr.opened(7, own);
    assert_eq!(done, NtStatus::SUCCESS);
    let users = samr
        .call(13, [domain.clone(), words(&[0, 0, u32::MAX])].concat())
        .unwrap();
    assert!(holds(&users, "ann") && holds(&users, "Zoë Smith") && !holds(&users, "ropeway"));
    let other = [server.clone(), words(&[0]), sid_of("S-1-5-21-1-2-4")].concat();
    assert_eq!(samr.opened(7, other).1, NtStatus::NO_SUCH_DOMAIN);
    let nobody = [domain.clone(), words(&[0, 999])].concat();
    assert_eq!(samr.opened(34, nobody).1, NtStatus::NO_SUCH_USER);
    // A handle of another kind is refused.
    let wrong = samr.call(13, [server, words(&[0, 0, u32::MAX])].concat());
    assert_eq!(
        wrong,
        Err(RpcError::Fault {
            status: server::FAULT_CONTEXT_MISMATCH
        })
    );
    let unknown = samr.call(58, Vec::new());
    assert_eq!(
        unknown,
        Err(RpcError::Fault {
            status: server::FAULT_OP_RANGE
        })
    );
}

#[test]
fn handles_of_a_pipe_are_bounded() {
    let mut samr = Dialog::open("samr", Some("ann"));
    let opened = (0..300).map(|_| samr.opened(0, Vec::new()).1);
    let opened: Vec<NtStatus> = opened.collect();
    assert_eq!(opened[255], NtStatus::SUCCESS);
    assert_eq!(opened[256], NtStatus::INSUFFICIENT_RESOURCES);
}

#[test]
fn guests_and_anonymous_sessions_see_no_names() {
    let mut lsa = Dialog::open("lsarpc", None);
    let (handle, refused) = lsa.opened(6, Vec::new());
    assert_eq!((handle.clone(), refused), (vec![0; 20], NtStatus::ACCESS_DENIED));
    let lookup = lsa.call(15, lookup_of(&handle, &["S-1-22-1-1000"]));
    assert_eq!(
        lookup,
        Err(RpcError::Fault {
            status: server::FAULT_CONTEXT_MISMATCH
        })
    );
    let name = lsa.call(45, words(&[0, 0, 0])).unwrap();
    assert!(holds(&name, "ANONYMOUS LOGON"));
    let mut samr = Dialog::open("samr", None);
    for opnum in [0, 57, 62, 64] {
        assert_eq!(
            status(&samr.call(opnum, Vec::new()).unwrap()),
            NtStatus::ACCESS_DENIED
        );
    }
    // ERROR_ACCESS_DENIED.
    let sessions = Dialog::open("srvsvc", None)
        .call(12, words(&[0, 0, 0, 10]))
        .unwrap();
    assert_eq!(sessions[sessions.len() - 4..], [5, 0, 0, 0]);
}

#[test]
fn users_see_their_own_sessions() {
    let mut srvsvc = Dialog::open("srvsvc", Some("ann"));
    for level in [0, 1, 2, 10, 502] {
        let sessions = srvsvc.call(12, words(&[0, 0, 0, level])).unwrap();
        assert!(holds(&sessions, "192.0.2.7"));
        assert_eq!(holds(&sessions, "ann"), level != 0);
    }
}

#[test]
fn authentication_by_rpc_itself_is_refused() {
    let mut pipe = PipeServer::open(&"lsarpc".into(), &host(1)).unwrap();
    let mut bind = RpcClient::new(lsarpc::INTERFACE, 6, Vec::new()).start();
    bind[10] = 16;
    bind.extend([0; 24]);
    let length = u16::try_from(bind.len()).unwrap();
    bind[8..10].copy_from_slice(&length.to_le_bytes());
    let (_, nak) = pipe.transceive(&bind, 4280).unwrap();
    let expected = Body::BindNak {
        reject_reason: NAK_AUTHENTICATION,
    };
    assert_eq!(Pdu::decode(&nak).unwrap().body, expected);
}

#[test]
fn a_request_in_fragments_has_a_bound() {
    let mut pipe = PipeServer::open(&"samr".into(), &host(1)).unwrap();
    let bind = RpcClient::new(sam::INTERFACE, 0, Vec::new()).start();
    pipe.transceive(&bind, 4280).unwrap();
    let stub = vec![0; REQUEST_LEN_MAX + 1];
    let fragments = request_fragments(2, 0, 57, &stub, FRAGMENT_LEN_MAX);
    let (last, before) = fragments.split_last().unwrap();
    before.iter().for_each(|fragment| pipe.write(fragment).unwrap());
    assert_eq!(pipe.write(last), Err(NtStatus::PIPE_DISCONNECTED));
}
