//! SessionMgmt, Encryption and MultipleChannel: sessions that come back, what must be sealed, and channels.

use ropeway_smb_proto::crypto::{Cipher, Opener, Sealer, Signer, SigningAlgorithm, TRANSFORM_HEADER_LEN};
use ropeway_smb_wire::create::CreateResponse;
use ropeway_smb_wire::create_context::{AppInstanceId, RequestContext};
use ropeway_smb_wire::header::{
    Command, CompoundMessages, FLAGS_OFFSET, HEADER_LEN, Header, HeaderFlags, SIGNATURE_OFFSET,
};
use ropeway_smb_wire::lock::{LockElement, LockFlags, LockRequest};
use ropeway_smb_wire::negotiate::{Capabilities, Dialect};
use ropeway_smb_wire::negotiate_context::{self, Context};
use ropeway_smb_wire::session_setup::SessionSetupFlags;
use ropeway_smb_wire::{Guid, NtStatus, Reader, SessionId};

use crate::raw::{Create, Raw, Reply};
use crate::samples;
use crate::serve::Serve;

/// NextCommand and Signature of a header are zero in a sealed message ([MS-SMB2] 3.3.4.1.1).
pub(super) fn unsign(message: &mut [u8]) {
    message[FLAGS_OFFSET] &= !(HeaderFlags::SIGNED.bits() as u8);
    message[SIGNATURE_OFFSET..HEADER_LEN].fill(0);
}

impl Raw {
    /// Seals a frame and sends it. It has no signatures.
    pub(super) fn send_sealed(&mut self, frame: &mut [u8]) {
        let keys = self.keys.as_ref().unwrap();
        // The number of the channel is in the nonce, so no nonce comes twice.
        let mut sealer = Sealer::new(Cipher::Aes128Ccm, &keys.client_to_server, self.next_id as u16);
        let head = sealer.ticket().unwrap().seal(self.session, frame);
        let frame = [&head[..], frame].concat();
        self.send(&frame);
    }

    /// Receives a sealed frame, and returns its messages.
    pub(super) fn sealed_replies(&mut self) -> Vec<Reply> {
        let mut frame = self.receive().expect("the server hung up");
        let keys = self.keys.as_ref().unwrap();
        let opener = Opener::new(Cipher::Aes128Ccm, &keys.server_to_client);
        let (head, plain) = frame.split_first_chunk_mut::<TRANSFORM_HEADER_LEN>().unwrap();
        opener.open(head, plain).expect("a sealed reply");
        let messages = CompoundMessages::new(plain);
        let reply = |message: &[u8]| Reply {
            header: Header::decode(&mut Reader::new(message, "header")).unwrap(),
            message: message.to_vec(),
        };
        messages.map(|message| reply(message.unwrap())).collect()
    }

    pub(super) fn sealed_reply(&mut self) -> Reply {
        self.sealed_replies().swap_remove(0)
    }

    /// Sends a sealed request and receives its response.
    fn sealed_call(&mut self, command: Command, body: &[u8]) -> Reply {
        let mut message = self.message(command, |w| w.bytes(body));
        unsign(&mut message);
        self.send_sealed(&mut message);
        self.sealed_reply()
    }

    /// Becomes a channel of a session.
    fn bind(&mut self, to: &Raw, password: &str) -> Option<NtStatus> {
        self.session = to.session;
        self.tree = to.tree;
        self.signer = Some(Signer::new(
            SigningAlgorithm::AesCmac,
            &to.keys.as_ref().unwrap().signing,
        ));
        self.log_in_with("alice", password, SessionSetupFlags::BINDING)
    }
}

/// Negotiates a dialect, with encryption.
fn connected(serve: &Serve, dialect: Dialect) -> Raw {
    connected_as(serve, dialect, 1)
}

fn connected_as(serve: &Serve, dialect: Dialect, guid: u8) -> Raw {
    let mut raw = Raw::connect(serve.address);
    (raw.dialect, raw.guid) = (dialect, Guid([guid; 16]));
    raw.capabilities |= Capabilities::ENCRYPTION | Capabilities::MULTI_CHANNEL;
    let ciphers = Context::Encryption(vec![negotiate_context::Cipher::AES_128_CCM]);
    let signing = Context::Signing(vec![negotiate_context::SigningAlgorithm::AES_CMAC]);
    let reply = raw.negotiate_with(vec![dialect], vec![ciphers, signing]);
    assert_eq!(reply.status(), NtStatus::SUCCESS);
    raw
}

/// SessionMgmt_ReconnectWithDifferentDialect: a client does not come back to its session in another dialect,
/// as somebody on the way could make it do ([MS-SMB2] 3.3.5.5.3). The session stays.
#[test]
fn a_session_is_not_replaced_in_another_dialect() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let mut first = connected(&serve, Dialect::Smb311);
    assert_eq!(first.log_in("alice", "secret"), NtStatus::SUCCESS);
    assert_eq!(first.tree("data"), NtStatus::SUCCESS);
    let file = first.create(&Create::of("file")).unwrap();
    let mut second = connected(&serve, Dialect::Smb302);
    second.previous = first.session;
    assert_eq!(second.log_in("alice", "secret"), NtStatus::USER_SESSION_DELETED);
    assert_eq!(first.echo(), NtStatus::SUCCESS);
    let other = first.create(&Create::of("other")).unwrap();
    assert_eq!(first.close(other), NtStatus::SUCCESS);
    // It may begin anew, also on this connection.
    second.previous = SessionId::default();
    second.session = SessionId::default();
    assert_eq!(second.log_in("alice", "secret"), NtStatus::SUCCESS);
    // In its dialect it comes back.
    let mut third = connected(&serve, Dialect::Smb311);
    third.previous = first.session;
    assert_eq!(third.log_in("alice", "secret"), NtStatus::SUCCESS);
    assert_eq!(first.close(file), NtStatus::USER_SESSION_DELETED);
}

/// Logs in, and connects to a share that must be sealed.
fn in_sealed_tree(serve: &Serve, dialect: Dialect, guid: u8) -> Raw {
    let mut raw = connected_as(serve, dialect, guid);
    assert_eq!(raw.log_in("alice", "secret"), NtStatus::SUCCESS);
    assert_eq!(raw.tree("data"), NtStatus::SUCCESS);
    raw
}

fn sealing_serve(folder: &std::path::Path) -> Serve {
    Serve::with(folder, |options| options.shares[0].encrypt = true)
}

/// Scenario Encryption: in a tree that must be sealed, plain requests are refused, also of a client that can seal
/// ([MS-SMB2] 3.3.5.2.11).
#[test]
fn plain_requests_in_a_sealed_tree_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let serve = sealing_serve(folder.path());
    for dialect in [Dialect::Smb300, Dialect::Smb302, Dialect::Smb311] {
        let mut raw = in_sealed_tree(&serve, dialect, 1);
        assert_eq!(
            raw.create(&Create::of("plain")),
            Err(NtStatus::ACCESS_DENIED),
            "{dialect}"
        );
        let left = raw.call(Command::TreeDisconnect, |w| w.u32(4)).status();
        assert_eq!(left, NtStatus::ACCESS_DENIED, "{dialect}");
        assert!(!folder.path().join("plain").exists());
        let how = Create::of("sealed");
        let create = samples::body(|w| how.request().encode(w));
        let reply = raw.sealed_call(Command::Create, &create);
        assert_eq!(reply.status(), NtStatus::SUCCESS, "{dialect}");
        let file = CreateResponse::decode(&mut reply.body()).unwrap().file_id;
        assert_eq!(raw.close(file), NtStatus::ACCESS_DENIED, "{dialect}");
        let left = raw.sealed_call(Command::TreeDisconnect, &[4, 0, 0, 0]);
        assert_eq!(left.status(), NtStatus::SUCCESS, "{dialect}");
    }
}

/// Compound_Encrypt_UnrelatedRequests: two CREATEs in one sealed frame.
#[test]
fn unrelated_creates_in_one_sealed_frame() {
    let folder = tempfile::tempdir().unwrap();
    let serve = sealing_serve(folder.path());
    for dialect in [Dialect::Smb300, Dialect::Smb302, Dialect::Smb311] {
        let mut raw = in_sealed_tree(&serve, dialect, 1);
        raw.signer = None;
        let names = ["one", "two"];
        let creates = names.map(|name| {
            let how = Create::of(name);
            let request = how.request();
            raw.message(Command::Create, |w| request.encode(w))
        });
        let mut frame = raw.compound(creates.to_vec(), false);
        raw.send_sealed(&mut frame);
        let mut replies = raw.sealed_replies();
        while replies.len() < 2 {
            replies.extend(raw.sealed_replies());
        }
        let mut files = Vec::new();
        for reply in &replies {
            assert_eq!(reply.status(), NtStatus::SUCCESS, "{dialect}");
            files.push(CreateResponse::decode(&mut reply.body()).unwrap().file_id);
        }
        assert_ne!(files[0], files[1]);
        for name in names {
            assert!(folder.path().join(name).is_file(), "{dialect}, {name}");
        }
    }
}

/// AppInstanceId_Encryption, AppInstanceId_Negative_EncryptionInInitialOpen_NoEncryptionInReOpen: a moved
/// application closes its old open in a sealed tree by a sealed request only.
#[test]
fn an_application_moves_in_a_sealed_tree_by_sealed_requests() {
    let folder = tempfile::tempdir().unwrap();
    let serve = sealing_serve(folder.path());
    let how = Create {
        contexts: vec![RequestContext::AppInstanceId(AppInstanceId(Guid([6; 16])))],
        ..Create::of("file")
    };
    let create = samples::body(|w| how.request().encode(w));
    let mut old = in_sealed_tree(&serve, Dialect::Smb302, 1);
    let mut new = in_sealed_tree(&serve, Dialect::Smb302, 2);
    let reply = old.sealed_call(Command::Create, &create);
    let held = CreateResponse::decode(&mut reply.body()).unwrap().file_id;
    let write = samples::write(held, 0, b"text");
    assert_eq!(new.create(&how), Err(NtStatus::ACCESS_DENIED));
    let reply = old.sealed_call(Command::Write, &write);
    assert_eq!(reply.status(), NtStatus::SUCCESS);
    let reply = new.sealed_call(Command::Create, &create);
    assert_eq!(reply.status(), NtStatus::SUCCESS);
    let reply = old.sealed_call(Command::Write, &write);
    assert_eq!(reply.status(), NtStatus::FILE_CLOSED);
}

/// MultipleChannel_SecondChannelSessionSetupFailAtFirstTime: a channel whose login failed may be logged in again
/// on its connection; in 3.1.1 the hash begins anew ([MS-SMB2] 3.3.5.5).
#[test]
fn a_channel_is_bound_after_a_failed_login() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    for dialect in [Dialect::Smb300, Dialect::Smb302, Dialect::Smb311] {
        let mut first = connected(&serve, dialect);
        assert_eq!(first.log_in("alice", "secret"), NtStatus::SUCCESS);
        assert_eq!(first.tree("data"), NtStatus::SUCCESS);
        let mut second = connected(&serve, dialect);
        assert_eq!(
            second.bind(&first, "wrong"),
            Some(NtStatus::LOGON_FAILURE),
            "{dialect}"
        );
        assert_eq!(
            second.bind(&first, "secret"),
            Some(NtStatus::SUCCESS),
            "{dialect}"
        );
        let file = second.create(&Create::of("file")).unwrap();
        assert_eq!(first.close(file), NtStatus::SUCCESS, "{dialect}");
    }
}

/// MultipleChannel_LockUnlockOnDiffChannel: a lock belongs to the open, not to the channel.
#[test]
fn what_one_channel_locks_another_unlocks() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let mut first = connected(&serve, Dialect::Smb311);
    assert_eq!(first.log_in("alice", "secret"), NtStatus::SUCCESS);
    assert_eq!(first.tree("data"), NtStatus::SUCCESS);
    let mut second = connected(&serve, Dialect::Smb311);
    assert_eq!(second.bind(&first, "secret"), Some(NtStatus::SUCCESS));
    let mut other = Raw::ready(serve.address);
    let file = first.create(&Create::of("file")).unwrap();
    let others = other.create(&Create::of("file")).unwrap();
    let lock = |file_id, flags| {
        let request = LockRequest {
            file_id,
            lock_sequence: Default::default(),
            locks: vec![LockElement {
                offset: 0,
                length: 100,
                flags,
            }],
        };
        samples::body(|w| request.encode(w))
    };
    let takes = LockFlags::EXCLUSIVE_LOCK | LockFlags::FAIL_IMMEDIATELY;
    let ask = |raw: &mut Raw, file, flags| raw.call(Command::Lock, |w| w.bytes(&lock(file, flags))).status();
    assert_eq!(ask(&mut first, file, takes), NtStatus::SUCCESS);
    assert_eq!(ask(&mut other, others, takes), NtStatus::LOCK_NOT_GRANTED);
    assert_eq!(ask(&mut second, file, LockFlags::UNLOCK), NtStatus::SUCCESS);
    assert_eq!(ask(&mut other, others, takes), NtStatus::SUCCESS);
    assert_eq!(ask(&mut other, others, LockFlags::UNLOCK), NtStatus::SUCCESS);
    // LockUnlockOnSameChannel.
    assert_eq!(ask(&mut second, file, takes), NtStatus::SUCCESS);
    assert_eq!(ask(&mut second, file, LockFlags::UNLOCK), NtStatus::SUCCESS);
}

/// MultipleChannel_Negative_EncryptionOnMainChannel, _OnAlternativeChannel: in a sealed tree each channel seals.
#[test]
fn every_channel_seals_in_a_sealed_tree() {
    let folder = tempfile::tempdir().unwrap();
    let serve = sealing_serve(folder.path());
    for sealed_is_first in [true, false] {
        let mut first = in_sealed_tree(&serve, Dialect::Smb302, 1);
        let mut second = connected_as(&serve, Dialect::Smb302, 1);
        let keys = first.keys.clone();
        assert_eq!(second.bind(&first, "secret"), Some(NtStatus::SUCCESS));
        // A channel seals with the session's keys.
        second.keys = keys;
        let (seals, plain) = match sealed_is_first {
            true => (&mut first, &mut second),
            false => (&mut second, &mut first),
        };
        let how = Create::of("file");
        let create = samples::body(|w| how.request().encode(w));
        let reply = seals.sealed_call(Command::Create, &create);
        assert_eq!(reply.status(), NtStatus::SUCCESS);
        let file = CreateResponse::decode(&mut reply.body()).unwrap().file_id;
        let write = samples::write(file, 0, b"text");
        let refused = plain.call(Command::Write, |w| w.bytes(&write)).status();
        assert_eq!(refused, NtStatus::ACCESS_DENIED);
        let reply = seals.sealed_call(Command::Write, &write);
        assert_eq!(reply.status(), NtStatus::SUCCESS);
    }
}
