use super::*;
use crate::create::AccessMask;
use crate::fsctl::private::PrivateOperations;
use crate::hostile::{attack, structure};
use crate::{FileId, Guid, LeaseKey, NtStatus, Text};
use proptest::prelude::*;

fn decode_requests(bytes: &[u8]) -> Result<Vec<RequestContext<'_>>> {
    decode_list(Reader::new(bytes, "test"), RequestContext::parse)
}

fn decode_responses(bytes: &[u8]) -> Result<Vec<ResponseContext<'_>>> {
    decode_list(Reader::new(bytes, "test"), ResponseContext::parse)
}

fn encode_requests(contexts: &[RequestContext<'_>]) -> Vec<u8> {
    structure(|w| {
        let list = contexts.iter().map(|context| (context.name(), context));
        encode_list(w, list, |context, w| context.encode_data(w));
    })
}

fn encode_responses(contexts: &[ResponseContext<'_>]) -> Vec<u8> {
    structure(|w| {
        let list = contexts.iter().map(|context| (context.name(), context));
        encode_list(w, list, |context, w| context.encode_data(w));
    })
}

/// One context of every kind, filled from numbers.
pub(crate) fn requests(numbers: [u64; 4], bytes: &[u8]) -> Vec<RequestContext<'_>> {
    let file_id = FileId {
        persistent: numbers[0],
        volatile: numbers[1],
    };
    let key = (u128::from(numbers[2]) << 64 | u128::from(numbers[3])).to_le_bytes();
    let lease = Lease {
        lease_key: LeaseKey(key),
        lease_state: LeaseState::from_bits_retain(numbers[0] as u32),
        lease_flags: LeaseFlags::from_bits_retain(numbers[1] as u32),
    };
    let flags = DurableHandleV2Flags::from_bits_retain(numbers[2] as u32);
    vec![
        RequestContext::EaBuffer(bytes),
        RequestContext::SecurityDescriptor(bytes),
        RequestContext::DurableRequest,
        RequestContext::DurableReconnect(DurableReconnect { file_id }),
        RequestContext::DurableRequestV2(DurableRequestV2 {
            timeout_ms: numbers[3] as u32,
            flags,
            create_guid: Guid(key),
        }),
        RequestContext::DurableReconnectV2(DurableReconnectV2 {
            file_id,
            create_guid: Guid(key),
            flags,
        }),
        RequestContext::QueryMaximalAccess(None),
        RequestContext::QueryMaximalAccess(Some(FileTime(numbers[0]))),
        RequestContext::AllocationSize(numbers[1]),
        RequestContext::TimewarpToken(FileTime(numbers[2])),
        RequestContext::QueryOnDiskId,
        RequestContext::Lease(lease),
        RequestContext::LeaseV2(LeaseV2 {
            lease,
            parent_lease_key: LeaseKey(key),
            epoch: numbers[3] as u16,
        }),
        RequestContext::AppInstanceId(AppInstanceId(Guid(key))),
        RequestContext::AppInstanceVersion(AppInstanceVersion {
            high: numbers[0],
            low: numbers[1],
        }),
        RequestContext::Apple(AppleServerQuery {
            request_map: AppleReplyMap::from_bits_retain(numbers[0]),
            client_caps: AppleServerCaps::from_bits_retain(numbers[1]),
        }),
        RequestContext::Posix {
            mode: numbers[2] as u32,
        },
        RequestContext::Private(PrivateQuery {
            version: numbers[3] as u16,
        }),
        RequestContext::Unknown {
            name: b"an odd name",
            data: bytes,
        },
    ]
}

/// One context of every kind, filled from numbers.
pub(crate) fn responses(numbers: [u64; 4], bytes: &[u8]) -> Vec<ResponseContext<'_>> {
    let key = (u128::from(numbers[2]) << 64 | u128::from(numbers[3])).to_le_bytes();
    let lease = Lease {
        lease_key: LeaseKey(key),
        lease_state: LeaseState::from_bits_retain(numbers[0] as u32),
        lease_flags: LeaseFlags::from_bits_retain(numbers[1] as u32),
    };
    vec![
        ResponseContext::Durable,
        ResponseContext::DurableV2(DurableResponseV2 {
            timeout_ms: numbers[0] as u32,
            flags: DurableHandleV2Flags::from_bits_retain(numbers[1] as u32),
        }),
        ResponseContext::MaximalAccess(MaximalAccess {
            query_status: NtStatus(numbers[2] as u32),
            maximal_access: AccessMask::from_bits_retain(numbers[3] as u32),
        }),
        ResponseContext::OnDiskId(OnDiskId {
            disk_file_id: numbers[0],
            volume_id: numbers[1],
            reserved: key,
        }),
        ResponseContext::Lease(lease),
        ResponseContext::LeaseV2(LeaseV2 {
            lease,
            parent_lease_key: LeaseKey(key),
            epoch: numbers[3] as u16,
        }),
        ResponseContext::Apple(AppleReply {
            server_caps: Some(AppleServerCaps::from_bits_retain(numbers[0])),
            volume_caps: (numbers[1] & 1 == 0).then_some(AppleVolumeCaps::from_bits_retain(numbers[1])),
            model: Some(Text::from("MacSamba")),
        }),
        ResponseContext::Posix(PosixResponse {
            hard_links: numbers[0] as u32,
            reparse_tag: numbers[1] as u32,
            mode: numbers[2] as u32,
            owner_sid: &[1, 2, 0, 0, 0, 0, 0, 22, 1, 0, 0, 0, 5, 0, 0, 0],
            group_sid: &[1, 0, 0, 0, 0, 0, 0, 1],
        }),
        ResponseContext::Private(PrivateReply {
            version: numbers[0] as u16,
            operations: PrivateOperations::from_bits_retain(numbers[1]),
        }),
        ResponseContext::Unknown {
            name: b"",
            data: bytes,
        },
    ]
}

proptest! {
    #[test]
    fn round_trip(numbers: [u64; 4], bytes in proptest::collection::vec(any::<u8>(), 0..50), order: u64) {
        let mut sent = requests(numbers, &bytes);
        let pivot = order as usize % sent.len();
        sent.rotate_left(pivot);
        let encoded = encode_requests(&sent);
        prop_assert_eq!(decode_requests(&encoded), Ok(sent));
        let mut sent = responses(numbers, &bytes);
        let pivot = order as usize % sent.len();
        sent.rotate_left(pivot);
        let encoded = encode_responses(&sent);
        prop_assert_eq!(decode_responses(&encoded), Ok(sent));
    }

    #[test]
    fn unknown_names_and_data_of_any_length_round_trip(
        pairs in proptest::collection::vec(
            (proptest::collection::vec(any::<u8>(), 20..60), proptest::collection::vec(any::<u8>(), 0..60)),
            1..CONTEXTS_MAX,
        ),
    ) {
        let sent: Vec<_> = pairs.iter().map(|(name, data)| RequestContext::Unknown { name, data }).collect();
        let encoded = encode_requests(&sent);
        prop_assert_eq!(decode_requests(&encoded), Ok(sent));
    }
}

/// Layout by [MS-SMB2] 2.2.13.2: `MxAc` (no data) and `QFid` as Windows sends them.
#[test]
fn a_list_has_the_specified_layout() {
    let bytes = encode_requests(&[
        RequestContext::QueryMaximalAccess(None),
        RequestContext::QueryOnDiskId,
    ]);
    let link = |next: u8, name: &[u8; 4]| {
        let mut link = vec![next, 0, 0, 0, 16, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        link.extend_from_slice(name);
        link.extend_from_slice(&[0; 4]);
        link
    };
    assert_eq!(bytes, [link(24, b"MxAc"), link(0, b"QFid")].concat());
}

#[test]
fn entries_stay_in_bounds_and_move_forward() {
    let contexts = [
        RequestContext::AllocationSize(1),
        RequestContext::AllocationSize(2),
    ];
    let good = encode_requests(&contexts);
    assert_eq!(good[0], 32);
    for (at, value, kind) in [
        (0, 8, DecodeErrorKind::NextEntry),
        (0, 33, DecodeErrorKind::NextEntry),
        (0, 200, DecodeErrorKind::NextEntry),
        (0, 64, DecodeErrorKind::Truncated),
        (10, 32, DecodeErrorKind::Bounds),
        (10, 8, DecodeErrorKind::Bounds),
        (4, 0, DecodeErrorKind::Bounds),
        (6, 40, DecodeErrorKind::Bounds),
    ] {
        let mut bytes = good.clone();
        bytes[at] = value;
        assert_eq!(
            decode_requests(&bytes).unwrap_err().kind,
            kind,
            "byte {at} = {value}"
        );
    }
}

#[test]
fn the_length_of_a_list_is_limited() {
    let contexts = vec![RequestContext::QueryOnDiskId; CONTEXTS_MAX];
    let mut bytes = encode_requests(&contexts);
    assert_eq!(decode_requests(&bytes).unwrap().len(), CONTEXTS_MAX);
    let last = bytes.len() - 24;
    bytes[last] = 24;
    bytes.extend_from_within(last..);
    let end = bytes.len() - 24;
    bytes[end] = 0;
    assert_eq!(
        decode_requests(&bytes).unwrap_err().kind,
        DecodeErrorKind::NextEntry
    );
}

/// smb2.create.blob: names have at least four bytes.
#[test]
fn short_names_are_refused() {
    for length in 0..6 {
        let parsed = RequestContext::parse(&b"xxxxxx"[..length], b"data");
        assert_eq!(parsed.is_ok(), length >= 4, "{length}");
    }
}

#[test]
fn other_apple_commands_stay_opaque() {
    let data = [2, 0, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9];
    let parsed = RequestContext::parse(name::APPLE, &data).unwrap();
    assert_eq!(
        parsed,
        RequestContext::Unknown {
            name: b"AAPL",
            data: &data
        }
    );
}

#[test]
fn hostile_bytes_never_panic() {
    for context in requests([1, 2, 3, 4], b"some bytes") {
        attack(&encode_requests(&[context]), 0, |bytes| {
            decode_requests(bytes).is_ok()
        });
    }
    for context in responses([1, 2, 3, 4], b"some bytes") {
        attack(&encode_responses(&[context]), 0, |bytes| {
            decode_responses(bytes).is_ok()
        });
    }
    attack(&encode_requests(&requests([5, 6, 7, 8], b"x")), 0, |bytes| {
        decode_requests(bytes).is_ok()
    });
}
