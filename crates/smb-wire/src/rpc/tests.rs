//! Known bytes, round trips, whole calls and hostile bytes.

use proptest::collection::vec;
use proptest::prelude::*;

use super::client::{RpcError, ShareEnum, Step};
use super::srvsvc::*;
use super::wkssvc::{WkstaGetInfoRequest, WkstaGetInfoResponse, WkstaInfo};
use super::*;
use crate::{Fault, Text};

fn texts() -> impl Strategy<Value = Text> {
    vec(1..=u16::MAX, 0..12).prop_map(Text::from_units)
}

fn shares() -> impl Strategy<Value = ShareInfo> {
    (texts(), any::<u32>(), texts()).prop_map(|(name, kind, remark)| ShareInfo {
        name,
        kind: ShareKind(kind),
        remark,
    })
}

fn syntaxes() -> impl Strategy<Value = SyntaxId> {
    (any::<[u8; 16]>(), any::<u16>(), any::<u16>()).prop_map(|(uuid, major, minor)| SyntaxId {
        uuid,
        major,
        minor,
    })
}

fn bodies(stub: &[u8]) -> impl Strategy<Value = Body<'_>> {
    let bind = (
        any::<[u16; 2]>(),
        any::<u32>(),
        vec((any::<u16>(), syntaxes(), vec(syntaxes(), 0..3)), 0..3),
    );
    let results = (any::<u16>(), any::<u16>(), syntaxes()).prop_map(|(result, reason, transfer_syntax)| {
        BindAckResult {
            result,
            reason,
            transfer_syntax,
        }
    });
    prop_oneof![
        (any::<u32>(), any::<u16>(), any::<u16>()).prop_map(move |(alloc_hint, context_id, opnum)| {
            Body::Request {
                alloc_hint,
                context_id,
                opnum,
                stub,
            }
        }),
        (any::<u32>(), any::<u16>()).prop_map(move |(alloc_hint, context_id)| Body::Response {
            alloc_hint,
            context_id,
            stub,
        }),
        (any::<u16>(), any::<u32>()).prop_map(|(context_id, status)| Body::Fault { context_id, status }),
        bind.prop_map(
            |([max_xmit_frag, max_recv_frag], assoc_group_id, contexts)| Body::Bind {
                max_xmit_frag,
                max_recv_frag,
                assoc_group_id,
                contexts,
            }
        ),
        (any::<[u16; 2]>(), any::<u32>(), vec(results, 0..3)).prop_map(
            move |([max_xmit_frag, max_recv_frag], assoc_group_id, results)| Body::BindAck {
                max_xmit_frag,
                max_recv_frag,
                assoc_group_id,
                secondary_address: stub,
                results,
            }
        ),
        any::<u16>().prop_map(|reject_reason| Body::BindNak { reject_reason }),
    ]
}

/// C706 12.6.4.3, laid out by hand. The UUIDs are in wire order, as captures of any Windows client
/// show.
#[test]
fn a_known_bind() {
    let bind = ShareEnum::new("nas").start();
    let expected = [
        &[5, 0, 11, 3, 0x10, 0, 0, 0, 72, 0, 0, 0, 1, 0, 0, 0][..],
        &[0xB8, 0x10, 0xB8, 0x10, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0],
        &[
            0xC8, 0x4F, 0x32, 0x4B, 0x70, 0x16, 0xD3, 0x01, 0x12, 0x78, 0x5A, 0x47, 0xBF, 0x6E, 0xE1, 0x88,
        ],
        &[3, 0, 0, 0],
        &[
            0x04, 0x5D, 0x88, 0x8A, 0xEB, 0x1C, 0xC9, 0x11, 0x9F, 0xE8, 0x08, 0x00, 0x2B, 0x10, 0x48, 0x60,
        ],
        &[2, 0, 0, 0],
    ];
    assert_eq!(bind, expected.concat());
}

#[test]
fn a_known_request_and_response() {
    let request = ShareEnumRequest {
        server_name: Some("a".into()),
        level: ShareLevel::Info,
        length_max: LENGTH_ANY,
        resume_handle: Some(0),
    };
    let words = |stub: &[u8]| -> Vec<u32> {
        stub.chunks_exact(4)
            .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
            .collect()
    };
    assert_eq!(
        words(&request.to_stub()),
        // Pointer, max, offset, count, "a\0"; level twice; container: pointer, count, no array; length; handle.
        [0x20000, 2, 0, 2, 0x61, 1, 1, 0x20004, 0, 0, u32::MAX, 0x20008, 0]
    );
    let response = ShareEnumResponse {
        level: ShareLevel::Info,
        shares: vec![ShareInfo {
            name: "ab".into(),
            kind: ShareKind(0x8000_0003),
            remark: Text::default(),
        }],
        total_entries: 1,
        resume_handle: None,
        status: 0,
    };
    assert_eq!(
        words(&response.to_stub()),
        [
            1,
            1,
            0x20000,
            1,
            0x20004,
            1, // level twice, container, count, array of 1
            0x20008,
            0x8000_0003,
            0x2000C, // the share
            3,
            0,
            3,
            0x0062_0061,
            0, // "ab\0", padding
            1,
            0,
            1,
            0, // "\0", padding
            1,
            0,
            0, // total, no handle, status
        ]
    );
    assert!(response.shares[0].kind.is_special() && !response.shares[0].kind.is_disk());
}

/// A server that returns its shares a few at a time.
struct Server {
    shares: Vec<ShareInfo>,
    at_once: usize,
    input: Fragments,
    reassembly: Reassembly,
}

impl Server {
    fn answer(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.input.push(bytes);
        let Some(fragment) = self.input.take().unwrap() else {
            return Vec::new();
        };
        let pdu = Pdu::decode(&fragment).unwrap();
        match pdu.body {
            Body::Bind { contexts, .. } => {
                assert_eq!(contexts, [(0, INTERFACE, vec![SyntaxId::NDR])]);
                let body = Body::BindAck {
                    max_xmit_frag: 4280,
                    max_recv_frag: 1432,
                    assoc_group_id: 7,
                    secondary_address: b"\\PIPE\\srvsvc\0",
                    results: vec![BindAckResult {
                        result: 0,
                        reason: 0,
                        transfer_syntax: SyntaxId::NDR,
                    }],
                };
                Pdu::whole(pdu.call_id, body).to_bytes()
            }
            Body::Request { opnum, stub, .. } => {
                assert_eq!(opnum, ShareEnumRequest::OPNUM);
                let Some(stub) = self.reassembly.push(pdu.flags, stub).unwrap() else {
                    return Vec::new();
                };
                let request = ShareEnumRequest::decode(&stub).unwrap();
                response_fragments(pdu.call_id, 0, &self.enumerate(&request).to_stub(), 4280).concat()
            }
            _ => unreachable!(),
        }
    }

    fn enumerate(&self, request: &ShareEnumRequest) -> ShareEnumResponse {
        let from = request.resume_handle.unwrap_or(0) as usize;
        let to = (from + self.at_once).min(self.shares.len());
        let is_more = to < self.shares.len();
        ShareEnumResponse {
            level: request.level,
            shares: self.shares[from..to].to_vec(),
            total_entries: self.shares.len() as u32,
            resume_handle: Some(if is_more { to as u32 } else { 0 }),
            status: if is_more { ERROR_MORE_DATA } else { 0 },
        }
    }
}

/// Passes bytes between both ends in pieces of `piece` bytes.
fn enumerate(shares: Vec<ShareInfo>, at_once: usize, piece: usize) -> Result<Vec<ShareInfo>, RpcError> {
    let mut client = ShareEnum::new("nas");
    let mut server = Server {
        shares,
        at_once,
        input: Fragments::default(),
        reassembly: Reassembly::default(),
    };
    let mut answer = server.answer(&client.start());
    loop {
        let mut pieces = answer.chunks(piece);
        let step = loop {
            match client.handle_input(pieces.next().expect("an answer completes the call"))? {
                Step::Receive => {}
                step => break step,
            }
        };
        assert_eq!(pieces.next(), None);
        answer = match step {
            Step::Send(fragments) => fragments
                .iter()
                .flat_map(|fragment| server.answer(fragment))
                .collect(),
            Step::Done(shares) => return Ok(shares),
            Step::Receive => unreachable!(),
        };
    }
}

fn some_shares(count: u32) -> Vec<ShareInfo> {
    (0..count)
        .map(|number| ShareInfo {
            name: format!("share{number}").as_str().into(),
            kind: ShareKind::DISK,
            remark: "a remark".into(),
        })
        .collect()
}

#[test]
fn shares_are_listed_over_many_fragments_and_rounds() {
    assert_eq!(enumerate(Vec::new(), 10, 1000), Ok(Vec::new()));
    assert_eq!(enumerate(some_shares(300), 1000, 1), Ok(some_shares(300)));
    assert_eq!(enumerate(some_shares(300), 7, 5000), Ok(some_shares(300)));
    assert_eq!(enumerate(some_shares(300), 1, 1000), Err(RpcError::Endless));
}

#[test]
fn refusals_are_told() {
    let answer = |body| ShareEnum::new("nas").handle_input(&Pdu::whole(1, body).to_bytes());
    let nak = Body::BindNak { reject_reason: 4 };
    assert_eq!(answer(nak), Err(RpcError::BindRefused { result: 2, reason: 4 }));
    let fault = Body::Fault {
        context_id: 0,
        status: 5,
    };
    assert_eq!(answer(fault), Err(RpcError::Unexpected), "no call was made yet");
    let refused = Body::BindAck {
        max_xmit_frag: 4280,
        max_recv_frag: 4280,
        assoc_group_id: 1,
        secondary_address: b"",
        results: vec![BindAckResult {
            result: 2,
            reason: 1,
            transfer_syntax: SyntaxId::new(0, 0, 0),
        }],
    };
    assert_eq!(
        answer(refused),
        Err(RpcError::BindRefused { result: 2, reason: 1 })
    );
}

#[test]
fn stubs_have_a_bound_and_an_order() {
    let mut reassembly = Reassembly::default();
    let first = PacketFlags::FIRST_FRAG;
    let none = PacketFlags::default();
    assert_eq!(reassembly.push(none, b"a").unwrap_err().fault, Fault::Chain);
    assert_eq!(reassembly.push(first, b"a"), Ok(None));
    assert_eq!(reassembly.push(first, b"a").unwrap_err().fault, Fault::Chain);
    assert_eq!(
        reassembly.push(none, &vec![0; STUB_LEN_MAX]).unwrap_err().fault,
        Fault::Value
    );
    assert_eq!(
        reassembly.push(PacketFlags::LAST_FRAG, b"b"),
        Ok(Some(b"ab".to_vec()))
    );
}

#[test]
fn foreign_headers_are_faults() {
    let bytes = Pdu::whole(1, Body::BindNak { reject_reason: 0 }).to_bytes();
    let fault = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        Pdu::decode(&bytes)
            .map(|pdu| pdu.call_id)
            .map_err(|malformed| malformed.fault)
    };
    assert_eq!(fault(0, 4), Err(Fault::Signature));
    assert_eq!(fault(4, 0), Err(Fault::Signature), "big-endian");
    assert_eq!(fault(2, 99), Err(Fault::Value));
    assert_eq!(fault(8, 15), Err(Fault::Value));
    assert_eq!(fault(9, 0xFF), Err(Fault::Value));
    assert_eq!(fault(8, 19), Err(Fault::Truncated));
    assert_eq!(fault(10, 1), Err(Fault::Value), "authenticated");
}

fn decode_all(bytes: &[u8]) {
    if let Ok(pdu) = Pdu::decode(bytes) {
        assert_eq!(
            Pdu::decode(&pdu.to_bytes()).map(|pdu| pdu.call_id),
            Ok(pdu.call_id)
        );
    }
    _ = ShareEnumRequest::decode(bytes);
    _ = ShareEnumResponse::decode(bytes);
    _ = ShareGetInfoRequest::decode(bytes);
    _ = ShareGetInfoResponse::decode(bytes);
    _ = ServerGetInfoRequest::decode(bytes);
    _ = ServerGetInfoResponse::decode(bytes);
    _ = WkstaGetInfoRequest::decode(bytes);
    _ = WkstaGetInfoResponse::decode(bytes);
    _ = ShareEnum::new("nas").handle_input(bytes);
}

proptest! {
    #[test]
    fn pdus_round_trip(
        (stub, body, flags, call_id) in vec(any::<u8>(), 0..50).prop_flat_map(|stub| {
            let stub: &'static [u8] = Vec::leak(stub);
            (Just(stub), bodies(stub), 0..0x80_u8, any::<u32>())
        }),
    ) {
        let pdu = Pdu { flags: PacketFlags::from_bits_retain(flags), call_id, body };
        let bytes = pdu.to_bytes();
        prop_assert_eq!(Pdu::decode(&bytes), Ok(pdu), "{:?}", stub);
        for length in 0..bytes.len() {
            prop_assert!(Pdu::decode(&bytes[..length]).is_err());
        }
    }

    #[test]
    fn stubs_round_trip_in_fragments(stub in vec(any::<u8>(), 0..6000), length_max: u16) {
        let fragments = request_fragments(9, 0, 15, &stub, length_max);
        let mut reassembly = Reassembly::default();
        let mut whole = None;
        for fragment in &fragments {
            prop_assert!(whole.is_none());
            let pdu = Pdu::decode(fragment).unwrap();
            let Body::Request { stub, .. } = pdu.body else { unreachable!() };
            whole = reassembly.push(pdu.flags, stub).unwrap();
        }
        prop_assert_eq!(whole, Some(stub));
    }

    #[test]
    fn calls_round_trip(
        name in prop::option::of(texts()), some in vec(shares(), 0..5), numbers: [u32; 4], handle: Option<u32>, info: bool,
    ) {
        let level = if info { ShareLevel::Info } else { ShareLevel::Name };
        let request = ShareEnumRequest {
            server_name: name.clone(), level, length_max: numbers[0], resume_handle: handle,
        };
        prop_assert_eq!(ShareEnumRequest::decode(&request.to_stub()), Ok(request));
        let share = some.first().cloned();
        let told = some.iter().cloned().map(|share| match level {
            ShareLevel::Info => share,
            ShareLevel::Name => ShareInfo { name: share.name, ..ShareInfo::default() },
        });
        let response = ShareEnumResponse {
            level, shares: told.collect(), total_entries: numbers[1], resume_handle: handle, status: numbers[2],
        };
        let stub = ShareEnumResponse { shares: some, ..response.clone() }.to_stub();
        prop_assert_eq!(ShareEnumResponse::decode(&stub), Ok(response));
        let request = ShareGetInfoRequest { server_name: name.clone(), share: name.clone().unwrap_or_default() };
        prop_assert_eq!(ShareGetInfoRequest::decode(&request.to_stub()), Ok(request));
        let response = ShareGetInfoResponse { share, status: numbers[3] };
        prop_assert_eq!(ShareGetInfoResponse::decode(&response.to_stub()), Ok(response));
    }

    #[test]
    fn information_round_trips(name in prop::option::of(texts()), numbers: [u32; 5]) {
        let request = ServerGetInfoRequest { server_name: name.clone() };
        prop_assert_eq!(ServerGetInfoRequest::decode(&request.to_stub()), Ok(request));
        let server = name.clone().map(|name| ServerInfo {
            platform_id: numbers[0],
            name: name.clone(),
            version_major: numbers[1],
            version_minor: numbers[2],
            server_type: numbers[3],
            comment: name,
        });
        let response = ServerGetInfoResponse { server, status: numbers[4] };
        prop_assert_eq!(ServerGetInfoResponse::decode(&response.to_stub()), Ok(response));
        let request = WkstaGetInfoRequest { server_name: name.clone() };
        prop_assert_eq!(WkstaGetInfoRequest::decode(&request.to_stub()), Ok(request));
        let workstation = name.map(|name| WkstaInfo {
            platform_id: numbers[0],
            computer_name: name.clone(),
            domain: name,
            version_major: numbers[1],
            version_minor: numbers[2],
        });
        let response = WkstaGetInfoResponse { workstation, status: numbers[4] };
        prop_assert_eq!(WkstaGetInfoResponse::decode(&response.to_stub()), Ok(response));
    }

    #[test]
    fn hostile_bytes_never_panic(bytes in vec(prop_oneof![3 => 0..4_u8, 1 => any::<u8>()], 0..200)) {
        decode_all(&bytes);
    }

    #[test]
    fn spoilt_calls_never_panic(
        some in vec(shares(), 0..4), changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        length in any::<prop::sample::Index>(),
    ) {
        let response = ShareEnumResponse {
            level: ShareLevel::Info, shares: some, total_entries: 0, resume_handle: Some(1), status: 0,
        };
        for mut bytes in [response.to_stub(), response_fragments(1, 0, &response.to_stub(), 4280).remove(0)] {
            for (at, byte) in &changes {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            decode_all(&bytes);
            bytes.truncate(length.index(bytes.len()));
            decode_all(&bytes);
        }
    }
}
