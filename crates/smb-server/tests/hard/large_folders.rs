//! A folder that takes long to read does not stop the connection, nor do slow requests the replies to others.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use ropeway_local::{LocalStore, StoreOptions};
use ropeway_smb_server::Share;
use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::create::{CreateDisposition, CreateResponse};
use ropeway_smb_wire::header::Command;
use ropeway_vfs::external::Observer;
use ropeway_vfs::store::{Node, NodeOpen, Opened, Removal, Resolved, Store, StoreFeatures, Task};
use ropeway_vfs::{FileId, RelPath, Result, Space};

use crate::raw::{Create, Raw};
use crate::serve::Serve;

/// A file that takes longer to open than replies wait for others.
const SLOW: &str = "slow";
/// A file that can be opened only after the test allows it.
const HELD: &str = "held";

/// A folder that can be read only after the test allows it.
struct Unread {
    folder: LocalStore,
    gate: Arc<Mutex<Receiver<()>>>,
    asked: Arc<AtomicUsize>,
}

impl Unread {
    fn new(folder: &std::path::Path) -> (Self, Sender<()>, Arc<AtomicUsize>) {
        let (opens, gate) = channel();
        let asked = Arc::new(AtomicUsize::new(0));
        let store = Self {
            folder: LocalStore::open(folder, &StoreOptions::default()).unwrap(),
            gate: Arc::new(Mutex::new(gate)),
            asked: Arc::clone(&asked),
        };
        (store, opens, asked)
    }
}

impl Store for Unread {
    fn resolve_soon(&self, _: &RelPath, then: &dyn Fn() -> Task) -> Result<Resolved> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let (gate, then) = (Arc::clone(&self.gate), then());
        Ok(Resolved::After(Box::new(move || {
            // Dropping the sender at the end of the test also opens the gate.
            _ = gate.lock().recv();
            then();
        })))
    }

    fn features(&self) -> &StoreFeatures {
        self.folder.features()
    }

    fn space(&self) -> Result<Space> {
        self.folder.space()
    }

    fn resolve(&self, path: &RelPath) -> Result<RelPath> {
        self.folder.resolve(path)
    }

    fn open(&self, path: &RelPath, how: &NodeOpen) -> Result<Opened> {
        match path.to_string().as_str() {
            SLOW => std::thread::sleep(Duration::from_millis(5)),
            HELD => _ = self.gate.lock().recv(),
            _ => {}
        }
        self.folder.open(path, how)
    }

    fn remove(&self, path: &RelPath, directory: bool) -> Result<()> {
        self.folder.remove(path, directory)
    }

    fn remove_node(&self, id: FileId, path: &RelPath, what: Removal) -> Result<()> {
        self.folder.remove_node(id, path, what)
    }

    fn rename(&self, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
        self.folder.rename(from, to, replace)
    }

    fn rename_node(&self, id: FileId, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
        self.folder.rename_node(id, from, to, replace)
    }

    fn link_node(&self, node: &dyn Node, to: &RelPath, replace: bool) -> Result<()> {
        self.folder.link_node(node, to, replace)
    }

    fn link(&self, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
        self.folder.link(from, to, replace)
    }

    fn symlink(&self, path: &RelPath, target: &[u8]) -> Result<()> {
        self.folder.symlink(path, target)
    }

    fn observe(&self, observer: Arc<dyn Observer>) {
        self.folder.observe(observer);
    }

    fn sync(&self) -> Result<()> {
        self.folder.sync()
    }
}

#[test]
fn a_connection_continues_while_a_large_folder_is_read() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("There"), "").unwrap();
    let (store, opens, asked) = Unread::new(folder.path());
    let serve = Serve::with(folder.path(), |options| {
        options.shares = vec![Share::new("data", Arc::new(store))];
    });
    let mut raw = Raw::ready(serve.address);
    // A file to create, and an existing one in another case.
    for name in ["new", "tHERE"] {
        let before = asked.load(Ordering::Relaxed);
        let how = Create {
            disposition: CreateDisposition::OpenIf,
            ..Create::of(name)
        };
        let request = how.request();
        let create = raw.message(Command::Create, |w| request.encode(w));
        raw.send(&create);
        assert_eq!(raw.echo(), NtStatus::SUCCESS);
        let there = raw.create(&Create::of("There")).unwrap();
        assert_eq!(raw.close(there), NtStatus::SUCCESS);
        assert_eq!(asked.load(Ordering::Relaxed), before + 1);
        opens.send(()).unwrap();
        let reply = raw.reply().unwrap();
        assert_eq!(reply.header.command, Command::Create);
        assert_eq!(reply.status(), NtStatus::SUCCESS);
        let file = CreateResponse::decode(&mut reply.body()).unwrap().file_id;
        assert_eq!(raw.close(file), NtStatus::SUCCESS);
        // The request does not wait a second time.
        assert_eq!(asked.load(Ordering::Relaxed), before + 1);
    }
    let mut names: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["There", "new"]);
    // A client that leaves while it waits leaves nothing behind.
    let how = Create {
        disposition: CreateDisposition::OpenIf,
        ..Create::of("other")
    };
    let request = how.request();
    let create = raw.message(Command::Create, |w| request.encode(w));
    raw.send(&create);
    assert_eq!(raw.echo(), NtStatus::SUCCESS);
    drop(raw);
    drop(opens);
    serve.settles_at((0, 0));
}

#[test]
fn a_reply_does_not_wait_for_slow_requests_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    for name in [SLOW, HELD] {
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    let (store, opens, _) = Unread::new(folder.path());
    let serve = Serve::with(folder.path(), |options| {
        options.shares = vec![Share::new("data", Arc::new(store))];
    });
    let mut raw = Raw::ready(serve.address);
    let frames = [SLOW, HELD].map(|name| {
        let how = Create {
            disposition: CreateDisposition::Open,
            ..Create::of(name)
        };
        let request = how.request();
        raw.message(Command::Create, |w| request.encode(w))
    });
    raw.send_together(&frames);
    // The second request has not been executed yet.
    assert_eq!(raw.reply().unwrap().status(), NtStatus::SUCCESS);
    drop(opens);
    assert_eq!(raw.reply().unwrap().status(), NtStatus::SUCCESS);
}
