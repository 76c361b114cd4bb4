//! The common contract of stores, kept with a journal in front of a local folder while workers
//! bring the backlog there.

#![allow(clippy::unwrap_used, reason = "a failed set-up fails the test")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ropeway_local::{LocalStore, StoreOptions};
use ropeway_vfs::contract::store::{Abilities, check_store, model};
use ropeway_vfs::store::{Access, NewNode, NodeOpen, Store};
use ropeway_vfs::{ErrorKind, RelPath};
use ropeway_write_back::{FolderDisk, Journal, JournalError, WriteBackOptions, WriteBackStore};

const WRITE: NodeOpen = NodeOpen {
    access: Access::Write,
    allow_less_access: false,
    create: Some(NewNode {
        directory: false,
        dos_attributes: None,
    }),
    exclusive: false,
    link_itself: false,
};

fn far(folder: &Path) -> Arc<dyn Store> {
    Arc::new(LocalStore::open(folder, &StoreOptions::default()).expect("the folder opens"))
}

fn store(folder: &Path, journal: &Path, delay: Duration) -> WriteBackStore {
    let disk = Box::new(FolderDisk::open(journal).expect("the journal's folder opens"));
    let options = WriteBackOptions {
        delay,
        workers: 2,
        ..WriteBackOptions::default()
    };
    WriteBackStore::on_disk(far(folder), disk, [7; 32], options).expect("the store opens")
}

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).expect("a path")
}

fn check(delay: Duration) {
    let (folder, journals) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let count = AtomicUsize::new(0);
    check_store(
        || {
            let name = count.fetch_add(1, Ordering::Relaxed).to_string();
            let (at, journal) = (folder.path().join(&name), journals.path().join(&name));
            std::fs::create_dir(&at).unwrap();
            std::fs::create_dir(&journal).unwrap();
            Arc::new(store(&at, &journal, delay))
        },
        Abilities::ALL,
    );
}

#[test]
fn a_folder_behind_a_journal_keeps_the_common_contract() {
    // Everything is read from the journal, or nearly nothing.
    check(Duration::from_secs(3600));
    check(Duration::ZERO);
}

#[test]
fn random_operations_agree_with_a_model_while_the_backlog_is_drained() {
    for seed in 0..4 {
        let (folder, journal) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let delay = Duration::from_millis(if seed % 2 == 0 { 0 } else { 3 });
        let store = store(folder.path(), journal.path(), delay);
        model::run(&store, Abilities::ALL, seed, 3000, |_| {});
        let left = store.close(Duration::from_secs(60));
        assert_eq!(
            (left.files, left.conflicts, left.damaged),
            (0, 0, 0),
            "{seed}: {left:?}"
        );
        assert!(left.drained_bytes > 0);
        // Past the journal: what the near clients saw is there.
        compare(&store, folder.path());
    }
}

fn compare(store: &dyn Store, folder: &Path) {
    for dir in ["", "x", "y", "x/z"] {
        for name in ["a", "b", "c", "long name"] {
            let Ok(expected) = std::fs::read(folder.join(dir).join(name)) else {
                continue;
            };
            let at = format!("{dir}/{name}");
            let node = store
                .open(&path(at.trim_start_matches('/')), &WRITE)
                .unwrap()
                .node;
            let mut content = vec![0xEE; expected.len() + 1];
            let count = node.read_at(&mut content, 0).unwrap();
            assert!(content[..count] == expected[..], "{at}");
        }
    }
}

fn journalled(cache: &Path, folder: &Path, delay: Duration) -> Result<Arc<WriteBackStore>, JournalError> {
    let journal = Journal::open(cache, "smb://far/share", 1)?;
    let options = WriteBackOptions {
        delay,
        ..WriteBackOptions::default()
    };
    WriteBackStore::open(far(folder), journal, options)
}

#[test]
fn a_backlog_goes_on_with_the_next_process() {
    let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let content: Vec<u8> = (0..40_000_000_u32).map(|at| (at % 251) as u8).collect();
    {
        let store = journalled(cache.path(), folder.path(), Duration::from_secs(3600)).unwrap();
        assert!(journalled(cache.path(), folder.path(), Duration::ZERO).is_err());
        let node = store.open(&path("f"), &WRITE).unwrap().node;
        for (index, piece) in content.chunks(1 << 20).enumerate() {
            node.write_at(piece, (index as u64) << 20).unwrap();
        }
        node.sync().unwrap();
        assert_eq!(std::fs::metadata(folder.path().join("f")).unwrap().len(), 0);
    }
    let left = Journal::left(cache.path()).unwrap();
    assert_eq!((left.len(), left[0].files), (1, 1));
    let store = journalled(cache.path(), folder.path(), Duration::ZERO).unwrap();
    // Near clients see it at once, the far folder soon.
    assert_eq!(store.look(&path("f")).unwrap().size, content.len() as u64);
    let status = store.close(Duration::from_secs(60));
    assert_eq!((status.files, status.conflicts), (0, 0), "{status:?}");
    assert!(std::fs::read(folder.path().join("f")).unwrap() == content);
    assert!(Journal::left(cache.path()).unwrap().is_empty());
}

#[test]
fn a_file_that_others_replace_stays_and_ours_gets_another_name() {
    let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(folder.path().join("part.txt"), vec![b'x'; 100_000]).unwrap();
    let store = journalled(cache.path(), folder.path(), Duration::from_secs(3600)).unwrap();
    let whole = store.open(&path("whole.txt"), &WRITE).unwrap().node;
    whole.write_at(b"ours", 0).unwrap();
    let part = store.open(&path("part.txt"), &WRITE).unwrap().node;
    part.write_at(b"ours", 5).unwrap();
    // Another's editor replaces both.
    for name in ["whole.txt", "part.txt"] {
        std::fs::write(folder.path().join("new"), "theirs").unwrap();
        std::fs::rename(folder.path().join("new"), folder.path().join(name)).unwrap();
    }
    let status = store.close(Duration::from_secs(60));
    assert_eq!((status.files, status.conflicts), (0, 2), "{status:?}");
    let mut found: Vec<(String, Vec<u8>)> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read(entry.path()).unwrap())
        })
        .collect();
    found.sort();
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(found.len(), 5, "{names:?}");
    let of = |start: &str, end: &str| {
        let one = found
            .iter()
            .find(|(name, _)| name.starts_with(start) && name.ends_with(end));
        one.unwrap_or_else(|| panic!("{start}…{end}: {names:?}"))
            .1
            .clone()
    };
    assert_eq!(of("whole.txt", ""), b"theirs");
    assert_eq!(of("part.txt", ""), b"theirs");
    assert_eq!(of("whole (conflict 2", ").txt"), b"ours");
    let partial = of("part (conflict, parts 2", ").txt");
    assert_eq!((partial.len(), &partial[5..9]), (100_000, &b"ours"[..]));
    assert!(partial[..5].iter().chain(&partial[9..]).all(|byte| *byte == 0));
    let list = String::from_utf8(of("part (conflict, parts 2", ".ranges.txt")).unwrap();
    assert!(list.ends_with("\n5 4\n"), "{list}");
    // Whoever had them open hears of it.
    let refused = whole.write_at(b"more", 4).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Changed);
    assert_eq!(part.sync().unwrap_err().kind, ErrorKind::Changed);
}

#[test]
fn a_removed_file_takes_its_backlog_with_it_and_its_number_may_be_used_again() {
    let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = journalled(cache.path(), folder.path(), Duration::from_secs(3600)).unwrap();
    for turn in 0..50_u8 {
        let node = store.open(&path("f"), &WRITE).unwrap().node;
        node.write_at(&[turn; 1000], 0).unwrap();
        drop(node);
        store.remove(&path("f"), false).unwrap();
    }
    let node = store.open(&path("f"), &WRITE).unwrap().node;
    assert_eq!(node.stat().unwrap().size, 0);
    node.write_at(b"last", 0).unwrap();
    let status = store.close(Duration::from_secs(60));
    assert_eq!((status.files, status.conflicts), (0, 0), "{status:?}");
    assert_eq!(std::fs::read(folder.path().join("f")).unwrap(), b"last");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn other_names_and_copies_find_what_was_written() {
    let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = journalled(cache.path(), folder.path(), Duration::from_secs(3600)).unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let node = store.open(&path(name), &WRITE).unwrap().node;
        node.write_at(bytes, 0).unwrap();
        node
    };
    let far = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    // Renamed over a file that has a backlog, too.
    let saved = write("report~1.tmp", b"new version");
    write("report", b"old version, longer");
    store
        .rename(&path("report~1.tmp"), &path("report"), true)
        .unwrap();
    assert_eq!(far("report"), b"new version");
    saved.write_at(b"NEW", 0).unwrap();
    // A second name, and a removal of the first.
    store.link(&path("report"), &path("second"), false).unwrap();
    assert_eq!(far("second"), b"NEW version");
    saved.write_at(b"2", 0).unwrap();
    store.remove(&path("report"), false).unwrap();
    assert_eq!(far("second"), b"2EW version");
    // A copy at the far end.
    let source = write("source", &vec![7; 300_000]);
    let target = write("target", b"x");
    assert_eq!(target.copy_from(&*source, 0, 0, 300_000).unwrap(), 300_000);
    assert!(far("target") == vec![7; 300_000]);
    // A lock is a promise about the content.
    source.write_at(b"locked", 0).unwrap();
    use ropeway_vfs::store::RangeLock;
    assert!(source.lock_range(0, 9, RangeLock::Exclusive).unwrap());
    source.write_at(b"LOCKED", 0).unwrap();
    assert!(source.lock_range(0, 9, RangeLock::None).unwrap());
    assert_eq!(far("source")[..6], *b"LOCKED");
    let status = store.close(Duration::from_secs(60));
    assert_eq!((status.files, status.conflicts), (0, 0), "{status:?}");
}

#[test]
fn without_the_flag_a_backlog_is_drained_and_new_writes_go_through() {
    let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let write = |store: &dyn Store, at: u64, bytes: &[u8]| {
        let node = store.open(&path("f"), &WRITE).unwrap().node;
        node.write_at(bytes, at).unwrap();
    };
    let first = journalled(cache.path(), folder.path(), Duration::from_secs(3600)).unwrap();
    write(&*first, 0, b"from before ");
    drop(first);
    let journal = Journal::open(cache.path(), "smb://far/share", 1).unwrap();
    let options = WriteBackOptions {
        accepts: false,
        delay: Duration::from_secs(3600),
        ..WriteBackOptions::default()
    };
    let store = WriteBackStore::open(far(folder.path()), journal, options).unwrap();
    write(&*store, 12, b"and now");
    assert_eq!(
        std::fs::read(folder.path().join("f")).unwrap(),
        b"from before and now"
    );
    assert_eq!(store.status().files, 0);
}
