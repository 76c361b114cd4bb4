//! Byte-range locks of clients and of local programs exclude each other. Another open file
//! description counts as another program for the kernel; here it belongs to a store of the test.
//! One test uses a separate process.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command as Process, Stdio};
use std::sync::Arc;

use ropeway_local::{LocalStore, StoreOptions};
use ropeway_smb_server::Share;
use ropeway_smb_wire::bare::CancelRequest;
use ropeway_smb_wire::bare::TreeDisconnectRequest;
use ropeway_smb_wire::create::{AccessMask, OplockLevel};
use ropeway_smb_wire::create_context::{
    DurableHandleV2Flags, DurableReconnectV2, DurableRequestV2, Lease, LeaseState, RequestContext,
};
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::fsctl::ranges::DuplicateExtents;
use ropeway_smb_wire::header::{Command, HEADER_LEN, Header};
use ropeway_smb_wire::lock::{LockElement, LockFlags, LockRequest, LockSequence};
use ropeway_smb_wire::read::{Channel, ReadFlags, ReadRequest};
use ropeway_smb_wire::{FileId, Guid, LeaseKey, MessageId, NtStatus, Reader, Writer};
use ropeway_vfs::RelPath;
use ropeway_vfs::store::{Access, Node, NodeOpen, RangeLock, Store};

use crate::raw::{Create, Raw};
use crate::samples;
use crate::serve::Serve;

const EXCLUSIVE: LockFlags =
    LockFlags::from_bits_retain(LockFlags::EXCLUSIVE_LOCK.bits() | LockFlags::FAIL_IMMEDIATELY.bits());
const SHARED: LockFlags =
    LockFlags::from_bits_retain(LockFlags::SHARED_LOCK.bits() | LockFlags::FAIL_IMMEDIATELY.bits());
const WAITS: LockFlags = LockFlags::EXCLUSIVE_LOCK;
const OK: NtStatus = NtStatus::SUCCESS;
const TAKEN: NtStatus = NtStatus::LOCK_NOT_GRANTED;
const CONFLICT: NtStatus = NtStatus::FILE_LOCK_CONFLICT;

/// A local program that has the file open.
struct Program(Arc<dyn Node>);

impl Program {
    fn open(folder: &Path, name: &str) -> Self {
        let store = LocalStore::open(folder, &StoreOptions::default()).unwrap();
        let how = NodeOpen {
            access: Access::Write,
            ..NodeOpen::default()
        };
        let path = RelPath::parse(name.as_bytes()).unwrap();
        Self(store.open(&path, &how).unwrap().node)
    }

    /// Tries to take a lock.
    fn locks(&self, first: u64, last: u64, lock: RangeLock) -> bool {
        self.0.lock_range(first, last, lock).unwrap()
    }

    fn unlocks(&self, first: u64, last: u64) {
        assert!(self.locks(first, last, RangeLock::None));
    }

    /// Returns the lock of clients on a byte, as the program sees it.
    fn sees(&self, byte: u64) -> RangeLock {
        let excludes = |write| self.0.is_range_locked(byte, byte, write).unwrap();
        match (excludes(false), excludes(true)) {
            (true, _) => RangeLock::Exclusive,
            (false, true) => RangeLock::Shared,
            (false, false) => RangeLock::None,
        }
    }
}

fn lock_body(file_id: FileId, elements: &[(u64, u64, LockFlags)]) -> Vec<u8> {
    let elements = elements.iter().map(|&(offset, length, flags)| LockElement {
        offset,
        length,
        flags,
    });
    let request = LockRequest {
        file_id,
        lock_sequence: LockSequence(0),
        locks: elements.collect(),
    };
    samples::body(|w| request.encode(w))
}

impl Raw {
    fn locks_all(&mut self, file: FileId, elements: &[(u64, u64, LockFlags)]) -> NtStatus {
        let body = lock_body(file, elements);
        self.call(Command::Lock, |w| w.bytes(&body)).status()
    }

    fn locks(&mut self, file: FileId, offset: u64, length: u64, flags: LockFlags) -> NtStatus {
        self.locks_all(file, &[(offset, length, flags)])
    }

    /// Requests a lock that has to wait, and returns the message id.
    fn waits_for(&mut self, file: FileId, offset: u64, length: u64) -> MessageId {
        let id = MessageId(self.next_id);
        let body = lock_body(file, &[(offset, length, WAITS)]);
        let message = self.message(Command::Lock, |w| w.bytes(&body));
        self.send(&message);
        let interim = self.receive().unwrap();
        let header = Header::decode(&mut Reader::new(&interim, "header")).unwrap();
        assert_eq!((header.status, header.message_id), (NtStatus::PENDING, id));
        id
    }

    fn reads(&mut self, file_id: FileId, offset: u64, length: u32) -> NtStatus {
        let request = ReadRequest {
            file_id,
            offset,
            length,
            minimum_count: 0,
            flags: ReadFlags::default(),
            channel: Channel::NONE,
        };
        self.call(Command::Read, |w| request.encode(w)).status()
    }

    fn writes(&mut self, file: FileId, offset: u64, data: &[u8]) -> NtStatus {
        let body = samples::write(file, offset, data);
        self.call(Command::Write, |w| w.bytes(&body)).status()
    }
}

struct Fixture {
    folder: tempfile::TempDir,
    serve: Serve,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("f"), [b'x'; 100]).unwrap();
        let serve = Serve::start(folder.path());
        Self { folder, serve }
    }

    fn program(&self) -> Program {
        Program::open(self.folder.path(), "f")
    }

    fn client(&self) -> (Raw, FileId) {
        let mut raw = Raw::ready(self.serve.address);
        let file = raw.create(&Create::of("f")).unwrap();
        (raw, file)
    }
}

#[test]
fn a_local_lock_excludes_clients() {
    let fixture = Fixture::new();
    let (program, (mut raw, file)) = (fixture.program(), fixture.client());
    assert!(program.locks(0, 9, RangeLock::Exclusive));
    for flags in [EXCLUSIVE, SHARED] {
        assert_eq!(raw.locks(file, 5, 10, flags), TAKEN);
    }
    assert_eq!(
        (raw.reads(file, 5, 10), raw.writes(file, 9, b"no")),
        (CONFLICT, CONFLICT)
    );
    assert_eq!((raw.reads(file, 10, 10), raw.writes(file, 10, b"yes")), (OK, OK));
    assert_eq!((raw.reads(file, 5, 0), raw.writes(file, 5, b"")), (OK, OK));
    // All locks are taken or none.
    assert_eq!(
        raw.locks_all(file, &[(50, 5, EXCLUSIVE), (9, 1, EXCLUSIVE)]),
        TAKEN
    );
    assert_eq!(program.sees(50), RangeLock::None);
    assert!(program.locks(0, 9, RangeLock::Shared));
    assert_eq!(
        (raw.locks(file, 5, 10, EXCLUSIVE), raw.locks(file, 5, 10, SHARED)),
        (TAKEN, OK)
    );
    assert_eq!(
        (raw.reads(file, 0, 5), raw.writes(file, 0, b"no")),
        (OK, CONFLICT)
    );
    assert_eq!(raw.locks(file, 5, 10, LockFlags::UNLOCK), OK);
    program.unlocks(0, 9);
    assert_eq!(raw.locks(file, 5, 10, EXCLUSIVE), OK);
    assert_eq!(raw.writes(file, 5, b"yes"), OK);
}

/// smb2.ioctl.dup_extents_src_lock, dup_extents_dest_lock: cloning counts as READ and WRITE.
#[test]
fn a_lock_prevents_duplicating_extents() {
    const UNIT: u64 = 64 << 10;
    let fixture = Fixture::new();
    for name in ["from", "to"] {
        std::fs::write(
            fixture.folder.path().join(name),
            vec![name.as_bytes()[0]; UNIT as usize],
        )
        .unwrap();
    }
    let (mut raw, mut other) = (
        Raw::ready(fixture.serve.address),
        Raw::ready(fixture.serve.address),
    );
    let [from, to] = ["from", "to"].map(|name| raw.create(&Create::of(name)).unwrap());
    let duplicates = |raw: &mut Raw| {
        let asked = DuplicateExtents {
            source: from,
            source_file_offset: 0,
            target_file_offset: 0,
            byte_count: UNIT,
        };
        let input = samples::body(|w| asked.encode(w));
        raw.control(to, CtlCode::DUPLICATE_EXTENTS_TO_FILE, &input)
            .status()
    };
    for (name, flags, status) in [
        ("from", EXCLUSIVE, CONFLICT),
        ("from", SHARED, OK),
        ("to", SHARED, CONFLICT),
        ("to", EXCLUSIVE, CONFLICT),
    ] {
        std::fs::write(fixture.folder.path().join("to"), vec![b't'; UNIT as usize]).unwrap();
        let file = other.create(&Create::of(name)).unwrap();
        assert_eq!(other.locks(file, UNIT - 1, 10, flags), OK);
        assert_eq!(duplicates(&mut raw), status, "{name} {flags:?}");
        let copied = std::fs::read(fixture.folder.path().join("to")).unwrap() == vec![b'f'; UNIT as usize];
        assert_eq!(copied, status == OK, "{name} {flags:?}");
        assert_eq!(other.close(file), OK);
    }
    assert_eq!(raw.locks(to, 0, UNIT, EXCLUSIVE), OK);
    assert_eq!(duplicates(&mut raw), OK, "its own lock");
}

#[test]
fn a_clients_lock_excludes_local_programs() {
    let fixture = Fixture::new();
    let (program, (mut raw, file)) = (fixture.program(), fixture.client());
    let sees = |bytes: &[u64]| -> Vec<_> { bytes.iter().map(|byte| program.sees(*byte)).collect() };
    use RangeLock::{Exclusive, None, Shared};
    assert_eq!(raw.locks(file, 10, 10, EXCLUSIVE), OK);
    assert!(!program.locks(19, 19, Shared) && program.locks(20, 20, Exclusive));
    program.unlocks(20, 20);
    // Locks of one open stack: a byte stays locked until the last of them is released.
    assert_eq!(raw.locks(file, 0, 30, SHARED), OK);
    assert_eq!(
        sees(&[0, 9, 10, 19, 20, 29, 30]),
        [Shared, Shared, Exclusive, Exclusive, Shared, Shared, None]
    );
    assert_eq!(raw.locks(file, 10, 10, LockFlags::UNLOCK), OK);
    assert_eq!(sees(&[9, 10, 29]), [Shared; 3]);
    assert_eq!(raw.locks(file, 20, 5, SHARED), OK);
    assert_eq!(raw.locks(file, 0, 30, LockFlags::UNLOCK), OK);
    assert_eq!(sees(&[19, 20, 24, 25]), [None, Shared, Shared, None]);
    // Locks of another open are separate.
    let other = raw.create(&Create::of("f")).unwrap();
    assert_eq!(raw.locks(other, 22, 10, SHARED), OK);
    assert_eq!(raw.locks(other, 22, 10, EXCLUSIVE), TAKEN);
    assert_eq!(raw.close(file), OK);
    assert_eq!(sees(&[20, 21, 22, 31, 32]), [None, None, Shared, Shared, None]);
    assert_eq!(raw.close(other), OK);
    assert!(program.locks(0, 100, Exclusive));
}

#[test]
fn ranges_beyond_the_largest_file_are_locked_for_clients_only() {
    let fixture = Fixture::new();
    let (program, (mut raw, file)) = (fixture.program(), fixture.client());
    let last = i64::MAX as u64;
    assert_eq!(raw.locks(file, last, 10, EXCLUSIVE), OK);
    assert_eq!(program.sees(last), RangeLock::Exclusive);
    assert_eq!(raw.locks(file, 1 << 63, 1, EXCLUSIVE), TAKEN);
    assert_eq!(raw.locks(file, 50, 0, EXCLUSIVE), OK);
    assert_eq!(program.sees(50), RangeLock::None);
    let other = raw.create(&Create::of("f")).unwrap();
    assert_eq!(raw.locks(other, 49, 5, EXCLUSIVE), TAKEN, "clients see it");
    assert_eq!(raw.locks(other, u64::MAX, 1, EXCLUSIVE), OK);
    assert!(program.locks(0, last - 1, RangeLock::Exclusive));
}

/// As in smbd.
#[test]
fn an_open_for_reading_locks_shared() {
    let fixture = Fixture::new();
    let program = fixture.program();
    let mut raw = Raw::ready(fixture.serve.address);
    let how = Create {
        access: AccessMask::READ_DATA,
        ..Create::of("f")
    };
    let file = raw.create(&how).unwrap();
    assert_eq!(raw.locks(file, 0, 10, EXCLUSIVE), OK);
    assert_eq!(program.sees(0), RangeLock::Shared);
    // Clients see the lock.
    let other = raw.create(&how).unwrap();
    assert_eq!(raw.reads(other, 0, 10), CONFLICT);
    assert_eq!(raw.locks(file, 0, 10, LockFlags::UNLOCK), OK);
    assert!(program.locks(0, 9, RangeLock::Shared));
    assert_eq!(raw.locks(file, 0, 10, EXCLUSIVE), OK);
    assert!(!program.locks(0, 9, RangeLock::Exclusive));
}

/// The server is not notified when a local lock is released, so it polls.
#[test]
fn a_lock_waits_until_the_local_one_is_released() {
    let fixture = Fixture::new();
    let (program, (mut raw, file)) = (fixture.program(), fixture.client());
    assert!(program.locks(0, 9, RangeLock::Exclusive));
    let first = raw.waits_for(file, 5, 10);
    let second = raw.waits_for(file, 8, 1);
    // Other programs do not see a waiting lock.
    assert_eq!(program.sees(12), RangeLock::None);
    let other = raw.create(&Create::of("f")).unwrap();
    assert_eq!(raw.locks(other, 12, 1, EXCLUSIVE), OK);
    assert_eq!(raw.locks(other, 12, 1, LockFlags::UNLOCK), OK);
    program.unlocks(0, 9);
    let granted = raw.reply().unwrap();
    assert_eq!(granted.status(), OK);
    // The remaining request now waits for the granted one; whichever was granted, the other one
    // overlaps it.
    let (offset, length, last) = match granted.header.message_id == first {
        true => (5, 10, second),
        false => (8, 1, first),
    };
    let unlock = lock_body(file, &[(offset, length, LockFlags::UNLOCK)]);
    let message = raw.message(Command::Lock, |w| w.bytes(&unlock));
    raw.send(&message);
    let replies = [raw.reply().unwrap(), raw.reply().unwrap()];
    assert!(replies.iter().all(|reply| reply.status() == OK));
    assert!(replies.iter().any(|reply| reply.header.message_id == last));
    assert_eq!(program.sees(8), RangeLock::Exclusive);
}

#[test]
fn a_lock_that_waits_for_a_local_program_can_be_cancelled_or_closed() {
    let fixture = Fixture::new();
    let (program, (mut raw, file)) = (fixture.program(), fixture.client());
    assert!(program.locks(0, 9, RangeLock::Shared));
    let id = raw.waits_for(file, 0, 10);
    let mut header = raw.header(Command::Cancel);
    header.message_id = id;
    let mut cancel = vec![0; HEADER_LEN];
    CancelRequest.encode(&mut Writer::within(&mut cancel, 0));
    raw.seal_header(&header, &mut cancel);
    raw.send(&cancel);
    let reply = raw.reply().unwrap();
    assert_eq!(
        (reply.status(), reply.header.message_id),
        (NtStatus::CANCELLED, id)
    );
    program.unlocks(0, 9);
    assert!(
        program.locks(0, 9, RangeLock::Exclusive),
        "nothing was taken since"
    );
    let id = raw.waits_for(file, 0, 10);
    let close = raw.message(Command::Close, |w| crate::raw::close_body(w, file));
    raw.send(&close);
    let replies = [raw.reply().unwrap(), raw.reply().unwrap()];
    let lock = replies
        .iter()
        .find(|reply| reply.header.message_id == id)
        .unwrap();
    assert_eq!(lock.status(), NtStatus::RANGE_NOT_LOCKED);
}

#[test]
fn every_end_of_an_open_releases_its_locks() {
    let fixture = Fixture::new();
    let program = fixture.program();
    let (mut raw, file) = fixture.client();
    assert_eq!(raw.locks(file, 0, 10, EXCLUSIVE), OK);
    let reply = raw.call(Command::TreeDisconnect, |w| TreeDisconnectRequest.encode(w));
    assert_eq!((reply.status(), program.sees(0)), (OK, RangeLock::None));
    let (mut raw, file) = fixture.client();
    assert_eq!(raw.locks(file, 0, 10, EXCLUSIVE), OK);
    assert_eq!(program.sees(0), RangeLock::Exclusive);
    drop(raw);
    fixture.serve.settles_at((1, 0));
    // The table is empty before the last lock is released.
    for _ in 0..1000 {
        if program.sees(0) == RangeLock::None {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("locked for ever");
}

#[test]
fn a_durable_handle_keeps_its_locks() {
    let fixture = Fixture::new();
    let program = fixture.program();
    let mut raw = Raw::ready(fixture.serve.address);
    let guid = Guid([3; 16]);
    let how = |context| Create {
        oplock: OplockLevel::Batch,
        contexts: vec![context],
        ..Create::of("f")
    };
    let file = raw
        .create(&how(RequestContext::DurableRequestV2(DurableRequestV2 {
            timeout_ms: 0,
            flags: DurableHandleV2Flags::default(),
            create_guid: guid,
        })))
        .unwrap();
    assert_eq!(raw.locks(file, 0, 10, EXCLUSIVE), OK);
    drop(raw);
    fixture.serve.settles_at((0, 1));
    assert_eq!(program.sees(0), RangeLock::Exclusive);
    let mut raw = Raw::ready(fixture.serve.address);
    let back = RequestContext::DurableReconnectV2(DurableReconnectV2 {
        file_id: file,
        create_guid: guid,
        flags: DurableHandleV2Flags::default(),
    });
    let file = raw.create(&how(back)).unwrap();
    assert_eq!(program.sees(0), RangeLock::Exclusive);
    assert_eq!(raw.locks(file, 0, 10, LockFlags::UNLOCK), OK);
    assert_eq!(program.sees(0), RangeLock::None);
}

/// A client that may cache handles locks itself (smbd: `strict locking = auto`). Locks it requests
/// apply to all.
#[test]
fn a_client_that_caches_is_not_asked_for_each_byte() {
    let fixture = Fixture::new();
    let program = fixture.program();
    let mut raw = Raw::ready(fixture.serve.address);
    let lease = Lease {
        lease_key: LeaseKey([1; 16]),
        lease_state: LeaseState::from_bits_retain(7),
        lease_flags: Default::default(),
    };
    let how = Create {
        oplock: OplockLevel::Lease,
        contexts: vec![RequestContext::Lease(lease)],
        ..Create::of("f")
    };
    let file = raw.create(&how).unwrap();
    assert!(program.locks(0, 9, RangeLock::Exclusive));
    assert_eq!((raw.reads(file, 0, 10), raw.writes(file, 0, b"yes")), (OK, OK));
    assert_eq!(raw.locks(file, 0, 10, EXCLUSIVE), TAKEN);
}

#[test]
fn copies_on_the_server_respect_local_locks() {
    let fixture = Fixture::new();
    let (program, (mut raw, file)) = (fixture.program(), fixture.client());
    assert!(program.locks(50, 59, RangeLock::Exclusive));
    let zero = |from: u64, to: u64| [from.to_le_bytes(), to.to_le_bytes()].concat();
    let mut zeros = |from, to| {
        let body = samples::control(file, CtlCode::SET_ZERO_DATA, &zero(from, to));
        raw.call(Command::Ioctl, |w| w.bytes(&body)).status()
    };
    assert_eq!((zeros(55, 70), zeros(60, 70)), (CONFLICT, OK));
}

#[test]
fn streams_are_locked_for_clients_only() {
    let fixture = Fixture::new();
    let program = fixture.program();
    let mut raw = Raw::ready(fixture.serve.address);
    let Ok(stream) = raw.create(&Create::of("f:s")) else {
        println!("skipped: no extended attributes here");
        return;
    };
    let other = raw.create(&Create::of("f:s")).unwrap();
    assert_eq!(raw.locks(stream, 0, 10, EXCLUSIVE), OK);
    assert_eq!(program.sees(0), RangeLock::None);
    assert_eq!(raw.locks(other, 0, 10, SHARED), TAKEN);
    assert_eq!(raw.locks(stream, 0, 10, LockFlags::UNLOCK), OK);
    assert_eq!(raw.locks(other, 0, 10, SHARED), OK);
}

#[test]
fn without_posix_locks_neither_sees_the_other() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("f"), [b'x'; 100]).unwrap();
    let serve = Serve::with(folder.path(), |options| options.posix_locks = false);
    let program = Program::open(folder.path(), "f");
    assert!(program.locks(0, 9, RangeLock::Exclusive));
    let mut raw = Raw::ready(serve.address);
    let file = raw.create(&Create::of("f")).unwrap();
    assert_eq!(raw.locks(file, 0, 20, EXCLUSIVE), OK);
    assert_eq!(raw.writes(file, 0, b"yes"), OK);
    assert_eq!(program.sees(15), RangeLock::None);
}

/// A lock lives with its descriptor, and there are fewer descriptors than opens.
#[test]
fn locks_survive_closed_descriptors() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::with(folder.path(), |options| {
        let few = StoreOptions {
            descriptors_max: 16,
            ..StoreOptions::default()
        };
        let store = LocalStore::open(folder.path(), &few).unwrap();
        options.shares = vec![Share::new("data", Arc::new(store))];
    });
    let mut raw = Raw::ready(serve.address);
    let files: Vec<_> = (0..64)
        .map(|number| raw.create(&Create::of(format!("f{number}").as_str())).unwrap())
        .collect();
    for file in &files[..8] {
        assert_eq!(raw.locks(*file, 0, 10, EXCLUSIVE), OK);
    }
    let refused = NtStatus::INSUFFICIENT_RESOURCES;
    assert_eq!(raw.locks(files[8], 0, 10, EXCLUSIVE), refused);
    for file in &files[8..] {
        assert_eq!(raw.writes(*file, 0, b"x"), OK);
    }
    for number in 0..8 {
        let program = Program::open(folder.path(), &format!("f{number}"));
        assert_eq!(program.sees(0), RangeLock::Exclusive, "{number}");
    }
    assert_eq!(raw.close(files[0]), OK);
    assert_eq!(raw.locks(files[8], 0, 10, EXCLUSIVE), OK);
    // A refused lock takes nothing and blocks no one.
    assert_eq!(raw.locks(files[9], 0, 10, EXCLUSIVE), refused);
    assert_eq!(raw.locks(files[8], 0, 10, LockFlags::UNLOCK), OK);
    assert_eq!(raw.locks(files[9], 0, 10, EXCLUSIVE), OK);
}

/// A program in a separate process, with the process-wide locks that most programs use (`lockf`).
struct Python {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Python {
    const TEXT: &str = "
import fcntl, sys
f = open(sys.argv[1], 'r+b')
kinds = {'x': fcntl.LOCK_EX | fcntl.LOCK_NB, 's': fcntl.LOCK_SH | fcntl.LOCK_NB, 'u': fcntl.LOCK_UN}
for line in sys.stdin:
    kind, start, length = line.split()
    try:
        fcntl.lockf(f, kinds[kind], int(length), int(start))
        print('done', flush=True)
    except OSError:
        print('held', flush=True)
";

    fn start(file: &Path) -> Option<Self> {
        let mut python = Process::new("python3");
        python.args(["-c", Self::TEXT]).arg(file);
        let started = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = started.ok()?;
        Some(Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        })
    }

    fn asks(&mut self, what: &str) -> bool {
        writeln!(self.input, "{what}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        match line.trim_end() {
            "done" => true,
            "held" => false,
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[test]
fn another_process_and_clients_respect_each_other() {
    let fixture = Fixture::new();
    let Some(mut python) = Python::start(&fixture.folder.path().join("f")) else {
        println!("skipped: no python3");
        return;
    };
    let (mut raw, file) = fixture.client();
    assert!(python.asks("x 0 10"));
    assert_eq!(
        (raw.locks(file, 0, 10, SHARED), raw.reads(file, 0, 10)),
        (TAKEN, CONFLICT)
    );
    let id = raw.waits_for(file, 0, 10);
    assert!(python.asks("u 0 10"));
    let reply = raw.reply().unwrap();
    assert_eq!((reply.status(), reply.header.message_id), (OK, id));
    assert!(!python.asks("s 9 1") && python.asks("s 10 1"));
    assert_eq!(raw.close(file), OK);
    assert!(python.asks("x 0 0"));
}
