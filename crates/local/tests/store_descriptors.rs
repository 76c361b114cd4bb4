//! More open nodes than the process may have descriptors. This program has one test, since the limit
//! applies to the process.

#![allow(clippy::unwrap_used, reason = "tests")]

use ropeway_local::{LocalStore, StoreOptions};
use ropeway_vfs::RelPath;
use ropeway_vfs::store::{Access, NewNode, NodeOpen, Store};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

#[test]
fn the_process_limit_is_survived() {
    let folder = tempfile::tempdir().unwrap();
    let limit = Rlimit {
        current: Some(120),
        ..getrlimit(Resource::Nofile)
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    // The limit of the store is higher than that of the process.
    let store = LocalStore::open(folder.path(), &StoreOptions::default()).unwrap();
    let how = |directory, name: &str| NodeOpen {
        access: Access::Write,
        create: Some(NewNode {
            directory,
            dos_attributes: Some(u32::from(name.len().is_multiple_of(2))),
        }),
        ..NodeOpen::default()
    };
    let mut nodes = Vec::new();
    for n in 0..1000 {
        let (dir, file) = (format!("d{}", n / 10), format!("d{}/f{n}", n / 10));
        nodes.push(store.open(&path(&dir), &how(true, &dir)).unwrap().node);
        assert_eq!(
            store.resolve(&path(&file.to_uppercase())).unwrap(),
            path(&file.replace("/f", "/F"))
        );
        let node = store.open(&path(&file), &how(false, &file)).unwrap().node;
        node.write_at(file.as_bytes(), 0).unwrap();
        nodes.push(node);
    }
    for (n, pair) in nodes.chunks(2).enumerate() {
        let mut entries = pair[0].entries().unwrap();
        assert!(entries.next().unwrap().is_some());
        let mut buffer = [0; 64];
        let count = pair[1].read_at(&mut buffer, 0).unwrap();
        assert_eq!(buffer[..count], *format!("d{}/f{n}", n / 10).as_bytes());
        let file = format!("d{}/f{n}", n / 10);
        store
            .rename(&path(&file), &path(&format!("{file} new")), false)
            .unwrap();
        assert_eq!(pair[1].stat().unwrap().size as usize, count);
    }
}
