//! The common contract of stores, kept with a cache in front of a local folder whose device fails,
//! hangs and comes back.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use crate::support::{SETTLE, boost, compare, disturb};
use ropeway_boost::{Boost, BoostStore, share_id};
use ropeway_cache::SimulatedDevice;
use ropeway_local::{LocalStore, StoreOptions};
use ropeway_vfs::contract::store::{Abilities, check_store, model};

fn boosted(folder: &Path, boost: &Boost) -> BoostStore {
    let store = LocalStore::open(folder, &StoreOptions::default()).expect("the folder opens");
    BoostStore::new(Arc::new(store), boost.clone(), share_id("test"))
}

/// Waits until what was written before counts as settled.
fn wait_until_settled() {
    let start = SystemTime::now();
    // The kernel's clock stands for up to 10 ms.
    while start
        .elapsed()
        .is_ok_and(|elapsed| elapsed < SETTLE + Duration::from_millis(10))
    {
        std::thread::yield_now();
    }
}

#[test]
fn a_boosted_folder_keeps_the_common_contract() {
    let folder = tempfile::tempdir().expect("a folder");
    let boost = boost(&SimulatedDevice::new(16 << 20));
    let count = AtomicUsize::new(0);
    check_store(
        || {
            let at = folder
                .path()
                .join(count.fetch_add(1, Ordering::Relaxed).to_string());
            std::fs::create_dir(&at).expect("a folder is made");
            Arc::new(boosted(&at, &boost))
        },
        Abilities::ALL,
    );
}

#[test]
fn random_operations_agree_with_a_model_whatever_the_device_does() {
    let (mut hits, mut turned_off) = (0, 0);
    for seed in 0..2 {
        let folder = tempfile::tempdir().expect("a folder");
        let device = SimulatedDevice::new(8 << 20);
        let boost = boost(&device);
        let store = boosted(folder.path(), &boost);
        let mut random = fastrand::Rng::with_seed(seed);
        model::run(&store, Abilities::ALL, seed, 2500, |step| {
            if step % 25 == 0 {
                wait_until_settled();
                disturb(&device, &mut random);
                compare(&store, folder.path());
            }
        });
        let stats = boost.stats();
        hits += stats.device_hits;
        turned_off += stats.turned_off;
    }
    assert!(hits > 500, "{hits} hits");
    assert!(turned_off > 0);
}
