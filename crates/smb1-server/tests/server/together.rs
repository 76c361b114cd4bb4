//! Clients of SMB 1 and SMB 2 on the same files, logins, and clients that know both protocols.

use ropeway_smb_proto::auth::ntlm::nt_hash;
use ropeway_smb_proto::secret::Password;
use ropeway_smb_wire::create::{AccessMask, OplockLevel};
use ropeway_smb_wire::create_context::{Lease, LeaseState, RequestContext};
use ropeway_smb_wire::header::{Command, HEADER_LEN, Header};
use ropeway_smb_wire::oplock_break::{BreakAcknowledgment, BreakNotification, LeaseBreak};
use ropeway_smb_wire::{Guid, LeaseKey, NtStatus, Reader, Text};
use ropeway_smb1::Str;
use ropeway_smb1::auth::Responses;
use ropeway_smb1::wire::locking::{LockingRequest, LockingWords, Range};
use ropeway_smb1::wire::path::DeleteRequest;

use crate::old::{Old, server};
use crate::raw::{Create, Raw};
use crate::serve::Serve;

const KEY: LeaseKey = LeaseKey([1; 16]);
const READ: u32 = 0x8000_0000;
const WRITE: u32 = 0x4000_0000;
const SHARE_ALL: u32 = 7;

impl Raw {
    fn leases(&mut self, name: &str) {
        let lease = Lease {
            lease_key: KEY,
            lease_state: LeaseState::from_bits_retain(7),
            lease_flags: Default::default(),
        };
        self.create(&Create {
            oplock: OplockLevel::Lease,
            contexts: vec![RequestContext::Lease(lease)],
            ..Create::of(name)
        })
        .unwrap();
    }

    /// Receives a lease break, gives up what it says, and returns the new state.
    fn gives_up(&mut self) -> LeaseState {
        let message = self.receive().unwrap();
        let header = Header::decode(&mut Reader::new(&message, "header")).unwrap();
        assert_eq!(header.command, Command::OplockBreak);
        let keeps = match BreakNotification::decode(&mut Reader::at(&message, HEADER_LEN, "break")).unwrap() {
            BreakNotification::Lease(lease) if lease.lease_key == KEY => lease.new_lease_state,
            other => panic!("{other:?}"),
        };
        let acknowledgment = BreakAcknowledgment::Lease(LeaseBreak {
            lease_key: KEY,
            lease_state: keeps,
        });
        self.call(Command::OplockBreak, |w| acknowledgment.encode(w));
        keeps
    }
}

#[test]
fn share_modes_hold_between_protocols() {
    let folder = tempfile::tempdir().unwrap();
    let serve = server(folder.path());
    let (mut new, mut old) = (Raw::ready(serve.address), Old::ready(serve.address));
    let alone = old.open("\\file", READ | WRITE, 0).unwrap();
    let wish = Create {
        access: AccessMask::READ_DATA,
        ..Create::of("file")
    };
    assert_eq!(new.create(&wish), Err(NtStatus::SHARING_VIOLATION));
    assert_ne!(alone, 0);
    let mut second = Old::ready(serve.address);
    assert_eq!(
        second.open("file", READ, SHARE_ALL),
        Err(NtStatus::SHARING_VIOLATION)
    );
    // The client's end closes its files.
    drop(old);
    serve.settles_at((2, 0));
    let reader = new.create(&wish).unwrap();
    assert_eq!(second.open("file", WRITE, 2), Err(NtStatus::SHARING_VIOLATION));
    assert_eq!(new.close(reader), NtStatus::SUCCESS);
    assert!(second.open("file", WRITE, 2).is_ok());
}

#[test]
fn open_files_are_not_deleted_and_paths_may_repeat_separators() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("below")).unwrap();
    let serve = server(folder.path());
    let mut old = Old::ready(serve.address);
    old.open("\\below\\file", READ, SHARE_ALL).unwrap();
    let delete = |old: &mut Old| {
        let request = DeleteRequest {
            search_attributes: 0x16,
            path: Str::unicode(&Text::from("\\below\\\\*")),
        };
        let message = old.message(ropeway_smb1::Command::DELETE, |w| request.encode(w));
        old.send(&message);
        old.status()
    };
    let mut second = Old::ready(serve.address);
    assert_eq!(delete(&mut second), NtStatus::SHARING_VIOLATION);
    drop(old);
    serve.settles_at((1, 0));
    assert_eq!(delete(&mut second), NtStatus::SUCCESS);
    assert!(!folder.path().join("below/file").exists());
}

#[test]
fn a_lock_that_is_tried_again_is_a_conflict() {
    let folder = tempfile::tempdir().unwrap();
    let serve = server(folder.path());
    let mut old = Old::ready(serve.address);
    let fids = [(); 2].map(|()| old.open("file", READ | WRITE, SHARE_ALL).unwrap());
    let mut lock = |fid, offset, timeout| {
        let range = Range {
            pid: 1,
            offset,
            length: 4,
        };
        let request = LockingRequest {
            words: LockingWords {
                fid,
                timeout,
                ..LockingWords::default()
            },
            unlocks: Vec::new(),
            locks: vec![range],
        };
        let message = old.message(ropeway_smb1::Command::LOCKING_ANDX, |w| request.encode(w));
        old.send(&message);
        old.status()
    };
    for offset in [0, 100, 0xEF00_0000] {
        assert_eq!(lock(fids[0], offset, 0), NtStatus::SUCCESS);
    }
    assert_eq!(lock(fids[1], 0, 0), NtStatus::LOCK_NOT_GRANTED);
    assert_eq!(lock(fids[1], 0, 0), NtStatus::FILE_LOCK_CONFLICT);
    assert_eq!(lock(fids[1], 100, 0), NtStatus::LOCK_NOT_GRANTED);
    assert_eq!(
        lock(fids[1], 0, 1000),
        NtStatus::FILE_LOCK_CONFLICT,
        "it would wait"
    );
    assert_eq!(lock(fids[1], 0xEF00_0000, 0), NtStatus::FILE_LOCK_CONFLICT);
}

#[test]
fn leases_are_broken_by_opens_writes_and_renames() {
    let folder = tempfile::tempdir().unwrap();
    let serve = server(folder.path());
    let (mut new, mut old) = (Raw::ready(serve.address), Old::ready(serve.address));
    new.leases("file");
    let request = Old::open_request("file", READ | WRITE, SHARE_ALL, 1);
    let open = old.message(ropeway_smb1::Command::NT_CREATE_ANDX, |w| request.encode(w));
    old.send(&open);
    let keeps = new.gives_up();
    assert!(!keeps.contains(LeaseState::WRITE_CACHING), "{keeps:?}");
    let reply = old.receive().unwrap();
    let block = ropeway_smb1::Block::first(&reply).unwrap();
    let fid = ropeway_smb1::wire::create::CreateResponse::decode(&block)
        .unwrap()
        .fid;
    let write = old.write_message(fid, 0, b"text");
    old.send(&write);
    assert_eq!(new.gives_up(), LeaseState::default());
    assert_eq!(old.status(), NtStatus::SUCCESS);
    assert_eq!(std::fs::read(folder.path().join("file")).unwrap(), b"text");
    let mut third = Raw::connect(serve.address);
    third.guid = Guid([3; 16]);
    third.enter();
    third.leases("other");
    let rename = old.rename_message("\\other", "\\new");
    old.send(&rename);
    let renamed = std::thread::spawn(move || old.status());
    // The open and the rename may each break something.
    let mut breaks = 0;
    while !renamed.is_finished() {
        let timeout = |milliseconds| Some(std::time::Duration::from_millis(milliseconds));
        third.socket.set_read_timeout(timeout(20)).unwrap();
        let is_there = third.socket.peek(&mut [0]).is_ok();
        third.socket.set_read_timeout(timeout(20_000)).unwrap();
        if is_there {
            third.gives_up();
            breaks += 1;
        }
    }
    assert_eq!(renamed.join().unwrap(), NtStatus::SUCCESS);
    assert!(breaks > 0);
    assert!(folder.path().join("new").exists());
}

#[test]
fn only_strong_proofs_log_in() {
    let folder = tempfile::tempdir().unwrap();
    let serve = server(folder.path());
    let mut old = Old::connect(serve.address);
    let challenge = old.negotiate(&["NT LM 0.12"]).unwrap();
    assert_eq!(old.log_in("wrong", challenge), NtStatus::LOGON_FAILURE);
    let weak = Responses::ntlm(&nt_hash(&Password::from("secret")), challenge);
    assert_eq!(old.prove(weak.lm, weak.nt), NtStatus::LOGON_FAILURE);
    assert_eq!(old.log_in("secret", challenge), NtStatus::SUCCESS);
    assert_eq!(old.tree("none"), NtStatus::BAD_NETWORK_NAME);
    assert_eq!(old.tree("data"), NtStatus::SUCCESS);
    let report = serve.handle.report(9);
    assert_eq!(report.sessions.len(), 1);
    assert_eq!(report.sessions[0].dialect, "NT LM 0.12");
    drop(old);
    serve.settles_at((0, 0));
}

#[test]
fn clients_that_do_not_sign_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::with(folder.path(), |options| {
        options.foreign = Some(std::sync::Arc::new(ropeway_smb1_server::Smb1Server {
            code_page: Default::default(),
            zone: Default::default(),
            on_client: std::sync::Arc::new(|_| {}),
        }));
    });
    let mut old = Old::connect(serve.address);
    let challenge = old.negotiate(&["NT LM 0.12"]).unwrap();
    // The response is signed. The next request is not, which ends the connection.
    assert_eq!(old.log_in("secret", challenge), NtStatus::SUCCESS);
    assert!(
        old.call(ropeway_smb1::Command::TREE_DISCONNECT, |w| w.bytes(&[0; 3]))
            .is_none()
    );
    serve.settles_at((0, 0));
}

#[test]
fn smb_1_is_for_clients_that_know_nothing_newer() {
    let folder = tempfile::tempdir().unwrap();
    let with = server(folder.path());
    for dialects in [
        &["NT LM 0.12", "SMB 2.002"][..],
        &["NT LM 0.12", "SMB 2.002", "SMB 2.???"],
    ] {
        let mut old = Old::connect(with.address);
        assert!(old.negotiate(dialects).is_none(), "the answer is SMB 2's");
    }
    assert!(Old::connect(with.address).negotiate(&["LANMAN1.0"]).is_none());
    let without = Serve::start(folder.path());
    assert!(Old::connect(without.address).negotiate(&["NT LM 0.12"]).is_none());
    Raw::ready(without.address);
    Raw::ready(with.address);
}
