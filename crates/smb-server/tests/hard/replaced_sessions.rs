//! A session that replaces another: what the old one had begun is done before.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_local::{LocalStore, StoreOptions};
use ropeway_smb_server::Share;
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::{FileId, NtStatus};
use ropeway_vfs::decorate::traced_store::TracedStore;
use ropeway_vfs::trace::{Observer, Record};

use crate::put_files;
use crate::raw::{Create, Raw};
use crate::samples;
use crate::serve::Serve;

/// Time in which a login that does not wait would be done many times over.
const SOON: Duration = Duration::from_millis(500);

/// Keeps each write from its end until the test allows it.
struct HeldWrites {
    begun: Mutex<Sender<()>>,
    ends: Mutex<Receiver<()>>,
}

impl Observer for HeldWrites {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn record(&self, record: Record<'_>) {
        if record.kind == "write" {
            _ = self.begun.lock().send(());
            // Dropping the sender at the end of the test also lets the write go on.
            _ = self.ends.lock().recv();
        }
    }
}

fn serve(folder: &Path) -> (Serve, Receiver<()>, Sender<()>) {
    let ((begin, begun), (end, ends)) = (channel(), channel());
    let held = HeldWrites {
        begun: Mutex::new(begin),
        ends: Mutex::new(ends),
    };
    let store = Arc::new(LocalStore::open(folder, &StoreOptions::default()).unwrap());
    let store = TracedStore::wrap(store, Arc::new(held), "");
    let serve = Serve::with(folder, |options| options.shares = vec![Share::new("data", store)]);
    (serve, begun, end)
}

#[test]
fn a_login_waits_for_the_writes_of_the_session_that_it_replaces() {
    let folder = tempfile::tempdir().unwrap();
    let (serve, begun, end) = serve(folder.path());
    let mut old = Raw::ready(serve.address);
    let file = old.create(&Create::of("file")).unwrap();
    let write = samples::write(file, 0, b"old");
    let sent = old.next_id;
    let message = old.message(Command::Write, |w| w.bytes(&write));
    old.send(&message);
    begun.recv().unwrap();

    let mut new = Raw::connect(serve.address);
    assert_eq!(new.negotiate().status(), NtStatus::SUCCESS);
    new.previous = old.session;
    let (tell, told) = channel();
    thread::scope(|scope| {
        scope.spawn(|| tell.send(new.log_in("alice", "secret")));
        assert!(
            told.recv_timeout(SOON).is_err(),
            "the login did not wait for the write"
        );
        end.send(()).unwrap();
        assert_eq!(told.recv().unwrap(), NtStatus::SUCCESS);
    });
    let first = old.reply().unwrap();
    assert_eq!(first.header.message_id.0, sent);
    // What the old session asks for from now on has no effect.
    let late = samples::write(file, 0, b"late");
    let reply = old.call(Command::Write, |w| w.bytes(&late));
    assert_eq!(reply.status(), NtStatus::USER_SESSION_DELETED);
    assert_eq!(std::fs::read(folder.path().join("file")).unwrap(), b"old");
}

/// A worker makes many files for one request: it stops where another session takes over.
#[test]
fn files_of_a_replaced_session_are_not_made_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let (serve, begun, end) = serve(folder.path());
    let mut old = Raw::ready(serve.address);
    let files = ["first", "second"].map(|name| put_files::file(name, b"old"));
    let control = samples::control(FileId::RELATED, CtlCode::PRIVATE, &put_files::input(&files));
    let message = old.message(Command::Ioctl, |w| w.bytes(&control));
    old.send(&message);
    begun.recv().unwrap();

    let mut new = Raw::connect(serve.address);
    assert_eq!(new.negotiate().status(), NtStatus::SUCCESS);
    new.previous = old.session;
    let (tell, told) = channel();
    thread::scope(|scope| {
        scope.spawn(|| tell.send(new.log_in("alice", "secret")));
        assert!(told.recv_timeout(SOON).is_err(), "the login did not wait");
        end.send(()).unwrap();
        assert_eq!(told.recv().unwrap(), NtStatus::SUCCESS);
    });
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "{names:?}");
    let first = folder.path().join("first");
    assert_eq!(std::fs::read(&first).unwrap(), b"old");
    // Its time would say that it is complete.
    assert_ne!(std::fs::metadata(&first).unwrap().mtime(), put_files::UNIX_TIME);
}

/// The same after a lost connection: the client may have connected again, and make the files anew.
#[test]
fn files_of_a_lost_session_are_not_made_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let (serve, begun, end) = serve(folder.path());
    let mut old = Raw::ready(serve.address);
    let files = ["first", "second"].map(|name| put_files::file(name, b"old"));
    let control = samples::control(FileId::RELATED, CtlCode::PRIVATE, &put_files::input(&files));
    let message = old.message(Command::Ioctl, |w| w.bytes(&control));
    old.send(&message);
    begun.recv().unwrap();
    drop(old);
    serve.settles_at((0, 0));
    // From now on no write is held.
    drop(end);
    // The server waits for its workers when it stops.
    drop(serve);
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "{names:?}");
}
