//! Operations over a local folder, without a kernel.

use ropeway_local::{LocalStore, StoreOptions};
use ropeway_vfs::posix::{NewKind, RenameMode};
use ropeway_vfs::store::RangeLock;
use tempfile::TempDir;

use super::*;
use crate::inodes::ROOT;
use crate::locks::{Request, Span};

const ME: Caller = Caller {
    user: 0,
    group: 0,
    thread: 0,
};

fn fs() -> (TempDir, Arc<Fs>) {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::open(folder.path(), &StoreOptions::default()).unwrap();
    let fs = Fs::new(Arc::new(store), View::default()).unwrap();
    (folder, Arc::new(fs))
}

fn creation(parent: u64, name: &'static str, kind: NewKind<'static>) -> Creation<'static> {
    Creation {
        parent,
        name: name.as_bytes(),
        kind,
        mode: 0o644,
        umask: 0,
    }
}

fn create(fs: &Fs, name: &'static str) -> (u64, u64) {
    let creation = creation(ROOT, name, NewKind::File);
    let (attributes, handle) = fs.create(ME, &creation, Access::Write, true).unwrap();
    (attributes.ino.0, handle)
}

fn read(fs: &Fs, handle: u64) -> Vec<u8> {
    let mut buffer = vec![0; 100];
    let count = fs.read(handle, &mut buffer, 0).unwrap();
    buffer.truncate(count);
    buffer
}

fn rename(fs: &Fs, from: &str, to: &str, mode: RenameMode) -> Answer<()> {
    fs.rename(&Renaming {
        from: (ROOT, from.as_bytes()),
        to: (ROOT, to.as_bytes()),
        mode,
    })
}

#[test]
fn an_open_file_outlives_its_name() {
    let (_folder, fs) = fs();
    let (ino, handle) = create(&fs, "a");
    fs.write(handle, b"text", 0, false, false).unwrap();
    fs.remove(ROOT, b"a", false).unwrap();
    assert_eq!(fs.lookup(ROOT, b"a").unwrap_err(), Errno::NOENT);
    assert_eq!(fs.attributes(ino, None).unwrap().nlink, 0);
    assert_eq!(read(&fs, handle), b"text");
    let (second, _) = fs.open(ino, Access::Read).unwrap();
    assert_eq!(read(&fs, second), b"text");
    fs.release(ino, handle);
    fs.release(ino, second);
    assert_eq!(fs.attributes(ino, None).unwrap_err(), Errno::STALE);
}

#[test]
fn a_file_that_was_replaced_behind_the_mount_is_stale() {
    let (folder, fs) = fs();
    let (ino, handle) = create(&fs, "a");
    fs.write(handle, b"old", 0, false, false).unwrap();
    let new = folder.path().join("new");
    std::fs::write(&new, b"new").unwrap();
    std::fs::rename(&new, folder.path().join("a")).unwrap();
    assert_eq!(read(&fs, handle), b"old");
    let found = fs.lookup(ROOT, b"a").unwrap();
    assert_ne!(found.ino.0, ino);
    fs.release(ino, handle);
    assert_eq!(fs.open(ino, Access::Read).unwrap_err(), Errno::STALE);
}

#[test]
fn names_move_with_their_folders() {
    let (_folder, fs) = fs();
    for name in ["d", "e"] {
        fs.make(
            ME,
            &Creation {
                mode: 0o755,
                ..creation(ROOT, name, NewKind::Directory)
            },
        )
        .unwrap();
    }
    let dir = fs.lookup(ROOT, b"d").unwrap().ino.0;
    let file = fs.make(ME, &creation(dir, "f", NewKind::File)).unwrap().ino.0;
    rename(&fs, "d", "e", RenameMode::Replace).unwrap();
    assert_eq!(fs.attributes(file, None).unwrap().ino.0, file);
    assert_eq!(rename(&fs, "e", "x", RenameMode::Keep), Ok(()));
    fs.make(ME, &creation(ROOT, "y", NewKind::File)).unwrap();
    assert_eq!(rename(&fs, "x", "y", RenameMode::Keep), Err(Errno::EXIST));
    rename(&fs, "x", "y", RenameMode::Exchange).unwrap();
    assert_eq!(fs.lookup(ROOT, b"y").unwrap().ino.0, dir);
    assert_eq!(fs.lookup(dir, b"f").unwrap().ino.0, file);
    assert_eq!(fs.link(file, ROOT, b"hard").unwrap().nlink, 2);
}

#[test]
fn listings_can_be_cut_anywhere() {
    let (folder, fs) = fs();
    for index in 0..100 {
        std::fs::write(folder.path().join(format!("{index}")), b"").unwrap();
    }
    let handle = fs.open_folder(ROOT).unwrap();
    let mut names = Vec::new();
    let mut position = 0;
    loop {
        let mut room = 7;
        let before = names.len();
        fs.list(handle, position, true, |entry| {
            if room == 0 {
                return true;
            }
            room -= 1;
            names.push(entry.name.to_vec());
            position = entry.next;
            false
        })
        .unwrap();
        if names.len() == before {
            break;
        }
    }
    assert_eq!(names[..2], [b".".to_vec(), b"..".to_vec()]);
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 102);
    fs.close_folder(handle);
}

#[test]
fn holes_are_found_and_made() {
    let (_folder, fs) = fs();
    let (_, handle) = create(&fs, "a");
    fs.write(handle, &[1; 64 << 10], 0, false, false).unwrap();
    fs.write(handle, &[1; 64 << 10], 1 << 20, false, false).unwrap();
    const DATA: i32 = 3;
    const HOLE: i32 = 4;
    assert_eq!(fs.seek(handle, 0, HOLE), Ok(64 << 10));
    assert_eq!(fs.seek(handle, 64 << 10, DATA), Ok(1 << 20));
    assert_eq!(fs.seek(handle, 1 << 20, HOLE), Ok((1 << 20) + (64 << 10)));
    assert_eq!(fs.seek(handle, 2 << 20, DATA), Err(Errno::NXIO));
    // Keep size and punch hole.
    fs.allocate(handle, 0, 64 << 10, 3).unwrap();
    assert_eq!(fs.seek(handle, 0, DATA), Ok(1 << 20));
    fs.allocate(handle, 2 << 20, 4096, 0).unwrap();
    assert_eq!(
        fs.file(handle).unwrap().node.stat().unwrap().size,
        (2 << 20) + 4096
    );
    assert_eq!(fs.allocate(handle, 0, 4096, 8), Err(Errno::OPNOTSUPP));
}

#[test]
fn appends_go_to_the_end_as_it_is() {
    let (folder, fs) = fs();
    let (_, handle) = create(&fs, "a");
    fs.write(handle, b"one", 0, true, false).unwrap();
    let mut behind = std::fs::OpenOptions::new()
        .append(true)
        .open(folder.path().join("a"))
        .unwrap();
    std::io::Write::write_all(&mut behind, b"two").unwrap();
    fs.write(handle, b"three", 3, true, false).unwrap();
    assert_eq!(read(&fs, handle), b"onetwothree");
    assert_eq!(fs.dirty(), 8);
    fs.sync(handle, true).unwrap();
    assert_eq!(fs.dirty(), 0);
    fs.write(handle, b"x", 0, false, false).unwrap();
    assert_eq!(fs.sync_all().unwrap(), 1);
    assert_eq!(fs.dirty(), 0);
}

fn lock(ino: u64, handle: u64, owner: u64, lock: RangeLock) -> Request {
    Request {
        ino,
        handle,
        owner,
        pid: 1,
        span: Span { first: 0, last: 9 },
        lock,
    }
}

/// Waits for an answer for up to five seconds.
fn wait(fs: &Arc<Fs>, request: Request, then: impl FnOnce()) -> Answer<()> {
    let (sender, receiver) = std::sync::mpsc::channel();
    fs.lock(
        ME,
        request,
        true,
        Box::new(move |answer| {
            let _ = sender.send(answer);
        }),
    );
    assert!(receiver.try_recv().is_err(), "it did not wait");
    then();
    receiver.recv_timeout(std::time::Duration::from_secs(5)).unwrap()
}

#[test]
fn locks_exclude_wait_and_end_with_their_handles() {
    let (folder, fs) = fs();
    let (ino, handle) = create(&fs, "a");
    let (other, _) = fs.open(ino, Access::Write).unwrap();
    let set = |request: Request| {
        let (sender, receiver) = std::sync::mpsc::channel();
        fs.lock(
            ME,
            request,
            false,
            Box::new(move |answer| {
                let _ = sender.send(answer);
            }),
        );
        receiver.recv().unwrap()
    };
    set(lock(ino, handle, 1, RangeLock::Exclusive)).unwrap();
    assert_eq!(set(lock(ino, other, 2, RangeLock::Shared)), Err(Errno::AGAIN));
    let conflict = fs.lock_conflict(&lock(ino, other, 2, RangeLock::Shared)).unwrap();
    assert!(conflict.is_some_and(|held| held.pid == 1 && held.is_exclusive));
    // close(2) of the owner releases.
    let wanted = lock(ino, other, 2, RangeLock::Exclusive);
    wait(&fs, wanted, || fs.flush(ino, handle, 1).unwrap()).unwrap();
    // So does the end of the handle.
    let wanted = lock(ino, handle, 1, RangeLock::Exclusive);
    wait(&fs, wanted, || fs.release(ino, other)).unwrap();
    // Programs behind the mount see the lock and exclude others.
    let behind = LocalStore::open(folder.path(), &StoreOptions::default()).unwrap();
    let behind = behind
        .open_itself(&RelPath::parse(b"a").unwrap(), Access::Write)
        .unwrap()
        .node;
    assert!(!behind.lock_range(5, 5, RangeLock::Shared).unwrap());
    set(lock(ino, handle, 1, RangeLock::None)).unwrap();
    assert!(behind.lock_range(5, 5, RangeLock::Exclusive).unwrap());
    assert_eq!(set(lock(ino, handle, 1, RangeLock::Shared)), Err(Errno::AGAIN));
    wait(&fs, lock(ino, handle, 1, RangeLock::Shared), || {
        behind.lock_range(0, i64::MAX as u64, RangeLock::None).unwrap();
    })
    .unwrap();
    // The end of the mount ends all waits.
    let refused = wait(&fs, lock(ino, handle, 3, RangeLock::Exclusive), || fs.end());
    assert_eq!(refused, Err(Errno::INTR));
}
