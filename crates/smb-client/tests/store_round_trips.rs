//! Counts the round trips of a store, by the client's log of requests. A binary of its own: the log
//! counts the requests of the whole process.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(dead_code, reason = "the bench does more than these tests ask of it")]

#[path = "store/bench.rs"]
mod bench;
#[path = "../../smb-server/tests/hard/serve.rs"]
mod serve;
#[path = "store/way.rs"]
mod way;

use std::sync::Mutex;
use std::time::Duration;

use bench::{Bench, CREATE, LOOK, READ, bytes, content, open, path};
use ropeway_smb_client::{SmbStore, SmbStoreOptions};
use ropeway_vfs::Kind;
use ropeway_vfs::store::{NodeStat, Store};
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::{Layer, Registry};

/// The requests since the last look, without those nobody waits for: closing, breaks.
static ASKED: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// Held by the test that counts.
static ALONE: Mutex<()> = Mutex::new(());

/// The tickets of compounds that flush, and how many of these succeeded and failed.
static FLUSHES: Mutex<(Vec<String>, usize, usize)> = Mutex::new((Vec::new(), 0, 0));

struct Count;

#[derive(Default)]
struct Commands {
    commands: Option<String>,
    ticket: String,
    failed: bool,
}

impl Visit for Commands {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        match field.name() {
            "commands" => self.commands = Some(format!("{value:?}")),
            "ticket" => self.ticket = format!("{value:?}"),
            "failed" => self.failed = true,
            _ => {}
        }
    }
}

impl<S: tracing::Subscriber> Layer<S> for Count {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() != "ropeway_smb_client::wire_log" {
            return;
        }
        let mut commands = Commands::default();
        event.record(&mut commands);
        commands.count_flush();
        let awaited = commands
            .commands
            .filter(|commands| commands != "Close" && commands != "OplockBreak");
        ASKED.lock().unwrap().extend(awaited);
    }
}

impl Commands {
    fn count_flush(&self) {
        let mut flushes = FLUSHES.lock().unwrap();
        match &self.commands {
            Some(commands) if commands.contains("Flush") => flushes.0.push(self.ticket.clone()),
            Some(_) => {}
            None => {
                if let Some(at) = flushes.0.iter().position(|ticket| *ticket == self.ticket) {
                    flushes.0.remove(at);
                    *(if self.failed {
                        &mut flushes.2
                    } else {
                        &mut flushes.1
                    }) += 1;
                }
            }
        }
    }
}

/// Returns how many flushes of `run` succeeded, and how many failed.
fn flushes(run: impl FnOnce()) -> (usize, usize) {
    *FLUSHES.lock().unwrap() = (Vec::new(), 0, 0);
    run();
    let flushes = FLUSHES.lock().unwrap();
    (flushes.1, flushes.2)
}

fn log() {
    let _ = tracing::subscriber::set_global_default(Registry::default().with(Count));
}

/// Returns the requests that `run` made, of several round trips or in parallel.
fn asked<T>(run: impl FnOnce() -> T) -> (T, Vec<String>) {
    ASKED.lock().unwrap().clear();
    let result = run();
    let asked = std::mem::take(&mut *ASKED.lock().unwrap());
    (result, asked)
}

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Lists everything beneath a folder with attributes, as `ls -lR` does: it looks at each entry.
fn list_all(store: &SmbStore, at: &str, found: &mut Vec<(String, NodeStat)>) {
    let folder = open(store, at, &READ);
    let mut entries = folder.entries().unwrap();
    let mut names = Vec::new();
    while let Some((name, _)) = entries.next().unwrap() {
        names.push(name.to_string());
    }
    for name in names {
        let at = if at.is_empty() {
            name
        } else {
            format!("{at}/{name}")
        };
        let stat = open(store, &at, &LOOK).stat().unwrap();
        let is_folder = stat.kind == Kind::Directory;
        found.push((at.clone(), stat));
        if is_folder {
            list_all(store, &at, found);
        }
    }
}

/// 10,000 entries in 30 folders: one round trip for each folder.
#[test]
fn a_recursive_listing_takes_a_round_trip_for_each_folder() {
    let _alone = alone();
    let bench = Bench::start();
    for folder in 0..30 {
        let at = bench.path().join(format!("folder {folder}"));
        std::fs::create_dir(&at).unwrap();
        for file in 0..333 {
            std::fs::write(at.join(format!("file {file}")), [0; 10]).unwrap();
        }
    }
    let options = SmbStoreOptions {
        // The attributes must last for the whole walk on a slow machine.
        cache_timeout: Duration::from_secs(60),
        ..SmbStoreOptions::default()
    };
    let store = bench.store_with("", options);
    let mut found = Vec::new();
    let ((), requests) = asked(|| list_all(&store, "", &mut found));
    assert_eq!(found.len(), 30 * 334);
    assert!(requests.len() <= 40, "{} requests: {requests:?}", requests.len());
    println!("{} requests for {} entries", requests.len(), found.len());
    // Again, and what does not exist: nothing is asked.
    let ((), requests) = asked(|| {
        list_all(&store, "", &mut found);
        for folder in 0..30 {
            let missing = store.open(&path(&format!("folder {folder}/no such file")), &LOOK);
            assert!(missing.is_err());
        }
    });
    assert!(requests.is_empty(), "{requests:?}");
}

/// Without time-outs: what a lease covers is not asked for again, until another client changes it.
#[test]
fn a_listed_folder_is_known_while_its_lease_lasts() {
    let _alone = alone();
    let bench = Bench::start();
    let there = bench.store();
    for name in ["d/a", "d/b", "e/c"] {
        std::fs::create_dir_all(bench.path().join(&name[..1])).unwrap();
        std::fs::write(bench.path().join(name), name).unwrap();
    }
    let options = SmbStoreOptions {
        cache_timeout: Duration::ZERO,
        ..SmbStoreOptions::default()
    };
    let store = bench.store_with("", options);
    let mut found = Vec::new();
    list_all(&store, "", &mut found);
    assert_eq!(found.len(), 5);
    let ((), requests) = asked(|| {
        found.clear();
        // The attributes of the root are in no listing.
        list_all(&store, "d", &mut found);
        list_all(&store, "e", &mut found);
        assert_eq!(found.len(), 3);
        assert!(store.open(&path("d/none"), &LOOK).is_err());
    });
    assert!(requests.is_empty(), "{requests:?}");
    open(&there, "d/none", &CREATE).write_out().unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while store.open(&path("d/none"), &LOOK).is_err() {
        assert!(std::time::Instant::now() < deadline, "the lease is not broken");
    }
    let ((), requests) = asked(|| drop(open(&store, "e/c", &LOOK)));
    assert!(
        requests.is_empty(),
        "the other folder's lease lasts: {requests:?}"
    );
    // A folder kept open is not in the way.
    store.remove(&path("e/c"), false).unwrap();
    store.remove(&path("e"), true).unwrap();
    assert!(!bench.path().join("e").exists());
    store.rename(&path("d"), &path("f"), false).unwrap();
    assert!(bench.path().join("f/a").exists());
}

#[test]
fn a_random_read_takes_one_round_trip() {
    let _alone = alone();
    let bench = Bench::start();
    std::fs::write(bench.path().join("f"), bytes(32 << 20, 3)).unwrap();
    let store = bench.store();
    let node = open(&store, "f", &READ);
    let mut random = fastrand::Rng::with_seed(5);
    let mut places: Vec<u64> = (0..100).map(|index| index * 80_000 * 4).collect();
    random.shuffle(&mut places);
    for at in places {
        let (count, requests) = asked(|| node.read_at(&mut [0; 4096], at).unwrap());
        assert_eq!((count, requests), (4096, vec!["Read".to_owned()]));
    }
}

/// Neither is a sequence, so nothing is read ahead, and nothing is waited for twice.
#[test]
fn strided_and_backward_reads_take_one_round_trip_each() {
    let _alone = alone();
    let bench = Bench::start();
    std::fs::write(bench.path().join("f"), bytes(32 << 20, 3)).unwrap();
    let store = bench.store();
    let strided: Vec<u64> = (0..30).map(|index| index * (1 << 20)).collect();
    let backward: Vec<u64> = (0..30).rev().map(|index| index * 65_536).collect();
    for places in [strided, backward] {
        let node = open(&store, "f", &READ);
        for at in places {
            let (count, requests) = asked(|| node.read_at(&mut [0; 65_536], at).unwrap());
            assert_eq!((count, requests), (65_536, vec!["Read".to_owned()]), "{at}");
        }
    }
}

#[test]
fn small_writes_travel_together() {
    let _alone = alone();
    let bench = Bench::start();
    let store = bench.store();
    let node = open(&store, "f", &CREATE);
    let data = bytes(4 << 20, 4);
    let ((), requests) = asked(|| {
        for (index, piece) in data.chunks(4096).enumerate() {
            node.write_at(piece, index as u64 * 4096).unwrap();
        }
        node.sync().unwrap();
    });
    let writes = requests.iter().filter(|request| *request == "Write").count();
    let flushes = requests.iter().filter(|request| *request == "Flush").count();
    assert!(writes <= 16, "{writes} writes of 1,024");
    assert_eq!(flushes, 1);
    assert!(std::fs::read(bench.path().join("f")).unwrap() == data);
    // What was just written is read from memory or in one piece.
    assert!(content(&*node) == data[..1 << 20]);
    let ((), requests) = asked(|| node.sync().unwrap());
    assert!(requests.is_empty(), "nothing is left to flush: {requests:?}");
}

/// A sync of the store flushes closed files by their names. One flush more is that of the folder.
#[test]
fn a_file_that_was_renamed_while_it_was_open_is_flushed() {
    let _alone = alone();
    let bench = Bench::start();
    let store = bench.store();
    let node = open(&store, "f", &CREATE);
    node.write_at(b"one", 0).unwrap();
    node.sync().unwrap();
    store.rename(&path("f"), &path("g"), false).unwrap();
    store.sync().unwrap();
    node.write_at(b"two", 0).unwrap();
    drop(node);
    until_closed(&bench);
    assert_eq!(flushes(|| store.sync().unwrap()), (1, 0));
}

#[test]
fn what_was_written_to_a_file_that_lost_one_of_its_names_is_flushed() {
    let _alone = alone();
    let bench = Bench::start();
    let store = bench.store();
    for (is_open, linked_by) in [
        (false, "here"),
        (false, "elsewhere"),
        (true, "here"),
        (true, "elsewhere"),
    ] {
        for how in ["remove", "rename", "link"] {
            let case = format!("open: {is_open}, linked {linked_by}, {how}");
            store.sync().unwrap();
            open(&store, "other", &CREATE).write_at(b"other", 0).unwrap();
            let node = open(&store, "f", &CREATE);
            node.write_at(b"one", 0).unwrap();
            node.write_out().unwrap();
            match linked_by {
                "here" => store.link(&path("f"), &path("g"), false).unwrap(),
                _ => std::fs::hard_link(bench.path().join("f"), bench.path().join("g")).unwrap(),
            }
            let node = Some(node).filter(|_| is_open);
            if !is_open {
                until_closed(&bench);
            }
            let take_name = || match how {
                "remove" => store.remove(&path("f"), false).unwrap(),
                "rename" => store.rename(&path("other"), &path("f"), true).unwrap(),
                _ => store.link(&path("other"), &path("f"), true).unwrap(),
            };
            let (done, failed) = flushes(|| {
                take_name();
                if let Some(node) = node {
                    node.write_at(b"two", 0).unwrap();
                    drop(node);
                    until_closed(&bench);
                }
                store.sync().unwrap();
            });
            // The folder, the other file and this one; that again by its handle, before it loses the
            // name and after the last write.
            let wanted = if is_open { 5 } else { 3 };
            assert!(
                done >= wanted && failed == 0,
                "{case}: {done} flushes, {failed} failed"
            );
            let content = if is_open { b"two" } else { b"one" };
            assert_eq!(std::fs::read(bench.path().join("g")).unwrap(), content, "{case}");
            for name in ["f", "g", "other"] {
                let _ = store.remove(&path(name), false);
                let _ = std::fs::remove_file(bench.path().join(name));
            }
        }
    }
}

/// Waits until the server has no open file.
fn until_closed(bench: &Bench) {
    let start = std::time::Instant::now();
    while bench.serve.handle.sizes().1 > 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "files stay open");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_look_at_a_file_costs_one_request_and_no_handle() {
    let _alone = alone();
    let bench = Bench::start();
    std::fs::write(bench.path().join("f"), [1; 10]).unwrap();
    let store = bench.store();
    let (node, requests) = asked(|| open(&store, "f", &LOOK));
    assert_eq!(requests, ["Create+QueryInfo+Close"]);
    let ((), requests) = asked(|| {
        for _ in 0..10 {
            assert_eq!(node.stat().unwrap().size, 10);
            open(&store, "f", &LOOK);
        }
    });
    assert!(requests.is_empty(), "{requests:?}");
    let (_, opens) = bench.serve.handle.sizes();
    assert_eq!(opens, 0);
    let (missing, requests) = asked(|| store.open(&path("no"), &LOOK));
    assert!(missing.is_err() && requests.len() == 1);
    let (missing, requests) = asked(|| store.open(&path("no"), &READ));
    assert!(missing.is_err() && requests.is_empty());
}
