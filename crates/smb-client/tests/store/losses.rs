//! Cut lines and restarted servers: nothing that a sync has acknowledged is lost, and errors reach
//! somebody.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropeway_smb_client::SmbStoreOptions;
use ropeway_smb_server::Share;
use ropeway_vfs::ErrorKind;
use ropeway_vfs::store::Store;

use super::bench::{Bench, CREATE, READ, bytes, connect, content, open, path};
use super::faulty::{Faults, FaultyStore};
use crate::serve::Serve;

#[test]
fn a_cut_line_is_waited_for() {
    let bench = Bench::start();
    let store = bench.store();
    let node = open(&store, "f", &CREATE);
    let data = bytes(3_000_000, 1);
    for (index, piece) in data.chunks(100_000).enumerate() {
        node.write_at(piece, index as u64 * 100_000).unwrap();
        if index % 7 == 3 {
            bench.way.cut();
        }
    }
    node.sync().unwrap();
    assert!(std::fs::read(bench.path().join("f")).unwrap() == data);
    bench.way.cut();
    let mut back = vec![0; 3_000_000];
    assert_eq!(node.read_at(&mut back, 0).unwrap(), 3_000_000);
    assert!(back == data);
}

/// Without its durable handles the server does not know the open file any more. What it had not
/// flushed is written again, from memory.
#[test]
fn a_restarted_server_gets_the_unflushed_writes_again() {
    let mut bench = Bench::start();
    let store = bench.store();
    let node = open(&store, "f", &CREATE);
    node.write_at(&[1; 10_000], 0).unwrap();
    node.sync().unwrap();
    node.write_at(&[2; 5000], 5000).unwrap();
    node.write_out().unwrap();
    node.set_len(8000).unwrap();
    node.write_at(&[3; 100], 20_000).unwrap();
    node.write_out().unwrap();
    // The server goes down and loses what it had not flushed.
    let address = bench.serve.address.to_string();
    let elsewhere = tempfile::tempdir().unwrap();
    let aside = Serve::start(elsewhere.path());
    drop(std::mem::replace(&mut bench.serve, aside));
    let file = bench.path().join("f");
    let before = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
    before.set_len(0).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&before, &[1; 10_000], 0).unwrap();
    bench.serve = Serve::at(&address, bench.folder.path(), |_| {});
    node.sync().unwrap();
    let mut expected = vec![1; 5000];
    expected.resize(8000, 2);
    expected.resize(20_000, 0);
    expected.resize(20_100, 3);
    assert!(std::fs::read(&file).unwrap() == expected);
    assert!(content(&*node) == expected);
}

/// The file was replaced meanwhile: that cannot be repaired, and must be reported.
#[test]
fn a_file_that_is_gone_is_an_error_of_sync() {
    let mut bench = Bench::start();
    let store = bench.store();
    let node = open(&store, "f", &CREATE);
    node.write_at(b"some data", 0).unwrap();
    node.write_out().unwrap();
    let address = bench.serve.address.to_string();
    let elsewhere = tempfile::tempdir().unwrap();
    let aside = Serve::start(elsewhere.path());
    drop(std::mem::replace(&mut bench.serve, aside));
    std::fs::remove_file(bench.path().join("f")).unwrap();
    bench.serve = Serve::at(&address, bench.folder.path(), |_| {});
    node.write_at(b"more", 4).unwrap();
    assert!(node.sync().is_err());
}

/// A write fails on the server after it was acknowledged here.
#[test]
fn errors_of_the_background_are_reported_once() {
    let Some(small) = SmallVolume::mount() else {
        println!("skipped: a small tmpfs needs root");
        return;
    };
    let serve = Serve::start(small.folder.path());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = connect(&runtime, serve.address, "", SmbStoreOptions::default());
    let node = open(&store, "f", &CREATE);
    let fill = |node: &dyn ropeway_vfs::store::Node| {
        for index in 0..24_u64 {
            node.write_at(&bytes(1 << 20, index), index << 20).unwrap();
        }
    };
    fill(&*node);
    assert_eq!(node.sync().unwrap_err().kind, ErrorKind::NoSpace);
    while node.write_out().is_err() {}
    node.set_len(0).unwrap();
    node.sync().unwrap();
    fill(&*node);
    assert_eq!(node.write_out().unwrap_err().kind, ErrorKind::NoSpace);
    while node.write_out().is_err() {}
    node.set_len(0).unwrap();
    // Nobody asks before the node is dropped: the store reports it.
    fill(&*node);
    drop(node);
    // The topmost folder stays open, for its lease.
    super::leases::until("the file is closed", || serve.handle.sizes().1 <= 1);
    assert_eq!(store.sync().unwrap_err().kind, ErrorKind::NoSpace);
    store.sync().unwrap();
    drop(store);
    drop(runtime);
}

/// Somebody else's close, lock or `sync` may be the first to hear that a write failed.
#[test]
fn a_loss_that_others_have_heard_of_is_an_error_of_the_writers_sync() {
    let Some(small) = SmallVolume::mount() else {
        println!("skipped: a small tmpfs needs root");
        return;
    };
    let serve = Serve::start(small.folder.path());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = connect(&runtime, serve.address, "", SmbStoreOptions::default());
    let (writer, reader) = (open(&store, "f", &CREATE), open(&store, "f", &READ));
    let second = open(&store, "f", &CREATE);
    let others: [&dyn Fn() -> ropeway_vfs::Result<()>; 3] =
        [&|| reader.write_out(), &|| second.write_out(), &|| store.sync()];
    for (index, hears) in others.into_iter().enumerate() {
        for piece in 0..24_u64 {
            writer.write_at(&bytes(1 << 20, piece), piece << 20).unwrap();
        }
        while hears().is_err() {}
        assert_eq!(writer.sync().unwrap_err().kind, ErrorKind::NoSpace, "{index}");
        writer.sync().unwrap();
        let later = open(&store, "f", &CREATE);
        later.sync().unwrap();
        writer.set_len(0).unwrap();
        writer.sync().unwrap();
    }
    // Each writer hears of it once.
    assert_eq!(second.sync().unwrap_err().kind, ErrorKind::NoSpace);
    second.sync().unwrap();
    drop((writer, reader, second, store));
    drop(runtime);
}

/// A second FLUSH alone would succeed, and nothing would be there.
#[test]
fn what_a_server_could_not_flush_is_sent_again() {
    let folder = tempfile::tempdir().unwrap();
    let faults = Arc::<Faults>::default();
    let faulty = FaultyStore::open(folder.path(), &faults);
    let serve = Serve::with(folder.path(), |options| {
        options.shares = vec![Share::new("data", Arc::new(faulty))];
    });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = connect(&runtime, serve.address, "", SmbStoreOptions::default());
    let (first, second) = (open(&store, "f", &CREATE), open(&store, "f", &CREATE));
    let data = bytes(3_000_000, 1);
    first.write_at(&data, 0).unwrap();
    faults.flush.store(true, Ordering::Release);
    assert!(first.sync().is_err());
    // The other one has not heard of it.
    assert!(second.sync().is_err());
    first.sync().unwrap();
    second.sync().unwrap();
    assert!(std::fs::read(folder.path().join("f")).unwrap() == data);
    drop((first, second, store));
    drop(runtime);
}

/// The server restarts without what it had not flushed, and refuses to open the file again at first. A FLUSH
/// of the file that is opened later says nothing about what was written before.
#[test]
fn writes_in_doubt_stay_so_until_they_are_sent_again() {
    let folder = tempfile::tempdir().unwrap();
    let faults = Arc::<Faults>::default();
    let serve = |address: &str| {
        Serve::at(address, folder.path(), |options| {
            let faulty = FaultyStore::open(folder.path(), &faults);
            options.shares = vec![Share::new("data", Arc::new(faulty))];
        })
    };
    let server = serve("127.0.0.1:0");
    let address = server.address;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = connect(&runtime, address, "", SmbStoreOptions::default());
    let node = open(&store, "f", &CREATE);
    let data = bytes(100_000, 1);
    node.write_at(&data, 0).unwrap();
    node.write_out().unwrap();
    drop(server);
    let file = folder.path().join("f");
    std::fs::File::create(&file).unwrap();
    // The client opens it again, and then once more to send the writes.
    faults.open.store(2, Ordering::Release);
    let server = serve(&address.to_string());
    assert_eq!(node.sync().unwrap_err().kind, ErrorKind::NoSpace);
    node.sync().unwrap();
    assert!(std::fs::read(&file).unwrap() == data);
    drop((node, store));
    drop(runtime);
    drop(server);
}

/// A file system of 8 MiB in memory.
struct SmallVolume {
    folder: tempfile::TempDir,
}

impl SmallVolume {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = std::process::Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"])
            .arg(folder.path());
        let done = mount.output().ok()?.status.success();
        done.then_some(Self { folder })
    }
}

impl Drop for SmallVolume {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .arg("-l")
            .arg(self.folder.path())
            .status();
    }
}

/// The last node of a file is dropped while its data is still here.
#[test]
fn a_dropped_node_is_written_out() {
    let bench = Bench::start();
    let store = bench.store();
    let data = bytes(4_000_000, 5);
    for round in 0..5 {
        let at = format!("f{round}");
        let node = open(&store, &at, &CREATE);
        node.write_at(&data, 0).unwrap();
        drop(node);
        let again = open(&store, &at, &READ);
        let mut back = vec![0; data.len()];
        assert_eq!(again.read_at(&mut back, 0).unwrap(), data.len());
        assert!(back == data);
    }
    store.sync().unwrap();
    for round in 0..5 {
        let file = bench.path().join(format!("f{round}"));
        assert!(std::fs::read(file).unwrap() == data);
    }
    assert!(store.open(&path("f9"), &READ).is_err());
}
