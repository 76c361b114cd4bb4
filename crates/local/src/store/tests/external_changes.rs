//! Changes of watched nodes by other programs. Changes by this process count as the store's own, so
//! `sh` makes them here.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use ropeway_vfs::external::{EntryChange, ExternalChange, Observer, Watching};
use ropeway_vfs::store::Store;
use ropeway_vfs::{ErrorKind, FileId, RelPath};

use super::{CREATE, READ, folders, path, store};
use crate::store::{LocalStore, StoreOptions};

/// An observer that keeps all changes.
#[derive(Default)]
struct Recorder {
    changes: Mutex<Vec<ExternalChange>>,
    came: Condvar,
}

impl Observer for Recorder {
    fn changed(&self, changes: &[ExternalChange]) {
        self.changes.lock().unwrap().extend_from_slice(changes);
        self.came.notify_all();
    }
}

impl Recorder {
    /// Waits for a change, and returns all changes so far.
    fn until(&self, last: impl Fn(&ExternalChange) -> bool) -> Vec<ExternalChange> {
        let changes = self.changes.lock().unwrap();
        let all = Duration::from_secs(10);
        let waits = |changes: &mut Vec<ExternalChange>| !changes.iter().any(&last);
        let (mut changes, timeout) = self.came.wait_timeout_while(changes, all, waits).unwrap();
        assert!(!timeout.timed_out(), "only {changes:?}");
        std::mem::take(&mut *changes)
    }

    fn node(&self, id: FileId) -> Vec<ExternalChange> {
        self.until(|change| *change == ExternalChange::Node(id))
    }
}

fn others(folder: &Path, what: &str) {
    let status = Command::new("sh")
        .arg("-ec")
        .arg(what)
        .current_dir(folder)
        .status();
    assert!(status.unwrap().success(), "{what}");
}

fn recorder(store: &LocalStore) -> Arc<Recorder> {
    let recorder = Arc::new(Recorder::default());
    store.observe(Arc::clone(&recorder) as Arc<dyn Observer>);
    recorder
}

fn watch(store: &LocalStore, at: &str, below: bool) -> (FileId, Watching) {
    let node = store.open(&path(at), &READ).unwrap();
    (node.stat.id, node.node.watch(below).unwrap())
}

fn entry(at: &str, what: EntryChange) -> ExternalChange {
    ExternalChange::Entry {
        path: path(at),
        what,
        directory: false,
    }
}

fn folder_entry(at: &str, what: EntryChange) -> ExternalChange {
    ExternalChange::Entry {
        path: path(at),
        what,
        directory: true,
    }
}

#[test]
fn what_others_do_to_a_file_is_told() {
    for folder in folders() {
        let store = store(folder.path());
        let recorder = recorder(&store);
        let changes = [
            "echo more >> f",
            ": > f",
            "touch -d @5 f",
            "chmod 600 f",
            "mv f g; mv g f",
            "ln f other; rm other",
            "echo new > n; mv n f",
            "rm f",
        ];
        // A new file may get the inode of an earlier one, whose mark is removed shortly after its watch ends.
        let mut watched = Vec::new();
        for what in changes {
            others(folder.path(), "rm -f f; echo old > f");
            let (id, _watching) = watch(&store, "f", false);
            watched.push(ExternalChange::Node(id));
            others(folder.path(), what);
            let changes = recorder.node(id);
            assert!(
                changes.iter().all(|one| watched.contains(one)),
                "{what}: {changes:?}"
            );
        }
    }
}

#[test]
fn what_the_store_does_itself_is_not_told() {
    for folder in folders() {
        let store = store(folder.path());
        let recorder = recorder(&store);
        let file = store.open(&path("f"), &CREATE).unwrap();
        let (_, _root) = watch(&store, "", true);
        let (id, _file) = watch(&store, "f", false);
        file.node.write_at(b"own", 0).unwrap();
        file.node.set_len(1).unwrap();
        store.rename(&path("f"), &path("g"), false).unwrap();
        store.open(&path("h"), &CREATE).unwrap();
        store.remove(&path("h"), false).unwrap();
        others(folder.path(), "echo >> g");
        let changes = recorder.node(id);
        let others = [
            ExternalChange::Node(id),
            ExternalChange::Node(watch(&store, "", false).0),
            entry("g", EntryChange::Content),
        ];
        assert!(changes.iter().all(|one| others.contains(one)), "{changes:?}");
    }
}

#[test]
fn a_folder_is_told_of_its_entries() {
    for folder in folders() {
        let store = store(folder.path());
        let recorder = recorder(&store);
        others(folder.path(), "mkdir d d/sub; echo > d/old");
        let (id, _watching) = watch(&store, "d", false);
        others(
            folder.path(),
            "echo 1 > d/new; mv d/new d/newer; mv d/old .; mkdir d/made; echo > d/sub/deep; mv old d/back; rm d/back",
        );
        let changes = recorder.until(|change| *change == entry("d/back", EntryChange::Removed));
        let changes: Vec<_> = changes
            .into_iter()
            .filter(|one| *one != ExternalChange::Node(id))
            .collect();
        let expected = [
            entry("d/new", EntryChange::Added),
            entry("d/new", EntryChange::Content),
            ExternalChange::Renamed {
                from: path("d/new"),
                to: path("d/newer"),
                directory: false,
            },
            entry("d/old", EntryChange::Removed),
            folder_entry("d/made", EntryChange::Added),
            entry("d/back", EntryChange::Added),
            entry("d/back", EntryChange::Removed),
        ];
        assert_eq!(changes, expected);
    }
}

#[test]
fn all_beneath_a_folder_is_watched_as_it_grows() {
    for folder in folders() {
        let store = store(folder.path());
        let recorder = recorder(&store);
        others(folder.path(), "mkdir -p d/a/b; mkdir e");
        let (_, watching) = watch(&store, "d", true);
        let hears = |what: &str, at: &str| {
            others(folder.path(), what);
            recorder.until(|change| *change == entry(at, EntryChange::Added))
        };
        hears("echo > d/a/b/1", "d/a/b/1");
        hears("mkdir -p d/x/y; echo > d/x/y/2", "d/x/y/2");
        hears("mv d/x d/z; sleep 0.1; echo > d/z/y/3", "d/z/y/3");
        hears("mkdir -p e/in; mv e/in d/in; sleep 0.1; echo > d/in/4", "d/in/4");
        // The store does not report its own new names and renames.
        let made = super::NodeOpen {
            create: Some(super::NewNode {
                directory: true,
                dos_attributes: None,
            }),
            ..READ
        };
        store.open(&path("d/own"), &made).unwrap();
        store.rename(&path("d/own"), &path("d/owned"), false).unwrap();
        hears("sleep 0.1; echo > d/owned/5", "d/owned/5");
        store.rename(&path("d/z"), &path("e/z"), false).unwrap();
        let changes = hears("echo > e/z/y/6; echo > d/7", "d/7");
        assert!(
            !changes.contains(&entry("e/z/y/6", EntryChange::Added)),
            "{changes:?}"
        );
        drop(watching);
        let (id, _watching) = watch(&store, "e", false);
        others(folder.path(), "echo > d/a/b/8; echo > e/9");
        let changes = recorder.until(|change| *change == entry("e/9", EntryChange::Content));
        let others: Vec<_> = changes
            .iter()
            .filter(|one| **one != ExternalChange::Node(id) && **one != entry("e/9", EntryChange::Content))
            .collect();
        assert_eq!(others, [&entry("e/9", EntryChange::Added)]);
    }
}

#[test]
fn watching_is_bounded_and_ends() {
    for folder in folders() {
        let options = StoreOptions {
            watched_nodes_max: 2,
            ..StoreOptions::default()
        };
        let store = LocalStore::open(folder.path(), &options).unwrap();
        let nodes = ["a", "b", "c"].map(|name| store.open(&path(name), &CREATE).unwrap().node);
        for _ in 0..3 {
            let one = nodes[0].watch(false).unwrap();
            let _same = nodes[0].watch(false).unwrap();
            let _two = nodes[1].watch(false).unwrap();
            assert_eq!(nodes[2].watch(false).unwrap_err().kind, ErrorKind::NoSpace);
            drop(one);
            assert!(nodes[2].watch(false).is_err(), "the first node is still watched");
        }
        assert!(nodes[2].watch(false).is_ok());
    }
}

#[test]
fn a_file_that_is_gone_frees_its_place() {
    for folder in folders() {
        let options = StoreOptions {
            watched_nodes_max: 1,
            descriptors_max: 1,
            ..StoreOptions::default()
        };
        let store = LocalStore::open(folder.path(), &options).unwrap();
        let recorder = recorder(&store);
        for _ in 0..3 {
            let file = store.open(&path("f"), &CREATE).unwrap();
            let watching = file.node.watch(false).unwrap();
            // This takes the only descriptor.
            let other = store.open(
                &path("other"),
                &super::NodeOpen {
                    access: super::Access::Write,
                    ..CREATE
                },
            );
            other.unwrap().node.write_at(b"x", 0).unwrap();
            others(folder.path(), "rm f");
            recorder.node(file.stat.id);
            std::thread::sleep(Duration::from_millis(30));
            drop(watching);
        }
        let root = store.open(&RelPath::root(), &READ).unwrap();
        root.node.watch(false).unwrap();
    }
}

#[test]
fn too_many_changes_are_told_as_such() {
    for folder in folders() {
        let store = store(folder.path());
        let recorder = recorder(&store);
        let file = store.open(&path("f"), &CREATE).unwrap();
        let _f = file.node.watch(false).unwrap();
        let _root = watch(&store, "", false);
        // More events than the kernel queues (fs.fanotify.max_queued_events), all different.
        others(
            folder.path(),
            "seq 1 20000 | while read n; do : > n$n; done; seq 1 20000 | sed s/^/n/ | xargs rm",
        );
        let changes =
            recorder.until(|change| matches!(change, ExternalChange::Lost | ExternalChange::Entry { .. }));
        drop(changes);
    }
}

/// The memory of a mark, for docs/serve.md: `cargo test --release -p ropeway-local --lib -- --ignored --nocapture marks_cost`.
#[test]
#[ignore = "a measurement"]
fn marks_cost() {
    const COUNT: u32 = 20_000;
    for folder in folders() {
        let store = store(folder.path());
        let file = store.open(&path("f"), &CREATE).unwrap();
        let begins = std::time::Instant::now();
        for _ in 0..COUNT {
            drop(file.node.watch(false).unwrap());
        }
        println!("{:?}: {:?} each", folder.path(), begins.elapsed() / COUNT);
    }
}
