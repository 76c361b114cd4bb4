use super::keys::{self, Direction, Signatures};
use super::*;
use crate::auth::{Identity, Mechanism, Refusal};
use crate::secret::Password;
use crate::testing::{anatomy, hex};
use proptest::prelude::*;
use ropeway_smb_wire::{FileTime, Text};

/// [MS-NLMP] 4.2.4.3.
const CHALLENGE: &str = "
    4e544c4d53535000020000000c000c003800000033828ae20123456789abcdef0000000000000000
    24002400440000000600701700 00000f53006500720076006500720002000c0044006f006d006100
    69006e0001000c0053006500720076006500720000000000";
const AUTHENTICATE: &str = "
    4e544c4d5353500003000000180018006c00000054005400840000000c000c004800000008000800
    54000000100010005c00000010001000d8000000358288e20501280a0000000f44006f006d006100
    69006e00550073006500720043004f004d005000550054004500520086c35097ac9cec102554764a
    57cccc19aaaaaaaaaaaaaaaa68cd0ab851e51c96aabc927bebef6a1c010100000000000000000000
    00000000aaaaaaaaaaaaaaaa0000000002000c0044006f006d00610069006e0001000c0053006500
    7200760065007200000000000000 0000c5dad2544fc9799094ce1ce90bc9d03e";
const SERVER_CHALLENGE: [u8; 8] = [0x01, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF];

fn credentials() -> Credentials {
    Credentials::with_password("Domain", "User", &Password::from("Password"))
}

fn entropy() -> NtlmEntropy {
    NtlmEntropy {
        now: FileTime(0),
        client_challenge: [0xAA; 8],
        session_key: [0x55; 16].into(),
    }
}

fn client(credentials: Credentials) -> NtlmClient {
    let target = Some("cifs/server".into());
    NtlmClient::new(credentials, "COMPUTER".into(), target, entropy())
}

fn server(anonymous_allowed: bool) -> NtlmServer {
    let names = ServerNames {
        netbios_computer: "SERVER".into(),
        netbios_domain: "SERVER".into(),
        dns_computer: "server.example".into(),
        dns_domain: "example".into(),
    };
    let lookup: NtHashLookup = Box::new(|user: &Text, domain: &Text| {
        let known = *user == Text::from("User") && *domain == Text::from("Domain");
        known.then(|| nt_hash(&Password::from("Password")))
    });
    NtlmServer::new(
        names,
        FileTime(1 << 56),
        SERVER_CHALLENGE,
        anonymous_allowed,
        lookup,
    )
}

/// [MS-NLMP] 4.2.4.1 and 4.2.4.2.
#[test]
fn computations_of_the_specification() {
    let hash = nt_hash(&Password::from("Password"));
    assert_eq!(
        hash.expose()[..],
        hex("a4f49c406510bdcab6824ee7c30fd852"),
        "4.2.2.1.2"
    );
    let ntowf = keys::ntowf_v2(&hash, &"User".into(), &"Domain".into());
    assert_eq!(ntowf[..], hex("0c868a403bfd7a93a3001ef22ef02e3f"));
    let same = keys::ntowf_v2(&hash, &"uSER".into(), &"Domain".into());
    assert_eq!(ntowf, same, "names of users have no case");
    let pairs = Challenge::decode(&hex(CHALLENGE)).unwrap().target_info.to_vec();
    let part = keys::client_part(0, [0xAA; 8], &pairs);
    let temp = hex("
        01010000000000000000000000000000aaaaaaaaaaaaaaaa0000000002000c0044006f006d006100
        69006e0001000c005300650072007600650072000000000000000000");
    assert_eq!(part, temp);
    let (proof, base_key) = keys::prove(&ntowf, SERVER_CHALLENGE, &part);
    assert_eq!(proof[..], hex("68cd0ab851e51c96aabc927bebef6a1c"));
    assert_eq!(base_key[..], hex("8de40ccadbc14a82f15cb0ad0de95ca3"));
    let lm = keys::lm_v2(&ntowf, SERVER_CHALLENGE, [0xAA; 8]);
    assert_eq!(lm[..], hex("86c35097ac9cec102554764a57cccc19aaaaaaaaaaaaaaaa"));
    let mut encrypted = [0x55; 16];
    keys::rc4_once(&base_key, &mut encrypted);
    assert_eq!(encrypted[..], hex("c5dad2544fc9799094ce1ce90bc9d03e"));
}

/// [MS-NLMP] 4.2.4.4.
#[test]
fn signature_of_the_specification() {
    let mut message = hex("50006c00610069006e007400650078007400");
    let mut signatures = Signatures::new(&[0x55; 16], true, Direction::ToServer);
    let plain = message.clone();
    signatures.encrypt(&mut message);
    assert_eq!(message, hex("54e50165bf1936dc996020c1811b0f06fb5f"));
    assert_eq!(
        signatures.sign(&plain)[..],
        hex("010000007fb38ec5c55d497600000000")
    );
}

#[test]
fn messages_of_the_specification() {
    let bytes = hex(CHALLENGE);
    let challenge = Challenge::decode(&bytes).unwrap();
    assert_eq!(challenge.target_name, "Server".into());
    assert_eq!(challenge.flags.bits(), 0xE28A_8233);
    assert_eq!(challenge.server_challenge, SERVER_CHALLENGE);
    let pairs = AvPairs::decode(challenge.target_info).unwrap();
    assert_eq!(
        pairs.get(AvId::NB_DOMAIN_NAME),
        Some(&hex("44006f006d00610069006e00")[..])
    );
    assert_eq!(pairs.encode(), challenge.target_info);
    assert_eq!(challenge.encode(), bytes);

    let bytes = hex(AUTHENTICATE);
    let authenticate = Authenticate::decode(&bytes).unwrap();
    assert_eq!(authenticate.user, "User".into());
    assert_eq!(authenticate.mic, None);
    assert_eq!(authenticate.encode(), bytes);
}

/// Everything of [MS-NLMP] 4.2.4 but the flags, which are our own, and the version.
#[test]
fn the_client_answers_as_in_the_specification() {
    let mut client = client(credentials());
    client.negotiate();
    let (message, session_key) = client.authenticate(&hex(CHALLENGE)).unwrap();
    let bytes = hex(AUTHENTICATE);
    let expected = Authenticate {
        flags: NegotiateFlags::from_bits_retain(0xE288_8211),
        version: Version::OURS,
        ..Authenticate::decode(&bytes).unwrap()
    };
    assert_eq!(Authenticate::decode(&message).unwrap().flags, expected.flags);
    assert_eq!(message, expected.encode());
    assert_eq!(session_key.full(), [0x55; 16]);
}

#[test]
fn the_server_accepts_the_specification() {
    let mut server = server(false);
    server.time = None;
    server
        .challenge(
            &Negotiate {
                flags: NegotiateFlags::from_bits_retain(0xE288_8233),
            }
            .encode(),
        )
        .unwrap();
    let (identity, session_key) = server.authenticate(&hex(AUTHENTICATE)).unwrap();
    assert_eq!(session_key.full(), [0x55; 16]);
    let expected = Identity::User {
        domain: "Domain".into(),
        user: "User".into(),
        workstation: "COMPUTER".into(),
    };
    assert_eq!(identity, expected);
}

#[test]
fn both_ends_agree_and_sign() {
    let (mut client, mut server) = (client(credentials()), server(false));
    let challenge = server.challenge(&client.negotiate()).unwrap();
    let (message, ours) = client.authenticate(&challenge).unwrap();
    let decoded = Authenticate::decode(&message).unwrap();
    assert_eq!(decoded.lm_response, [0; 24]);
    let pairs = AvPairs::decode(&decoded.nt_response[44..]).unwrap();
    assert_eq!(pairs.flags(), Ok(AvPairs::FLAG_MIC));
    assert_eq!(
        pairs.timestamp(),
        Ok(Some(1 << 56)),
        "the server's time, not ours"
    );
    assert_eq!(
        Text::from_le_bytes(pairs.get(AvId::TARGET_NAME).unwrap()),
        Some("cifs/server".into())
    );
    let (_, theirs) = server.authenticate(&message).unwrap();
    assert_eq!(ours.full(), theirs.full());
    for _ in 0..2 {
        let mic = client.mic(b"list").unwrap();
        server.verify_mic(b"list", &mic).unwrap();
        let mic = server.mic(b"list").unwrap();
        client.verify_mic(b"list", &mic).unwrap();
    }
    let mic = client.mic(b"list").unwrap();
    assert_eq!(server.verify_mic(b"other", &mic), Err(AuthError::BadMic));
}

#[test]
fn wrong_passwords_and_unknown_users_look_alike() {
    let mut refusals = Vec::new();
    for (user, password) in [("User", "password"), ("Nobody", "Password")] {
        let (mut client, mut server) = (
            client(Credentials::with_password(
                "Domain",
                user,
                &Password::from(password),
            )),
            server(false),
        );
        let challenge = server.challenge(&client.negotiate()).unwrap();
        let (message, _) = client.authenticate(&challenge).unwrap();
        refusals.push(server.authenticate(&message).unwrap_err());
        assert!(
            server.authenticate(&message).is_err(),
            "no second try on one challenge"
        );
    }
    assert_eq!(refusals[0], AuthError::Refused(Refusal::WrongPassword));
    assert_eq!(refusals[1], AuthError::Refused(Refusal::UnknownUser));
    assert_eq!(refusals[0].to_string(), refusals[1].to_string());
}

#[test]
fn null_sessions_are_the_servers_choice() {
    for allowed in [true, false] {
        let (mut client, mut server) = (client(Credentials::anonymous()), server(allowed));
        let challenge = server.challenge(&client.negotiate()).unwrap();
        let (message, ours) = client.authenticate(&challenge).unwrap();
        match server.authenticate(&message) {
            Ok((identity, theirs)) => {
                assert!(allowed && identity == Identity::Anonymous);
                assert_eq!(ours.full(), theirs.full());
            }
            Err(error) => assert!(!allowed && error == AuthError::Refused(Refusal::Anonymous)),
        }
    }
}

#[test]
fn who_names_a_user_is_strong_even_where_nobody_need_be() {
    // As smbclient's null sessions come: without extended session security.
    let flags =
        NegotiateFlags::from_bits_retain(0xE288_8233).difference(NegotiateFlags::EXTENDED_SESSION_SECURITY);
    let mut strict = server(false);
    assert!(strict.challenge(&Negotiate { flags }.encode()).is_err());
    let weaken = |mut message: Vec<u8>| {
        // The flags are at 60 ([MS-NLMP] 2.2.1.3).
        message[60..64].copy_from_slice(&flags.bits().to_le_bytes());
        message
    };
    let (mut client, mut server) = (client(Credentials::anonymous()), server(true));
    let negotiate = client.negotiate();
    let (message, _) = client
        .authenticate(&server.challenge(&negotiate).unwrap())
        .unwrap();
    let (identity, _) = server.authenticate(&weaken(message)).unwrap();
    assert_eq!(identity, Identity::Anonymous);
}

#[test]
fn a_client_that_seals_is_told_that_it_may() {
    // smbclient insists before it encrypts with SMB.
    let flags = NegotiateFlags::from_bits_retain(0xE288_8233).union(NegotiateFlags::SEAL);
    let challenge = server(false).challenge(&Negotiate { flags }.encode()).unwrap();
    let challenge = Challenge::decode(&challenge).unwrap();
    assert!(challenge.flags.contains(NegotiateFlags::SEAL));
}

#[test]
fn weak_peers_are_refused() {
    for missing in [
        NegotiateFlags::UNICODE,
        NegotiateFlags::EXTENDED_SESSION_SECURITY,
        NegotiateFlags::KEY_128,
    ] {
        let flags = NegotiateFlags::from_bits_retain(0xE288_8233).difference(missing);
        let error = server(false)
            .challenge(&Negotiate { flags }.encode())
            .unwrap_err();
        assert!(matches!(error, AuthError::Unsupported(_)), "{error}");
        let bytes = hex(CHALLENGE);
        let challenge = Challenge {
            flags,
            ..Challenge::decode(&bytes).unwrap()
        }
        .encode();
        let mut client = client(credentials());
        client.negotiate();
        assert!(client.authenticate(&challenge).is_err());
    }
    // NTLMv1: a response of 24 bytes.
    let mut server = server(false);
    server
        .challenge(
            &Negotiate {
                flags: NegotiateFlags::from_bits_retain(0xE288_8233),
            }
            .encode(),
        )
        .unwrap();
    let bytes = hex(AUTHENTICATE);
    let v1 = Authenticate {
        nt_response: &[7; 24],
        ..Authenticate::decode(&bytes).unwrap()
    }
    .encode();
    assert_eq!(
        server.authenticate(&v1).unwrap_err(),
        AuthError::Unsupported("NTLMv2")
    );
}

/// A conversation with Windows: its MICs over SPNEGO's list verify.
#[test]
fn the_published_conversation_verifies() {
    let key = hex(anatomy::SESSION_KEY).try_into().unwrap();
    let list = hex("300C060A2B06010401823702020A");
    let mut signatures = Signatures::new(&key, true, Direction::ToServer);
    signatures
        .verify(&list, &hex("0100000063775A9A5FD97F0600000000"))
        .unwrap();
    let mut signatures = Signatures::new(&key, true, Direction::ToClient);
    signatures
        .verify(&list, &hex("010000003B453CDC3524164200000000"))
        .unwrap();
}

proptest! {
    #[test]
    fn messages_round_trip(
        names in proptest::collection::vec(proptest::collection::vec(any::<u16>(), 0..20), 4),
        blobs in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 4),
        flags: u32,
        challenge: [u8; 8],
        version: [u8; 8],
        mic: Option<[u8; 16]>,
    ) {
        let text = |at: usize| Text::from_units(names[at].clone());
        let message = Challenge {
            target_name: text(0),
            flags: NegotiateFlags::from_bits_retain(flags) | NegotiateFlags::VERSION,
            server_challenge: challenge,
            target_info: &blobs[0],
            version: Version(version),
        };
        let bytes = message.encode();
        prop_assert_eq!(Challenge::decode(&bytes), Ok(message));
        let message = Authenticate {
            lm_response: &blobs[1],
            nt_response: &blobs[2],
            domain: text(1),
            user: text(2),
            workstation: text(3),
            encrypted_key: &blobs[3],
            flags: NegotiateFlags::from_bits_retain(flags) | NegotiateFlags::UNICODE,
            version: Version(version),
            mic,
        };
        let bytes = message.encode();
        prop_assert_eq!(Authenticate::decode(&bytes), Ok(message));
    }

    #[test]
    fn pairs_round_trip(pairs in proptest::collection::vec((1..20_u16, proptest::collection::vec(any::<u8>(), 0..20)), 0..8)) {
        let mut list = AvPairs::default();
        for (id, value) in pairs {
            list.set(AvId(id), value);
        }
        let bytes = list.encode();
        prop_assert_eq!(AvPairs::decode(&bytes), Ok(list));
    }

    #[test]
    fn a_changed_conversation_is_found_out(which in 0..3, at: proptest::sample::Index, flip in 1..=255_u8) {
        let (mut client, mut server) = (client(credentials()), server(false));
        let damage = |number, mut message: Vec<u8>| {
            if number == which {
                let at = at.index(message.len());
                message[at] ^= flip;
            }
            message
        };
        let negotiate = damage(0, client.negotiate());
        let Ok(challenge) = server.challenge(&negotiate) else { return Ok(()) };
        let Ok((message, _)) = client.authenticate(&damage(1, challenge)) else { return Ok(()) };
        prop_assert!(server.authenticate(&damage(2, message)).is_err());
    }

    #[test]
    fn hostile_bytes_never_panic(
        noise in proptest::collection::vec(any::<u8>(), 0..200),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6),
        cut: proptest::sample::Index,
    ) {
        let mutate = |mut bytes: Vec<u8>| {
            for (at, value) in &changes {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            bytes.truncate(cut.index(bytes.len() + 1));
            bytes
        };
        let kinds = [1_u8, 2, 3].map(|kind| [b"NTLMSSP\0", &[kind, 0, 0, 0][..], &noise].concat());
        for bytes in kinds.into_iter().chain([noise, mutate(hex(CHALLENGE)), mutate(hex(AUTHENTICATE))]) {
            let _ = AvPairs::decode(&bytes);
            let mut client = client(credentials());
            client.negotiate();
            let _ = client.authenticate(&bytes);
            let mut server = server(true);
            let _ = server.challenge(&bytes);
            let mut server = self::server(true);
            server.challenge(&Negotiate { flags: NegotiateFlags::from_bits_retain(0xE288_8233) }.encode()).unwrap();
            let _ = server.authenticate(&bytes);
        }
    }
}
