//! A share behind a write-back journal: the contract of stores, and random operations while
//! connections are cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ropeway_peers::{Share, Smbd, or_skip};
use ropeway_smb_client::SmbStoreOptions;
use ropeway_vfs::contract::store::{Abilities, check_store, model};
use ropeway_vfs::store::Store;
use ropeway_write_back::{FolderDisk, WriteBackOptions, WriteBackStore};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::bench::{Bench, connect};

const OWN_SERVER: Abilities = Abilities {
    case_sensitive: false,
    ..Abilities::ALL
};

fn journalled(far: impl Store + 'static, journal: &TempDir, delay: Duration) -> WriteBackStore {
    let disk = Box::new(FolderDisk::open(journal.path()).unwrap());
    let options = WriteBackOptions {
        delay,
        ..WriteBackOptions::default()
    };
    WriteBackStore::on_disk(Arc::new(far), disk, [7; 32], options).unwrap()
}

#[test]
fn a_share_of_our_server_behind_a_journal_keeps_the_contract() {
    let bench = Bench::start();
    let count = AtomicUsize::new(0);
    let mut journals = Vec::new();
    journals.resize_with(100, || tempfile::tempdir().unwrap());
    for delay in [Duration::from_secs(3600), Duration::ZERO] {
        check_store(
            || {
                let number = count.fetch_add(1, Ordering::Relaxed);
                let far = bench.store_in(&format!("rule{number}"));
                Arc::new(journalled(far, &journals[number], delay)) as Arc<dyn Store>
            },
            OWN_SERVER,
        );
    }
}

#[test]
fn random_operations_on_a_share_behind_a_journal_survive_cut_connections() {
    // `ROPEWAY_SEED=N` runs another one.
    let seed = std::env::var("ROPEWAY_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(3);
    let bench = Bench::start();
    let journal = tempfile::tempdir().unwrap();
    let far = bench.store_in("cut");
    let store = journalled(far, &journal, Duration::from_millis(2));
    let mut random = fastrand::Rng::with_seed(seed + 6);
    let can = Abilities {
        // The server deletes a removed file with its last handle.
        removed_files_survive: false,
        ..OWN_SERVER
    };
    model::run(&store, can, seed, 2500, |_| {
        if random.u16(0..400) == 0 {
            bench.way.cut();
        }
    });
    let left = store.close(Duration::from_secs(60));
    assert_eq!((left.files, left.conflicts), (0, 0), "{left:?}");
}

/// smbd sets write times late, and reports others after a close.
#[test]
fn a_backlog_for_smbd_meets_no_conflict_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let share = Share::new("data", folder.path()).streams();
    let builder = Smbd::builder().user("alice", "secret").share(share);
    let smbd = or_skip!(builder.durable_handles(true).start());
    let runtime = Runtime::new().unwrap();
    let journal = tempfile::tempdir().unwrap();
    let far = connect(&runtime, smbd.address(), "", SmbStoreOptions::default());
    let store = journalled(far, &journal, Duration::from_millis(2));
    let can = Abilities {
        symlinks: false,
        ..OWN_SERVER
    };
    model::run(&store, can, 5, 1500, |step| {
        if step % 300 == 0 {
            std::thread::sleep(Duration::from_millis(2500));
        }
    });
    let left = store.close(Duration::from_secs(60));
    assert_eq!((left.files, left.conflicts), (0, 0), "{left:?}");
}
