//! The common contract of stores, kept with a cache in front of a local folder whose device fails,
//! hangs and comes back.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use ropeway_boost::{Boost, BoostOptions, BoostStore, share_id};
use ropeway_cache::{Cache, Config, Faults, SimulatedDevice};
use ropeway_local::{LocalStore, StoreOptions};
use ropeway_vfs::RelPath;
use ropeway_vfs::contract::store::{Abilities, check_store, model};
use ropeway_vfs::store::{Access, NodeOpen, Store as _};

/// Longer than a tick of the kernel's clock: after it, a change has another change time.
const SETTLE: Duration = Duration::from_millis(12);

fn boost(device: &SimulatedDevice) -> Boost {
    let clock = device.clone();
    let config = Config {
        segment_bytes: 256 << 10,
        memory_bytes: 0,
        seed: 1,
    };
    let clock = Arc::new(move || clock.now());
    let (cache, _) = Cache::open(Box::new(device.clone()), &[7; 32], &config, clock).expect("a cache");
    let options = BoostOptions {
        settle: Some(SETTLE),
        ..BoostOptions::default()
    };
    Boost::new(cache, options).expect("threads start")
}

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

/// Sets what goes wrong with the device from now on.
fn disturb(device: &SimulatedDevice, random: &mut fastrand::Rng) {
    let faults = match random.u8(0..10) {
        0 => Faults {
            fail_reads: true,
            ..Faults::default()
        },
        1 => Faults {
            fail_writes: true,
            ..Faults::default()
        },
        2 => Faults {
            delay: Duration::from_secs(2),
            ..Faults::default()
        },
        3 => Faults {
            writes_left: Some(random.u64(1..20)),
            ..Faults::default()
        },
        _ => Faults::default(),
    };
    device.set_faults(faults);
    // The cache tries a device again after 30 s.
    device.advance(Duration::from_secs(31));
}

/// Reads every file through the store and past it.
fn compare(store: &BoostStore, folder: &Path) {
    for dir in ["", "x", "y", "x/z"] {
        for name in ["a", "b", "c", "long name"] {
            let Ok(expected) = std::fs::read(folder.join(dir).join(name)) else {
                continue;
            };
            let path = format!("{dir}/{name}");
            let path = RelPath::parse(path.trim_start_matches('/').as_bytes()).expect("a path");
            let how = NodeOpen {
                access: Access::Read,
                ..NodeOpen::default()
            };
            let opened = store.open(&path, &how).expect("the file opens");
            let mut content = vec![0xEE; expected.len() + 1];
            let count = opened.node.read_at(&mut content, 0).expect("the file is read");
            assert!(content[..count] == expected[..], "{path:?}");
        }
    }
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
        model::run(&store, Abilities::ALL, seed, 1500, |step| {
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
