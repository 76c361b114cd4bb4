//! `ropeway serve` under load and when it is killed: the real binary, on loopback.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::raw::{Create, Raw};
use crate::samples;
use crate::support::{Place, Running};
use ropeway_smb_wire::create::{CreateDisposition, CreateOptions, OplockLevel};
use ropeway_smb_wire::create_context::{DurableReconnectV2, DurableRequestV2, RequestContext};
use ropeway_smb_wire::flush::FlushRequest;
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::{FileId, Guid, NtStatus};
use rustix::process::Signal;

/// A server that keeps its port when it is restarted.
struct Served {
    place: Place,
    running: Running,
    address: SocketAddr,
}

impl Served {
    fn start(place: Place) -> Self {
        fs::write(place.join("password"), "secret\n").unwrap();
        fs::set_permissions(place.join("password"), fs::Permissions::from_mode(0o600)).unwrap();
        place.folder("data");
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let running = run(&place, port);
        Self {
            place,
            running,
            address: port,
        }
    }

    fn start_again(&mut self) {
        self.running = run(&self.place, self.address);
    }

    fn data(&self, name: &str) -> PathBuf {
        self.place.join("data").join(name)
    }

    /// Returns the resident memory in bytes and the number of descriptors.
    fn sizes(&self) -> (u64, usize) {
        let process = PathBuf::from(format!("/proc/{}", self.running.id()));
        let text = fs::read_to_string(process.join("statm")).unwrap();
        let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
        (pages * 4096, fs::read_dir(process.join("fd")).unwrap().count())
    }
}

fn run(place: &Place, address: SocketAddr) -> Running {
    let mut running = place
        .ropeway("serve")
        .args(["--user", "alice", "--password-file"])
        .arg(place.join("password"))
        .args(["--listen", &address.to_string(), "data"])
        .start();
    let listens = running.until(|_| TcpStream::connect(address).is_ok());
    assert!(listens, "{}{}", running.stdout(), running.stderr());
    running
}

fn folder(name: &str) -> Create<'static> {
    let mut folder = Create::of(name);
    folder.options = CreateOptions::DIRECTORY_FILE;
    folder
}

const SESSIONS: usize = 1000;
const FILES: usize = 100;

/// 1,000 sessions with 100 open files each.
#[test]
fn a_hundred_thousand_handles() {
    let served = Served::start(Place::in_memory());
    let idle = served.sizes();
    let mut all = Vec::with_capacity(SESSIONS);
    for session in 0..SESSIONS {
        let mut raw = Raw::connect(served.address);
        raw.asks = 200;
        raw.enter();
        let inner = raw.create(&folder(&format!("folder {session}"))).unwrap();
        raw.close(inner);
        for file in 0..FILES {
            let how = Create::of(format!("folder {session}\\file {file}").as_str());
            let message = raw.message(Command::Create, |w| how.request().encode(w));
            raw.send(&message);
        }
        let mut files = Vec::with_capacity(FILES);
        for file in 0..FILES {
            let reply = raw.reply().unwrap();
            assert_eq!(
                reply.status(),
                NtStatus::SUCCESS,
                "session {session}, file {file}"
            );
            let created = ropeway_smb_wire::create::CreateResponse::decode(&mut reply.body());
            files.push(created.unwrap().file_id);
        }
        all.push((raw, files));
    }
    let (resident, descriptors) = served.sizes();
    println!("idle {idle:?}, loaded {resident} bytes, {descriptors} descriptors");
    assert!(resident <= 512 << 20, "{} MiB", resident >> 20);
    assert!(descriptors <= 20_000, "{descriptors}");
    // All files are still open, including those whose descriptor was closed meanwhile.
    for (session, (raw, files)) in all.iter_mut().enumerate().step_by(37) {
        for file in files.iter().step_by(7) {
            let text = format!("session {session}");
            let write = samples::write(*file, 0, text.as_bytes());
            assert_eq!(
                raw.call(Command::Write, |w| w.bytes(&write)).status(),
                NtStatus::SUCCESS
            );
            let read = raw.call(Command::Read, |w| w.bytes(&samples::read(*file, 100)));
            assert_eq!(read.status(), NtStatus::SUCCESS);
            assert!(read.message.ends_with(text.as_bytes()));
        }
    }
    let (_, last) = &mut all[SESSIONS - 1];
    let last = last[0];
    let mut more = Raw::ready(served.address);
    assert_eq!(
        more.close(last),
        NtStatus::FILE_CLOSED,
        "the handle belongs to another session"
    );
    drop(all);
    assert_eq!(more.echo(), NtStatus::SUCCESS);
    let begins = Instant::now();
    while served.sizes().1 > 200 && begins.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let after = served.sizes();
    println!("after {after:?}");
    assert!(after.1 <= 200, "descriptors are closed again: {after:?}");
}

const BLOCK: usize = 8192;

/// Returns block `number` of a writer's file.
fn block(writer: u64, number: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    for (at, word) in bytes.chunks_mut(8).enumerate() {
        let value = (writer << 56) ^ (number << 20) ^ at as u64 ^ 0x5A5A;
        word.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// Writes and flushes until the server is killed; counts every flush that succeeded.
fn write_until_lost(address: SocketAddr, writer: u64, flushed: &AtomicU64) {
    let mut raw = Raw::connect(address);
    raw.enter();
    let file_id = raw
        .create(&Create::of(format!("writer {writer}").as_str()))
        .unwrap();
    loop {
        let from = flushed.load(Ordering::Acquire);
        for number in from..from + 4 {
            let body = samples::write(file_id, number * BLOCK as u64, &block(writer, number));
            let message = raw.message(Command::Write, |w| w.bytes(&body));
            raw.send(&message);
        }
        for _ in 0..4 {
            assert_eq!(raw.reply().unwrap().status(), NtStatus::SUCCESS);
        }
        let flush = raw.try_call(Command::Flush, |w| FlushRequest { file_id }.encode(w));
        assert_eq!(flush.unwrap().status(), NtStatus::SUCCESS);
        flushed.store(from + 4, Ordering::Release);
    }
}

fn check(served: &Served, writer: u64, flushed: u64) {
    let file = fs::File::open(served.data(&format!("writer {writer}")));
    for number in 0..flushed {
        let mut bytes = vec![0; BLOCK];
        let file = file.as_ref().unwrap();
        file.read_exact_at(&mut bytes, number * BLOCK as u64).unwrap();
        assert!(
            bytes == block(writer, number),
            "writer {writer}, block {number} of {flushed}"
        );
    }
}

/// The server is killed repeatedly in the middle of writes and flushes, and restarted on the same
/// port.
#[test]
fn killed_and_started_again() {
    let mut served = Served::start(Place::new());
    let address = served.address;
    let stop = AtomicBool::new(false);
    let flushed: [AtomicU64; 3] = Default::default();
    let reconnects = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for (writer, flushed) in (0_u64..).zip(&flushed) {
            let (stop, reconnects) = (&stop, &reconnects);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if TcpStream::connect(address).is_err() {
                        std::thread::sleep(Duration::from_millis(5));
                        continue;
                    }
                    // Ends with a panic when the server is killed.
                    let outcome =
                        catch_unwind(AssertUnwindSafe(|| write_until_lost(address, writer, flushed)));
                    assert!(outcome.is_err());
                    reconnects.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            for round in 0..8 {
                let before: Vec<_> = flushed
                    .iter()
                    .map(|count| count.load(Ordering::Acquire))
                    .collect();
                let begins = Instant::now();
                let all_write = || {
                    let counts = flushed.iter().zip(&before);
                    counts
                        .into_iter()
                        .all(|(count, before)| count.load(Ordering::Acquire) >= before + 8)
                };
                while !all_write() {
                    assert!(
                        begins.elapsed() < Duration::from_secs(30),
                        "round {round}: clients come back"
                    );
                    std::thread::sleep(Duration::from_millis(1));
                }
                std::thread::sleep(Duration::from_millis(17 * round));
                served.running.signal(Signal::KILL);
                assert!(!served.running.until(|_| false));
                for (writer, flushed) in (0_u64..).zip(&flushed) {
                    check(&served, writer, flushed.load(Ordering::Acquire));
                }
                if round < 7 {
                    served.start_again();
                }
            }
        }));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
    for (writer, flushed) in (0_u64..).zip(&flushed) {
        check(&served, writer, flushed.load(Ordering::Acquire));
    }
    assert!(reconnects.load(Ordering::Relaxed) >= 21);
}

/// A relay to the server that can be cut.
struct Relay {
    address: SocketAddr,
    sockets: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let sockets: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let all = Arc::clone(&sockets);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(server).unwrap());
                let both = [client.try_clone().unwrap(), server.try_clone().unwrap()];
                all.lock().unwrap().extend(both);
                for (mut from, mut to) in [
                    (client.try_clone().unwrap(), server.try_clone().unwrap()),
                    (server.try_clone().unwrap(), client.try_clone().unwrap()),
                ] {
                    std::thread::spawn(move || {
                        let mut bytes = vec![0; 1 << 16];
                        while let Ok(count @ 1..) = from.read(&mut bytes) {
                            if to.write_all(&bytes[..count]).is_err() {
                                break;
                            }
                        }
                        _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        Self { address, sockets }
    }

    fn cut(&self) {
        for socket in self.sockets.lock().unwrap().drain(..) {
            _ = socket.shutdown(Shutdown::Both);
        }
    }
}

fn write_at(raw: &mut Raw, file: FileId, number: u64) {
    let body = samples::write(file, number * BLOCK as u64, &block(9, number));
    assert_eq!(
        raw.call(Command::Write, |w| w.bytes(&body)).status(),
        NtStatus::SUCCESS
    );
}

/// The connection is cut repeatedly while the server stays: the file stays open, locked for others,
/// and writing continues.
#[test]
fn durable_handles_survive_lost_connections() {
    let served = Served::start(Place::in_memory());
    let relay = Relay::to(served.address);
    let create_guid = Guid([4; 16]);
    let mut how = Create::of("durable");
    how.oplock = OplockLevel::Batch;
    how.contexts = vec![RequestContext::DurableRequestV2(DurableRequestV2 {
        timeout_ms: 60_000,
        flags: Default::default(),
        create_guid,
    })];
    let mut raw = Raw::ready(relay.address);
    let mut file = raw.create(&how).unwrap();
    write_at(&mut raw, file, 0);
    for number in 1..10 {
        relay.cut();
        assert!(raw.receive().is_none());
        raw = Raw::ready(relay.address);
        let mut again = Create::of("durable");
        again.disposition = CreateDisposition::Open;
        again.oplock = OplockLevel::Batch;
        again.contexts = vec![RequestContext::DurableReconnectV2(DurableReconnectV2 {
            file_id: file,
            create_guid,
            flags: Default::default(),
        })];
        // The server may notice the cut after the client has reconnected.
        let begins = Instant::now();
        file = loop {
            match raw.create(&again) {
                Ok(file) => break file,
                Err(status) => assert!(begins.elapsed() < Duration::from_secs(10), "{status}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        write_at(&mut raw, file, number);
    }
    // Another client's id does not find the handle.
    relay.cut();
    let mut thief = Raw::connect(served.address);
    thief.guid = Guid([1; 16]);
    thief.enter();
    let mut theft = Create::of("durable");
    theft.contexts = vec![RequestContext::DurableReconnectV2(DurableReconnectV2 {
        file_id: file,
        create_guid: Guid([5; 16]),
        flags: Default::default(),
    })];
    assert_eq!(thief.create(&theft), Err(NtStatus::OBJECT_NAME_NOT_FOUND));
    check_durable(&served.data("durable"));
}

fn check_durable(path: &Path) {
    let bytes = fs::read(path).unwrap();
    let wanted: Vec<u8> = (0..10).flat_map(|number| block(9, number)).collect();
    assert!(bytes == wanted);
}
