//! What local programs do to the files of persistent handles while no server runs.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use ropeway_local::{LocalStore, StoreOptions};
use ropeway_smb_server::HandleJournal;
use ropeway_smb_wire::create::{AccessMask, CreateDisposition, OplockLevel};
use ropeway_smb_wire::create_context::LeaseState;
use ropeway_vfs::RelPath;
use ropeway_vfs::store::{Access, NodeOpen, RangeLock, Store};

use super::{EXCLUSIVE, MISSING, OK, Place, back, lease, persistent, ready};

/// Takes or releases a lock as another program.
fn program_locks(place: &Place, lock: RangeLock) -> (Arc<dyn ropeway_vfs::store::Node>, bool) {
    let store = LocalStore::open(place.folder.path(), &StoreOptions::default()).unwrap();
    let how = NodeOpen {
        access: Access::Write,
        ..NodeOpen::default()
    };
    let node = store.open(&RelPath::parse(b"file").unwrap(), &how).unwrap().node;
    let taken = node.lock_range(0, 5, lock).unwrap();
    (node, taken)
}

#[test]
fn local_programs_see_the_locks_again() {
    let place = Place::new();
    let serve = place.serve();
    let mut raw = ready(&serve, 1);
    let id = raw.keeps(&persistent("file"));
    assert_eq!(raw.lock(id, 0, EXCLUSIVE), OK);
    assert!(!program_locks(&place, RangeLock::Shared).1);
    drop(serve);
    let serve = place.serve();
    assert!(
        !program_locks(&place, RangeLock::Shared).1,
        "before the client is back"
    );
    drop(serve);
    // A program was faster: the client must not believe that it still has the lock.
    let (node, taken) = program_locks(&place, RangeLock::Shared);
    assert!(taken);
    let serve = place.serve();
    assert_eq!(ready(&serve, 1).create(&back("file", id)), Err(MISSING));
    assert_eq!(place.records(), 0);
    drop(node);
}

#[test]
fn renames_and_replacements_are_noticed() {
    let place = Place::new();
    let serve = place.serve();
    let mut raw = ready(&serve, 1);
    let id = raw.keeps(&persistent("file"));
    assert_eq!(raw.put(id, b"mine"), OK);
    assert_eq!(raw.renames(id, "moved"), OK);
    drop(serve);
    let serve = place.serve();
    let mut raw = ready(&serve, 1);
    assert_eq!(raw.create(&back("moved", id)), Ok(id));
    drop((raw, serve));
    let path = place.file("moved");
    let changes: [&dyn Fn(); 3] = [
        &|| fs::write(&path, "another one").unwrap(),
        &|| std::os::unix::fs::symlink("other", &path).unwrap(),
        &|| {},
    ];
    // The file is still there, by another name: its record does not follow it.
    fs::rename(&path, place.file("elsewhere")).unwrap();
    fs::write(place.file("other"), "other").unwrap();
    let kept: Vec<_> = fs::read_dir(place.journal())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension() == Some("handle".as_ref()))
        .map(|path| (fs::read(&path).unwrap(), path))
        .collect();
    for change in changes {
        let (bytes, record) = &kept[0];
        fs::write(record, bytes).unwrap();
        change();
        let serve = place.serve();
        assert_eq!(ready(&serve, 1).create(&back("moved", id)), Err(MISSING));
        assert_eq!(place.records(), 0);
        _ = fs::remove_file(&path);
    }
    assert_eq!(fs::read(place.file("elsewhere")).unwrap(), b"mine");
}

#[test]
fn a_file_behind_a_link_comes_back() {
    let place = Place::new();
    fs::write(place.file("target"), "").unwrap();
    std::os::unix::fs::symlink("target", place.file("link")).unwrap();
    let serve = place.serve();
    let mut how = persistent("link");
    how.disposition = CreateDisposition::Open;
    let id = ready(&serve, 1).keeps(&how);
    drop(serve);
    let serve = place.serve();
    let mut raw = ready(&serve, 1);
    assert_eq!(raw.create(&back("link", id)), Ok(id));
    assert_eq!(raw.put(id, b"written"), OK);
    assert_eq!(fs::read(place.file("target")).unwrap(), b"written");
}

#[test]
fn rights_end_with_those_of_the_share() {
    let place = Place::new();
    let serve = place.serve();
    let id = ready(&serve, 1).keeps(&persistent("file"));
    drop(serve);
    let journal = HandleJournal::open(&place.journal()).unwrap();
    let serve = place.serve_with(journal, true);
    assert_eq!(ready(&serve, 1).create(&back("file", id)), Err(MISSING));
}

/// Nobody watches a file while there is no server.
#[test]
fn caches_come_back_unless_the_file_has_changed() {
    const RH: LeaseState = LeaseState::from_bits_retain(3);
    for changes in [false, true] {
        let place = Place::new();
        fs::write(place.file("file"), "old").unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let serve = place.serve();
        let mut raw = ready(&serve, 1);
        let mut how = persistent("file");
        how.oplock = OplockLevel::Lease;
        how.disposition = CreateDisposition::Open;
        how.access = AccessMask::READ_DATA;
        how.contexts.push(lease(RH, 5));
        let opened = raw.opens(&how).unwrap();
        let Some((state, epoch)) = opened.lease else {
            panic!("no lease")
        };
        if state.is_empty() {
            println!("skipped: files cannot be watched here, so there are no leases");
            return;
        }
        // The server notes every second that it lives.
        std::thread::sleep(Duration::from_millis(3500));
        drop(serve);
        if changes {
            fs::write(place.file("file"), "new").unwrap();
        }
        let serve = place.serve();
        let mut raw = ready(&serve, 1);
        let mut how = back("file", opened.id);
        how.oplock = OplockLevel::Lease;
        how.contexts.push(lease(RH, epoch));
        let again = raw.opens(&how).unwrap();
        let expected = match changes {
            false => (RH, epoch),
            true => (LeaseState::default(), epoch + 1),
        };
        assert_eq!(again.lease, Some(expected));
    }
}
