//! The contract of stores, and random operations beside a model.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ropeway_peers::{Share, Smbd, or_skip};
use ropeway_smb_client::SmbStoreOptions;
use ropeway_vfs::contract::store::{Abilities, check_store, model};
use ropeway_vfs::store::Store;
use tokio::runtime::Runtime;

use super::bench::{Bench, CREATE, READ, connect, content, open, path};

const OWN_SERVER: Abilities = Abilities {
    case_sensitive: false,
    ..Abilities::ALL
};

#[test]
fn a_share_of_our_server_keeps_the_contract() {
    let bench = Bench::start();
    let count = AtomicUsize::new(0);
    check_store(
        || {
            let store = bench.store_in(&format!("rule{}", count.fetch_add(1, Ordering::Relaxed)));
            Arc::new(store) as Arc<dyn Store>
        },
        OWN_SERVER,
    );
}

#[test]
fn a_share_of_smbd_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let share = Share::new("data", folder.path()).streams();
    let builder = Smbd::builder().user("alice", "secret").share(share);
    let smbd = or_skip!(builder.durable_handles(true).start());
    let runtime = Runtime::new().unwrap();
    let count = AtomicUsize::new(0);
    let smbd_can = Abilities {
        // Samba 4.17 makes no reparse points.
        symlinks: false,
        ..OWN_SERVER
    };
    check_store(
        || {
            let base = format!("rule{}", count.fetch_add(1, Ordering::Relaxed));
            std::fs::create_dir(folder.path().join(&base)).unwrap();
            Arc::new(connect(
                &runtime,
                smbd.address(),
                &base,
                SmbStoreOptions::default(),
            )) as Arc<dyn Store>
        },
        smbd_can,
    );
}

/// Found by random operations on a mounted share: smbd renames a folder with open files if its name
/// is not ASCII, and knows these by their old names then.
#[test]
fn files_that_are_open_while_smbd_renames_their_folder_stay_usable() {
    let folder = tempfile::tempdir().unwrap();
    let share = Share::new("data", folder.path()).streams();
    let smbd = or_skip!(Smbd::builder().user("alice", "secret").share(share).start());
    let runtime = Runtime::new().unwrap();
    let store = connect(&runtime, smbd.address(), "", SmbStoreOptions::default());
    for dir in ["\u{fc} \u{2206}", "b", "c"] {
        std::fs::create_dir(folder.path().join(dir)).unwrap();
    }
    let removed = open(&store, "\u{fc} \u{2206}/removed", &CREATE);
    let kept = open(&store, "\u{fc} \u{2206}/kept", &CREATE);
    for node in [&removed, &kept] {
        node.write_at(b"content", 0).unwrap();
        node.write_out().unwrap();
    }
    store
        .rename(&path("\u{fc} \u{2206}"), &path("b/d"), false)
        .unwrap();
    store
        .rename(&path("b/d/removed"), &path("c/removed"), false)
        .unwrap();
    store.remove(&path("c/removed"), false).unwrap();
    removed.set_len(4).unwrap();
    assert_eq!(content(&*removed), b"cont", "it lives as long as it is open");
    store.rename(&path("b/d/kept"), &path("kept"), false).unwrap();
    // Another folder with the old name.
    store.rename(&path("c"), &path("\u{fc} \u{2206}"), false).unwrap();
    store.rename(&path("\u{fc} \u{2206}"), &path("e"), false).unwrap();
    kept.write_at(b"C", 0).unwrap();
    assert_eq!(content(&*kept), b"Content");
}

/// Found by random operations on a mounted share: a prefetch opened a file between the CLOSE of the
/// open ones and the rename.
#[test]
fn smbd_renames_a_folder_while_other_threads_open_files_in_it() {
    const FILES: [&str; 4] = ["a", "b", "c", "d"];
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("one/below")).unwrap();
    for file in FILES {
        std::fs::write(folder.path().join("one/below").join(file), b"content").unwrap();
    }
    let builder = Smbd::builder().user("alice", "secret");
    let smbd = or_skip!(builder.share(Share::new("data", folder.path())).start());
    let runtime = Runtime::new().unwrap();
    let store = connect(&runtime, smbd.address(), "", SmbStoreOptions::default());
    let (one, two) = (path("one"), path("two"));
    let is_over = AtomicBool::new(false);
    let look = |file: &str| {
        while !is_over.load(Ordering::Relaxed) {
            for folder in ["one", "two"] {
                let Ok(opened) = store.open(&path(&format!("{folder}/below/{file}")), &READ) else {
                    continue;
                };
                let mut read = [0; 7];
                if opened.node.read_at(&mut read, 0).is_ok() {
                    assert_eq!(&read, b"content");
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for file in FILES {
            scope.spawn(move || look(file));
        }
        let renamed = (0..100).map(|_| {
            store.rename(&one, &two, true)?;
            store.rename(&two, &one, true)
        });
        let renamed: Result<(), _> = renamed.collect();
        is_over.store(true, Ordering::Relaxed);
        renamed.unwrap();
    });
}

/// Number of steps of a random run: `usual`, or more by `ROPEWAY_STORE_STEPS`.
fn steps(usual: usize) -> usize {
    let given = std::env::var("ROPEWAY_STORE_STEPS");
    given.ok().and_then(|steps| steps.parse().ok()).unwrap_or(usual)
}

#[test]
fn random_operations_agree_with_a_model() {
    let bench = Bench::start();
    for (seed, timeout) in [(1, 1000), (2, 0)] {
        let options = SmbStoreOptions {
            cache_timeout: Duration::from_millis(timeout),
            ..SmbStoreOptions::default()
        };
        let base = format!("seed{seed}");
        std::fs::create_dir(bench.path().join(&base)).unwrap();
        let store = bench.store_with(&base, options);
        model::run(&store, OWN_SERVER, seed, steps(2000), |_| ());
    }
}

#[test]
fn random_operations_survive_cut_connections() {
    let bench = Bench::start();
    let store = bench.store_in("cut");
    let mut random = fastrand::Rng::with_seed(9);
    let can = Abilities {
        // The server deletes a removed file with its last handle.
        removed_files_survive: false,
        ..OWN_SERVER
    };
    model::run(&store, can, 3, steps(3000), |_| {
        if random.u16(0..400) == 0 {
            bench.way.cut();
        }
    });
}

/// The memory for unflushed data is so small that writers wait for flushes all the time.
#[test]
fn random_operations_agree_with_a_model_in_little_memory() {
    let bench = Bench::start();
    std::fs::create_dir(bench.path().join("small")).unwrap();
    let options = SmbStoreOptions {
        write_buffer_max: 50_000,
        read_buffer_max: 1 << 20,
        names_max: 20,
        ..SmbStoreOptions::default()
    };
    let store = bench.store_with("small", options);
    model::run(&store, OWN_SERVER, 4, steps(2500), |_| ());
}

/// Many threads use one node at the same time.
#[test]
fn threads_share_a_node() {
    const BLOCK: usize = 10_000;
    let bench = Bench::start();
    let store = bench.store();
    let node = open(&store, "f", &CREATE);
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let node = &node;
            scope.spawn(move || {
                for round in 0..20 {
                    let at = ((round * 4 + usize::from(thread)) * BLOCK) as u64;
                    node.write_at(&[thread + 1; BLOCK], at).unwrap();
                    let mut back = [0; BLOCK];
                    assert_eq!(node.read_at(&mut back, at).unwrap(), BLOCK);
                    assert_eq!(back, [thread + 1; BLOCK]);
                    if round == 10 {
                        node.sync().unwrap();
                    }
                }
            });
        }
    });
    let bytes = content(&*node);
    assert_eq!(bytes.len(), 80 * BLOCK);
    for (at, byte) in bytes.iter().enumerate() {
        assert_eq!(usize::from(*byte), at / BLOCK % 4 + 1, "{at}");
    }
}

/// Found by random operations on a mounted share: the file is closed when its folder is renamed, and the
/// reader opens it again without the right to write.
#[test]
fn a_file_that_is_removed_after_its_folder_was_renamed_can_be_written_to() {
    let bench = Bench::start();
    let store = bench.store_in("moved");
    std::fs::create_dir(bench.path().join("moved/d")).unwrap();
    let node = open(&store, "d/f", &CREATE);
    for (from, to) in [("d", "e"), ("e", "d")] {
        store.rename(&path(from), &path(to), false).unwrap();
        let reader = open(&store, &format!("{to}/f"), &READ);
        assert_eq!(content(&*reader), b"");
    }
    store.remove(&path("d/f"), false).unwrap();
    node.write_at(b"content", 0).unwrap();
    node.write_out().unwrap();
    assert_eq!(content(&*node), b"content");
}
