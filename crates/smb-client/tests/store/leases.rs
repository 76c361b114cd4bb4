//! Leases as those above a store see them: epochs, breaks that wait for an observer, cut lines.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ropeway_smb_client::{SmbStore, SmbStoreOptions};
use ropeway_vfs::FileId;
use ropeway_vfs::external::{ContentLease, EntryChange, ExternalChange, LeaseLeft, Observer};
use ropeway_vfs::store::{Node, Store};

use super::bench::{Bench, CREATE, LOOK, READ, content, open, path};

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
        matches!(open(&here, "f", &READ).lease(), ContentLease::Held { .. })
    });
    let reader = open(&here, "f", &READ);
    let first = epoch(&*reader);
    assert_eq!(content(&*reader), b"one");
    assert_eq!(content(&*open(&there, "f", &READ)), b"one");
    assert_eq!(epoch(&*reader), first, "another reader takes nothing");
    let writer = open(&there, "f", &CREATE);
    writer.write_at(b"two", 0).unwrap();
    writer.write_out().unwrap();
    until("the lease is broken", || reader.lease() == ContentLease::Broken);
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
    there.rename(&path("f"), &path("g"), false).unwrap();
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
            // The durable handle comes back with its lease, although nobody uses it.
            until("the lease is suspended and comes back", || {
                node.lease() == ContentLease::Held { epoch: before }
            });
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

/// Waits for a report about a path.
fn hear(heard: &Receiver<ExternalChange>, at: &str, is_wanted: impl Fn(&ExternalChange) -> bool) {
    loop {
        let change = heard
            .recv_timeout(SOON)
            .unwrap_or_else(|_| panic!("nothing about {at}"));
        if is_wanted(&change) {
            return;
        }
    }
}

fn hear_entry(heard: &Receiver<ExternalChange>, at: &str, wanted: EntryChange) {
    hear(
        heard,
        at,
        |change| matches!(change, ExternalChange::Entry { path: on, what, .. } if *on == path(at) && *what == wanted),
    );
}

#[test]
fn a_watched_folder_reports_what_others_do() {
    let bench = Bench::start();
    std::fs::create_dir(bench.path().join("d")).unwrap();
    let (here, there) = (bench.store(), bench.store());
    let heard = observe(&here, |_, _| ());
    let watching = open(&here, "d", &LOOK).watch(true).unwrap();
    open(&there, "d/f", &CREATE).write_out().unwrap();
    hear_entry(&heard, "d/f", EntryChange::Added);
    let node = open(&there, "d/f", &CREATE);
    node.write_at(b"x", 0).unwrap();
    node.write_out().unwrap();
    drop(node);
    hear_entry(&heard, "d/f", EntryChange::Content);
    there.rename(&path("d/f"), &path("d/g"), false).unwrap();
    hear(
        &heard,
        "d/g",
        |change| matches!(change, ExternalChange::Renamed { from, to, .. } if *from == path("d/f") && *to == path("d/g")),
    );
    // Own changes are not reported: the next report is about another client's.
    open(&here, "d/own", &CREATE).write_out().unwrap();
    here.remove(&path("d/own"), false).unwrap();
    there.remove(&path("d/g"), false).unwrap();
    hear(&heard, "d/g", |change| match change {
        ExternalChange::Entry { path: on, what, .. } => {
            assert_ne!(*on, path("d/own"), "{what:?}");
            *what == EntryChange::Removed
        }
        _ => false,
    });
    // After a lost connection anything may have changed; then reports go on.
    bench.way.cut();
    hear(&heard, "a loss", |change| *change == ExternalChange::Lost);
    open(&there, "d/later", &CREATE).write_out().unwrap();
    hear_entry(&heard, "d/later", EntryChange::Added);
    drop(watching);
}

#[test]
fn the_number_of_watched_folders_is_bounded() {
    let bench = Bench::start();
    let store = bench.store();
    let mut watches = Vec::new();
    let refused = loop {
        let name = format!("d{}", watches.len());
        std::fs::create_dir(bench.path().join(&name)).unwrap();
        match open(&store, &name, &LOOK).watch(false) {
            Ok(watching) => watches.push(watching),
            Err(error) => break error,
        }
        assert!(watches.len() < 10_000);
    };
    assert_eq!(refused.kind, ropeway_vfs::ErrorKind::Exhausted);
    watches.pop();
    until("there is room again", || {
        open(&store, "d0", &LOOK).watch(true).is_ok()
    });
}

/// Two clients change each other's files, by seed. Nothing is trusted without a lease, and what a
/// lease covers is trusted for ever. So each sees the other's change as soon as the break is here.
#[test]
fn two_stores_agree_by_their_leases() {
    let bench = Bench::start();
    std::fs::create_dir(bench.path().join("d")).unwrap();
    let options = SmbStoreOptions {
        cache_timeout: Duration::ZERO,
        data_timeout: Duration::ZERO,
        ..SmbStoreOptions::default()
    };
    let stores = [0, 1].map(|_| bench.store_with("d", options.clone()));
    let steps: u64 = std::env::var("ROPEWAY_STORE_STEPS").map_or(60, |steps| steps.parse().unwrap());
    let mut random = fastrand::Rng::with_seed(11);
    // A change that is only half seen is looked at again.
    let seen = |store: &SmbStore| {
        let mut all = Vec::new();
        let mut entries = open(store, "", &READ).entries().ok()?;
        while let Some((name, stat)) = entries.next().ok()? {
            let at = path(&name.to_string());
            let data = content(&*store.open(&at, &READ).ok()?.node);
            let looked = store.open(&at, &LOOK).ok()?.stat.size;
            all.push((name.to_string(), stat.size, looked, data));
        }
        all.sort();
        Some(all)
    };
    let mut expected = std::collections::BTreeMap::new();
    for step in 0..steps {
        let store = &stores[random.usize(0..2)];
        let name = format!("f{}", random.u8(0..4));
        let to = format!("f{}", random.u8(0..4));
        match random.u8(0..6) {
            0 if expected.remove(&name).is_some() => store.remove(&path(&name), false).unwrap(),
            1 if expected.contains_key(&name) && name != to => {
                store.rename(&path(&name), &path(&to), true).unwrap();
                let data: Vec<u8> = expected.remove(&name).unwrap();
                expected.insert(to, data);
            }
            2 => bench.way.cut(),
            _ => {
                let data = super::bench::bytes(random.usize(1..5000), step);
                let node = open(store, &name, &CREATE);
                node.set_len(0).unwrap();
                node.write_at(&data, 0).unwrap();
                node.write_out().unwrap();
                expected.insert(name, data);
            }
        }
        let wanted: Vec<_> = expected
            .iter()
            .map(|(name, data)| (name.clone(), data.len() as u64, data.len() as u64, data.clone()))
            .collect();
        for store in &stores {
            until("the other's change is seen", || {
                seen(store).as_ref() == Some(&wanted)
            });
        }
    }
}
