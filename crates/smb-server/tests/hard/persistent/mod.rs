//! Persistent handles over a restart of the server ([MS-SMB2] 3.3.5.9.10, 3.3.5.9.12). The real program is
//! killed in `crates/cli/tests/share/serve_persistent.rs`; here a server stops, and another takes its place.

mod failures;
mod files;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ropeway_smb_server::HandleJournal;
use ropeway_smb_wire::create::{AccessMask, CreateAction, CreateOptions, CreateResponse};
use ropeway_smb_wire::create_context::{
    DurableHandleV2Flags, DurableReconnectV2, DurableRequestV2, Lease, LeaseState, LeaseV2, RequestContext,
    ResponseContext,
};
use ropeway_smb_wire::header::{Command, FLAGS_OFFSET, HeaderFlags};
use ropeway_smb_wire::info::FileInfoClass;
use ropeway_smb_wire::lock::{LockElement, LockFlags, LockRequest, LockSequence};
use ropeway_smb_wire::negotiate::{Capabilities, Dialect, NegotiateResponse};
use ropeway_smb_wire::tree_connect::{ShareCapabilities, TreeConnectRequest, TreeConnectResponse};
use ropeway_smb_wire::{FileId, Guid, LeaseKey, NtStatus, Text};

use crate::raw::{Create, Raw};
use crate::samples;
use crate::serve::Serve;

const GUID: Guid = Guid([7; 16]);
const EXCLUSIVE: LockFlags =
    LockFlags::from_bits_retain(LockFlags::EXCLUSIVE_LOCK.bits() | LockFlags::FAIL_IMMEDIATELY.bits());
const OK: NtStatus = NtStatus::SUCCESS;
const MISSING: NtStatus = NtStatus::OBJECT_NAME_NOT_FOUND;
const KEPT: NtStatus = NtStatus::FILE_NOT_AVAILABLE;

/// A shared folder, and the journal of its handles.
struct Place {
    folder: tempfile::TempDir,
    state: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            state: tempfile::tempdir().unwrap(),
        }
    }

    fn journal(&self) -> PathBuf {
        self.state.path().join("journal")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn serve(&self) -> Serve {
        self.serve_with(HandleJournal::open(&self.journal()).unwrap(), false)
    }

    fn serve_with(&self, journal: HandleJournal, read_only: bool) -> Serve {
        Serve::with(self.folder.path(), |options| {
            options.shares[0].journal = Some(Arc::new(journal));
            options.shares[0].read_only = read_only;
        })
    }

    fn records(&self) -> usize {
        let names = fs::read_dir(self.journal()).unwrap();
        let endings = names.map(|entry| entry.unwrap().path().extension().map(ToOwned::to_owned));
        endings
            .filter(|ending| ending.as_deref() == Some("handle".as_ref()))
            .count()
    }
}

fn ready(serve: &Serve, client: u8) -> Raw {
    let mut raw = Raw::connect(serve.address);
    raw.guid = Guid([client; 16]);
    raw.capabilities |= Capabilities::PERSISTENT_HANDLES;
    raw.enter();
    raw
}

fn request<'a>(create_guid: Guid, timeout_ms: u32) -> RequestContext<'a> {
    RequestContext::DurableRequestV2(DurableRequestV2 {
        timeout_ms,
        flags: DurableHandleV2Flags::PERSISTENT,
        create_guid,
    })
}

fn persistent(name: &str) -> Create<'_> {
    Create {
        contexts: vec![request(GUID, 60_000)],
        access: AccessMask::FILE_ALL,
        ..Create::of(name)
    }
}

fn back(name: &str, file_id: FileId) -> Create<'_> {
    let reconnect = DurableReconnectV2 {
        file_id,
        create_guid: GUID,
        flags: DurableHandleV2Flags::PERSISTENT,
    };
    Create {
        contexts: vec![RequestContext::DurableReconnectV2(reconnect)],
        ..Create::of(name)
    }
}

fn lease(state: LeaseState, epoch: u16) -> RequestContext<'static> {
    RequestContext::LeaseV2(LeaseV2 {
        lease: Lease {
            lease_key: LeaseKey([1; 16]),
            lease_state: state,
            lease_flags: Default::default(),
        },
        parent_lease_key: LeaseKey::default(),
        epoch,
    })
}

/// What a CREATE was answered with.
struct Opened {
    id: FileId,
    action: CreateAction,
    durable: Option<DurableHandleV2Flags>,
    lease: Option<(LeaseState, u16)>,
}

impl Raw {
    fn opens(&mut self, how: &Create<'_>) -> Result<Opened, NtStatus> {
        let request = how.request();
        let reply = self.call(Command::Create, |w| request.encode(w));
        if reply.status() != OK {
            return Err(reply.status());
        }
        let response = CreateResponse::decode(&mut reply.body()).unwrap();
        let durable = response.contexts.iter().find_map(|context| match context {
            ResponseContext::DurableV2(durable) => Some(durable.flags),
            _ => None,
        });
        let lease = response.contexts.iter().find_map(|context| match context {
            ResponseContext::LeaseV2(lease) => Some((lease.lease.lease_state, lease.epoch)),
            _ => None,
        });
        Ok(Opened {
            id: response.file_id,
            action: response.create_action,
            durable,
            lease,
        })
    }

    fn keeps(&mut self, how: &Create<'_>) -> FileId {
        let opened = self.opens(how).unwrap();
        assert_eq!(opened.durable, Some(DurableHandleV2Flags::PERSISTENT));
        opened.id
    }

    fn lock(&mut self, file_id: FileId, offset: u64, flags: LockFlags) -> NtStatus {
        let request = LockRequest {
            file_id,
            lock_sequence: LockSequence(0),
            locks: vec![LockElement {
                offset,
                length: 10,
                flags,
            }],
        };
        self.call(Command::Lock, |w| request.encode(w)).status()
    }

    fn put(&mut self, file: FileId, data: &[u8]) -> NtStatus {
        let body = samples::write(file, 0, data);
        self.call(Command::Write, |w| w.bytes(&body)).status()
    }

    fn renames(&mut self, file: FileId, to: &str) -> NtStatus {
        let body = samples::rename(file, to);
        self.call(Command::SetInfo, |w| w.bytes(&body)).status()
    }

    fn marks_for_deletion(&mut self, file: FileId) -> NtStatus {
        let body = samples::set_info(file, FileInfoClass::Disposition, &[1]);
        self.call(Command::SetInfo, |w| w.bytes(&body)).status()
    }
}

#[test]
fn a_handle_survives_the_server() {
    let place = Place::new();
    let serve = place.serve();
    let mut one = ready(&serve, 1);
    let id = one.keeps(&persistent("file"));
    assert_eq!(one.put(id, b"written"), OK);
    assert_eq!(one.lock(id, 0, EXCLUSIVE), OK);
    assert_eq!(one.lock(id, 100, EXCLUSIVE), OK);
    assert_eq!(one.lock(id, 100, LockFlags::UNLOCK), OK);
    drop(serve);
    assert_eq!(place.records(), 1);

    let serve = place.serve();
    let mut two = ready(&serve, 2);
    assert_eq!(two.create(&Create::of("file")), Err(KEPT));
    let mut one = ready(&serve, 1);
    let again = one.opens(&back("file", id)).unwrap();
    assert_eq!((again.id, again.action), (id, CreateAction::OPENED));
    let other = two.create(&Create::of("file")).unwrap();
    assert!(other.persistent > id.persistent, "numbers do not return");
    assert_eq!(two.lock(other, 0, EXCLUSIVE), NtStatus::LOCK_NOT_GRANTED);
    assert_eq!(two.put(other, b"x"), NtStatus::FILE_LOCK_CONFLICT);
    assert_eq!(one.put(id, b"Written"), OK);
    assert_eq!(one.lock(id, 0, LockFlags::UNLOCK), OK);
    assert_eq!(two.lock(other, 0, EXCLUSIVE), OK);
    assert_eq!((one.close(id), place.records()), (OK, 0));
    assert_eq!(fs::read(place.file("file")).unwrap(), b"Written");
    drop(serve);
    let serve = place.serve();
    assert_eq!(ready(&serve, 1).create(&back("file", id)), Err(MISSING));
}

/// [MS-SMB2] 3.2.5.2: another GUID is another server.
#[test]
fn the_server_stays_the_same() {
    let place = Place::new();
    let guid = || {
        let serve = place.serve();
        let reply = Raw::connect(serve.address).negotiate();
        NegotiateResponse::decode(&mut reply.body()).unwrap().server_guid
    };
    assert_eq!(guid(), guid());
}

/// Also if what was kept last is an older number.
#[test]
fn numbers_of_handles_never_return() {
    let place = Place::new();
    let serve = place.serve();
    let mut raw = ready(&serve, 1);
    let id = raw.keeps(&persistent("file"));
    let mut plain = FileId::default();
    for _ in 0..20 {
        plain = raw.create(&Create::of("other")).unwrap();
    }
    assert_eq!(raw.close(id), OK);
    drop(serve);
    let serve = place.serve();
    let next = ready(&serve, 1).create(&Create::of("file")).unwrap();
    assert!(next.persistent > plain.persistent);
}

/// [MS-SMB2] 3.3.5.4, 3.3.5.7.
#[test]
fn only_such_a_share_is_continuously_available() {
    let place = Place::new();
    let plain = Serve::start(place.folder.path());
    let serve = place.serve();
    for (serve, dialect, asks, expected) in [
        (&plain, Dialect::Smb311, true, (false, false)),
        (&serve, Dialect::Smb311, true, (true, true)),
        (&serve, Dialect::Smb300, true, (true, true)),
        (&serve, Dialect::Smb311, false, (false, true)),
        (&serve, Dialect::Smb210, true, (false, false)),
    ] {
        let mut raw = Raw::connect(serve.address);
        raw.dialect = dialect;
        if asks {
            raw.capabilities |= Capabilities::PERSISTENT_HANDLES;
        }
        let reply = raw.negotiate();
        let response = NegotiateResponse::decode(&mut reply.body()).unwrap();
        let has = response.capabilities.contains(Capabilities::PERSISTENT_HANDLES);
        assert_eq!(raw.log_in("alice", "secret"), OK);
        let request = TreeConnectRequest {
            flags: Default::default(),
            path: Text::from("\\\\server\\data"),
        };
        let reply = raw.call(Command::TreeConnect, |w| request.encode(w));
        raw.tree = reply.header.tree_id().unwrap();
        let response = TreeConnectResponse::decode(&mut reply.body()).unwrap();
        let is_ca = response
            .capabilities
            .contains(ShareCapabilities::CONTINUOUS_AVAILABILITY);
        assert_eq!((has, is_ca), expected, "{dialect:?}");
        let opened = raw.opens(&persistent(&format!("{dialect:?} {has}"))).unwrap();
        assert_eq!(opened.durable.is_some(), has);
        assert_eq!(raw.close(opened.id), OK);
    }
}

#[test]
fn another_boot_ends_all_handles() {
    let place = Place::new();
    let serve = place.serve();
    let id = ready(&serve, 1).keeps(&persistent("file"));
    drop(serve);
    let other = HandleJournal::open_in_boot(&place.journal(), [9; 16]).unwrap();
    let serve = place.serve_with(other, false);
    assert_eq!(place.records(), 0);
    let mut raw = ready(&serve, 1);
    assert_eq!(raw.create(&back("file", id)), Err(MISSING));
    let next = raw.create(&Create::of("file")).unwrap();
    assert!(next.persistent > id.persistent);
}

#[test]
fn a_corrupt_record_ends_its_handle_only() {
    let place = Place::new();
    let serve = place.serve();
    let mut raw = ready(&serve, 1);
    let first = raw.keeps(&persistent("first"));
    let mut how = persistent("second");
    how.contexts = vec![request(Guid([8; 16]), 0)];
    raw.keeps(&how);
    drop(serve);
    let record = place
        .journal()
        .join(format!("{:016x}.handle", first.persistent + 1));
    let mut bytes = fs::read(&record).unwrap();
    bytes[30] ^= 1;
    fs::write(&record, bytes).unwrap();
    let serve = place.serve();
    let mut raw = ready(&serve, 1);
    assert_eq!(raw.create(&Create::of("second")).map(|_| ()), Ok(()));
    assert_eq!(raw.create(&back("first", first)), Ok(first));
}

#[test]
fn folders_and_streams_come_back() {
    let place = Place::new();
    let serve = place.serve();
    let mut raw = ready(&serve, 1);
    let mut how = persistent("folder");
    how.options = CreateOptions::DIRECTORY_FILE;
    let folder = raw.keeps(&how);
    let mut how = persistent("file:Stream");
    let guid = Guid([8; 16]);
    how.contexts = vec![request(guid, 0)];
    let stream = raw.keeps(&how);
    assert_eq!(raw.put(stream, b"content"), OK);
    drop(serve);
    let serve = place.serve();
    let mut raw = ready(&serve, 1);
    assert_eq!(raw.create(&back("folder", folder)), Ok(folder));
    let reconnect = DurableReconnectV2 {
        file_id: FileId::default(),
        create_guid: guid,
        flags: DurableHandleV2Flags::PERSISTENT,
    };
    let mut how = back("file:Stream", stream);
    how.contexts = vec![RequestContext::DurableReconnectV2(reconnect)];
    assert_eq!(raw.create(&how), Ok(stream), "found by the guid");
    let body = samples::read(stream, 7);
    let reply = raw.call(Command::Read, |w| w.bytes(&body));
    assert!(reply.message.ends_with(b"content"));
}

#[test]
fn deletions_survive() {
    for (marks, expires) in [(false, false), (true, false), (true, true)] {
        let place = Place::new();
        let serve = place.serve();
        let mut raw = ready(&serve, 1);
        let mut how = persistent("file");
        if !marks {
            how.options = CreateOptions::DELETE_ON_CLOSE;
        }
        how.contexts = vec![request(GUID, if expires { 500 } else { 0 })];
        let id = raw.keeps(&how);
        if marks {
            assert_eq!(raw.marks_for_deletion(id), OK);
        }
        drop(serve);
        assert!(place.file("file").exists());
        let serve = place.serve();
        if expires {
            for _ in 0..500 {
                if !place.file("file").exists() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        } else {
            let mut raw = ready(&serve, 1);
            assert_eq!(raw.create(&back("file", id)), Ok(id));
            assert_eq!(raw.close(id), OK);
        }
        assert!(!place.file("file").exists(), "{marks} {expires}");
        assert_eq!(place.records(), 0);
    }
}

/// A CREATE whose reply was lost with the server.
#[test]
fn a_create_is_replayed() {
    let place = Place::new();
    let serve = place.serve();
    let id = ready(&serve, 1).keeps(&persistent("file"));
    drop(serve);
    let serve = place.serve();
    let mut raw = ready(&serve, 1);
    let request = persistent("file");
    let mut message = raw.message(Command::Create, |w| request.request().encode(w));
    let replay = HeaderFlags::REPLAY_OPERATION.bits().to_le_bytes();
    for (byte, flag) in message[FLAGS_OFFSET..].iter_mut().zip(replay) {
        *byte |= flag;
    }
    raw.sign(&mut message);
    raw.send(&message);
    let reply = raw.reply().unwrap();
    assert_eq!(reply.status(), OK);
    let response = CreateResponse::decode(&mut reply.body()).unwrap();
    assert_eq!(
        (response.file_id, response.create_action),
        (id, CreateAction::CREATED)
    );
}

/// smb2.persistent-open.rename-dir-open-files.
#[test]
fn a_folder_with_an_absent_handle_stays() {
    let place = Place::new();
    let serve = place.serve();
    let mut two = ready(&serve, 2);
    let mut folder = Create::of("folder");
    folder.options = CreateOptions::DIRECTORY_FILE;
    let id = two.create(&folder).unwrap();
    assert_eq!(two.close(id), OK);
    let mut one = ready(&serve, 1);
    let kept = one.keeps(&persistent("folder\\file"));
    drop(one);
    serve.settles_at((1, 1));
    let id = two.create(&folder).unwrap();
    assert_eq!(two.renames(id, "moved"), NtStatus::ACCESS_DENIED);
    assert_eq!(two.close(id), OK);
    assert_eq!(two.create(&back("folder\\file", kept)), Ok(kept));
}
