//! Cases of Microsoft's protocol test suite that no other test here has; see `docs/conformance-wpts.md`.
//! The modules have the greater areas.

mod applications;
mod caching;
mod compression;
mod durable;
mod files;
mod logins;

use ropeway_smb_proto::crypto::SigningAlgorithm;
use ropeway_smb_wire::create::{CreateOptions, CreateResponse, OplockLevel};
use ropeway_smb_wire::create_context::{Lease, LeaseState, LeaseV2, RequestContext};
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::fsctl::validate_negotiate::ValidateNegotiateRequest;
use ropeway_smb_wire::header::{Command, SIGNATURE_OFFSET};
use ropeway_smb_wire::negotiate::{Capabilities, Dialect, NegotiateResponse, SecurityMode};
use ropeway_smb_wire::query_info::InfoType;
use ropeway_smb_wire::{FileId, Guid, LeaseKey, NtStatus};

use crate::raw::{Create, Raw};
use crate::samples;
use crate::serve::Serve;

/// Connects, logs in and connects to the share in one dialect.
fn ready(serve: &Serve, dialect: Dialect) -> Raw {
    let mut raw = Raw::connect(serve.address);
    raw.dialect = dialect;
    raw.enter();
    raw
}

/// What the NEGOTIATE of [`Raw`] said.
fn said(raw: &Raw) -> ValidateNegotiateRequest {
    ValidateNegotiateRequest {
        capabilities: raw.capabilities,
        guid: raw.guid,
        security_mode: SecurityMode::SIGNING_ENABLED,
        dialects: vec![raw.dialect.code()],
    }
}

/// Repeats a NEGOTIATE in a VALIDATE_NEGOTIATE_INFO with so much room for the answer; `None` if the
/// connection ends.
fn validate(raw: &mut Raw, said: &ValidateNegotiateRequest, room: u32) -> Option<NtStatus> {
    let mut input = Vec::new();
    said.encode(&mut ropeway_smb_wire::Writer::new(&mut input));
    let mut body = samples::control(FileId::RELATED, CtlCode::VALIDATE_NEGOTIATE_INFO, &input);
    // MaxOutputResponse ([MS-SMB2] 2.2.31).
    body[44..48].copy_from_slice(&room.to_le_bytes());
    let reply = raw.try_call(Command::Ioctl, |w| w.bytes(&body));
    reply.map(|reply| reply.status())
}

/// ValidateNegotiateInfo_Negative_*: a repeated NEGOTIATE that differs in one field, or an answer without
/// room, ends the connection ([MS-SMB2] 3.3.5.15.12).
#[test]
fn a_negotiation_that_was_changed_ends_the_connection() {
    type Change = fn(&mut ValidateNegotiateRequest);
    let changes: [(&str, Change, u32); 6] = [
        ("nothing", |_| {}, 24),
        ("capabilities", |said| said.capabilities = Capabilities::DFS, 24),
        ("guid", |said| said.guid = Guid([7; 16]), 24),
        (
            "security mode",
            |said| said.security_mode = SecurityMode::SIGNING_REQUIRED,
            24,
        ),
        ("dialects", |said| said.dialects = vec![0x0777], 24),
        ("room", |_| {}, 23),
    ];
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    for dialect in [Dialect::Smb300, Dialect::Smb302] {
        for (what, change, room) in changes {
            let mut raw = ready(&serve, dialect);
            let mut said = said(&raw);
            change(&mut said);
            let status = validate(&mut raw, &said, room);
            let expected = (what == "nothing").then_some(NtStatus::SUCCESS);
            assert_eq!(status, expected, "{dialect}, {what}");
        }
    }
}

/// ValidateNegotiateInfo_Negative_SMB311, and of the list of dialects more than its greatest common one
/// ([MS-SMB2] 3.3.5.15.12).
#[test]
fn negotiations_are_validated_before_3_1_1_and_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let mut raw = ready(&serve, Dialect::Smb311);
    let said = said(&raw);
    assert_eq!(validate(&mut raw, &said, 24), None);
    let list = [Dialect::Smb202, Dialect::Smb210, Dialect::Smb302];
    for (what, dialects, goes_on) in [
        ("the same", vec![0x0202, 0x0210, 0x0302], true),
        ("one is missing", vec![0x0202, 0x0302], false),
        ("another order", vec![0x0210, 0x0202, 0x0302], false),
        ("one more", vec![0x0202, 0x0210, 0x0302, 0x0300], false),
    ] {
        let mut raw = Raw::connect(serve.address);
        raw.dialect = Dialect::Smb302;
        raw.negotiate_with(list.to_vec(), Vec::new());
        assert_eq!(raw.log_in("alice", "secret"), NtStatus::SUCCESS);
        assert_eq!(raw.tree("data"), NtStatus::SUCCESS);
        let said = ValidateNegotiateRequest {
            dialects,
            ..said.clone()
        };
        let expected = goes_on.then_some(NtStatus::SUCCESS);
        assert_eq!(validate(&mut raw, &said, 24), expected, "{what}");
    }
}

/// CreditMgmtTestCase: a request that pays for less than it asks for is refused, and the connection goes on
/// ([MS-SMB2] 3.3.5.2.5).
#[test]
fn large_requests_pay_for_their_size() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), vec![1; 200_000]).unwrap();
    let serve = Serve::start(folder.path());
    let mut raw = ready(&serve, Dialect::Smb311);
    let file = raw.create(&Create::of("file")).unwrap();
    for (length, charge, status) in [
        (65_536, 1, NtStatus::SUCCESS),
        (65_537, 0, NtStatus::INVALID_PARAMETER),
        (65_537, 1, NtStatus::INVALID_PARAMETER),
        (65_537, 2, NtStatus::SUCCESS),
        (131_073, 2, NtStatus::INVALID_PARAMETER),
        (131_073, 3, NtStatus::SUCCESS),
    ] {
        let data = vec![2; length];
        let requests = [
            (Command::Read, samples::read(file, u32::try_from(length).unwrap())),
            (Command::Write, samples::write(file, 0, &data)),
        ];
        for (command, body) in requests {
            raw.charge = charge;
            let found = raw.call(command, |w| w.bytes(&body)).status();
            assert_eq!(found, status, "{command:?} of {length} bytes for {charge}");
            raw.charge = 1;
            assert_eq!(raw.echo(), NtStatus::SUCCESS);
        }
    }
}

/// Model Credits, and what CreditMgmtTestCase does not send: the other commands with a size pay for it, by the
/// greater of request and answer ([MS-SMB2] 3.3.5.2.5). None is refused for a charge that is too great.
#[test]
fn queries_and_controls_pay_for_their_size() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let mut raw = ready(&serve, Dialect::Smb311);
    let file = raw.create(&Create::of("file")).unwrap();
    let listed = raw.create(&Create {
        options: CreateOptions::DIRECTORY_FILE,
        ..Create::of("")
    });
    let listed = listed.unwrap();
    // Where each request says how long the answer may be.
    let control = samples::control(file, CtlCode::QUERY_ALLOCATED_RANGES, &[0; 16]);
    let requests = [
        (Command::Ioctl, control, 44),
        (Command::QueryDirectory, samples::list(listed, "*".into()), 28),
        (Command::ChangeNotify, samples::watch(listed), 4),
        (
            Command::QueryInfo,
            samples::query_info(file, InfoType::File, 18, &[]),
            4,
        ),
    ];
    for (command, body, at) in requests {
        for (length, charge, pays) in [
            (65_537_u32, 1, false),
            (65_537, 2, true),
            (131_073, 2, false),
            (65_536, 1, true),
        ] {
            let mut body = body.clone();
            body[at..at + 4].copy_from_slice(&length.to_le_bytes());
            raw.charge = charge;
            let message = raw.message(command, |w| w.bytes(&body));
            raw.charge = 1;
            raw.send(&message);
            if command == Command::ChangeNotify && pays {
                // The watch waits.
                let mut cancel = raw.message(Command::Cancel, |w| w.u32(4));
                cancel[24..32].copy_from_slice(&message[24..32]);
                raw.sign(&mut cancel);
                raw.send(&cancel);
            }
            let status = raw.reply().unwrap().status();
            let refused = status == NtStatus::INVALID_PARAMETER;
            assert_eq!(refused, !pays, "{command:?} of {length} for {charge}: {status}");
            assert_eq!(raw.echo(), NtStatus::SUCCESS);
        }
    }
}

/// ChangeNotify_MaxTransactSizeCheck_*: no answer is longer than what NEGOTIATE allowed, in every dialect ([MS-SMB2]
/// 3.3.5.19).
#[test]
fn changes_are_asked_for_within_the_negotiated_size() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    for dialect in Dialect::ALL {
        let mut raw = Raw::connect(serve.address);
        raw.dialect = dialect;
        let reply = raw.negotiate();
        let size = NegotiateResponse::decode(&mut reply.body())
            .unwrap()
            .max_transact_size;
        assert_eq!(raw.log_in("alice", "secret"), NtStatus::SUCCESS);
        assert_eq!(raw.tree("data"), NtStatus::SUCCESS);
        let watched = raw.create(&Create {
            options: CreateOptions::DIRECTORY_FILE,
            ..Create::of("")
        });
        let mut body = samples::watch(watched.unwrap());
        body[4..8].copy_from_slice(&(size + 1).to_le_bytes());
        raw.charge = if dialect == Dialect::Smb202 {
            1
        } else {
            (size / 65_536 + 1) as u16
        };
        // Credits for the charge.
        raw.asks = 512;
        let charge = std::mem::replace(&mut raw.charge, 1);
        assert_eq!(raw.echo(), NtStatus::SUCCESS);
        raw.charge = charge;
        let reply = raw.call(Command::ChangeNotify, |w| w.bytes(&body));
        assert_eq!(reply.status(), NtStatus::INVALID_PARAMETER, "{dialect}");
    }
}

/// Signing_WrongSessionKey_Rejected_*: a wrong signature is answered with an error, in every dialect, and
/// what follows is judged by itself ([MS-SMB2] 3.3.5.2.4).
#[test]
fn a_wrong_signature_is_refused_in_every_dialect() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let before = Dialect::ALL.map(|dialect| (dialect, SigningAlgorithm::AesCmac));
    // Signing_WrongSessionKey_Rejected_HMAC_SHA256 and _AES_GMAC are about 3.1.1.
    let more = [SigningAlgorithm::HmacSha256, SigningAlgorithm::AesGmac];
    let more = more.map(|algorithm| (Dialect::Smb311, algorithm));
    for (dialect, algorithm) in before.into_iter().chain(more) {
        let mut raw = Raw::connect(serve.address);
        (raw.dialect, raw.signing) = (dialect, algorithm);
        raw.enter();
        let mut echo = raw.message(Command::Echo, |w| w.u32(4));
        echo[SIGNATURE_OFFSET + 15] ^= 1;
        raw.send(&echo);
        assert_eq!(
            raw.reply().unwrap().status(),
            NtStatus::ACCESS_DENIED,
            "{dialect}, {algorithm:?}"
        );
        assert_eq!(raw.echo(), NtStatus::SUCCESS, "{dialect}, {algorithm:?}");
    }
}

/// BVT_TreeMgmt_SMB311_Disconnect_NoSignedNoEncryptedTreeConnect: even where nobody demands signatures, a
/// user's TREE_CONNECT in 3.1.1 is signed ([MS-SMB2] 3.3.5.7).
#[test]
fn an_unsigned_tree_connect_ends_the_connection_in_3_1_1() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::with(folder.path(), |options| options.config.signing_required = false);
    for (dialect, goes_on) in [(Dialect::Smb302, true), (Dialect::Smb311, false)] {
        let mut raw = ready(&serve, dialect);
        let signer = raw.signer.take();
        let request = ropeway_smb_wire::tree_connect::TreeConnectRequest {
            flags: Default::default(),
            path: "\\\\server\\data".into(),
        };
        let reply = raw.try_call(Command::TreeConnect, |w| request.encode(w));
        raw.signer = signer;
        let status = reply.map(|reply| reply.status());
        assert_eq!(status, goes_on.then_some(NtStatus::SUCCESS), "{dialect}");
    }
}

/// DirectoryLeasing_Negative_SMB21, _SMB2002: leases on folders, and of version 2, came with 3.0; the folder is
/// opened without one ([MS-SMB2] 2.2.13.2.10).
#[test]
fn folders_have_no_leases_before_3_0() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("d")).unwrap();
    let serve = Serve::start(folder.path());
    let lease = LeaseV2 {
        lease: Lease {
            lease_key: LeaseKey([3; 16]),
            lease_state: LeaseState::from_bits_retain(3),
            lease_flags: Default::default(),
        },
        parent_lease_key: LeaseKey([0; 16]),
        epoch: 0,
    };
    let how = Create {
        options: CreateOptions::DIRECTORY_FILE,
        oplock: OplockLevel::Lease,
        contexts: vec![RequestContext::LeaseV2(lease)],
        ..Create::of("d")
    };
    for (dialect, level) in [
        (Dialect::Smb202, OplockLevel::None),
        (Dialect::Smb210, OplockLevel::None),
        (Dialect::Smb300, OplockLevel::Lease),
    ] {
        let mut raw = ready(&serve, dialect);
        let request = how.request();
        let reply = raw.call(Command::Create, |w| request.encode(w));
        assert_eq!(reply.status(), NtStatus::SUCCESS, "{dialect}");
        let created = CreateResponse::decode(&mut reply.body()).unwrap();
        assert_eq!(created.oplock_level, level, "{dialect}");
        raw.close(created.file_id);
    }
}
