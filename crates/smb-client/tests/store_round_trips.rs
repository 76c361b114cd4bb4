//! Counts the round trips of a store, by the client's log of requests. A binary of its own: the log
//! counts the requests of the whole process.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(dead_code, reason = "the bench does more than these tests ask of it")]

#[path = "store/bench.rs"]
mod bench;
#[path = "store/long_line.rs"]
mod long_line;
#[path = "store/new_files.rs"]
mod new_files;
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

/// What is known lasts for the whole test on a slow machine.
fn lasting() -> SmbStoreOptions {
    SmbStoreOptions {
        cache_timeout: Duration::from_secs(60),
        ..SmbStoreOptions::default()
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

/// Before, the end of each use made the store forget the listing of the folder.
#[test]
fn a_folder_stays_known_when_its_files_are_only_read() {
    let _alone = alone();
    let bench = Bench::start();
    for name in ["d/a", "d/b"] {
        std::fs::create_dir_all(bench.path().join("d")).unwrap();
        std::fs::write(bench.path().join(name), name).unwrap();
    }
    std::thread::sleep(Duration::from_millis(500));
    let store = bench.store_with("", lasting());
    let mut found = Vec::new();
    list_all(&store, "d", &mut found);
    assert_eq!(content(&*open(&store, "d/b", &READ)), b"d/b");
    let ((), requests) = asked(|| {
        list_all(&store, "d", &mut found);
        drop(open(&store, "d/b", &LOOK));
    });
    assert!(requests.is_empty(), "{requests:?}");
}

/// Reads a file as a kernel does: whole pages, also across its end.
fn read_pages(store: &SmbStore, at: &str) -> Vec<u8> {
    let node = open(store, at, &READ);
    let mut all = Vec::new();
    loop {
        let mut page = vec![0; 128 << 10];
        let count = node.read_at(&mut page, all.len() as u64).unwrap();
        all.extend_from_slice(&page[..count]);
        if count < page.len() {
            return all;
        }
    }
}

/// Makes files of `d` whose sizes are given, and lets the server notice them.
fn files(bench: &Bench, sizes: &[usize]) -> Vec<(String, Vec<u8>)> {
    std::fs::create_dir(bench.path().join("d")).unwrap();
    let files = sizes.iter().enumerate().map(|(at, size)| {
        let (name, data) = (format!("d/file {at:02}"), bytes(*size, at as u64));
        std::fs::write(bench.path().join(&name), &data).unwrap();
        (name, data)
    });
    let files = files.collect();
    // It would break leases for these changes of a local program.
    std::thread::sleep(Duration::from_millis(500));
    files
}

/// Returns files in the order in which their folder is listed.
fn in_order(store: &SmbStore, mut files: Vec<(String, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    list_all(store, "d", &mut found);
    files.sort_by_key(|(name, _)| found.iter().position(|(at, _)| at == name));
    files
}

/// Before, each file took one more READ, behind its end.
#[test]
fn the_end_of_a_leased_file_is_not_asked_for() {
    let _alone = alone();
    let bench = Bench::start();
    let files = files(&bench, &[1, 4096, 100_000, 128 << 10]);
    let store = bench.store_with("", lasting());
    list_all(&store, "", &mut Vec::new());
    // Backwards: nothing is read ahead of its open.
    for (name, data) in files.iter().rev() {
        let (read, requests) = asked(|| read_pages(&store, name));
        assert!(read == *data);
        assert_eq!(requests, ["Create", "Read"], "{name}");
    }
}

/// `cp -r`: after two files the next ones are requested, and then nothing more is asked for.
#[test]
fn the_next_files_of_a_folder_are_requested_before_they_are_opened() {
    let _alone = alone();
    let bench = Bench::start();
    let sizes: Vec<usize> = (0..30).map(|at| 9_000 + 1_000 * at).collect();
    let files = files(&bench, &sizes);
    let store = bench.store_with("", lasting());
    let files = in_order(&store, files);
    let ((), requests) = asked(|| {
        for (name, data) in &files[..2] {
            assert!(read_pages(&store, name) == *data, "{name}");
        }
        std::thread::sleep(Duration::from_secs(1));
    });
    let count = |wanted: &str| requests.iter().filter(|request| *request == wanted).count();
    assert_eq!((count("Create"), count("Read")), (30, 30), "{requests:?}");
    assert_eq!(requests.len(), 60, "{requests:?}");
    let ((), requests) = asked(|| {
        for (name, data) in &files[2..] {
            assert!(read_pages(&store, name) == *data, "{name}");
        }
    });
    assert!(requests.is_empty(), "{requests:?}");
}

/// Returns some files in an order in which none follows soon after another, neither as they are
/// listed nor by their numbers.
fn without_sequence(bench: &Bench, files: &[(String, Vec<u8>)], count: usize) -> Vec<usize> {
    use std::os::unix::fs::MetadataExt as _;
    let number = |at: &usize| std::fs::metadata(bench.path().join(&files[*at].0)).unwrap().ino();
    let mut by_number: Vec<usize> = (0..files.len()).collect();
    by_number.sort_by_key(number);
    let place = |at: usize| by_number.iter().position(|other| *other == at).unwrap();
    let follows = |one: usize, other: usize| (1..=8).any(|step| one + step == other);
    let mut random = fastrand::Rng::with_seed(9);
    loop {
        let mut order: Vec<usize> = (1..files.len()).collect();
        random.shuffle(&mut order);
        order.truncate(count);
        let mut pairs = order.windows(2);
        if !pairs.any(|pair| follows(pair[0], pair[1]) || follows(place(pair[0]), place(pair[1]))) {
            return order;
        }
    }
}

/// Files that are read in no order, or not whole, cause no request for others.
#[test]
fn files_read_at_random_or_in_part_cause_nothing_ahead() {
    let _alone = alone();
    let bench = Bench::start();
    let files = files(&bench, &[20_000; 60]);
    let store = bench.store_with("", lasting());
    let files = in_order(&store, files);
    let order = without_sequence(&bench, &files, 15);
    let ((), requests) = asked(|| {
        for at in order {
            assert!(read_pages(&store, &files[at].0) == files[at].1);
        }
        for (name, _) in &files {
            let node = open(&store, name, &READ);
            assert_eq!(node.read_at(&mut [0; 100], 0).unwrap(), 100);
        }
        std::thread::sleep(Duration::from_millis(500));
    });
    let opened = requests.iter().filter(|request| *request == "Create").count();
    assert_eq!(opened, 15 + 60, "{requests:?}");
}

/// What is ahead is bounded by what the line holds, and is closed if nobody wants it.
#[test]
fn files_ahead_are_bounded_and_closed_again() {
    let _alone = alone();
    let bench = Bench::start();
    let files = files(&bench, &[1 << 20; 90]);
    let store = bench.store_with("", lasting());
    let files = in_order(&store, files);
    let ((), requests) = asked(|| {
        for (name, data) in &files[..2] {
            assert!(read_pages(&store, name) == *data, "{name}");
        }
        std::thread::sleep(Duration::from_secs(1));
    });
    let opened = requests.iter().filter(|request| *request == "Create").count();
    // At most 24 MiB.
    assert!((3..=26).contains(&opened), "{opened} opens");
    let (_, before) = bench.serve.handle.sizes();
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    // The listed folders stay open.
    while bench.serve.handle.sizes().1 > 2 {
        assert!(std::time::Instant::now() < deadline, "{before} stay open");
        std::thread::sleep(Duration::from_millis(50));
    }
    // Nobody wanted them: the folder is given up.
    let ((), requests) = asked(|| {
        for (name, data) in &files[2..4] {
            assert!(read_pages(&store, name) == *data, "{name}");
        }
        std::thread::sleep(Duration::from_millis(500));
    });
    let opened = requests.iter().filter(|request| *request == "Create").count();
    assert_eq!(opened, 2, "{requests:?}");
}

/// Without this, each folder of a tree takes a round trip that a program waits for.
#[test]
fn the_next_folders_of_a_tree_are_listed_ahead() {
    let _alone = alone();
    let bench = Bench::start();
    for folder in 0..18 {
        let at = bench.path().join(format!("t/{folder:02}"));
        std::fs::create_dir_all(&at).unwrap();
        std::fs::write(at.join("f"), [0; 10]).unwrap();
    }
    std::thread::sleep(Duration::from_millis(500));
    let store = bench.store_with("", lasting());
    let names = |at: &str| {
        let mut entries = open(&store, at, &READ).entries().unwrap();
        let mut names = Vec::new();
        while let Some((name, _)) = entries.next().unwrap() {
            names.push(format!("{at}/{name}"));
        }
        names
    };
    let folders = names("t");
    for folder in &folders[..2] {
        assert_eq!(names(folder), [format!("{folder}/f")]);
    }
    std::thread::sleep(Duration::from_secs(1));
    let ((), requests) = asked(|| {
        for folder in &folders[2..] {
            assert_eq!(names(folder), [format!("{folder}/f")]);
        }
    });
    assert!(requests.is_empty(), "{requests:?}");
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
    assert_eq!(opens, 1, "only the topmost folder is open, for its lease");
    let (missing, requests) = asked(|| store.open(&path("no"), &LOOK));
    assert!(missing.is_err() && requests.len() == 1);
    let (missing, requests) = asked(|| store.open(&path("no"), &READ));
    assert!(missing.is_err() && requests.is_empty());
}
