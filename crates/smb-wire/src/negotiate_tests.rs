use super::*;
use crate::header::{Command, HEADER_LEN, Header};
use crate::hostile;
use crate::negotiate_context::tests::any_context;
use crate::negotiate_context::{
    Cipher, CompressionAlgorithm, CompressionFlags, HashAlgorithm, SigningAlgorithm,
};
use proptest::prelude::*;

/// The NEGOTIATE request of the published example of preauthentication integrity (Microsoft, "SMB 3.1.1
/// Pre-authentication integrity in Windows 10", 2015).
pub(crate) const REQUEST: &str = "\
    FE534D4240000100000000000000800000000000000000000100000000000000FFFE000000000000\
    00000000000000000000000000000000000000000000000024000500000000003F000000ECD86F32\
    6276024F9F7752B89BB33F3A70000000020000000202100200030203110300000100260000000000\
    010020000100FA49E6578F1F3A9F4CD3E9CC14A67AA884B3D05844E0E5A118225C15887F32FF0000\
    0200060000000000020002000100";

/// The response to it.
const RESPONSE: &str = "\
    FE534D4240000100000000000000010001000000000000000100000000000000FFFE000000000000\
    000000000000000000000000000000000000000000000000410001001103020039CBCAF329714942\
    BDCE5D60F09AB3FB2F000000000080000000800000008000D8DAE5ADCBAED00109094AB095AED001\
    80004001C00100006082013C06062B0601050502A08201303082012CA01A3018060A2B0601040182\
    3702021E060A2B06010401823702020AA282010C048201084E45474F455854530100000000000000\
    60000000700000007C7CC0FD06D6362D02DDE1CF343BFE292900F49750B4AA97934D9C4296B26E51\
    FD370471B235E15A50DAE15BD5489C87000000000000000060000000010000000000000000000000\
    5C33530DEAF90D4DB2EC4AE3786EC3084E45474F4558545303000000010000004000000098000000\
    7C7CC0FD06D6362D02DDE1CF343BFE295C33530DEAF90D4DB2EC4AE3786EC3084000000058000000\
    3056A05430523027802530233121301F06035504031318546F6B656E205369676E696E6720507562\
    6C6963204B65793027802530233121301F06035504031318546F6B656E205369676E696E67205075\
    626C6963204B6579010026000000000001002000010060A3C3B95C3C7CCD51EC536648D9B3AC74C4\
    83CA5B65385A251117BEB30712E50000020004000000000001000200";

pub(crate) fn unhex(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .chars()
        .filter_map(|digit| digit.to_digit(16))
        .map(|digit| digit as u8)
        .collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

#[test]
fn the_published_request() {
    let bytes = unhex(REQUEST);
    let mut reader = Reader::new(&bytes, "test");
    let header = Header::decode(&mut reader).unwrap();
    assert_eq!(
        (header.command, header.credits, header.message_id.0),
        (Command::Negotiate, 128, 1)
    );
    let request = NegotiateRequest::decode(&mut reader).unwrap();
    assert_eq!(request.dialects, Dialect::ALL);
    assert_eq!(request.capabilities.bits(), 0x3F);
    assert_eq!(request.contexts.len(), 2);
    let Context::PreauthIntegrity {
        hash_algorithms,
        salt,
    } = &request.contexts[0]
    else {
        panic!("{:?}", request.contexts[0])
    };
    assert_eq!(hash_algorithms, &[HashAlgorithm::SHA_512]);
    assert_eq!((salt.len(), salt[0], salt[31]), (32, 0xFA, 0xFF));
    assert_eq!(
        request.contexts[1],
        Context::Encryption(vec![Cipher::AES_128_GCM, Cipher::AES_128_CCM])
    );
    let again = hostile::message(|w| request.encode(w));
    assert_eq!(again[HEADER_LEN..], bytes[HEADER_LEN..]);
}

#[test]
fn the_published_response() {
    let bytes = unhex(RESPONSE);
    let mut reader = Reader::new(&bytes, "test");
    assert!(Header::decode(&mut reader).unwrap().is_response());
    let response = NegotiateResponse::decode(&mut reader).unwrap();
    assert_eq!(response.dialect, DialectRevision::Dialect(Dialect::Smb311));
    assert_eq!(response.security_mode, SecurityMode::SIGNING_ENABLED);
    assert_eq!(
        (response.max_read_size, response.max_write_size),
        (8 << 20, 8 << 20)
    );
    assert_eq!(
        response.server_guid.to_string(),
        "f3cacb39-7129-4249-bdce-5d60f09ab3fb"
    );
    assert_eq!(
        (response.security_buffer.len(), response.security_buffer[0]),
        (320, 0x60)
    );
    assert_eq!(
        response.contexts[1],
        Context::Encryption(vec![Cipher::AES_128_GCM])
    );
    let again = hostile::message(|w| response.encode(w));
    assert_eq!(again[HEADER_LEN..], bytes[HEADER_LEN..]);
}

/// [MS-SMB2] 4.3: a request with only dialect 2.0.2.
#[test]
fn the_request_of_the_specifications_example() {
    let mut body = [0; 38];
    body[0] = 36;
    body[2] = 1;
    body[4] = 1;
    body[36..].copy_from_slice(&[0x02, 0x02]);
    let request = NegotiateRequest {
        security_mode: SecurityMode::SIGNING_ENABLED,
        capabilities: Capabilities::default(),
        client_guid: Guid::default(),
        dialects: vec![Dialect::Smb202],
        contexts: Vec::new(),
    };
    let bytes = hostile::message(|w| request.encode(w));
    assert_eq!(bytes[HEADER_LEN..], body);
    assert_eq!(NegotiateRequest::decode(&mut hostile::body(&bytes)), Ok(request));
}

#[test]
fn strange_offers() {
    let mut bytes = unhex(REQUEST);
    bytes[100..110].copy_from_slice(&[0xFF, 0x02, 0x22, 0x02, 0x99, 0x09, 0x10, 0x02, 0xFF, 0xFF]);
    let request = NegotiateRequest::decode(&mut hostile::body(&bytes)).unwrap();
    assert_eq!(request.dialects, [Dialect::Smb210], "unknown ones are dropped");
    assert!(
        request.contexts.is_empty(),
        "without 3.1.1 the fields are a start time"
    );
    bytes[66..68].copy_from_slice(&[0, 0]);
    let outcome = NegotiateRequest::decode(&mut hostile::body(&bytes));
    assert_eq!(outcome.unwrap_err().fault, Fault::Value, "no dialects");
}

/// The answer to "SMB 2.???" ([MS-SMB2] 4.2).
#[test]
fn the_wildcard_is_an_answer_only() {
    let mut response = sample_response(Vec::new());
    response.dialect = DialectRevision::Wildcard;
    let bytes = hostile::message(|w| response.encode(w));
    assert_eq!(bytes[HEADER_LEN + 4..][..2], [0xFF, 0x02]);
    assert_eq!(
        NegotiateResponse::decode(&mut hostile::body(&bytes)),
        Ok(response)
    );
    assert_eq!(Dialect::from_code(Dialect::WILDCARD_CODE), None);
}

#[test]
fn dialects_are_ordered_and_numbered() {
    assert!(Dialect::ALL.is_sorted());
    for dialect in Dialect::ALL {
        assert_eq!(Dialect::from_code(dialect.code()), Some(dialect));
    }
    assert_eq!(Dialect::Smb302.to_string(), "3.0.2");
}

fn sample_response(contexts: Vec<Context<'_>>) -> NegotiateResponse<'_> {
    NegotiateResponse {
        security_mode: SecurityMode::SIGNING_REQUIRED,
        dialect: DialectRevision::Dialect(Dialect::Smb311),
        server_guid: Guid([7; 16]),
        capabilities: Capabilities::LARGE_MTU,
        max_transact_size: 1 << 20,
        max_read_size: 8 << 20,
        max_write_size: 8 << 20,
        system_time: FileTime(1),
        server_start_time: FileTime(2),
        security_buffer: b"token",
        contexts,
    }
}

fn all_contexts() -> Vec<Context<'static>> {
    vec![
        Context::PreauthIntegrity {
            hash_algorithms: vec![HashAlgorithm::SHA_512],
            salt: b"salt",
        },
        Context::Compression {
            flags: CompressionFlags::CHAINED,
            algorithms: vec![CompressionAlgorithm::PATTERN_V1, CompressionAlgorithm::LZ77],
        },
        Context::Signing(vec![SigningAlgorithm::AES_GMAC, SigningAlgorithm::AES_CMAC]),
        Context::Netname("server".into()),
    ]
}

#[test]
fn hostile_negotiations() {
    let request = NegotiateRequest {
        security_mode: SecurityMode::SIGNING_ENABLED,
        capabilities: Capabilities::LEASING,
        client_guid: Guid([1; 16]),
        dialects: Dialect::ALL.to_vec(),
        contexts: all_contexts(),
    };
    hostile::attack_body(&hostile::message(|w| request.encode(w)), |reader| {
        let _ = NegotiateRequest::decode(reader);
    });
    let response = sample_response(all_contexts());
    hostile::attack_body(&hostile::message(|w| response.encode(w)), |reader| {
        let _ = NegotiateResponse::decode(reader);
    });
}

proptest! {
    #[test]
    fn requests_round_trip(
        numbers: (u16, u32, [u8; 16]), dialects in prop::sample::subsequence(&Dialect::ALL[..4], 0..=4),
        contexts in prop::collection::vec(any_context(b"some data"), 0..5),
    ) {
        let request = NegotiateRequest {
            security_mode: SecurityMode::from_bits_retain(numbers.0),
            capabilities: Capabilities::from_bits_retain(numbers.1),
            client_guid: Guid(numbers.2),
            dialects: dialects.into_iter().chain([Dialect::Smb311]).collect(),
            contexts,
        };
        let bytes = hostile::message(|w| request.encode(w));
        prop_assert_eq!(NegotiateRequest::decode(&mut hostile::body(&bytes)), Ok(request));
    }

    #[test]
    fn responses_round_trip(
        numbers: (u16, [u8; 16], u32, u32, u32, u32, u64, u64), token: Vec<u8>,
        contexts in prop::collection::vec(any_context(b"some data"), 0..5),
    ) {
        let response = NegotiateResponse {
            security_mode: SecurityMode::from_bits_retain(numbers.0),
            dialect: DialectRevision::Dialect(Dialect::Smb311),
            server_guid: Guid(numbers.1),
            capabilities: Capabilities::from_bits_retain(numbers.2),
            max_transact_size: numbers.3,
            max_read_size: numbers.4,
            max_write_size: numbers.5,
            system_time: FileTime(numbers.6),
            server_start_time: FileTime(numbers.7),
            security_buffer: &token,
            contexts,
        };
        let bytes = hostile::message(|w| response.encode(w));
        prop_assert_eq!(NegotiateResponse::decode(&mut hostile::body(&bytes)), Ok(response));
    }
}
