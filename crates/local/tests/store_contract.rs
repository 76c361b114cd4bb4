//! The common contract of stores, kept by local folders.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ropeway_local::{LocalStore, StoreOptions};
use ropeway_vfs::contract::store::{Abilities, check_store, model};
use ropeway_vfs::decorate::traced_store::TracedStore;
use ropeway_vfs::store::Store;
use ropeway_vfs::trace::{Observer, Record, SharedObserver};

#[test]
fn a_local_folder_keeps_the_common_contract() {
    let folder = tempfile::tempdir().expect("a folder");
    let count = AtomicUsize::new(0);
    check_store(
        || {
            let at = folder
                .path()
                .join(count.fetch_add(1, Ordering::Relaxed).to_string());
            std::fs::create_dir(&at).expect("a folder is made");
            let store = LocalStore::open(&at, &StoreOptions::default()).expect("the folder opens");
            Arc::new(store) as Arc<dyn Store>
        },
        Abilities::ALL,
    );
}

#[test]
fn random_operations_agree_with_a_model() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = LocalStore::open(folder.path(), &StoreOptions::default()).expect("the folder opens");
    model::run(&store, Abilities::ALL, 1, 20_000, |_| ());
}

/// Counts records, and checks each one.
#[derive(Default)]
struct Counting(AtomicUsize);

impl Observer for Counting {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn record(&self, record: Record<'_>) {
        assert!(
            record.path.starts_with(b"share") && !record.kind.is_empty(),
            "{record:?}"
        );
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_store_whose_operations_are_recorded_keeps_it_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let count = AtomicUsize::new(0);
    let counting = Arc::new(Counting::default());
    check_store(
        || {
            let at = folder
                .path()
                .join(count.fetch_add(1, Ordering::Relaxed).to_string());
            std::fs::create_dir(&at).expect("a folder is made");
            let store = LocalStore::open(&at, &StoreOptions::default()).expect("the folder opens");
            let observer: SharedObserver = counting.clone();
            TracedStore::wrap(Arc::new(store), observer, "share")
        },
        Abilities::ALL,
    );
    assert!(counting.0.load(Ordering::Relaxed) > 500);
}
