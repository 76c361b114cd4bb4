//! Files of a folder that are read one after the other are opened and read ahead; folders of a tree
//! are listed ahead. What is ahead is never old, and never in the way.

use std::time::Duration;

use ropeway_smb_client::{SmbStore, SmbStoreOptions};
use ropeway_vfs::store::Store;

use super::bench::{Bench, CREATE, READ, bytes, content, open, path};

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

#[test]
fn a_file_read_ahead_is_never_old() {
    let bench = Bench::start();
    files(&bench, 8);
    let (here, there) = (bench.store(), bench.store());
    let names = list(&here, "d");
    for name in &names[..2] {
        content(&*open(&here, &format!("d/{name}"), &READ));
    }
    // Time to read the next ones.
    std::thread::sleep(Duration::from_millis(300));
    let third = format!("d/{}", names[2]);
    let writer = open(&there, &third, &CREATE);
    writer.set_len(0).unwrap();
    writer.write_at(b"new", 0).unwrap();
    writer.write_out().unwrap();
    // The server does not wait for the break to arrive.
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(content(&*open(&here, &third, &READ)), b"new");
}

/// Behind its beginning, a large file is read ahead only while the one before it ends.
#[test]
fn a_file_that_is_read_on_is_never_old() {
    const LENGTH: usize = 12 << 20;
    let bench = Bench::start();
    std::fs::create_dir(bench.path().join("d")).unwrap();
    for at in 0..5 {
        std::fs::write(bench.path().join(name(at)), bytes(LENGTH, at as u64)).unwrap();
    }
    std::thread::sleep(Duration::from_millis(500));
    let (here, there) = (bench.store(), bench.store());
    let names = list(&here, "d");
    let whole = |name: &str| {
        let node = open(&here, &format!("d/{name}"), &READ);
        let mut data = vec![0; LENGTH];
        for piece in data.chunks_mut(1 << 20).enumerate() {
            assert_eq!(
                node.read_at(piece.1, (piece.0 as u64) << 20).unwrap(),
                piece.1.len()
            );
        }
        data
    };
    let mut expected: Vec<Vec<u8>> = (0..2).map(|at| whole(&names[at])).collect();
    assert!(expected[0] != expected[1]);
    std::thread::sleep(Duration::from_millis(500));
    // Of the third file everything has been read by now. Another client changes its end, then this
    // one that of the fourth.
    for (at, store) in [(2, &there), (3, &here)] {
        let index: u64 = names[at][5..].parse().unwrap();
        let mut data = bytes(LENGTH, index);
        data[LENGTH - 3..].copy_from_slice(b"new");
        let writer = open(store, &format!("d/{}", names[at]), &CREATE);
        writer.write_at(b"new", LENGTH as u64 - 3).unwrap();
        writer.write_out().unwrap();
        drop(writer);
        // The server does not wait for the break to arrive.
        std::thread::sleep(Duration::from_millis(500));
        assert!(whole(&names[at]) == data, "{at}");
        expected.push(data);
    }
    for (at, data) in expected.iter().enumerate() {
        assert!(whole(&names[at]) == *data, "{at}");
    }
}

#[test]
fn files_read_ahead_are_not_in_the_way_of_changes() {
    let bench = Bench::start();
    let contents = files(&bench, 8);
    let store = bench.store();
    let names = list(&store, "d");
    for name in &names[..2] {
        content(&*open(&store, &format!("d/{name}"), &READ));
    }
    std::thread::sleep(Duration::from_millis(300));
    let at = |index: usize| path(&format!("d/{}", names[index]));
    store.remove(&at(2), false).unwrap();
    store.rename(&at(3), &path("d/other"), false).unwrap();
    store.rename(&at(4), &at(5), true).unwrap();
    store.rename(&path("d"), &path("e"), false).unwrap();
    let mut left = list(&store, "e");
    left.sort();
    let mut wanted: Vec<String> = [0, 1, 5, 6, 7].map(|at| names[at].clone()).into();
    wanted.push("other".to_owned());
    wanted.sort();
    assert_eq!(left, wanted);
    let index: usize = names[4][5..].parse().unwrap();
    let moved = open(&store, &format!("e/{}", names[5]), &READ);
    assert!(content(&*moved) == contents[index]);
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

/// Two programs of two clients, by seed: one reads the files of a folder in order, again and again,
/// the other changes them in all ways, and the line of both is cut. Between a change and the next
/// reading there is time for a break to arrive: then no reading may show anything older.
#[test]
fn files_read_ahead_agree_with_the_changes_of_another_client() {
    let bench = Bench::start();
    std::fs::create_dir(bench.path().join("d")).unwrap();
    let options = SmbStoreOptions {
        cache_timeout: Duration::ZERO,
        data_timeout: Duration::ZERO,
        ..SmbStoreOptions::default()
    };
    let [here, there] = [0, 1].map(|_| bench.store_with("d", options.clone()));
    let mut random = fastrand::Rng::with_seed(17);
    let mut expected = std::collections::BTreeMap::new();
    let write = |store: &SmbStore, name: &str, data: &[u8]| {
        let node = open(store, name, &CREATE);
        node.set_len(0).unwrap();
        node.write_at(data, 0).unwrap();
        node.write_out().unwrap();
    };
    for index in 0..12 {
        let data = bytes(5_000 + index, index as u64);
        write(&there, &format!("f{index:02}"), &data);
        expected.insert(format!("f{index:02}"), data);
    }
    let rounds: u64 = std::env::var("ROPEWAY_STORE_STEPS").map_or(25, |steps| steps.parse().unwrap());
    for round in 0..rounds {
        // A reading that stops anywhere leaves files ahead.
        let upto = random.usize(0..=expected.len());
        for (name, data) in expected.iter().take(upto) {
            assert!(content(&*open(&here, name, &READ)) == *data, "{round}: {name}");
        }
        for _ in 0..random.usize(0..4) {
            let name = format!("f{:02}", random.u8(0..12));
            let to = format!("f{:02}", random.u8(0..12));
            let store = if random.u8(0..3) == 0 { &here } else { &there };
            match random.u8(0..8) {
                0 if expected.remove(&name).is_some() => store.remove(&path(&name), false).unwrap(),
                1 if expected.contains_key(&name) && name != to => {
                    store.rename(&path(&name), &path(&to), true).unwrap();
                    let data: Vec<u8> = expected.remove(&name).unwrap();
                    expected.insert(to, data);
                }
                2 => bench.way.cut(),
                _ => {
                    let data = bytes(
                        random.usize(1..9_000),
                        1_000 + round * 31 + u64::from(random.u8(..)),
                    );
                    write(store, &name, &data);
                    expected.insert(name, data);
                }
            }
        }
        std::thread::sleep(Duration::from_millis(200));
        let mut names = list(&here, "");
        names.sort();
        assert_eq!(names, expected.keys().cloned().collect::<Vec<_>>(), "{round}");
        for (name, data) in &expected {
            assert!(content(&*open(&here, name, &READ)) == *data, "{round}: {name}");
        }
    }
}
