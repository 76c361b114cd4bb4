//! Folders of a tree are listed ahead, and a known file is opened when it is first read.

use std::time::{Duration, Instant};

use ropeway_smb_client::{SmbStore, SmbStoreOptions};
use ropeway_vfs::store::Store;

use crate::bench::{Bench, READ, bytes, content, open, path};

/// One way of a line of 60 ms.
const DELAY: Duration = Duration::from_millis(30);

fn name(index: usize) -> String {
    format!("d/file {index:02}")
}

/// Makes files of some kilobytes in `d`, and lets the server notice them.
fn files(bench: &Bench, count: usize) -> Vec<Vec<u8>> {
    std::fs::create_dir(bench.path().join("d")).unwrap();
    let contents: Vec<Vec<u8>> = (0..count).map(|at| bytes(9_000 + at, at as u64)).collect();
    for (at, content) in contents.iter().enumerate() {
        std::fs::write(bench.path().join(name(at)), content).unwrap();
    }
    // It would break leases for these changes of a local program.
    std::thread::sleep(Duration::from_millis(500));
    contents
}

fn list(store: &SmbStore, at: &str) -> Vec<String> {
    let mut entries = open(store, at, &READ).entries().unwrap();
    let mut names = Vec::new();
    while let Some((name, _)) = entries.next().unwrap() {
        names.push(name.to_string());
    }
    names
}

/// A node of a known file that is opened only when it is read.
#[test]
fn a_file_that_is_opened_later_outlives_its_name() {
    let bench = Bench::start();
    let contents = files(&bench, 4);
    let options = SmbStoreOptions {
        cache_timeout: Duration::from_secs(60),
        ..SmbStoreOptions::default()
    };
    let store = bench.store_with("", options);
    assert!(store.open_known(&path(&name(0))).is_none(), "nothing is known");
    list(&store, "d");
    let known = |at: usize| store.open_known(&path(&name(at))).unwrap().node;
    let (removed, replaced, moved) = (known(0), known(1), known(2));
    store.remove(&path(&name(0)), false).unwrap();
    store.rename(&path(&name(2)), &path(&name(1)), true).unwrap();
    assert!(content(&*removed) == contents[0]);
    assert!(content(&*replaced) == contents[1]);
    assert!(content(&*moved) == contents[2]);
    assert!(store.open_known(&path("d")).is_none(), "a folder");
}

/// Without this, each folder of a tree takes a round trip.
#[test]
fn the_next_folders_of_a_tree_are_listed_ahead() {
    const FOLDERS: usize = 30;
    let bench = Bench::with_delay(DELAY);
    for folder in 0..FOLDERS {
        let at = bench.path().join(format!("t/{folder:02}"));
        std::fs::create_dir_all(&at).unwrap();
        std::fs::write(at.join("f"), [0; 10]).unwrap();
    }
    let options = SmbStoreOptions {
        cache_timeout: Duration::from_secs(60),
        ..SmbStoreOptions::default()
    };
    let store = bench.store_with("", options);
    let begun = Instant::now();
    for folder in list(&store, "t") {
        assert_eq!(list(&store, &format!("t/{folder}")), ["f"]);
        // A program also looks at what it has listed.
        std::thread::sleep(Duration::from_millis(10));
    }
    let took = begun.elapsed();
    assert!(took < DELAY * 2 * FOLDERS as u32 / 2, "{took:?}");
}
