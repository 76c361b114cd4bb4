//! Malformed, oversized, overlapping and out-of-state messages. Each gets the status that [MS-SMB2]
//! names, or ends its connection. The server continues.

use ropeway_smb_wire::create::{AccessMask, CreateOptions};
use ropeway_smb_wire::create_context::RequestContext;
use ropeway_smb_wire::header::{Command, FLAGS_OFFSET, HEADER_LEN, Header, SIGNATURE_OFFSET};
use ropeway_smb_wire::session_setup::SessionSetupRequest;
use ropeway_smb_wire::{FileId, NtStatus, Reader, SessionId, TreeId};

use crate::raw::{Create, Raw};
use crate::samples;
use crate::serve::Serve;

/// A connection with an open file and an open folder.
struct Ready {
    raw: Raw,
    samples: Vec<(Command, Vec<u8>)>,
}

impl Ready {
    fn new(serve: &Serve) -> Self {
        let mut raw = Raw::ready(serve.address);
        let file = raw.create(&Create::of("file")).unwrap();
        let mut folder = Create::of("folder");
        folder.options = CreateOptions::DIRECTORY_FILE;
        let folder = raw.create(&folder).unwrap();
        let samples = samples::all(file, folder);
        Self { raw, samples }
    }
}

/// Sends a body after a valid, signed header.
fn sent(raw: &mut Raw, command: Command, body: &[u8]) -> Option<Vec<Header>> {
    let message = raw.message(command, |w| w.bytes(body));
    raw.probe(&message)
}

/// Sends all variants of all commands, with a new connection whenever one becomes unusable.
fn throw(serve: &Serve, variants: impl Fn(&[u8]) -> Vec<Vec<u8>>, check: impl Fn(Command, &[u8], &[Header])) {
    let mut other = Raw::ready(serve.address);
    let count = Ready::new(serve).samples.len();
    for index in 0..count {
        let mut ready = Ready::new(serve);
        let (_, whole) = ready.samples[index].clone();
        let number = variants(&whole).len();
        for variant in 0..number {
            let (command, body) = ready.samples[index].clone();
            let body = variants(&body).swap_remove(variant);
            let answer = sent(&mut ready.raw, command, &body);
            if let Some(headers) = &answer {
                check(command, &body, headers);
            }
            let is_fine = |headers: &Vec<Header>| {
                headers
                    .last()
                    .is_some_and(|header| header.status == NtStatus::SUCCESS)
            };
            let is_spent = matches!(command, Command::Close | Command::TreeDisconnect);
            if is_spent || !answer.as_ref().is_some_and(is_fine) {
                ready = Ready::new(serve);
            }
        }
        assert_eq!(other.echo(), NtStatus::SUCCESS, "others are served");
        let file = other.create(&Create::of("other")).unwrap();
        assert_eq!(other.close(file), NtStatus::SUCCESS);
    }
    drop(other);
    serve.settles_at((0, 0));
}

#[test]
fn truncated_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::with(folder.path(), |options| options.limits.durable_timeout_ms = 1);
    let cuts = |body: &[u8]| (0..body.len()).map(|length| body[..length].to_vec()).collect();
    throw(&serve, cuts, |command, body, headers| {
        let first = headers[0];
        // No request of that command is so short.
        if body.len() < 4 {
            assert_eq!(first.command, command);
            assert_eq!(
                first.status,
                NtStatus::INVALID_PARAMETER,
                "{command:?} of {} bytes",
                body.len()
            );
        }
    });
}

#[test]
fn lengths_counts_and_offsets_of_any_size() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::with(folder.path(), |options| options.limits.durable_timeout_ms = 1);
    let damaged = |body: &[u8]| {
        let mut all = Vec::new();
        let end = (HEADER_LEN + body.len()) as u16;
        for at in (0..body.len().saturating_sub(1)).step_by(2) {
            for value in [0_u16, 1, 63, 64, end - 1, end, 0x7FFF, 0xFFFF] {
                let mut body = body.to_vec();
                body[at..at + 2].copy_from_slice(&value.to_le_bytes());
                all.push(body);
            }
            if at + 4 <= body.len() {
                let mut body = body.to_vec();
                body[at..at + 4].fill(0xFF);
                all.push(body);
            }
        }
        all
    };
    throw(&serve, damaged, |_, _, _| {});
}

#[test]
fn nothing_but_negotiate_comes_first() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    for (command, body) in samples::all(FileId::default(), FileId::default()) {
        let mut raw = Raw::connect(serve.address);
        let outcome = raw.try_call(command, |w| w.bytes(&body));
        assert!(
            outcome.is_none(),
            "{command:?} before NEGOTIATE ends the connection"
        );
    }
}

#[test]
fn without_a_session_a_tree_or_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    for (command, body) in samples::all(FileId::default(), FileId::default()) {
        // [MS-SMB2] 3.3.5.2.9.
        let mut raw = Raw::connect(serve.address);
        raw.negotiate();
        let expected = match command {
            Command::Echo => NtStatus::SUCCESS,
            _ => NtStatus::USER_SESSION_DELETED,
        };
        assert_eq!(
            raw.call(command, |w| w.bytes(&body)).status(),
            expected,
            "{command:?}"
        );
        raw.session = SessionId(77);
        let expected = NtStatus::USER_SESSION_DELETED;
        assert_eq!(
            raw.call(command, |w| w.bytes(&body)).status(),
            expected,
            "{command:?}"
        );
        // [MS-SMB2] 3.3.5.2.11.
        let mut raw = Raw::ready(serve.address);
        raw.tree = TreeId(77);
        let in_tree = !matches!(
            command,
            Command::Echo | Command::Logoff | Command::TreeConnect | Command::OplockBreak
        );
        if in_tree {
            let expected = NtStatus::NETWORK_NAME_DELETED;
            assert_eq!(
                raw.call(command, |w| w.bytes(&body)).status(),
                expected,
                "{command:?}"
            );
        }
    }
    let mut raw = Raw::ready(serve.address);
    let file = raw.create(&Create::of("file")).unwrap();
    assert_eq!(raw.close(file), NtStatus::SUCCESS);
    for (command, body) in samples::all(file, file) {
        let on_file = matches!(
            command,
            Command::Close
                | Command::Flush
                | Command::Read
                | Command::Write
                | Command::Lock
                | Command::QueryDirectory
                | Command::ChangeNotify
                | Command::QueryInfo
                | Command::SetInfo
        );
        if on_file {
            let status = raw.call(command, |w| w.bytes(&body)).status();
            assert_eq!(status, NtStatus::FILE_CLOSED, "{command:?}");
        }
    }
    assert_eq!(
        raw.call(Command::Logoff, |w| w.u32(4)).status(),
        NtStatus::SUCCESS
    );
    assert_eq!(
        raw.call(Command::Flush, |w| w.u32(4)).status(),
        NtStatus::USER_SESSION_DELETED
    );
}

#[test]
fn another_session_sees_no_handles() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let mut raw = Raw::ready(serve.address);
    let file = raw.create(&Create::of("file")).unwrap();
    let mut thief = Raw::ready(serve.address);
    let status = thief
        .call(Command::Read, |w| w.bytes(&samples::read(file, 10)))
        .status();
    assert_eq!(status, NtStatus::FILE_CLOSED);
    assert_eq!(thief.close(file), NtStatus::FILE_CLOSED);
    // A session cannot be used on a connection that it was not bound to.
    thief.session = raw.session;
    thief.signer = None;
    assert_eq!(thief.close(file), NtStatus::USER_SESSION_DELETED);
    assert_eq!(raw.close(file), NtStatus::SUCCESS);
}

#[test]
fn unknown_commands_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let mut raw = Raw::ready(serve.address);
    for code in [0x0013, 0x0014, 0x00FF, 0xFFFF] {
        let reply = raw.call(Command::from_code(code), |w| w.u32(4));
        assert_eq!(reply.status(), NtStatus::INVALID_PARAMETER, "{code:#x}");
    }
}

/// Checks that something ends a connection that is ready.
fn ends(serve: &Serve, what: &str, does: impl FnOnce(&mut Raw)) {
    let mut raw = Raw::ready(serve.address);
    does(&mut raw);
    while let Some(reply) = raw.receive() {
        let header = Header::decode(&mut ropeway_smb_wire::Reader::new(&reply, "header")).unwrap();
        assert_ne!(header.command, Command::Negotiate, "{what}");
    }
}

#[test]
fn what_ends_a_connection() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    ends(&serve, "a second NEGOTIATE", |raw| {
        let message = raw.message(Command::Negotiate, |w| w.zeros(36));
        raw.send(&message);
    });
    ends(&serve, "a response", |raw| {
        let mut message = raw.message(Command::Echo, |w| w.u32(4));
        message[FLAGS_OFFSET] |= 1;
        raw.sign(&mut message);
        raw.send(&message);
    });
    ends(&serve, "an id used twice", |raw| {
        raw.next_id -= 1;
        let message = raw.message(Command::Echo, |w| w.u32(4));
        raw.send(&message);
    });
    ends(&serve, "an id not granted", |raw| {
        raw.next_id += 100_000;
        let message = raw.message(Command::Echo, |w| w.u32(4));
        raw.send(&message);
    });
    ends(&serve, "a charge beyond what is granted", |raw| {
        raw.charge = u16::MAX;
        let message = raw.message(Command::Echo, |w| w.u32(4));
        raw.send(&message);
    });
    for frame in [
        &b"GET / HTTP/1.0\r\n\r\n"[..],
        b"\xFDSMB",
        b"\xFCSMB",
        b"\xFESMB",
        b"\xFFSMB",
        b"",
        b"\xFE",
    ] {
        ends(&serve, "no message", |raw| raw.send(frame));
    }
    for id in [b"\xFDSMB", b"\xFCSMB", b"\xFESMB", b"\xFFSMB"] {
        ends(&serve, "zeros", |raw| {
            let mut frame = [0; 200];
            frame[..4].copy_from_slice(id);
            raw.send(&frame);
        });
    }
    ends(&serve, "sealed for a session without keys", |raw| {
        let mut frame = [0; 200];
        frame[..4].copy_from_slice(b"\xFDSMB");
        frame[36..40].copy_from_slice(&148_u32.to_le_bytes());
        frame[42] = 1;
        frame[44..52].copy_from_slice(&raw.session.0.to_le_bytes());
        raw.send(&frame);
    });
    for next in [1_u32, 8, 56, 63, 64, 65, 72, 1 << 20, u32::MAX, u32::MAX - 7] {
        ends(&serve, "a malformed compound", |raw| {
            let mut message = raw.message(Command::Echo, |w| w.u32(4));
            message[20..24].copy_from_slice(&next.to_le_bytes());
            raw.sign(&mut message);
            raw.send(&message);
        });
    }
    serve.settles_at((0, 0));
}

#[test]
fn long_frames_only_after_a_login() {
    use std::io::Write;
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    for negotiated in [false, true] {
        let mut raw = Raw::connect(serve.address);
        if negotiated {
            raw.negotiate();
        }
        raw.socket.write_all(&(129_u32 << 10).to_be_bytes()).unwrap();
        assert!(raw.receive().is_none());
    }
    let mut raw = Raw::ready(serve.address);
    raw.socket.write_all(&0x00FF_FFFF_u32.to_be_bytes()).unwrap();
    assert!(raw.receive().is_none(), "more than was agreed on");
    let mut raw = Raw::ready(serve.address);
    raw.socket.write_all(&[0x85, 0, 0, 0]).unwrap();
    assert!(raw.receive().is_none(), "no direct TCP");
}

#[test]
fn signatures() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let mut raw = Raw::ready(serve.address);
    // [MS-SMB2] 3.3.5.2.4.
    let mut message = raw.message(Command::Flush, |w| w.zeros(24));
    message[SIGNATURE_OFFSET] ^= 1;
    let headers = raw.probe(&message).unwrap();
    assert_eq!(headers[0].status, NtStatus::ACCESS_DENIED);
    let signer = raw.signer.take();
    let message = raw.message(Command::Flush, |w| w.zeros(24));
    raw.signer = signer;
    let headers = raw.probe(&message).unwrap();
    assert_eq!(headers[0].status, NtStatus::ACCESS_DENIED);
}

/// [MS-SMB2] 3.3.5.5: a login is renewed with the session's key, and a failure ends the session.
#[test]
fn renewals() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let mut raw = Raw::ready(serve.address);
    let file = raw.create(&Create::of("file")).unwrap();
    assert_eq!(raw.log_in("alice", "secret"), NtStatus::SUCCESS);
    assert_eq!(serve.handle.sizes(), (1, 1));
    let signer = raw.signer.take();
    assert_eq!(raw.log_in("alice", "secret"), NtStatus::ACCESS_DENIED);
    assert_eq!(raw.log_in("alice", "wrong"), NtStatus::ACCESS_DENIED);
    raw.signer = signer;
    let status = raw
        .call(Command::Read, |w| w.bytes(&samples::read(file, 0)))
        .status();
    assert_eq!(status, NtStatus::SUCCESS);
    assert_eq!(raw.log_in("alice", "wrong"), NtStatus::LOGON_FAILURE);
    assert_eq!(raw.close(file), NtStatus::USER_SESSION_DELETED);
    serve.settles_at((0, 0));
}

#[test]
fn logins_of_any_form() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let request = SessionSetupRequest {
        flags: Default::default(),
        security_mode: Default::default(),
        capabilities: Default::default(),
        previous_session_id: SessionId::default(),
        security_buffer: &[0x60, 0x48, 0x06, 0x06, 0x2b, 6, 1, 5, 5, 2],
    };
    let whole = samples::body(|w| request.encode(w));
    for length in 0..whole.len() {
        let mut raw = Raw::connect(serve.address);
        raw.negotiate();
        let reply = raw.call(Command::SessionSetup, |w| w.bytes(&whole[..length]));
        assert!(reply.status().is_error());
        if length < 24 {
            assert_eq!(reply.status(), NtStatus::INVALID_PARAMETER);
        }
        // A successful login clears the failures.
        assert_eq!(raw.log_in("alice", "secret"), NtStatus::SUCCESS);
    }
}

#[test]
fn compounds_of_any_form() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let mut raw = Raw::ready(serve.address);
    // [MS-SMB2] 3.3.5.2.7.2: the first request cannot be related.
    let first = raw.message(Command::Echo, |w| w.u32(4));
    let mut frame = raw.compound(vec![first], false);
    frame[FLAGS_OFFSET] |= 4;
    raw.sign(&mut frame);
    assert_eq!(raw.probe(&frame).unwrap()[0].status, NtStatus::INVALID_PARAMETER);
    // A failed request fails the related ones after it.
    let mut missing = Create::of("no\\such\\file");
    missing.access = AccessMask::READ_DATA;
    let request = missing.request();
    let messages = vec![
        raw.message(Command::Create, |w| request.encode(w)),
        raw.message(Command::Read, |w| w.bytes(&samples::read(FileId::RELATED, 10))),
        raw.message(Command::Close, |w| crate::raw::close_body(w, FileId::RELATED)),
    ];
    let frame = raw.compound(messages, true);
    let statuses: Vec<_> = raw
        .probe(&frame)
        .unwrap()
        .iter()
        .map(|header| header.status)
        .collect();
    assert_eq!(statuses[..3], [NtStatus::OBJECT_PATH_NOT_FOUND; 3]);
    // An unknown file id.
    let messages = vec![
        raw.message(Command::Echo, |w| w.u32(4)),
        raw.message(Command::Read, |w| w.bytes(&samples::read(FileId::RELATED, 10))),
    ];
    let frame = raw.compound(messages, true);
    let statuses: Vec<_> = raw
        .probe(&frame)
        .unwrap()
        .iter()
        .map(|header| header.status)
        .collect();
    assert_eq!(statuses[..2], [NtStatus::SUCCESS, NtStatus::FILE_CLOSED]);
}

/// [MS-SMB2] 3.3.5.2.7.2: a related request uses the file of the previous one, whatever id it
/// contains.
#[test]
fn a_related_request_uses_the_file_of_its_compound() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a"), "of the chain").unwrap();
    std::fs::write(folder.path().join("b"), "of another").unwrap();
    let serve = Serve::start(folder.path());
    let mut raw = Raw::ready(serve.address);
    let other = raw.create(&Create::of("b")).unwrap();
    let unknown = FileId {
        persistent: 77,
        volatile: 78,
    };
    for named in [other, unknown] {
        let chained = Create::of("a");
        let request = chained.request();
        let messages = vec![
            raw.message(Command::Create, |w| request.encode(w)),
            raw.message(Command::Read, |w| w.bytes(&samples::read(named, 100))),
            raw.message(Command::Close, |w| crate::raw::close_body(w, named)),
        ];
        let frame = raw.compound(messages, true);
        raw.send(&frame);
        let answer = raw.receive().unwrap();
        let statuses: Vec<_> = ropeway_smb_wire::header::CompoundMessages::new(&answer)
            .map(|message| {
                Header::decode(&mut Reader::new(message.unwrap(), "header"))
                    .unwrap()
                    .status
            })
            .collect();
        assert_eq!(statuses, [NtStatus::SUCCESS; 3]);
        assert!(answer.windows(12).any(|bytes| bytes == b"of the chain"));
    }
    assert_eq!(raw.close(other), NtStatus::SUCCESS);
}

/// Found by `cargo xtask attack server`: the size was rounded up beyond 64 bits.
#[test]
fn a_reservation_of_any_size() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let mut raw = Raw::ready(serve.address);
    for (number, bytes) in [u64::MAX, u64::MAX - 4094, 1 << 63].into_iter().enumerate() {
        let mut create = Create::of(format!("file{number}").as_str());
        create.contexts = vec![RequestContext::AllocationSize(bytes)];
        // Whether it fits depends on the volume.
        if let Ok(file) = raw.create(&create) {
            assert_eq!(raw.close(file), NtStatus::SUCCESS);
        }
    }
    assert_eq!(raw.echo(), NtStatus::SUCCESS);
}
