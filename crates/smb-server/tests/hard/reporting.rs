//! What the server reports: network interfaces, audit records, failed deletions, spans.

use parking_lot::Mutex;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::Arc;

use ropeway_smb_proto::auth::ntlm::nt_hash;
use ropeway_smb_proto::secret::{NtHash, Password};
use ropeway_smb_server::{Audit, Record};
use ropeway_smb_wire::create::CreateOptions;
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::fsctl::interfaces::decode_interfaces;
use ropeway_smb_wire::fsctl::reparse::{ReparseData, Symlink, SymlinkFlags};
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::info::FileInfoClass;
use ropeway_smb_wire::ioctl::IoctlResponse;
use ropeway_smb_wire::{FileId, NtStatus, Text, Writer};
use tracing_subscriber::fmt::format::FmtSpan;

use crate::memory::alone;
use crate::raw::{Create, Raw};
use crate::samples;
use crate::serve::Serve;

#[test]
fn all_listening_interfaces_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::at("0.0.0.0:0", folder.path(), |_| {});
    let mut raw = Raw::ready((Ipv4Addr::LOCALHOST, serve.address.port()).into());
    let query = samples::control(FileId::RELATED, CtlCode::QUERY_NETWORK_INTERFACE_INFO, &[]);
    let reply = raw.call(Command::Ioctl, |w| w.bytes(&query));
    assert_eq!(reply.status(), NtStatus::SUCCESS);
    let output = IoctlResponse::decode(&mut reply.body()).unwrap().output.to_vec();
    let reported = decode_interfaces(&output).unwrap();
    assert!(reported.iter().all(|one| one.link_speed_bps > 0), "{reported:?}");
    let reported: Vec<IpAddr> = reported.iter().filter_map(|one| one.address).collect();
    // The client's own address comes first; other clients cannot use the loopback address.
    assert_eq!(reported[0], Ipv4Addr::LOCALHOST);
    let others = &reported[1..];
    assert!(
        others.iter().all(|one| one.is_ipv4() && !one.is_loopback()),
        "{reported:?}"
    );
    // Nothing is sent; the socket only selects a route.
    let away = UdpSocket::bind("0.0.0.0:0").unwrap();
    if away.connect("192.0.2.99:9").is_ok() {
        let here = away.local_addr().unwrap().ip();
        assert!(reported.contains(&here), "{here} of {reported:?}");
    }
}

/// Keeps audit records of changes: action, user, file, new name, status.
#[derive(Default)]
struct Changes(Mutex<Vec<(String, NtStatus)>>);

impl Audit for Changes {
    fn record(&self, record: &Record<'_>) {
        if matches!(record.action, "login" | "connect" | "open" | "create") {
            return;
        }
        let texts = [Some(record.action), record.user, record.path, record.target];
        let texts: Vec<_> = texts.into_iter().flatten().collect();
        let mut all = self.0.lock();
        all.push((texts.join(" "), record.status));
    }
}

#[test]
fn audit_records_say_who_changed_what() {
    let folder = tempfile::tempdir().unwrap();
    let changes = Arc::new(Changes::default());
    let audit = Arc::clone(&changes);
    let serve = Serve::with(folder.path(), |options| {
        let hash = *nt_hash(&Password::from("secret")).expose();
        options.config.accounts = Arc::new(move |_: &Text, _: &Text| Some(NtHash::from_bytes(hash)));
        options.audit = Some(audit);
    });
    let mut alice = Raw::ready(serve.address);
    let mut bob = Raw::connect(serve.address);
    bob.negotiate();
    assert_eq!(bob.log_in("bob", "secret"), NtStatus::SUCCESS);
    assert_eq!(bob.tree("data"), NtStatus::SUCCESS);
    // The user who deletes is not the one who closes last.
    let (file, held) = (
        alice.create(&Create::of("file")).unwrap(),
        bob.create(&Create::of("file")).unwrap(),
    );
    let delete = samples::set_info(file, FileInfoClass::Disposition, &[1]);
    assert_eq!(alice.set_info(&delete), NtStatus::SUCCESS);
    assert_eq!(alice.close(file), NtStatus::SUCCESS);
    assert_eq!(bob.close(held), NtStatus::SUCCESS);
    let stream = bob.create(&Create::of("other:stream")).unwrap();
    let delete = samples::set_info(stream, FileInfoClass::Disposition, &[1]);
    assert_eq!(bob.set_info(&delete), NtStatus::SUCCESS);
    assert_eq!(bob.close(stream), NtStatus::SUCCESS);
    let linked = alice.create(&Create::of("linked")).unwrap();
    assert_eq!(alice.link(linked, "again", false), NtStatus::SUCCESS);
    let taken = alice.link(linked, "other", false);
    assert_eq!(taken, NtStatus::OBJECT_NAME_COLLISION);
    let pointer = alice.create(&Create::of("pointer")).unwrap();
    let data = ReparseData::Symlink(Symlink {
        substitute_name: "other".into(),
        print_name: "other".into(),
        flags: SymlinkFlags::RELATIVE,
    });
    let mut input = Vec::new();
    data.encode(&mut Writer::new(&mut input));
    let pointed = alice.control(pointer, CtlCode::SET_REPARSE_POINT, &input);
    assert_eq!(pointed.status(), NtStatus::SUCCESS);
    alice.protect("other", "D:(A;;FA;;;WD)");
    let expected = [
        ("delete alice file", NtStatus::SUCCESS),
        ("delete bob other:stream", NtStatus::SUCCESS),
        ("link alice linked again", NtStatus::SUCCESS),
        ("link alice linked", NtStatus::OBJECT_NAME_COLLISION),
        ("reparse alice pointer", NtStatus::SUCCESS),
        ("security alice other", NtStatus::SUCCESS),
    ];
    let reported = changes.0.lock();
    let reported: Vec<_> = reported
        .iter()
        .map(|(text, status)| (text.as_str(), *status))
        .collect();
    assert_eq!(reported, expected);
}

/// A client that marks a file for deletion learns at once that it cannot be deleted, as from
/// Windows and smbd. Most clients ignore the status of CLOSE.
#[test]
fn an_impossible_deletion_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let fixed = folder.path().join("fixed");
    std::fs::create_dir(&fixed).unwrap();
    std::fs::write(fixed.join("file"), "kept").unwrap();
    let immutable = |flag: &str| {
        let changed = std::process::Command::new("chattr")
            .arg(flag)
            .arg(&fixed)
            .output();
        changed.is_ok_and(|output| output.status.success())
    };
    if !immutable("+i") {
        println!("skipped: chattr +i does not work here");
        return;
    }
    let serve = Serve::with(folder.path(), |_| {});
    let mut raw = Raw::ready(serve.address);
    let file = raw.create(&Create::of("fixed\\file")).unwrap();
    let delete = samples::set_info(file, FileInfoClass::Disposition, &[1]);
    let marked = raw.set_info(&delete);
    let closed = raw.close(file);
    let mut on_close = Create::of("fixed\\file");
    on_close.options |= CreateOptions::DELETE_ON_CLOSE;
    let opened = raw.create(&on_close);
    assert!(immutable("-i"));
    assert_eq!((marked, closed), (NtStatus::ACCESS_DENIED, NtStatus::SUCCESS));
    assert_eq!(opened, Err(NtStatus::ACCESS_DENIED));
    assert_eq!(std::fs::read(fixed.join("file")).unwrap(), b"kept");
}

/// Log output of this process.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn spans_lead_from_a_connection_to_its_requests() {
    alone("reporting::spans_lead_from_a_connection_to_its_requests", || {
        let (log, folder) = (Log::default(), tempfile::tempdir().unwrap());
        let writer = log.clone();
        tracing_subscriber::fmt()
            .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
            .with_span_events(FmtSpan::NEW)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .init();
        let serve = Serve::start(folder.path());
        let mut raw = Raw::ready(serve.address);
        let message_id = raw.next_id;
        raw.create(&Create::of("file")).unwrap();
        let log = String::from_utf8(log.0.lock().clone()).unwrap();
        let peer = raw.socket.local_addr().unwrap();
        let span =
            format!("connection{{id=1 peer={peer}}}:request{{command=Create message_id={message_id}}}");
        assert!(log.contains(&span), "{span} is not in\n{log}");
    });
}
