//! Slow and dead clients, guessed passwords, and responses that are not read.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::negotiate::SecurityMode;
use ropeway_smb_wire::session_setup::SessionSetupRequest;
use ropeway_smb_wire::{FileId, Guid, NtStatus};

use crate::memory::{alone, resident};
use crate::raw::{Create, Raw, spnego};
use crate::samples;
use crate::serve::Serve;

/// Checks that another client is served normally.
fn is_served(serve: &Serve) {
    let begins = Instant::now();
    let mut raw = Raw::ready(serve.address);
    let file = raw.create(&Create::of("other")).unwrap();
    let write = samples::write(file, 0, b"content");
    assert_eq!(
        raw.call(Command::Write, |w| w.bytes(&write)).status(),
        NtStatus::SUCCESS
    );
    assert_eq!(raw.close(file), NtStatus::SUCCESS);
    assert!(begins.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_partial_frame() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let mut all = Vec::new();
    for length in [0, 1, 3, 4, 5, 40, 100] {
        let mut raw = Raw::ready(serve.address);
        let file = raw.create(&Create::of("file")).unwrap();
        let write = samples::write(file, 0, &[7; 1 << 16]);
        let message = raw.message(Command::Write, |w| w.bytes(&write));
        let mut bytes = (message.len() as u32).to_be_bytes().to_vec();
        bytes.extend_from_slice(&message);
        raw.socket.write_all(&bytes[..length]).unwrap();
        all.push((raw, bytes, length));
    }
    is_served(&serve);
    // Late responses still arrive.
    for (raw, bytes, length) in &mut all {
        for chunk in bytes[*length..].chunks(9000) {
            raw.socket.write_all(chunk).unwrap();
        }
        assert_eq!(raw.reply().unwrap().status(), NtStatus::SUCCESS);
    }
    drop(all);
    serve.settles_at((0, 0));
}

/// Sends a request byte by byte.
#[test]
fn a_slow_sender() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let mut raw = Raw::ready(serve.address);
    let message = raw.message(Command::Echo, |w| w.u32(4));
    let mut bytes = (message.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(&message);
    for byte in &bytes {
        raw.socket.write_all(&[*byte]).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(raw.reply().unwrap().status(), NtStatus::SUCCESS);
}

/// Connections without a login do not keep others out.
#[test]
fn connections_without_a_login() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let mut ready = Raw::ready(serve.address);
    let all: Vec<_> = (0..600)
        .filter_map(|_| TcpStream::connect_timeout(&serve.address, Duration::from_secs(5)).ok())
        .collect();
    assert_eq!(all.len(), 600);
    // 256 connections of one address are accepted, the others are closed at once.
    let open = || {
        let open = all.iter().filter(|socket| {
            socket.set_nonblocking(true).unwrap();
            let outcome = socket.peek(&mut [0]);
            outcome.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
        });
        open.count()
    };
    for _ in 0..200 {
        if open() <= 256 {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(
        ready.echo(),
        NtStatus::SUCCESS,
        "those who are logged in are served"
    );
    assert_eq!(open(), 256);
    drop(all);
    std::thread::sleep(Duration::from_millis(500));
    is_served(&serve);
}

/// Parallel guesses are executed one after the other.
#[test]
fn guessing_is_slow() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let begins = Instant::now();
    let guesses: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let mut guesses = 0;
                    while begins.elapsed() < Duration::from_secs(4) {
                        let mut raw = Raw::connect(serve.address);
                        raw.negotiate();
                        // A client that disconnects without waiting for the response gains nothing.
                        let patience = Some(Duration::from_millis(200));
                        raw.socket.set_read_timeout(patience).unwrap();
                        raw.may_be_silent = true;
                        let outcome = raw.log_in_with("alice", "wrong", Default::default());
                        guesses += u32::from(outcome == Some(NtStatus::LOGON_FAILURE));
                    }
                    guesses
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let sum: u32 = guesses.iter().sum();
    assert!(sum < 20, "{sum} guesses in 4 seconds");
}

/// A login counts from its beginning, so many that begin before the first failure gain nothing.
#[test]
fn parallel_guesses_wait_too() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let mut all: Vec<_> = (0..40).map(|_| Raw::connect(serve.address)).collect();
    for raw in &mut all {
        raw.negotiate();
    }
    for raw in &mut all {
        let token = spnego("alice", "wrong").start(&[]).unwrap();
        let request = SessionSetupRequest {
            flags: Default::default(),
            security_mode: SecurityMode::SIGNING_ENABLED,
            capabilities: Default::default(),
            previous_session_id: Default::default(),
            security_buffer: &token,
        };
        let message = raw.message(Command::SessionSetup, |w| request.encode(w));
        raw.send(&message);
    }
    let answered = || {
        let answered = all.iter().filter(|raw| {
            raw.socket.set_nonblocking(true).unwrap();
            raw.socket.peek(&mut [0]).is_ok()
        });
        answered.count()
    };
    for _ in 0..200 {
        if answered() > 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    std::thread::sleep(Duration::from_millis(500));
    let answered = answered();
    assert!((1..14).contains(&answered), "{answered} of 40");
}

/// The files of a lost connection are closed.
#[test]
fn clients_that_leave() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    for _ in 0..50 {
        let mut raw = Raw::ready(serve.address);
        for number in 0..20 {
            raw.create(&Create::of(format!("file {number}").as_str()))
                .unwrap();
        }
        let message = raw.message(Command::Read, |w| w.bytes(&samples::read(FileId::default(), 1)));
        raw.send(&message);
    }
    serve.settles_at((0, 0));
}

/// Guesses at one account between successful logins to another one.
#[test]
fn own_logins_do_not_speed_up_guessing() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let end = Instant::now() + Duration::from_secs(4);
    let mut guesses = 0;
    while Instant::now() < end {
        for user in ["victim", "victim", "alice"] {
            let mut raw = Raw::connect(serve.address);
            // Each guess comes from another client.
            raw.guid = Guid(std::array::from_fn(|at| (guesses >> (at % 4 * 8)) as u8 | 1));
            assert_eq!(raw.negotiate().status(), NtStatus::SUCCESS);
            let expected = match user {
                "alice" => NtStatus::SUCCESS,
                _ => NtStatus::LOGON_FAILURE,
            };
            assert_eq!(raw.log_in(user, "secret"), expected);
            guesses += u32::from(user == "victim");
        }
    }
    assert!(guesses < 16, "{guesses} guesses in 4 s");
}

/// Guesses from the same address do not lock out a client that has logged in before.
#[test]
fn a_known_client_can_log_in_while_others_guess() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let connect = |guid| {
        let mut raw = Raw::connect(serve.address);
        raw.guid = Guid([guid; 16]);
        raw.may_be_silent = true;
        assert_eq!(raw.negotiate().status(), NtStatus::SUCCESS);
        raw
    };
    assert_eq!(connect(1).log_in("alice", "secret"), NtStatus::SUCCESS);
    std::thread::scope(|scope| {
        let guessers: Vec<_> = (0..30)
            .map(|_| {
                let mut raw = connect(2);
                let socket = raw.socket.try_clone().unwrap();
                scope.spawn(move || {
                    // Until the server closes the connection.
                    while raw.log_in_with("alice", "wrong", Default::default()).is_some() {}
                });
                socket
            })
            .collect();
        std::thread::sleep(Duration::from_secs(2));
        let begins = Instant::now();
        assert_eq!(connect(1).log_in("alice", "secret"), NtStatus::SUCCESS);
        let took = begins.elapsed();
        for socket in guessers {
            _ = socket.shutdown(std::net::Shutdown::Both);
        }
        assert!(took < Duration::from_secs(5), "it took {took:?}");
    });
}

/// The responses that clients do not receive are limited for all of them together; then their
/// connections end.
#[test]
fn many_clients_that_read_nothing() {
    const CLIENTS: usize = 24;
    const READ: u32 = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), vec![7; READ as usize]).unwrap();
    let serve = Serve::with(folder.path(), |options| {
        options.unsent_max = 16 << 20;
        options.send_timeout = Duration::from_secs(6);
    });
    let mut reader = Raw::ready(serve.address);
    let silent: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut raw = Raw::ready(serve.address);
            let file = raw.create(&Create::of("file")).unwrap();
            raw.charge = 16;
            for _ in 0..12 {
                let read = samples::read(file, READ);
                let message = raw.message(Command::Read, |w| w.bytes(&read));
                raw.send(&message);
            }
            raw
        })
        .collect();
    let file = reader.create(&Create::of("file")).unwrap();
    let mut most = 0;
    let begins = Instant::now();
    while serve.handle.sizes().0 > 1 {
        assert!(begins.elapsed() < Duration::from_secs(20), "they stay: {most}");
        most = most.max(serve.handle.unsent());
        // A client that receives its responses is served meanwhile.
        reader.charge = 1;
        let read = samples::read(file, 1000);
        assert_eq!(
            reader.call(Command::Read, |w| w.bytes(&read)).status(),
            NtStatus::SUCCESS
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    // The limit, and one response of each client.
    let bound = (16 << 20) + (CLIENTS + 1) * (READ as usize + 1000);
    assert!(most > 4 << 20 && most < bound, "{most} bytes of answers");
    assert!(serve.handle.unsent() < 1 << 20);
    drop(silent);
}

/// Memory of responses that were never received is returned to the system after the connections
/// end.
#[test]
fn memory_of_unread_responses_is_released() {
    alone("slow_clients::memory_of_unread_responses_is_released", || {
        const CLIENTS: usize = 24;
        const READ: u32 = 100 << 10;
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), vec![7; READ as usize]).unwrap();
        let serve = Serve::with(folder.path(), |options| {
            options.release_memory = Some(ropeway_local::give_back_memory);
        });
        let before = resident();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let mut raw = Raw::ready(serve.address);
                let file = raw.create(&Create::of("file")).unwrap();
                raw.charge = 2;
                for _ in 0..100 {
                    let read = samples::read(file, READ);
                    let message = raw.message(Command::Read, |w| w.bytes(&read));
                    raw.send(&message);
                }
                raw
            })
            .collect();
        let ends = Instant::now() + Duration::from_secs(10);
        while serve.handle.unsent() < CLIENTS * (4 << 20) && Instant::now() < ends {
            std::thread::sleep(Duration::from_millis(50));
        }
        let most = resident().saturating_sub(before);
        assert!(most > CLIENTS * (4 << 20), "{most} bytes at the most");
        // Further clients, whose memory lies after that of the others.
        let others: Vec<_> = (0..CLIENTS).map(|_| Raw::ready(serve.address)).collect();
        drop(clients);
        serve.settles_at((CLIENTS, 0));
        let ends = Instant::now() + Duration::from_secs(10);
        let mut left = most;
        while left > most / 8 && Instant::now() < ends {
            std::thread::sleep(Duration::from_millis(50));
            left = resident().saturating_sub(before);
        }
        assert!(left <= most / 8, "{left} of {most} bytes are kept");
        drop(others);
    });
}
