//! Messages that no client sends: the server answers or ends the connection, and serves others.

use ropeway_smb_wire::{NtStatus, Writer};
use ropeway_smb1::wire::transaction::{Kind, Limits, Piece, Request, Totals};
use ropeway_smb1::{AndX, Command, Str, write_block};

use crate::old::{Old, server};

const READ: u32 = 0x8000_0000;

/// Returns valid messages of many kinds.
fn samples(old: &mut Old, fid: u16) -> Vec<Vec<u8>> {
    let request = Old::open_request("\\other", READ, 7, 3);
    let mut samples = vec![
        old.message(Command::NT_CREATE_ANDX, |w| request.encode(w)),
        old.write_message(fid, 3, b"some data"),
        old.rename_message("\\none", "\\other"),
    ];
    let pattern: Vec<u8> = "\\*\0".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let find = [&[0x16, 0, 100, 0, 6, 0, 4, 1, 0, 0, 0, 0][..], &pattern].concat();
    let path = [&[7, 1, 0, 0, 0, 0][..], &pattern].concat();
    let file = [fid.to_le_bytes(), 0x107_u16.to_le_bytes()].concat();
    let rename = [&fid.to_le_bytes()[..], &1010_u16.to_le_bytes(), &[0, 0]].concat();
    let new_name = [&[0; 8][..], &4_u32.to_le_bytes(), b"a\0b\0"].concat();
    for (setup, parameters, data) in [
        (1, &find, &[][..]),
        (3, &vec![5, 1], &[]),
        (5, &path, &[]),
        (7, &file, &[]),
        (8, &rename, &new_name),
    ] {
        let transaction = Request {
            kind: Kind::Two,
            name: Str::empty(true),
            flags: 0,
            timeout: 0,
            function: 0,
            setup: vec![setup],
            limits: Limits {
                parameters: 100,
                data: 10_000,
                setup: 0,
            },
            totals: Totals {
                parameters: parameters.len(),
                data: data.len(),
            },
            parameters,
            data,
        };
        samples.push(old.message(Command::TRANSACTION2, |w| transaction.encode(w)));
    }
    samples
}

#[test]
fn changed_messages_harm_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let serve = server(folder.path());
    let mut watched = Old::ready(serve.address);
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut old = Old::ready(serve.address);
        let fid = old.open("\\file", READ | 0x4000_0000, 7).unwrap();
        for mut message in samples(&mut old, fid) {
            for _ in 0..random.usize(1..5) {
                // Only what follows the status: most messages reach their command.
                let at = random.usize(32..message.len());
                message[at] = random.u8(..);
            }
            if random.u8(..4) == 0 {
                message.truncate(random.usize(32..=message.len()));
            }
            old.send(&message);
        }
        // The last message ends the connection, after which all others have been executed.
        old.send(b"end");
        while old.receive().is_some() {}
    }
    assert!(watched.open("\\again", READ, 7).is_ok());
    drop(watched);
    serve.settles_at((0, 0));
}

#[test]
fn chains_and_offsets_outside_the_message_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let serve = server(folder.path());
    let mut old = Old::ready(serve.address);
    // A chain that leads nowhere, and one that leads to itself.
    for offset in [0_u16, 33, 40, 9_999, 0xFFFF] {
        let reply = old.call(Command::LOGOFF_ANDX, |w| {
            let words = |w: &mut Writer<'_>| {
                w.u8(Command::READ_ANDX.0);
                w.u8(0);
                w.u16(offset);
                w.u16(0);
            };
            write_block(w, words, |_| {});
        });
        let (header, _) = reply.unwrap();
        assert!(ropeway_smb1::dos_error::is_error(header.status), "{offset}");
    }
    let fid = old.open("\\file", READ, 7).unwrap();
    // A piece that lies outside the message.
    let reply = old.call(Command::TRANSACTION2, |w| {
        let words = |w: &mut Writer<'_>| {
            for word in [4, 0, 100, 100, 0, 0, 0, 0, 0, 4, 60_000, 0, 0] {
                w.u16(word);
            }
            w.u16(1);
            w.u16(7);
        };
        write_block(w, words, |_| {});
    });
    assert!(ropeway_smb1::dos_error::is_error(reply.unwrap().0.status));
    assert!(old.open("\\file", READ, 7).is_ok_and(|other| other != fid));
}

#[test]
fn secondary_requests_of_nothing_end_the_connection() {
    let folder = tempfile::tempdir().unwrap();
    let serve = server(folder.path());
    let mut old = Old::ready(serve.address);
    let piece = Piece {
        parameters: (0, b"abc"),
        totals: Totals {
            parameters: 9,
            data: 0,
        },
        ..Piece::default()
    };
    let message = old.message(Command::TRANSACTION2_SECONDARY, |w| {
        piece.encode_secondary(Kind::Two, 0, w);
    });
    old.send(&message);
    assert!(old.receive().is_none());
    serve.settles_at((0, 0));
}

#[test]
fn nothing_is_done_without_a_login() {
    let folder = tempfile::tempdir().unwrap();
    let serve = server(folder.path());
    let mut old = Old::connect(serve.address);
    old.negotiate(&["NT LM 0.12"]).unwrap();
    for message in samples(&mut old, 1) {
        old.send(&message);
        let status = old.status();
        assert!(ropeway_smb1::dos_error::is_error(status), "{status}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let logged_off = old.call(Command::LOGOFF_ANDX, |w| {
        write_block(
            w,
            |w| {
                w.u8(AndX::NONE.command.0);
                w.u8(0);
                w.u16(0);
            },
            |_| {},
        );
    });
    assert_ne!(logged_off.unwrap().0.status, NtStatus::SUCCESS);
    // A second negotiation ends the connection.
    assert!(old.negotiate(&["NT LM 0.12"]).is_none());
}
