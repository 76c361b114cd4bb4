//! Tests of what is known of the share's names.

use super::*;
use ropeway_vfs::{Owner, Timestamp};

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

fn stat(size: u64) -> NodeStat {
    NodeStat {
        kind: Kind::File,
        size,
        allocated: size,
        links: 1,
        id: FileId {
            volume: 1,
            index: size,
        },
        mode: 0o644,
        owner: Owner { user: 0, group: 0 },
        created: Timestamp::default(),
        accessed: Timestamp::default(),
        modified: Timestamp::default(),
        changed: Timestamp::default(),
        dos_attributes: None,
    }
}

fn until(seconds: u64) -> Validity {
    Validity {
        until: Duration::from_secs(seconds),
        lease: None,
    }
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn list(cache: &mut NodeCache, dir: &str, names: &[&str], validity: &Validity) {
    let entry = |name: &&str| {
        let mut stat = stat(name.len() as u64);
        // Each path is a file of its own.
        let text = format!("{dir}/{name}");
        stat.id.index = text
            .bytes()
            .fold(1 << 32, |sum: u64, byte| sum.wrapping_mul(31) + u64::from(byte));
        (Name::new(name.as_bytes()).unwrap(), stat)
    };
    let entries = Arc::new(names.iter().map(entry).collect());
    let asked = cache.ask();
    cache.put_listing(asked, &path(dir), &entries, validity);
}

#[test]
fn entries_last_for_their_time_or_their_lease() {
    let mut cache = NodeCache::new(100);
    let asked = cache.ask();
    cache.put(asked, &path("a"), Known::There(stat(1)), until(5));
    assert_eq!(cache.get(&path("a"), at(4)), Some(Known::There(stat(1))));
    assert_eq!(
        cache.get(&path("A"), at(4)),
        None,
        "another spelling is asked for"
    );
    assert_eq!(cache.get(&path("a"), at(5)), None);
    let held = LeaseStatus::held();
    let leased = Validity::leased(Arc::clone(&held));
    list(&mut cache, "d", &["x", "yy"], &leased);
    assert_eq!(cache.listing(&path("d"), at(1000)).unwrap().len(), 2);
    let known = cache.get(&path("d/yy"), at(1000));
    assert!(matches!(known, Some(Known::There(stat)) if stat.size == 2));
    assert_eq!(cache.get(&path("d/no"), at(1000)), Some(Known::Missing));
    assert_eq!(
        cache.get(&path("d/X"), at(1000)),
        None,
        "it exists in another case"
    );
    assert_eq!(cache.get(&path("d/no~1"), at(1000)), None, "a short name");
    assert_eq!(cache.get(&path("d/né"), at(1000)), None);
    held.break_all();
    assert_eq!(cache.listing(&path("d"), at(1000)), None);
    assert_eq!(cache.get(&path("d/no"), at(1000)), None);
}

#[test]
fn own_changes_are_seen_at_once() {
    let mut cache = NodeCache::new(100);
    list(&mut cache, "", &["d", "e"], &until(9));
    list(&mut cache, "d", &["f", "g"], &until(9));
    list(&mut cache, "d/f", &["h"], &until(9));
    cache.changed(&path("D/F"));
    assert_eq!(cache.get(&path("d/f"), at(1)), None, "whatever the spelling");
    assert_eq!(cache.listing(&path("d"), at(1)), None);
    assert!(cache.get(&path("d/g"), at(1)).is_some());
    assert!(cache.get(&path("d/f/h"), at(1)).is_some());
    list(&mut cache, "d", &["f", "g"], &until(9));
    cache.changed_entries(&path("d"));
    assert_eq!(cache.get(&path("d/g"), at(1)), None);
    assert!(cache.get(&path("d/f/h"), at(1)).is_some(), "no entry of d");
    cache.changed_below(&path("d"));
    assert_eq!(cache.get(&path("d/f/h"), at(1)), None);
    assert_eq!(cache.get(&path("d/g"), at(1)), None);
    assert!(cache.get(&path("e"), at(1)).is_some());
}

#[test]
fn replies_that_a_change_has_overtaken_are_not_kept() {
    let mut cache = NodeCache::new(100);
    let asked = cache.ask();
    cache.changed(&path("d/f"));
    cache.put(asked, &path("d/f"), Known::Missing, until(9));
    assert_eq!(cache.get(&path("d/f"), at(1)), None);
    cache.put(asked, &path("d/g"), Known::Missing, until(9));
    assert!(cache.get(&path("d/g"), at(1)).is_some());
    let entries = Arc::new(vec![(Name::new(b"f").unwrap(), stat(1))]);
    cache.put_listing(asked, &path("d"), &entries, &until(9));
    assert_eq!(cache.listing(&path("d"), at(1)), None);
    cache.put_listing(asked, &path("e"), &entries, &until(9));
    assert!(cache.listing(&path("e"), at(1)).is_some());
    let asked = cache.ask();
    for _ in 0..2 * CHANGES_MAX {
        cache.changed(&path("z"));
    }
    cache.put(asked, &path("y"), Known::Missing, until(9));
    assert_eq!(cache.get(&path("y"), at(1)), None, "too many changes to judge");
}

#[test]
fn a_change_of_a_file_is_seen_under_all_its_names() {
    let mut cache = NodeCache::new(100);
    let there = |cache: &mut NodeCache, at: &str, size| {
        let asked = cache.ask();
        cache.put(asked, &path(at), Known::There(stat(size)), until(9));
    };
    for (dir, name) in [("d", "f"), ("e", "g")] {
        let entries = Arc::new(vec![
            (Name::new(name.as_bytes()).unwrap(), stat(1)),
            (Name::new(b"other").unwrap(), stat(5)),
        ]);
        let asked = cache.ask();
        cache.put_listing(asked, &path(dir), &entries, &until(9));
    }
    there(&mut cache, "h", 1);
    cache.changed(&path("h"));
    for name in ["h", "d/f", "e/g"] {
        assert_eq!(cache.get(&path(name), at(1)), None, "{name}");
    }
    assert_eq!(cache.listing(&path("d"), at(1)), None);
    assert!(cache.get(&path("e/other"), at(1)).is_some());
    // Also where the name is not known that it was changed under.
    there(&mut cache, "h", 1);
    cache.changed_file(stat(1).id);
    assert_eq!(cache.get(&path("h"), at(1)), None);
    // Another file has the name by now.
    there(&mut cache, "h", 1);
    there(&mut cache, "h", 2);
    cache.changed_file(stat(1).id);
    assert!(cache.get(&path("h"), at(1)).is_some());
    // A reply that the change has overtaken.
    let asked = cache.ask();
    cache.changed_file(stat(1).id);
    cache.put(asked, &path("h"), Known::There(stat(1)), until(9));
    assert_eq!(cache.get(&path("h"), at(1)), Some(Known::There(stat(2))));
    let entries = Arc::new(vec![(Name::new(b"f").unwrap(), stat(1))]);
    cache.put_listing(asked, &path("d"), &entries, &until(9));
    assert_eq!(cache.listing(&path("d"), at(1)), None);
}

#[test]
fn the_number_of_names_is_bounded() {
    let mut cache = NodeCache::new(50);
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..5000 {
        let name = format!("{}/{}", random.u8(0..20), random.u8(..));
        match random.u8(0..4) {
            0 => list(&mut cache, &name, &["a", "b", "c"], &until(9)),
            1 => cache.changed(&path(&name)),
            2 => cache.changed_below(&path(&name[..1])),
            _ => {
                let asked = cache.ask();
                let known = match random.u64(0..8) {
                    0 => Known::Missing,
                    size => Known::There(stat(size)),
                };
                cache.put(asked, &path(&name), known, until(9));
            }
        }
        let counted: usize = cache.places.values().map(Place::count).sum();
        assert_eq!(cache.len(), counted);
        assert!(counted <= 50 && cache.order.len() <= 170);
        let names = cache.places.values().map(|place| place.ids().count());
        assert_eq!(
            cache.names.values().map(Vec::len).sum::<usize>(),
            names.sum::<usize>()
        );
        for (key, listing) in cache.places.iter().filter(|(_, place)| place.listing.is_some()) {
            let listing = listing
                .listing
                .as_ref()
                .and_then(|listing| listing.entries.as_ref());
            let entries = listing.into_iter().flat_map(|entries| entries.iter());
            let dir = RelPath::parse(key).unwrap();
            for (name, stat) in entries {
                let key = folded(dir.join(name).as_bytes());
                assert!(
                    cache.names[&stat.id].contains(&key),
                    "its changes end the listing"
                );
            }
        }
    }
}

/// Makes a node through the store: begins, and ends with success unless `meanwhile` changes it.
fn make(
    cache: &mut NodeCache,
    name: &str,
    made: &NodeStat,
    now: Duration,
    meanwhile: impl FnOnce(&mut NodeCache),
) {
    cache.creating(&path(name));
    let asked = cache.ask();
    meanwhile(cache);
    cache.created(asked, &path(name), made, &until(900), now, at(1));
}

#[test]
fn a_new_node_leaves_the_names_of_its_folder_known() {
    let mut cache = NodeCache::new(100);
    let held = LeaseStatus::held();
    list(&mut cache, "d", &["a"], &Validity::leased(Arc::clone(&held)));
    make(&mut cache, "d/b", &stat(7), at(1), |_| {});
    assert_eq!(cache.get(&path("d/b"), at(2)), Some(Known::There(stat(7))));
    assert_eq!(cache.get(&path("d/c"), at(2)), Some(Known::Missing));
    assert_eq!(cache.listing(&path("d"), at(2)).unwrap().len(), 2);
    // It is written: its attributes are unknown then, but neither its name nor the others.
    cache.changed_attributes(&path("d/b"));
    cache.changed_file(stat(7).id);
    assert_eq!(cache.get(&path("d/b"), at(2)), None);
    assert_eq!(cache.listing(&path("d"), at(2)), None, "a size in it is old");
    assert_eq!(cache.get(&path("d/c"), at(2)), Some(Known::Missing));
    make(&mut cache, "d/c", &stat(8), at(2), |_| {});
    assert_eq!(
        cache.get(&path("d/C"), at(2)),
        None,
        "another spelling is asked for"
    );
    held.break_all();
    assert_eq!(cache.get(&path("d/e"), at(2)), None);
}

#[test]
fn what_happens_to_a_name_while_it_is_made_leaves_nothing_known() {
    let changes: [fn(&mut NodeCache); 3] = [
        |cache| cache.changed(&path("d/b")),
        |cache| cache.changed_below(&path("d")),
        |cache| cache.creating(&path("d/B")),
    ];
    for change in changes {
        let mut cache = NodeCache::new(100);
        list(&mut cache, "d", &["a"], &until(9));
        make(&mut cache, "d/b", &stat(7), at(1), change);
        assert_eq!(cache.get(&path("d/b"), at(2)), None);
        assert_eq!(cache.listing(&path("d"), at(2)), None);
    }
}

#[test]
fn a_listing_that_a_new_node_has_overtaken_does_not_say_that_it_is_missing() {
    let mut cache = NodeCache::new(100);
    let asked = cache.ask();
    // Asked before the node was there, answered at any time from then on.
    cache.creating(&path("d/b"));
    let creation = cache.ask();
    let entries = Arc::new(vec![(Name::new(b"a").unwrap(), stat(1))]);
    cache.put_listing(asked, &path("d"), &entries, &until(9));
    assert_eq!(cache.get(&path("d/b"), at(1)), None, "it may be there by now");
    assert_eq!(cache.get(&path("d/c"), at(1)), Some(Known::Missing));
    assert_eq!(cache.listing(&path("d"), at(1)), None, "it is not whole");
    cache.created(creation, &path("d/b"), &stat(7), &until(9), at(1), at(1));
    cache.put_listing(asked, &path("d"), &entries, &until(9));
    cache.changed_attributes(&path("d/b"));
    assert_eq!(cache.get(&path("d/b"), at(1)), None, "also after it was made");
    // The folder itself has changed.
    cache.changed_below(&path("d"));
    cache.put_listing(asked, &path("d"), &entries, &until(9));
    assert_eq!(cache.get(&path("d/c"), at(1)), None);
}

#[test]
fn the_times_of_a_folder_are_estimated_for_a_moment() {
    let mut cache = NodeCache::new(100);
    let (held, mut folder, mut made) = (LeaseStatus::held(), stat(3), stat(7));
    folder.kind = Kind::Directory;
    made.changed = Timestamp::from_unix(1000, 0);
    let asked = cache.ask();
    cache.put(
        asked,
        &path("d"),
        Known::There(folder),
        Validity::leased(Arc::clone(&held)),
    );
    make(&mut cache, "d/b", &made, at(10), |_| {});
    let Some(Known::There(known)) = cache.get(&path("d"), at(10)) else {
        panic!("the folder is known")
    };
    assert_eq!((known.modified, known.changed), (made.changed, made.changed));
    assert_eq!(cache.get(&path("d"), at(11)), None, "then the server is asked");
    // Each further file begins the time anew; without a lease it does not.
    make(&mut cache, "d/c", &made, at(20), |_| {});
    assert!(cache.get(&path("d"), at(20)).is_some());
    held.break_all();
    assert_eq!(cache.get(&path("d"), at(20)), None);
    let asked = cache.ask();
    cache.put(asked, &path("d"), Known::There(folder), until(22));
    make(&mut cache, "d/e", &made, at(21), |_| {});
    assert_eq!(cache.get(&path("d"), at(22)), None);
}

/// Any sequence of own changes agrees with a plain set of names: what is said to be missing is.
#[test]
fn no_name_that_exists_is_said_to_be_missing() {
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut cache, mut names) = (NodeCache::new(60), std::collections::BTreeSet::new());
        let (mut listing, mut making) = (None, Vec::new());
        for step in 0..200 {
            let name = format!("n{}", random.u8(0..12));
            let at_name = path(&format!("d/{name}"));
            match random.u8(0..8) {
                // The server lists the folder now; the reply comes later.
                0 => {
                    let entry = |name: &String| (Name::new(name.as_bytes()).unwrap(), stat(9));
                    listing = Some((cache.ask(), Arc::new(names.iter().map(entry).collect())));
                }
                1 => {
                    if let Some((asked, entries)) = listing.take() {
                        cache.put_listing(asked, &path("d"), &entries, &until(9));
                    }
                }
                2 => {
                    cache.creating(&at_name);
                    making.push((cache.ask(), name, false));
                }
                // The server makes one; its reply comes later.
                3 if !making.is_empty() => {
                    let at = random.usize(0..making.len());
                    making[at].2 = names.insert(making[at].1.clone());
                }
                4 if !making.is_empty() => {
                    let (asked, name, is_made) = making.swap_remove(random.usize(0..making.len()));
                    let at_name = path(&format!("d/{name}"));
                    match is_made {
                        true => cache.created(asked, &at_name, &stat(9), &until(9), at(1), at(1)),
                        false => cache.changed(&at_name),
                    }
                }
                5 => {
                    cache.changed(&at_name);
                    names.remove(&name);
                    cache.changed(&at_name);
                }
                6 => cache.changed_attributes(&at_name),
                _ => cache.changed_file(stat(9).id),
            }
            for name in &names {
                // One that is being made may be there or not.
                if !making.iter().any(|(_, made, _)| made == name) {
                    let known = cache.get(&path(&format!("d/{name}")), at(1));
                    assert_ne!(known, Some(Known::Missing), "seed {seed} step {step}: {name}");
                }
            }
        }
    }
}
