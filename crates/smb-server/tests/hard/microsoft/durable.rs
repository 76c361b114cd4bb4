//! DurableHandle and Replay: what is repeated after a lost connection.

use ropeway_smb_wire::create::{CreateResponse, OplockLevel};
use ropeway_smb_wire::create_context::{
    DurableReconnect, DurableRequestV2, Lease, LeaseState, RequestContext, ResponseContext,
};
use ropeway_smb_wire::flush::FlushRequest;
use ropeway_smb_wire::header::{Command, FLAGS_OFFSET};
use ropeway_smb_wire::info::FileInfoClass;
use ropeway_smb_wire::lock::{LockElement, LockFlags, LockRequest, LockSequence};
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_smb_wire::query_info::InfoType;
use ropeway_smb_wire::read::ReadResponse;
use ropeway_smb_wire::{FileId, Guid, LeaseKey, NtStatus};

use crate::raw::{Create, Raw};
use crate::samples;
use crate::serve::Serve;

const RWH: LeaseState = LeaseState::from_bits_retain(7);

fn read(raw: &mut Raw, file: FileId) -> Vec<u8> {
    let read = samples::read(file, 100);
    let reply = raw.call(Command::Read, |w| w.bytes(&read));
    assert_eq!(reply.status(), NtStatus::SUCCESS);
    ReadResponse::decode(&mut reply.body()).unwrap().1.to_vec()
}

/// DurableHandleV1_Reconnect_AfterServerDisconnect: a second NEGOTIATE makes the server hang up ([MS-SMB2]
/// 3.3.5.4). The durable open is there afterwards, with its content (3.3.5.9.7).
#[test]
fn a_durable_open_outlives_a_connection_that_the_server_ended() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let lease = RequestContext::Lease(Lease {
        lease_key: LeaseKey([5; 16]),
        lease_state: RWH,
        lease_flags: Default::default(),
    });
    let mut raw = Raw::connect(serve.address);
    raw.dialect = Dialect::Smb210;
    raw.enter();
    let how = Create {
        oplock: OplockLevel::Lease,
        sharing: Default::default(),
        contexts: vec![RequestContext::DurableRequest, lease.clone()],
        ..Create::of("file")
    };
    let request = how.request();
    let reply = raw.call(Command::Create, |w| request.encode(w));
    let created = CreateResponse::decode(&mut reply.body()).unwrap();
    assert!(created.contexts.contains(&ResponseContext::Durable));
    let write = samples::write(created.file_id, 0, b"content");
    let written = raw.call(Command::Write, |w| w.bytes(&write));
    assert_eq!(written.status(), NtStatus::SUCCESS);
    // The body does not matter.
    assert!(raw.try_call(Command::Negotiate, |w| w.u32(36)).is_none());
    let mut back = Raw::connect(serve.address);
    (back.dialect, back.previous) = (Dialect::Smb210, raw.session);
    back.enter();
    let file_id = FileId {
        volatile: 0,
        ..created.file_id
    };
    let how = Create {
        oplock: OplockLevel::Lease,
        contexts: vec![
            RequestContext::DurableReconnect(DurableReconnect { file_id }),
            lease,
        ],
        ..Create::of("file")
    };
    let file = back.create(&how).unwrap();
    assert_eq!(read(&mut back, file), b"content");
    assert_eq!(back.close(file), NtStatus::SUCCESS);
}

/// Sends a request as a replay, and returns the status.
fn replay(raw: &mut Raw, command: Command, body: &[u8]) -> NtStatus {
    let mut message = raw.message(command, |w| w.bytes(body));
    // SMB2_FLAGS_REPLAY_OPERATION ([MS-SMB2] 2.2.1.2).
    message[FLAGS_OFFSET + 3] |= 0x20;
    raw.sign(&mut message);
    raw.send(&message);
    raw.reply().unwrap().status()
}

/// Returns a LOCK of ten bytes.
fn lock(file_id: FileId, sequence: LockSequence, offset: u64) -> Vec<u8> {
    let request = LockRequest {
        file_id,
        lock_sequence: sequence,
        locks: vec![LockElement {
            offset,
            length: 10,
            flags: LockFlags::EXCLUSIVE_LOCK | LockFlags::FAIL_IMMEDIATELY,
        }],
    };
    samples::body(|w| request.encode(w))
}

/// Replay_NonPersistentHandle_*_ReplayEligibleCleared: on a durable open, requests of other commands than CREATE
/// are carried out with the replay flag too, and the last one counts. A LOCK is known by its sequence number
/// ([MS-SMB2] 3.3.5.14).
#[test]
fn replays_on_a_durable_open_are_carried_out() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    for dialect in [Dialect::Smb300, Dialect::Smb302, Dialect::Smb311] {
        let mut raw = Raw::connect(serve.address);
        raw.dialect = dialect;
        raw.enter();
        let durable = RequestContext::DurableRequestV2(DurableRequestV2 {
            timeout_ms: 0,
            flags: Default::default(),
            create_guid: Guid([4; 16]),
        });
        let how = Create {
            oplock: OplockLevel::Batch,
            contexts: vec![durable],
            ..Create::of("file")
        };
        let file = raw.create(&how).unwrap();
        let first = samples::write(file, 0, b"Original");
        let reply = raw.call(Command::Write, |w| w.bytes(&first));
        assert_eq!(reply.status(), NtStatus::SUCCESS);
        assert_eq!(replay(&mut raw, Command::Write, &first), NtStatus::SUCCESS);
        let other = samples::write(file, 0, b"Modified");
        assert_eq!(replay(&mut raw, Command::Write, &other), NtStatus::SUCCESS);
        assert_eq!(read(&mut raw, file), b"Modified");
        for length in [6_u64, 3] {
            let cut = samples::set_info(file, FileInfoClass::EndOfFile, &length.to_le_bytes());
            assert_eq!(replay(&mut raw, Command::SetInfo, &cut), NtStatus::SUCCESS);
            assert_eq!(read(&mut raw, file).len() as u64, length);
        }
        // FileBasicInformation, then FileStandardInformation.
        for class in [4, 5] {
            let query = samples::query_info(file, InfoType::File, class, &[]);
            assert_eq!(replay(&mut raw, Command::QueryInfo, &query), NtStatus::SUCCESS);
        }
        let flush = samples::body(|w| FlushRequest { file_id: file }.encode(w));
        assert_eq!(replay(&mut raw, Command::Flush, &flush), NtStatus::SUCCESS);
        assert_eq!(
            replay(&mut raw, Command::Read, &samples::read(file, 9)),
            NtStatus::SUCCESS
        );
        // The same number is the same request; a new one is refused, since the bytes are locked.
        let locks = lock(file, LockSequence::new(1, 1), 0);
        let reply = raw.call(Command::Lock, |w| w.bytes(&locks));
        assert_eq!(reply.status(), NtStatus::SUCCESS);
        assert_eq!(replay(&mut raw, Command::Lock, &locks), NtStatus::SUCCESS);
        let again = lock(file, LockSequence::new(2, 1), 0);
        assert_eq!(
            replay(&mut raw, Command::Lock, &again),
            NtStatus::LOCK_NOT_GRANTED
        );
        let elsewhere = lock(file, LockSequence::new(3, 1), 100);
        assert_eq!(replay(&mut raw, Command::Lock, &elsewhere), NtStatus::SUCCESS);
        assert_eq!(raw.close(file), NtStatus::SUCCESS);
    }
}
