//! Persistent handles of `ropeway serve` with `:ca`: the real binary is killed, and clients go on where
//! they were. Without a kill: `crates/smb-server/tests/hard/persistent.rs`.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use crate::raw::{Create, Raw};
use crate::samples;
use crate::support::{self, Place, Running, Volume};
use ropeway_smb_wire::create::{AccessMask, CreateResponse};
use ropeway_smb_wire::create_context::{
    DurableHandleV2Flags, DurableReconnectV2, DurableRequestV2, RequestContext, ResponseContext,
};
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::lock::{LockElement, LockFlags, LockRequest, LockSequence};
use ropeway_smb_wire::negotiate::Capabilities;
use ropeway_smb_wire::{FileId, Guid, NtStatus};

const OK: NtStatus = NtStatus::SUCCESS;
const EXCLUSIVE: LockFlags =
    LockFlags::from_bits_retain(LockFlags::EXCLUSIVE_LOCK.bits() | LockFlags::FAIL_IMMEDIATELY.bits());
/// Length of a write.
const BLOCK: usize = 4096;

/// A server that keeps its port when it is restarted.
struct Served {
    place: Place,
    running: Option<Running>,
    address: SocketAddr,
    flags: Vec<String>,
}

impl Served {
    fn start(flags: &[&str]) -> Self {
        let place = Place::new();
        fs::write(place.join("password"), "secret\n").unwrap();
        fs::set_permissions(place.join("password"), fs::Permissions::from_mode(0o600)).unwrap();
        place.folder("data");
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let flags = flags.iter().map(|&flag| flag.to_owned()).collect();
        let mut served = Self {
            place,
            running: None,
            address,
            flags,
        };
        served.start_again();
        served
    }

    fn start_again(&mut self) {
        let run = self.place.ropeway("serve").args(["--user", "alice"]);
        let run = run.arg("--password-file").arg(self.place.join("password"));
        let run = run.args(["--listen", &self.address.to_string(), "data:ca"]);
        let mut running = run.args(&self.flags).start();
        let address = self.address;
        let listens = running.until(|_| TcpStream::connect(address).is_ok());
        assert!(listens, "{}{}", running.stdout(), running.stderr());
        self.running = Some(running);
    }

    /// Kills the server. Its log goes with it.
    fn kill(&mut self) {
        self.running.take().unwrap().kill();
    }

    fn log(&self) -> String {
        self.running.as_ref().unwrap().stderr()
    }

    fn ready(&self, client: u8) -> Raw {
        let mut raw = Raw::connect(self.address);
        raw.guid = Guid([client; 16]);
        raw.capabilities |= Capabilities::PERSISTENT_HANDLES;
        raw.enter();
        raw
    }

    /// Returns the records of handles.
    fn records(&self) -> Vec<PathBuf> {
        let state = self.place.join(".state/ropeway/handles");
        let files = support::walk(&state).into_iter().map(|path| state.join(path));
        let mut records: Vec<_> = files
            .filter(|path| path.extension() == Some("handle".as_ref()))
            .collect();
        records.sort();
        records
    }
}

/// Opens a file; with the flags of the durable context in the reply.
fn open(raw: &mut Raw, name: &str, guid: u8) -> (FileId, Option<DurableHandleV2Flags>) {
    let wish = DurableRequestV2 {
        timeout_ms: 0,
        flags: DurableHandleV2Flags::PERSISTENT,
        create_guid: Guid([guid; 16]),
    };
    let mut how = Create::of(name);
    how.access = AccessMask::FILE_ALL;
    how.contexts = vec![RequestContext::DurableRequestV2(wish)];
    let request = how.request();
    let reply = raw.call(Command::Create, |w| request.encode(w));
    assert_eq!(reply.status(), OK);
    let response = CreateResponse::decode(&mut reply.body()).unwrap();
    let flags = response.contexts.iter().find_map(|context| match context {
        ResponseContext::DurableV2(durable) => Some(durable.flags),
        _ => None,
    });
    (response.file_id, flags)
}

fn keep(raw: &mut Raw, name: &str, guid: u8) -> FileId {
    let (id, flags) = open(raw, name, guid);
    assert_eq!(flags, Some(DurableHandleV2Flags::PERSISTENT));
    id
}

fn back(name: &str, file_id: FileId, guid: u8) -> Create<'_> {
    let reconnect = DurableReconnectV2 {
        file_id,
        create_guid: Guid([guid; 16]),
        flags: DurableHandleV2Flags::PERSISTENT,
    };
    let mut how = Create::of(name);
    how.contexts = vec![RequestContext::DurableReconnectV2(reconnect)];
    how
}

fn lock(raw: &mut Raw, file_id: FileId, offset: u64, flags: LockFlags) -> NtStatus {
    let request = LockRequest {
        file_id,
        lock_sequence: LockSequence(0),
        locks: vec![LockElement {
            offset,
            length: 10,
            flags,
        }],
    };
    raw.call(Command::Lock, |w| request.encode(w)).status()
}

/// Content of a block.
fn block(number: u64) -> Vec<u8> {
    let mut block = vec![b'.'; BLOCK];
    block[..8].copy_from_slice(&number.to_le_bytes());
    block
}

#[test]
fn a_killed_server_goes_on() {
    let mut served = Served::start(&[]);
    let mut one = served.ready(1);
    let id = keep(&mut one, "file", 7);
    // What a client locks, it locks in a range that it does not write.
    let far = 1 << 40;
    assert_eq!(lock(&mut one, id, far, EXCLUSIVE), OK);
    let mut written = 0_u64;
    for round in 0..3_u64 {
        let pid = served.running.as_ref().unwrap().id();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(150 + 50 * round));
            let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        });
        // Writes until the server dies; the last write may or may not have been done.
        loop {
            let body = samples::write(id, written * BLOCK as u64, &block(written));
            match one.try_call(Command::Write, |w| w.bytes(&body)) {
                Some(reply) => assert_eq!(reply.status(), OK),
                None => break,
            }
            written += 1;
        }
        killer.join().unwrap();
        served.kill();
        served.start_again();
        let mut two = served.ready(2);
        assert_eq!(two.create(&Create::of("file")), Err(NtStatus::FILE_NOT_AVAILABLE));
        one = served.ready(1);
        assert_eq!(one.create(&back("file", id, 7)), Ok(id));
        let other = two.create(&Create::of("file")).unwrap();
        assert_eq!(lock(&mut two, other, far, EXCLUSIVE), NtStatus::LOCK_NOT_GRANTED);
        assert_eq!(lock(&mut one, id, far + 100 + round, EXCLUSIVE), OK);
        assert_eq!(lock(&mut one, id, far + 100 + round, LockFlags::UNLOCK), OK);
    }
    assert!(written > 10, "{written} writes");
    assert_eq!(lock(&mut one, id, far, LockFlags::UNLOCK), OK);
    assert_eq!((one.close(id), served.records().len()), (OK, 0));
    let content = fs::read(served.place.join("data/file")).unwrap();
    for (number, found) in (0..written).zip(content.chunks(BLOCK)) {
        assert!(found == block(number), "block {number} of {written}");
    }
}

/// [`RESTARTED`] in a record: the last eight bytes of its boot.
#[test]
fn records_of_another_boot_and_broken_ones_are_dropped() {
    let mut served = Served::start(&[]);
    let mut raw = served.ready(1);
    let ids: Vec<_> = (1..=3)
        .map(|guid| keep(&mut raw, &format!("file {guid}"), guid))
        .collect();
    served.kill();
    let records = served.records();
    assert_eq!(records.len(), 3);
    let mut other = fs::read(&records[0]).unwrap();
    // The head has 18 bytes, then come 4 bytes of flags and the boot.
    other[22..38].fill(9);
    let sum = crc32fast::hash(&other[18..]).to_le_bytes();
    other[14..18].copy_from_slice(&sum);
    fs::write(&records[0], other).unwrap();
    let broken = fs::read(&records[1]).unwrap();
    fs::write(&records[1], &broken[..broken.len() - 1]).unwrap();
    served.start_again();
    let mut raw = served.ready(1);
    let found: Vec<_> = (1..=3)
        .zip(&ids)
        .map(|(guid, id)| raw.create(&back(&format!("file {guid}"), *id, guid)))
        .collect();
    let missing = Err(NtStatus::OBJECT_NAME_NOT_FOUND);
    assert_eq!(found, [missing, missing, Ok(ids[2])]);
    assert_eq!(served.records().len(), 1);
    let log = served.log();
    assert!(log.contains("the machine was started again"), "{log}");
    assert!(log.contains("cut or damaged"), "{log}");
}

#[test]
fn two_servers_do_not_keep_the_same_handles() {
    let served = Served::start(&[]);
    let run = served.place.ropeway("serve").args(["--user", "alice"]);
    let run = run.arg("--password-file").arg(served.place.join("password"));
    let second = run.args(["--listen", "127.0.0.1:0", "other=data:ca"]).exits(4);
    assert!(second.err.contains("another server"), "{}", second.err);
    // With a place of its own, it may.
    let flags = ["--handles", "elsewhere"];
    let run = served.place.ropeway("serve").args(["--user", "alice"]);
    let run = run.arg("--password-file").arg(served.place.join("password"));
    let mut third = run
        .args(["--json", "--listen", "127.0.0.1:0", "other=data:ca"])
        .args(flags)
        .start();
    assert!(third.until(|third| third.stdout().contains("listening")));
}

/// A full disk promises nothing that it cannot keep.
#[test]
fn a_full_disk_keeps_no_handles() {
    let volume = match Volume::tmpfs(1) {
        Ok(volume) => volume,
        Err(why) => {
            println!("skipped: {why}");
            return;
        }
    };
    let root = volume.root();
    let handles = root.join("handles").display().to_string();
    let mut served = Served::start(&["--handles", &handles]);
    let mut raw = served.ready(1);
    let first = keep(&mut raw, "first", 1);
    let fill = |length: usize| {
        let filled = fs::write(root.join("fill"), vec![1; length]);
        assert!(filled.is_err(), "the disk is not full");
    };
    fill(2 << 20);
    let (id, flags) = open(&mut raw, "second", 2);
    assert_eq!(flags, None, "neither persistent nor, without an oplock, durable");
    assert_eq!(raw.close(id), OK);
    fs::remove_file(root.join("fill")).unwrap();
    let third = keep(&mut raw, "third", 3);
    // A lock that cannot be kept ends what was promised, rather than being forgotten.
    fill(2 << 20);
    assert_eq!(lock(&mut raw, third, 0, EXCLUSIVE), OK);
    served.kill();
    fs::remove_file(root.join("fill")).unwrap();
    served.start_again();
    let mut raw = served.ready(1);
    assert_eq!(raw.create(&back("first", first, 1)), Ok(first));
    assert_eq!(
        raw.create(&back("third", third, 3)),
        Err(NtStatus::OBJECT_NAME_NOT_FOUND)
    );
}

#[test]
fn such_shares_change_with_a_restart_only() {
    let place = Place::new();
    place.folder("data");
    let config = place.config_file();
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    fs::write(&config, "[serve]\nshare = [\"data\"]\n").unwrap();
    let run = place.ropeway("serve").args(["--json", "--listen", "127.0.0.1:0"]);
    let mut running = run.start();
    assert!(running.until(|running| running.stdout().contains("listening")));
    fs::write(&config, "[serve]\nshare = [\"data:ca\"]\n").unwrap();
    running.signal(rustix::process::Signal::HUP);
    assert!(running.until(|running| running.stdout().contains("reloaded")));
    assert!(
        running.stdout().contains("by a restart only"),
        "{}",
        running.stdout()
    );
    drop(running);
    // A far share has no handles to keep.
    let failed = place
        .ropeway("serve")
        .arg("smb://ann@192.0.2.1/share:ca")
        .exits(1);
    assert!(failed.err.contains(":ca is for folders"), "{}", failed.err);
}

/// The journal is named after the path of the folder, and this server holds its lock.
#[test]
fn a_replaced_folder_keeps_its_journal() {
    let place = Place::new();
    place.folder("data");
    let config = place.config_file();
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    fs::write(&config, "[serve]\nshare = [\"data:ca\"]\n").unwrap();
    let run = place.ropeway("serve").args(["--json", "--listen", "127.0.0.1:0"]);
    let mut running = run.start();
    assert!(running.until(|running| running.stdout().contains("listening")));
    fs::rename(place.join("data"), place.join("before")).unwrap();
    place.folder("data");
    running.signal(rustix::process::Signal::HUP);
    assert!(running.until(|running| running.stdout().contains("reloaded")));
    assert!(
        !running.stdout().contains("cannot keep the handles"),
        "{}",
        running.stdout()
    );
}
