use super::*;
use crate::create_context::tests::{requests, responses};
use crate::hostile::{attack_body, body, message};
use proptest::prelude::*;

fn request<'a>(numbers: [u64; 4], name: Text, contexts: Vec<RequestContext<'a>>) -> CreateRequest<'a> {
    CreateRequest {
        oplock_level: [OplockLevel::None, OplockLevel::Batch, OplockLevel::Lease][numbers[0] as usize % 3],
        impersonation_level: ImpersonationLevel(numbers[1] as u32),
        desired_access: AccessMask::from_bits_retain(numbers[2] as u32),
        file_attributes: FileAttributes::from_bits_retain(numbers[3] as u32),
        share_access: ShareAccess::from_bits_retain((numbers[0] >> 32) as u32),
        disposition: CreateDisposition::from_wire(numbers[1] as u32 % 6).unwrap(),
        options: CreateOptions::from_bits_retain((numbers[2] >> 32) as u32),
        name,
        contexts,
    }
}

fn response<'a>(numbers: [u64; 4], contexts: Vec<ResponseContext<'a>>) -> CreateResponse<'a> {
    CreateResponse {
        oplock_level: [OplockLevel::LevelII, OplockLevel::Exclusive, OplockLevel::Lease]
            [numbers[0] as usize % 3],
        flags: CreateResponseFlags::from_bits_retain(numbers[1] as u8),
        create_action: CreateAction(numbers[2] as u32),
        creation_time: FileTime(numbers[0]),
        last_access_time: FileTime(numbers[1]),
        last_write_time: FileTime(numbers[2]),
        change_time: FileTime(numbers[3]),
        allocation_size: numbers[0].wrapping_add(1),
        end_of_file: numbers[1].wrapping_add(1),
        file_attributes: FileAttributes::from_bits_retain(numbers[3] as u32),
        file_id: FileId {
            persistent: numbers[2],
            volatile: numbers[3].wrapping_add(1),
        },
        contexts,
    }
}

proptest! {
    #[test]
    fn round_trip(
        numbers: [u64; 4], units in proptest::collection::vec(any::<u16>(), 0..30), with_contexts: bool,
        bytes in proptest::collection::vec(any::<u8>(), 0..30),
    ) {
        let contexts = if with_contexts { requests(numbers, &bytes) } else { Vec::new() };
        let request = request(numbers, Text::from_units(units), contexts);
        let sent = message(|w| request.encode(w));
        prop_assert!(sent.len() >= 64 + 57, "at least one byte of buffer");
        prop_assert_eq!(CreateRequest::decode(&mut body(&sent)), Ok(request));
        let contexts = if with_contexts { responses(numbers, &bytes) } else { Vec::new() };
        let response = response(numbers, contexts);
        let sent = message(|w| response.encode(w));
        prop_assert!(sent.len() >= 64 + 88);
        prop_assert_eq!(CreateResponse::decode(&mut body(&sent)), Ok(response));
    }
}

/// [MS-SMB2] 2.2.13: name at 120, contexts 8-byte aligned behind it.
#[test]
fn a_request_is_laid_out_as_specified() {
    let request = request([2, 2, 3, 4], "abc".into(), vec![RequestContext::QueryOnDiskId]);
    let bytes = message(|w| request.encode(w));
    assert_eq!(bytes[64..68], [57, 0, 0, 0xFF]);
    assert_eq!(bytes[108..112], [120, 0, 6, 0]);
    assert_eq!(bytes[112..120], [128, 0, 0, 0, 24, 0, 0, 0]);
    assert_eq!(bytes[120..128], *b"a\0b\0c\0\0\0");
    assert_eq!(bytes.len(), 128 + 24);
}

#[test]
fn values_without_meaning_are_refused() {
    let good = message(|w| request([0, 1, 2, 3], Text::default(), Vec::new()).encode(w));
    for (at, value, fault) in [
        (67, 2, Fault::Value),
        (64 + 36, 6, Fault::Value),
        (64, 56, Fault::Signature),
    ] {
        let mut bytes = good.clone();
        bytes[at] = value;
        assert_eq!(
            CreateRequest::decode(&mut body(&bytes)).unwrap_err().fault,
            fault,
            "byte {at}"
        );
    }
    // A name with half a unit.
    let mut bytes = message(|w| request([0, 1, 2, 3], "ab".into(), Vec::new()).encode(w));
    bytes[110] = 3;
    assert_eq!(
        CreateRequest::decode(&mut body(&bytes)).unwrap_err().fault,
        Fault::Value
    );
}

#[test]
fn hostile_bytes_never_panic() {
    let contexts = vec![
        RequestContext::QueryMaximalAccess(None),
        RequestContext::AllocationSize(5),
    ];
    let bytes = message(|w| request([1, 2, 3, 4], "folder\\file".into(), contexts).encode(w));
    attack_body(&bytes, |reader| CreateRequest::decode(reader).is_ok());
    let contexts = responses([1, 2, 3, 4], b"x");
    let bytes = message(|w| response([1, 2, 3, 4], contexts).encode(w));
    attack_body(&bytes, |reader| CreateResponse::decode(reader).is_ok());
}
