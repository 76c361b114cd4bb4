//! Requests that our own client would never send.

use crate::line::Line;
use crate::world::server_config;
use ropeway_smb_proto::compression::{Algorithms, compress};
use ropeway_smb_proto::server::Config;
use ropeway_smb_wire::header::{Command, FLAGS_OFFSET, HEADER_LEN, HeaderFlags};
use ropeway_smb_wire::negotiate::{
    Capabilities, Dialect, DialectRevision, NegotiateRequest, NegotiateResponse, SecurityMode,
};
use ropeway_smb_wire::negotiate_context::{self as contexts, CompressionFlags, Context, HashAlgorithm};
use ropeway_smb_wire::session_setup::SessionSetupRequest;
use ropeway_smb_wire::smb1_negotiate::Smb1NegotiateRequest;
use ropeway_smb_wire::{Guid, NtStatus, Reader, SessionId, Writer};

fn integrity(algorithm: HashAlgorithm) -> Context<'static> {
    Context::PreauthIntegrity {
        hash_algorithms: vec![algorithm],
        salt: &[5; 32],
    }
}

/// Returns a NEGOTIATE that offers 3.1.1.
fn new_negotiate(contexts: Vec<Context<'_>>) -> NegotiateRequest<'_> {
    NegotiateRequest {
        security_mode: SecurityMode::SIGNING_ENABLED,
        capabilities: Capabilities::LARGE_MTU,
        client_guid: Guid([1; 16]),
        dialects: vec![Dialect::Smb311],
        contexts,
    }
}

fn negotiate(line: &mut Line, dialects: Vec<Dialect>, contexts: Vec<Context<'_>>) -> Option<NtStatus> {
    let request = NegotiateRequest {
        dialects,
        ..new_negotiate(contexts)
    };
    line.ask(Command::Negotiate, |w| request.encode(w))
}

/// [MS-SMB2] 3.3.5.4.
#[test]
fn negotiate_contexts() {
    let sha = || integrity(HashAlgorithm::SHA_512);
    let ciphers = || Context::Encryption(vec![contexts::Cipher::AES_128_GCM]);
    let signing = || Context::Signing(vec![contexts::SigningAlgorithm::AES_CMAC]);
    let compression = || Context::Compression {
        flags: CompressionFlags::default(),
        algorithms: vec![contexts::CompressionAlgorithm::LZ4],
    };
    let new = vec![Dialect::Smb311];
    let cases = [
        (vec![], NtStatus::INVALID_PARAMETER),
        (vec![ciphers()], NtStatus::INVALID_PARAMETER),
        (vec![compression()], NtStatus::INVALID_PARAMETER),
        (vec![ciphers(), compression()], NtStatus::INVALID_PARAMETER),
        (vec![sha(), sha()], NtStatus::INVALID_PARAMETER),
        (vec![sha(), ciphers(), ciphers()], NtStatus::INVALID_PARAMETER),
        (vec![sha(), signing(), signing()], NtStatus::INVALID_PARAMETER),
        (
            vec![sha(), compression(), compression()],
            NtStatus::INVALID_PARAMETER,
        ),
        (
            vec![integrity(HashAlgorithm(0x7777))],
            NtStatus::SMB_NO_PREAUTH_INTEGRITY_HASH_OVERLAP,
        ),
        (vec![sha()], NtStatus::SUCCESS),
        (
            vec![compression(), signing(), ciphers(), sha()],
            NtStatus::SUCCESS,
        ),
        (
            vec![sha(), Context::Encryption(vec![contexts::Cipher(0x7777)])],
            NtStatus::SUCCESS,
        ),
    ];
    for (number, (contexts, expected)) in cases.into_iter().enumerate() {
        let mut line = Line::new(server_config());
        assert_eq!(
            negotiate(&mut line, new.clone(), contexts),
            Some(expected),
            "{number}"
        );
    }
    let mut line = Line::new(Config {
        dialect_min: Dialect::Smb300,
        ..server_config()
    });
    let old = vec![Dialect::Smb202, Dialect::Smb210];
    assert_eq!(negotiate(&mut line, old, vec![]), Some(NtStatus::NOT_SUPPORTED));
}

/// BVT_Negotiate_SMB311_CompressionEnabled, Negotiate_SMB311_Compression_*: the common algorithms in the
/// client's order, and NONE without one ([MS-SMB2] 3.3.5.4).
#[test]
fn compression_is_negotiated_in_the_clients_order() {
    use contexts::CompressionAlgorithm as One;
    let unknown = One(0x7777);
    let (chained, plain) = (CompressionFlags::CHAINED, CompressionFlags::default());
    for (flags, offered, agreed) in [
        (
            chained,
            vec![
                One::PATTERN_V1,
                One::LZ77,
                One::LZNT1,
                One::LZ77_HUFFMAN,
                One::LZ4,
            ],
            vec![One::PATTERN_V1, One::LZNT1, One::LZ4],
        ),
        (plain, vec![One::LZ4, One::LZNT1], vec![One::LZ4, One::LZNT1]),
        (plain, vec![One::LZNT1, unknown, One::LZNT1], vec![One::LZNT1]),
        (
            chained,
            vec![One::OWN_ZSTD, One::OWN_BY_LINE],
            vec![One::OWN_ZSTD, One::OWN_BY_LINE],
        ),
        (chained, vec![unknown], vec![One::NONE]),
        (plain, vec![One::NONE], vec![One::NONE]),
    ] {
        let mut line = Line::new(server_config());
        let wish = Context::Compression {
            flags,
            algorithms: offered.clone(),
        };
        let request = new_negotiate(vec![integrity(HashAlgorithm::SHA_512), wish]);
        let message = line.message(Command::Negotiate, |w| request.encode(w));
        let (header, answer) = line.send(&message).swap_remove(0);
        assert_eq!(header.status, NtStatus::SUCCESS, "{offered:?}");
        let body = &mut Reader::at(&answer, HEADER_LEN, "NEGOTIATE");
        let contexts = NegotiateResponse::decode(body).unwrap().contexts;
        let expected = Context::Compression {
            flags: if agreed == [One::NONE] { plain } else { flags },
            algorithms: agreed,
        };
        assert!(contexts.contains(&expected), "{offered:?}: {contexts:?}");
    }
    let of = |algorithms| Context::Compression {
        flags: plain,
        algorithms,
    };
    let sha = || integrity(HashAlgorithm::SHA_512);
    // CompressionAlgorithmEmpty.
    let mut line = Line::new(server_config());
    let status = negotiate(&mut line, vec![Dialect::Smb311], vec![sha(), of(Vec::new())]);
    assert_eq!(status, Some(NtStatus::INVALID_PARAMETER));
    // CompressionContextInvalidDataLength: 4 bytes.
    let short = Context::Other {
        context_type: contexts::ContextType::COMPRESSION_CAPABILITIES,
        data: &[1, 0, 0, 0],
    };
    let mut line = Line::new(server_config());
    let status = negotiate(&mut line, vec![Dialect::Smb311], vec![sha(), short]);
    assert_eq!(status, Some(NtStatus::INVALID_PARAMETER));
    // A server that compresses nothing ignores the context.
    let mut line = Line::new(Config {
        compression: Default::default(),
        ..server_config()
    });
    let status = negotiate(&mut line, vec![Dialect::Smb311], vec![sha(), of(Vec::new())]);
    assert_eq!(status, Some(NtStatus::SUCCESS));
}

/// Sends a NEGOTIATE and returns the response's dialect and contexts.
fn agreed(
    request: &NegotiateRequest<'_>,
    change: fn(&mut Vec<u8>),
) -> (DialectRevision, Vec<Context<'static>>) {
    let mut line = Line::new(server_config());
    let mut message = line.message(Command::Negotiate, |w| request.encode(w));
    change(&mut message);
    let (header, answer) = line.send(&message).swap_remove(0);
    assert_eq!(header.status, NtStatus::SUCCESS);
    let body = &mut Reader::at(&answer, HEADER_LEN, "NEGOTIATE");
    let response = NegotiateResponse::decode(body).unwrap();
    // The salt differs each time.
    let lists = response.contexts.into_iter().filter_map(|context| match context {
        Context::Encryption(list) => Some(Context::Encryption(list)),
        Context::Compression { flags, algorithms } => Some(Context::Compression { flags, algorithms }),
        _ => None,
    });
    (response.dialect, lists.collect())
}

/// Negotiate_SMB311_InvalidCipher, Negotiate_SMB311_Compression_InvalidSmbDialect: without a common cipher the
/// response names none, and an older dialect has no contexts ([MS-SMB2] 3.3.5.4).
#[test]
fn what_a_client_cannot_have() {
    let ciphers = Context::Encryption(vec![contexts::Cipher(0x7777)]);
    let (dialect, lists) = agreed(
        &new_negotiate(vec![integrity(HashAlgorithm::SHA_512), ciphers]),
        |_| {},
    );
    assert_eq!(dialect, DialectRevision::Dialect(Dialect::Smb311));
    assert_eq!(lists, [Context::Encryption(vec![contexts::Cipher::NONE])]);
    let compression = Context::Compression {
        flags: CompressionFlags::CHAINED,
        algorithms: vec![contexts::CompressionAlgorithm::LZ4],
    };
    let request = new_negotiate(vec![integrity(HashAlgorithm::SHA_512), compression]);
    // The list of dialects follows 36 bytes.
    let (dialect, lists) = agreed(&request, |message| {
        message[HEADER_LEN + 36..][..2].copy_from_slice(&Dialect::Smb302.code().to_le_bytes());
    });
    assert_eq!(dialect, DialectRevision::Dialect(Dialect::Smb302));
    assert_eq!(lists, []);
}

/// The decoder of Zstandard is C, so nothing reaches it before a login.
#[test]
fn zstandard_is_for_clients_that_have_logged_in() {
    use contexts::CompressionAlgorithm as One;
    let wish = Context::Compression {
        flags: CompressionFlags::CHAINED,
        algorithms: vec![One::OWN_ZSTD, One::LZ4],
    };
    let mut line = Line::new(server_config());
    let contexts = vec![integrity(HashAlgorithm::SHA_512), wish];
    let status = negotiate(&mut line, vec![Dialect::Smb311], contexts);
    assert_eq!(status, Some(NtStatus::SUCCESS));
    let message = line.message(Command::SessionSetup, |w| w.zeros(10_000));
    for (algorithm, is_accepted) in [(One::OWN_ZSTD, false), (One::LZ4, true)] {
        let mut bytes = compress(Algorithms::from_wire(&[algorithm]), true, 64, &message).unwrap();
        let opened = line.served.protocol.open_frame(&mut bytes);
        assert_eq!(opened.is_ok(), is_accepted, "{algorithm:?}");
    }
}

/// Scenario Signing: there is no key yet, so a signed NEGOTIATE is refused ([MS-SMB2] 3.3.5.2.4). The next one is
/// not the second.
#[test]
fn a_signed_negotiate_is_refused() {
    let mut line = Line::new(server_config());
    let request = new_negotiate(vec![integrity(HashAlgorithm::SHA_512)]);
    let mut message = line.message(Command::Negotiate, |w| request.encode(w));
    message[FLAGS_OFFSET] |= HeaderFlags::SIGNED.bits() as u8;
    let (header, _) = line.send(&message).swap_remove(0);
    assert_eq!(header.status, NtStatus::INVALID_PARAMETER);
    let contexts = vec![integrity(HashAlgorithm::SHA_512)];
    let status = negotiate(&mut line, vec![Dialect::Smb311], contexts);
    assert_eq!(status, Some(NtStatus::SUCCESS));
}

/// BVT_Negotiate_Compatible_2002: "SMB 2.002" without "SMB 2.???" is answered with that dialect ([MS-SMB2]
/// 3.3.5.3.2), and ends the negotiation.
#[test]
fn an_smb1_negotiate_for_2_0_2_is_the_whole_one() {
    let mut line = Line::new(server_config());
    let mut old = Vec::new();
    let words = ["NT LM 0.12", Smb1NegotiateRequest::SMB_2_002];
    Smb1NegotiateRequest::encode(&words, &mut Writer::new(&mut old));
    let (header, answer) = line.send(&old).swap_remove(0);
    assert_eq!(header.status, NtStatus::SUCCESS);
    let body = &mut Reader::at(&answer, HEADER_LEN, "NEGOTIATE");
    let response = NegotiateResponse::decode(body).unwrap();
    assert_eq!(response.dialect, DialectRevision::Dialect(Dialect::Smb202));
    line.next_id = 1;
    assert_eq!(line.ask(Command::Echo, |w| w.u32(4)), Some(NtStatus::SUCCESS));
    assert_eq!(negotiate(&mut line, vec![Dialect::Smb202], vec![]), None);
}

/// After an SMB 1 NEGOTIATE the next message has id 1 ([MS-SMB2] 3.3.5.2.3; impacket), or 0 with
/// some clients.
#[test]
fn after_smb1_ids_go_on_from_either() {
    for first in [0, 1] {
        let mut line = Line::new(server_config());
        let mut old = Vec::new();
        let words = ["NT LM 0.12", Smb1NegotiateRequest::SMB_2_WILDCARD];
        Smb1NegotiateRequest::encode(&words, &mut Writer::new(&mut old));
        let answers = line.send(&old);
        assert_eq!(answers[0].0.credits, 1);
        line.next_id = first;
        let contexts = vec![integrity(HashAlgorithm::SHA_512)];
        let status = negotiate(&mut line, vec![Dialect::Smb210, Dialect::Smb311], contexts);
        assert_eq!(status, Some(NtStatus::SUCCESS), "{first}");
        for _ in 0..3 {
            assert_eq!(
                line.ask(Command::Echo, |w| w.u32(4)),
                Some(NtStatus::SUCCESS),
                "{first}"
            );
        }
    }
}

/// A NEGOTIATE cut and changed anywhere.
#[test]
fn negotiations_of_any_form() {
    let request = NegotiateRequest {
        security_mode: SecurityMode::SIGNING_ENABLED,
        capabilities: Capabilities::LARGE_MTU,
        client_guid: Guid([1; 16]),
        dialects: vec![Dialect::Smb302, Dialect::Smb311],
        contexts: vec![
            integrity(HashAlgorithm::SHA_512),
            Context::Encryption(vec![contexts::Cipher::AES_128_GCM]),
            Context::Signing(vec![contexts::SigningAlgorithm::AES_CMAC]),
        ],
    };
    let whole = Line::new(server_config()).message(Command::Negotiate, |w| request.encode(w));
    for length in 64..whole.len() {
        Line::new(server_config()).send(&whole[..length]);
    }
    for at in 64..whole.len() {
        for value in [0, 1, 0x7F, 0x80, 0xFF] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            let mut line = Line::new(server_config());
            let answers = line.send(&bytes);
            assert!(answers.len() == 1 || line.served.hung_up.is_some());
        }
    }
}

/// Replies grant no more than the maximum, whatever is asked for.
#[test]
fn credits() {
    let mut line = Line::new(server_config());
    line.asks = u16::MAX;
    negotiate(&mut line, vec![Dialect::Smb210], vec![]);
    for _ in 0..3000 {
        assert_eq!(line.ask(Command::Echo, |w| w.u32(4)), Some(NtStatus::SUCCESS));
        assert!((1..=512).contains(&line.credits), "{}", line.credits);
    }
    // A request for no credits leaves at least one.
    line.asks = 0;
    for _ in 0..2000 {
        assert_eq!(line.ask(Command::Echo, |w| w.u32(4)), Some(NtStatus::SUCCESS));
        assert!((1..=512).contains(&line.credits), "{}", line.credits);
    }
    // Ids skipped, and used out of order.
    line.asks = 512;
    line.next_id += 1;
    let mut refused = false;
    for _ in 0..3000 {
        match line.ask(Command::Echo, |w| w.u32(4)) {
            Some(status) => assert_eq!(status, NtStatus::SUCCESS),
            None => {
                refused = true;
                break;
            }
        }
        assert!(line.credits <= 512, "{}", line.credits);
    }
    assert!(
        refused,
        "a client that leaves out an id comes to the end of its window"
    );
}

#[test]
fn ids_used_twice_or_not_granted() {
    for ahead in [-1_i64, 1, 600, i64::MAX / 2] {
        let mut line = Line::new(server_config());
        negotiate(&mut line, vec![Dialect::Smb210], vec![]);
        assert_eq!(line.ask(Command::Echo, |w| w.u32(4)), Some(NtStatus::SUCCESS));
        line.next_id = line.next_id.wrapping_add_signed(ahead);
        assert_eq!(line.ask(Command::Echo, |w| w.u32(4)), None, "{ahead}");
    }
}

/// Logins that are begun and never completed.
#[test]
fn logins_in_progress_are_bounded() {
    let mut line = Line::new(server_config());
    line.asks = 512;
    negotiate(&mut line, vec![Dialect::Smb210], vec![]);
    // NTLMSSP NEGOTIATE without SPNEGO.
    let token = [
        b"NTLMSSP\0\x01\0\0\0".as_slice(),
        &0x6209_8235_u32.to_le_bytes(),
        &[0; 24],
    ]
    .concat();
    let request = SessionSetupRequest {
        flags: Default::default(),
        security_mode: SecurityMode::SIGNING_ENABLED,
        capabilities: Capabilities::default(),
        previous_session_id: SessionId::default(),
        security_buffer: &token,
    };
    let mut under_way = 0;
    for _ in 0..200 {
        match line.ask(Command::SessionSetup, |w| request.encode(w)).unwrap() {
            NtStatus::MORE_PROCESSING_REQUIRED => under_way += 1,
            status => assert_eq!(status, NtStatus::INSUFFICIENT_RESOURCES),
        }
    }
    assert_eq!(under_way, 16);
    assert!(line.sessions.is_empty());
    assert_eq!(line.served.protocol.frame_len_max(), 128 << 10);
}

/// Only NEGOTIATE has no session id; no other command is executed.
#[test]
fn frames_before_a_login_are_short() {
    let mut line = Line::new(server_config());
    line.send(&vec![0xFE; (128 << 10) + 1]);
    assert!(line.served.hung_up.is_some());
}
