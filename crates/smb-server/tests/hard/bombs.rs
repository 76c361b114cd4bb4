//! Well-formed requests that would use more resources than one client may have.

use std::io::Write;
use std::time::Duration;

use ropeway_smb_wire::create::{CreateOptions, OplockLevel};
use ropeway_smb_wire::frame::frame_header;
use ropeway_smb_wire::header::{Command, Target};
use ropeway_smb_wire::{AsyncId, FileId, NtStatus};

use crate::memory::{alone, resident};
use crate::raw::{Create, Raw};
use crate::samples;
use crate::serve::Serve;

const MIB: u32 = 1 << 20;

/// Returns a folder to watch.
fn folder(raw: &mut Raw) -> FileId {
    let mut folder = Create::of("folder");
    folder.options = CreateOptions::DIRECTORY_FILE;
    raw.create(&folder).unwrap()
}

/// Opens the file `held` exclusively with a client that does not answer the break. Returns that
/// client and the body of a CREATE that waits for it.
fn held(serve: &Serve) -> (Raw, Vec<u8>) {
    let mut holder = Raw::ready(serve.address);
    let mut how = Create::of("held");
    how.oplock = OplockLevel::Batch;
    holder.create(&how).unwrap();
    let create = samples::body(|w| Create::of("held").request().encode(w));
    (holder, create)
}

/// The length field of a frame has 24 bits.
#[test]
fn a_compound_whose_responses_exceed_a_frame() {
    let shared = tempfile::tempdir().unwrap();
    std::fs::write(shared.path().join("file"), vec![7; 8 << 20]).unwrap();
    let serve = Serve::start(shared.path());
    let mut raw = Raw::connect(serve.address);
    raw.asks = 1000;
    raw.enter();
    let file = raw.create(&Create::of("file")).unwrap();
    raw.charge = 128;
    let read = samples::read(file, 8 * MIB);
    for related in [false, true] {
        // 24 MiB of responses; the length field allows 16 MiB.
        let messages = (0..3)
            .map(|_| raw.message(Command::Read, |w| w.bytes(&read)))
            .collect();
        let frame = raw.compound(messages, related);
        let headers = raw.probe(&frame).expect("the connection stays");
        assert_eq!(headers.len(), 4);
        assert!(headers.iter().all(|header| header.status == NtStatus::SUCCESS));
    }
    drop(raw);
    serve.settles_at((0, 0));
}

/// Several CANCELs that end each other's compounds.
#[test]
fn requests_that_cancel_each_other() {
    let shared = tempfile::tempdir().unwrap();
    let serve = Serve::start(shared.path());
    let mut raw = Raw::connect(serve.address);
    raw.asks = 8192;
    raw.enter();
    let (_holder, create) = held(&serve);
    let cancel = |raw: &mut Raw, number: u64| {
        let mut header = raw.header(Command::Cancel);
        header.target = Target::Async(AsyncId(number));
        header.flags = ropeway_smb_wire::header::HeaderFlags::ASYNC_COMMAND;
        let mut message = vec![0; 68];
        message[64] = 4;
        raw.seal_header(&header, &mut message);
        message
    };
    // More than a connection may have waiting (512).
    let count = 1000;
    for number in 0..count {
        let mut messages = vec![raw.message(Command::Create, |w| w.bytes(&create))];
        if number > 0 {
            messages.push(cancel(&mut raw, number));
        }
        let frame = raw.compound(messages, false);
        let headers = raw.probe(&frame).unwrap();
        let first = headers[0].status;
        assert!(matches!(
            first,
            NtStatus::PENDING | NtStatus::INSUFFICIENT_RESOURCES | NtStatus::CANCELLED
        ));
    }
    let last = cancel(&mut raw, count);
    raw.probe(&last).expect("all are answered");
    assert_eq!(raw.echo(), NtStatus::SUCCESS);
}

/// Waiting requests are kept with the rests of their compounds, within limits.
#[test]
fn waiting_requests_are_limited() {
    alone("bombs::waiting_requests_are_limited", || {
        let shared = tempfile::tempdir().unwrap();
        let serve = Serve::start(shared.path());
        let mut raw = Raw::connect(serve.address);
        raw.asks = 8192;
        raw.enter();
        let file = raw.create(&Create::of("file")).unwrap();
        let (_holder, create) = held(&serve);
        let write = samples::write(file, 0, &vec![1; 4 << 20]);
        let before = resident();
        let mut refused = 0;
        for _ in 0..100 {
            raw.charge = 1;
            let first = raw.message(Command::Create, |w| w.bytes(&create));
            raw.charge = 64;
            let second = raw.message(Command::Write, |w| w.bytes(&write));
            raw.charge = 1;
            let frame = raw.compound(vec![first, second], false);
            let headers = raw.probe(&frame).unwrap();
            refused += u32::from(headers[0].status == NtStatus::INSUFFICIENT_RESOURCES);
        }
        let more = resident().saturating_sub(before) >> 20;
        assert!(more < 200 && refused > 50, "{more} MiB, {refused} refused");
        let mut raw = Raw::connect(serve.address);
        raw.asks = 8192;
        raw.enter();
        let folder = self::folder(&mut raw);
        let watch = samples::watch(folder);
        // 512 of them may wait.
        for _ in 0..1500 {
            let message = raw.message(Command::ChangeNotify, |w| w.bytes(&watch));
            let headers = raw.probe(&message).unwrap();
            refused += u32::from(headers[0].status == NtStatus::INSUFFICIENT_RESOURCES);
        }
        assert!(refused > 900, "{refused}");
    });
}

/// Clients without a login that do not read their responses.
#[test]
fn unread_echoes_before_a_login() {
    alone("bombs::unread_echoes_before_a_login", || {
        let shared = tempfile::tempdir().unwrap();
        let serve = Serve::start(shared.path());
        let mut raw = Raw::connect(serve.address);
        raw.asks = 8192;
        raw.negotiate();
        raw.socket
            .set_write_timeout(Some(Duration::from_millis(300)))
            .unwrap();
        let before = resident();
        let mut sent = 0_u64;
        'all: for _ in 0..100 {
            let mut bytes = Vec::new();
            for _ in 0..8000 {
                let message = raw.message(Command::Echo, |w| w.u32(4));
                bytes.extend_from_slice(&frame_header(message.len()));
                bytes.extend_from_slice(&message);
            }
            match raw.socket.write_all(&bytes) {
                Ok(()) => sent += bytes.len() as u64,
                Err(_) => break 'all,
            }
        }
        let more = resident().saturating_sub(before);
        // Without the limit it would be everything that was sent, which is more than this.
        assert!(more < 24 << 20, "{more} bytes kept after {sent}");
        let mut other = Raw::ready(serve.address);
        assert_eq!(other.echo(), NtStatus::SUCCESS);
    });
}

/// A client that requests much and reads nothing is no longer served; others are.
#[test]
fn unread_responses() {
    alone("bombs::unread_responses", responses_stay_unread);
}

fn responses_stay_unread() {
    /// 240 MiB, twice the memory that is allowed.
    const READS: usize = 30;
    let shared = tempfile::tempdir().unwrap();
    std::fs::write(shared.path().join("file"), vec![7; 8 << 20]).unwrap();
    let serve = Serve::start(shared.path());
    let mut raw = Raw::connect(serve.address);
    raw.asks = 8192;
    raw.enter();
    let file = raw.create(&Create::of("file")).unwrap();
    raw.charge = 128;
    let read = samples::read(file, 8 * MIB);
    let before = resident();
    raw.socket
        .set_write_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    // 30 READs have less than 4 kB and are received at once.
    let mut bytes = Vec::new();
    for _ in 0..READS {
        let message = raw.message(Command::Read, |w| w.bytes(&read));
        bytes.extend_from_slice(&frame_header(message.len()));
        bytes.extend_from_slice(&message);
    }
    _ = raw.socket.write_all(&bytes);
    // The server stops when enough responses wait. Without a limit, all of them would.
    let mut unsent = 0;
    while unsent < 32 << 20 || unsent != serve.handle.unsent() {
        unsent = serve.handle.unsent();
        std::thread::sleep(Duration::from_secs(1));
    }
    assert!(unsent < 120 << 20, "{unsent} bytes wait");
    let more = resident().saturating_sub(before) >> 20;
    assert!(more < 120, "{more} MiB");
    let mut other = Raw::ready(serve.address);
    assert_eq!(other.echo(), NtStatus::SUCCESS);
    // When the client reads at last, all responses arrive.
    raw.socket.set_write_timeout(None).unwrap();
    for _ in 0..READS {
        let reply = raw.reply().unwrap();
        assert_eq!(
            (reply.status(), reply.message.len()),
            (NtStatus::SUCCESS, 80 + (8 << 20))
        );
    }
    drop((raw, other));
    serve.settles_at((0, 0));
}
