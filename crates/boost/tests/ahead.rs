//! Prefetching: what is used in the same order again is there before it is asked for, what cannot be
//! predicted costs little, and what was learned is kept.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{SETTLE, boost_with};
use ropeway_boost::{Boost, BoostOptions, BoostStore, share_id};
use ropeway_cache::SimulatedDevice;
use ropeway_local::{LocalStore, StoreOptions};
use ropeway_vfs::store::{Access, Node, NodeOpen, Store as _};
use ropeway_vfs::{RelPath, caller};

const BLOCK: u64 = 64 << 10;

fn predicting(device: &SimulatedDevice, blocks: usize, learned: Option<Vec<u8>>) -> Boost {
    boost_with(
        device,
        BoostOptions {
            predict_blocks: Some(blocks),
            learned,
            line_bytes_per_s: Some(1e9),
            ..BoostOptions::default()
        },
    )
}

fn store(folder: &Path, boost: &Boost) -> BoostStore {
    let store = LocalStore::open(folder, &StoreOptions::default()).expect("the folder opens");
    BoostStore::new(Arc::new(store), boost.clone(), share_id("test"))
}

fn open(store: &BoostStore, name: &str) -> Arc<dyn Node> {
    let how = NodeOpen {
        access: Access::Read,
        ..NodeOpen::default()
    };
    let path = RelPath::parse(name.as_bytes()).expect("a path");
    store.open(&path, &how).expect("the file opens").node
}

fn file(folder: &Path, name: &str, blocks: usize, seed: u64) -> Vec<u8> {
    let mut content = vec![0; blocks * BLOCK as usize];
    fastrand::Rng::with_seed(seed).fill(&mut content);
    std::fs::write(folder.join(name), &content).expect("a file");
    content
}

/// Reads a block, and compares it.
fn read(node: &dyn Node, block: u64, content: &[u8]) {
    let mut buffer = vec![0; 4096];
    node.read_at(&mut buffer, block * BLOCK).expect("a read");
    let at = (block * BLOCK) as usize;
    assert!(buffer == content[at..at + 4096], "block {block}");
}

/// Waits until no block has been prefetched for a while.
fn until_quiet(boost: &Boost) {
    let (mut last, mut since) = (boost.predicted().blocks_fetched, Instant::now());
    while since.elapsed() < Duration::from_millis(300) {
        std::thread::sleep(Duration::from_millis(10));
        let now = boost.predicted().blocks_fetched;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
}

#[test]
fn blocks_that_follow_each_other_are_there_before_they_are_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let content = file(folder.path(), "f", 600, 1);
    std::thread::sleep(3 * SETTLE);
    // Room for about 200 of 300 blocks, which are read in the same scattered order again and again.
    let device = SimulatedDevice::new(16 << 20);
    let boost = predicting(&device, 200, None);
    let store = store(folder.path(), &boost);
    let node = open(&store, "f");
    let mut order: Vec<u64> = (0..600).collect();
    fastrand::Rng::with_seed(5).shuffle(&mut order);
    let mut used = Vec::new();
    for _ in 0..6 {
        for block in &order[..300] {
            read(&*node, *block, &content);
            std::thread::sleep(Duration::from_millis(2));
        }
        let status = boost.predicted();
        used.push(status.sources.iter().map(|of| of.used).sum::<u64>());
    }
    let status = boost.predicted();
    assert!(used[5] - used[4] > 30, "used by round: {used:?}, {status:?}");
    assert!(
        status
            .next
            .iter()
            .all(|next| next.path == "f" && next.block.is_some())
    );
    assert!(status.lag >= 1 && status.requests == 1800, "{status:?}");
}

/// What a program opens in the usual order is there, also in an empty cache.
#[test]
fn the_next_files_of_a_program_are_prefetched_and_what_was_learned_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let files: Vec<_> = (0..40)
        .map(|number| {
            let name = format!("document {number}");
            let content = file(folder.path(), &name, 2, number);
            (name, content)
        })
        .collect();
    std::thread::sleep(3 * SETTLE);
    let pid = std::process::id();
    // An order that no name tells.
    let mut order: Vec<usize> = (0..files.len()).collect();
    fastrand::Rng::with_seed(9).shuffle(&mut order);
    let day = |boost: &Boost| {
        // The day begins some time after the cache was opened.
        std::thread::sleep(Duration::from_millis(20));
        let store = store(folder.path(), boost);
        for number in &order {
            let (name, content) = &files[*number];
            eprintln!("open {number}");
            let node = caller::on_behalf_of(pid, || open(&store, name));
            std::thread::sleep(Duration::from_millis(5));
            for block in 0..2 {
                read(&*node, block, content);
            }
        }
        until_quiet(boost);
        boost.stats().misses
    };
    let mut learned = None;
    let mut days = Vec::new();
    for _ in 0..4 {
        // A day begins with an empty cache, and with what the days before have taught.
        let device = SimulatedDevice::new(32 << 20);
        let boost = predicting(&device, 400, learned.take());
        days.push(day(&boost));
        eprintln!("DAY {days:?} {:?}", boost.predicted());
        learned = boost.learned();
        assert!(learned.is_some() && boost.learned().is_none(), "nothing new");
        boost.close();
    }
    assert!(days[0] > 60, "nothing is known on the first day: {days:?}");
    assert!(
        // On a busy machine a day may be missed: what reads ahead waits for a processor.
        days[1..].iter().filter(|misses| **misses <= 16).count() >= 2,
        "misses of 80 blocks on each day: {days:?}"
    );
}

#[test]
fn what_cannot_be_predicted_costs_little() {
    let folder = tempfile::tempdir().expect("a folder");
    let content = file(folder.path(), "f", 1500, 1);
    std::thread::sleep(3 * SETTLE);
    let device = SimulatedDevice::new(16 << 20);
    let boost = predicting(&device, 200, None);
    let store = store(folder.path(), &boost);
    let node = open(&store, "f");
    let mut random = fastrand::Rng::with_seed(3);
    let mut asked = HashSet::new();
    for _ in 0..4000 {
        let block = random.u64(0..1500);
        asked.insert(block);
        read(&*node, block, &content);
    }
    until_quiet(&boost);
    let (status, misses) = (boost.predicted(), boost.stats().misses);
    assert!(asked.len() > 1000 && misses > 2000);
    let share = status.blocks_fetched as f64 / misses as f64;
    assert!(share < 0.05, "{share} more than without: {status:?}");
}

/// What an older version of the file said is not found, whoever fetched it.
#[test]
fn a_file_that_changes_is_prefetched_in_its_new_version() {
    let folder = tempfile::tempdir().expect("a folder");
    let device = SimulatedDevice::new(16 << 20);
    let boost = predicting(&device, 200, None);
    let store = store(folder.path(), &boost);
    for round in 0..20 {
        let content = file(folder.path(), "f", 60, 100 + round);
        if round % 3 != 0 {
            std::thread::sleep(3 * SETTLE);
        }
        let node = open(&store, "f");
        for block in 0..60 {
            read(&*node, block, &content);
        }
    }
    let status = boost.predicted();
    assert!(status.blocks_fetched > 20, "{status:?}");
}
