//! The table against a tree of names that it must agree with.

use std::collections::{BTreeMap, HashMap};

use ropeway_vfs::Owner;

use super::*;

fn stat(index: u64, kind: Kind, links: u64) -> NodeStat {
    NodeStat {
        kind,
        size: 0,
        allocated: 0,
        links,
        id: FileId { volume: 7, index },
        mode: 0o644,
        owner: Owner { user: 0, group: 0 },
        created: Timestamp(0),
        accessed: Timestamp(0),
        modified: Timestamp(0),
        changed: Timestamp(0),
        dos_attributes: None,
    }
}

fn table() -> Inodes {
    Inodes::new(&stat(2, Kind::Directory, 2))
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn path(inodes: &Inodes, ino: u64) -> Option<String> {
    inodes
        .place(ino)
        .map(|place| String::from_utf8(place.path.as_bytes().to_vec()).unwrap())
}

#[test]
fn numbers_stay_over_renames() {
    let inodes = table();
    let dir = inodes.looked_up(ROOT, &name("a"), &stat(10, Kind::Directory, 2));
    let file = inodes.looked_up(dir, &name("f"), &stat(11, Kind::File, 1));
    assert_eq!((dir, file), (10, 11));
    inodes.renamed((ROOT, &name("a")), (ROOT, &name("b")));
    assert_eq!(path(&inodes, file).as_deref(), Some("b/f"));
    inodes.renamed((dir, &name("f")), (ROOT, &name("g")));
    assert_eq!(path(&inodes, file).as_deref(), Some("g"));
    assert_eq!(inodes.looked_up(ROOT, &name("g"), &stat(11, Kind::File, 1)), file);
    inodes.forget(file, 2);
    inodes.forget(dir, 1);
    assert_eq!(inodes.count(), 1);
}

#[test]
fn a_parent_stays_until_its_children_go() {
    let inodes = table();
    let dir = inodes.looked_up(ROOT, &name("a"), &stat(10, Kind::Directory, 2));
    let file = inodes.looked_up(dir, &name("f"), &stat(11, Kind::File, 1));
    inodes.forget(dir, 1);
    assert_eq!(path(&inodes, file).as_deref(), Some("a/f"));
    inodes.forget(file, 1);
    assert_eq!(inodes.count(), 1);
}

/// The disk may give the id of a removed file to a new one before the kernel forgot the old.
#[test]
fn an_id_used_again_gets_another_number() {
    let inodes = table();
    let old = inodes.looked_up(ROOT, &name("a"), &stat(10, Kind::File, 1));
    inodes.removed(ROOT, &name("a"));
    assert!(inodes.place(old).is_none());
    let new = inodes.looked_up(ROOT, &name("b"), &stat(10, Kind::File, 1));
    assert_ne!(new, old);
    inodes.forget(old, 1);
    assert_eq!(path(&inodes, new).as_deref(), Some("b"));
    let folder = inodes.looked_up(ROOT, &name("c"), &stat(10, Kind::Directory, 2));
    assert_ne!(folder, new);
}

#[test]
fn a_hard_link_keeps_the_number() {
    let inodes = table();
    let file = inodes.looked_up(ROOT, &name("a"), &stat(10, Kind::File, 2));
    inodes.removed(ROOT, &name("a"));
    assert_eq!(inodes.looked_up(ROOT, &name("b"), &stat(10, Kind::File, 1)), file);
    for index in 0..3 * NAMES_MAX {
        inodes.looked_up(ROOT, &name(&format!("n{index}")), &stat(10, Kind::File, 300));
    }
    assert_eq!(path(&inodes, file), Some(format!("n{}", 3 * NAMES_MAX - 1)));
    inodes.count();
}

#[test]
fn content_is_kept_if_it_is_known_to_be_the_same() {
    let inodes = table();
    let mut file = stat(10, Kind::File, 1);
    let ino = inodes.looked_up(ROOT, &name("a"), &file);
    let seconds = |seconds: i64| Timestamp::from_unix(seconds, 0);
    file.modified = seconds(100);
    let opened = |file: &NodeStat, now: i64| inodes.is_content_kept(ino, file, seconds(now));
    // A second change at the same time would not show.
    assert!(!opened(&file, 101) && !opened(&file, 102));
    assert!(!opened(&file, 110));
    assert!(opened(&file, 111));
    file.size = 1;
    assert!(!opened(&file, 112));
    assert!(opened(&file, 113));
    // Other content of the same size, with the time of last write of the old one (`cp -p`, `touch -r`).
    file.changed = seconds(114);
    assert!(!opened(&file, 115) && !opened(&file, 116));
    assert!(!opened(&file, 120));
    assert!(opened(&file, 121));
}

/// Others moved folders into each other before the kernel noticed.
#[test]
fn a_circle_of_names_is_no_path() {
    let inodes = table();
    let a = inodes.looked_up(ROOT, &name("a"), &stat(10, Kind::Directory, 2));
    let b = inodes.looked_up(a, &name("b"), &stat(11, Kind::Directory, 2));
    inodes.looked_up(b, &name("a"), &stat(10, Kind::Directory, 2));
    assert!(inodes.place(b).is_none());
}

#[test]
fn nodes_of_other_volumes_get_own_numbers() {
    let inodes = table();
    let mut other = stat(10, Kind::File, 1);
    let first = inodes.looked_up(ROOT, &name("a"), &other);
    other.id.volume = 8;
    let second = inodes.looked_up(ROOT, &name("b"), &other);
    assert_eq!(first, 10);
    assert!(second > OWN_NUMBERS);
}

/// Random operations, mirrored in a plain map of paths.
#[test]
fn the_table_agrees_with_a_tree() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let inodes = table();
        // Name in the root -> (id, kind); number -> lookups.
        let mut tree: BTreeMap<u8, u64> = BTreeMap::new();
        let mut lookups: HashMap<u64, u64> = HashMap::new();
        let mut next = 10;
        for _ in 0..300 {
            let (one, other) = (random.u8(0..8), random.u8(0..8));
            let (first, second) = (name(&format!("{one}")), name(&format!("{other}")));
            match random.u8(0..5) {
                0 | 1 => {
                    let id = *tree.entry(one).or_insert_with(|| {
                        next += 1;
                        next
                    });
                    let links = tree.values().filter(|known| **known == id).count() as u64;
                    let ino = inodes.looked_up(ROOT, &first, &stat(id, Kind::File, links));
                    *lookups.entry(ino).or_default() += 1;
                    assert_eq!(path(&inodes, ino), Some(format!("{one}")));
                }
                2 => {
                    tree.remove(&one);
                    inodes.removed(ROOT, &first);
                }
                3 if one != other => {
                    if let Some(id) = tree.remove(&one) {
                        tree.insert(other, id);
                        inodes.renamed((ROOT, &first), (ROOT, &second));
                    }
                }
                _ => {
                    let Some(ino) = lookups.keys().copied().min() else {
                        continue;
                    };
                    let known = lookups.remove(&ino).unwrap();
                    inodes.forget(ino, known);
                }
            }
            assert_eq!(inodes.count(), 1 + lookups.len());
        }
        for (ino, known) in lookups {
            inodes.forget(ino, known);
        }
        assert_eq!(inodes.count(), 1);
    }
}
