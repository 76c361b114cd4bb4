//! Leases as those above a store see them: epochs, breaks that wait for an observer, cut lines.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ropeway_smb_client::SmbStore;
use ropeway_vfs::FileId;
use ropeway_vfs::external::{ContentLease, ExternalChange, LeaseLeft, Observer};
use ropeway_vfs::store::{Node, Store};

use crate::bench::{Bench, CREATE, READ, content, open};

/// The time in which a test's server and clients do anything that they do at all.
const SOON: Duration = Duration::from_secs(20);

/// What an observer does before a break is acknowledged.
type OnBreak = Box<dyn FnMut(FileId, LeaseLeft) + Send>;

/// An observer that hands on what it hears.
struct Heard {
    sender: Sender<ExternalChange>,
    on_break: Mutex<OnBreak>,
}

impl Observer for Heard {
    fn changed(&self, changes: &[ExternalChange]) {
        for change in changes {
            // The test may have ended.
            let _ = self.sender.send(change.clone());
        }
    }

    fn breaking(&self, id: FileId, left: LeaseLeft) {
        (self.on_break.lock().unwrap())(id, left);
    }
}

pub(crate) fn observe(
    store: &SmbStore,
    on_break: impl FnMut(FileId, LeaseLeft) + Send + 'static,
) -> Receiver<ExternalChange> {
    let (sender, heard) = channel();
    store.observe(Arc::new(Heard {
        sender,
        on_break: Mutex::new(Box::new(on_break)),
    }));
    heard
}

/// Waits for a condition.
pub(crate) fn until(what: &str, mut is_met: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !is_met() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn epoch(node: &dyn Node) -> u64 {
    match node.lease() {
        ContentLease::Held { epoch } => epoch,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_epoch_lasts_until_another_client_writes() {
    let bench = Bench::start();
    let (here, there) = (bench.store(), bench.store());
    let writer = open(&there, "f", &CREATE);
    writer.write_at(b"one", 0).unwrap();
    writer.sync().unwrap();
    drop(writer);
    until("a lease is granted", || {
        open(&here, "f", &READ).lease() != ContentLease::None
    });
    let reader = open(&here, "f", &READ);
    let first = epoch(&*reader);
    assert_eq!(content(&*reader), b"one");
    assert_eq!(content(&*open(&there, "f", &READ)), b"one");
    assert_eq!(epoch(&*reader), first, "another reader takes nothing");
    let writer = open(&there, "f", &CREATE);
    writer.write_at(b"two", 0).unwrap();
    writer.write_out().unwrap();
    until("the lease is broken", || reader.lease() == ContentLease::None);
    assert_eq!(content(&*reader), b"two");
    drop((reader, writer));
    until("there is a new lease", || {
        let node = open(&here, "f", &READ);
        matches!(node.lease(), ContentLease::Held { epoch } if epoch > first)
    });
}

/// The observer's own clients have unwritten data: it is on the server before the other client's
/// write begins, which replaces it.
#[test]
fn an_observer_is_asked_before_a_break_is_acknowledged() {
    let bench = Bench::start();
    let (here, there) = (bench.store(), bench.store());
    let node = open(&here, "f", &CREATE);
    node.write_at(b"old", 0).unwrap();
    node.sync().unwrap();
    let watching = node.watch(false).unwrap();
    let id = node.stat().unwrap().id;
    let own = Arc::clone(&node);
    let mut dirty = Some(*b"unwritten data");
    let heard = observe(&here, move |broken, _| {
        assert_eq!(broken, id);
        if let Some(data) = dirty.take() {
            own.write_at(&data, 0).unwrap();
        }
    });
    there
        .rename(&crate::bench::path("f"), &crate::bench::path("g"), false)
        .unwrap();
    let other = open(&there, "g", &CREATE);
    other.write_at(b"by another", 0).unwrap();
    other.write_out().unwrap();
    let change = heard.recv_timeout(SOON).unwrap();
    assert_eq!(change, ExternalChange::Node(id));
    assert_eq!(std::fs::read(bench.path().join("g")).unwrap(), b"by anotherdata");
    drop((watching, node));
}

/// A watched file asks for a new lease: each change of another client is reported.
#[test]
fn a_watch_outlasts_breaks_and_cut_lines() {
    let bench = Bench::start();
    let (here, there) = (bench.store(), bench.store());
    open(&there, "f", &CREATE).sync().unwrap();
    let node = open(&here, "f", &READ);
    let id = node.stat().unwrap().id;
    let heard = observe(&here, |_, _| ());
    let _watching = node.watch(false).unwrap();
    for round in 0..3_u64 {
        until("the lease is there", || {
            matches!(node.lease(), ContentLease::Held { .. })
        });
        if round == 1 {
            let before = epoch(&*node);
            bench.way.cut();
            until("the lease is suspended", || {
                node.lease() == ContentLease::Suspended { epoch: before }
            });
            // The durable handle comes back with its lease.
            let _ = node.read_at(&mut [0; 10], 0).unwrap();
            assert_eq!(epoch(&*node), before, "nothing has changed");
        }
        let other = open(&there, "f", &CREATE);
        other.write_at(b"x", round).unwrap();
        other.write_out().unwrap();
        assert_eq!(heard.recv_timeout(SOON).unwrap(), ExternalChange::Node(id));
        drop(other);
    }
}
