//! A cache on a device that fails by seed, and the comparison of a store with the folder behind it.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ropeway_boost::{Boost, BoostOptions, BoostStore};
use ropeway_cache::{Cache, Config, Faults, SimulatedDevice};
use ropeway_vfs::RelPath;
use ropeway_vfs::store::{Access, NodeOpen, Store as _};

/// Longer than a tick of the kernel's clock: after it, a change has another change time.
pub(crate) const SETTLE: Duration = Duration::from_millis(12);

/// Takes a device into use as a cache, with prefetching.
pub(crate) fn boost(device: &SimulatedDevice) -> Boost {
    let options = BoostOptions {
        predict_blocks: Some(128),
        ..BoostOptions::default()
    };
    boost_with(device, options)
}

/// Takes a device into use as a cache.
pub(crate) fn boost_with(device: &SimulatedDevice, options: BoostOptions) -> Boost {
    let clock = device.clone();
    let config = Config {
        segment_bytes: 128 << 10,
        memory_bytes: 0,
        seed: 1,
    };
    let clock = Arc::new(move || clock.now());
    let (cache, _) = Cache::open(Box::new(device.clone()), &[7; 32], &config, clock).expect("a cache");
    let options = BoostOptions {
        settle: Some(SETTLE),
        ..options
    };
    Boost::new(cache, options).expect("threads start")
}

/// Sets what goes wrong with the device from now on.
pub(crate) fn disturb(device: &SimulatedDevice, random: &mut fastrand::Rng) {
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
pub(crate) fn compare(store: &BoostStore, folder: &Path) {
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
