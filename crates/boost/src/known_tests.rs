//! What is known of names, by rule and by seed.

use ropeway_vfs::{FileId, Kind, Owner, Timestamp};

use super::*;

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

fn stat(size: u64, kind: Kind) -> NodeStat {
    NodeStat {
        kind,
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

fn there(size: u64) -> Found {
    Found::There(stat(size, Kind::File))
}

fn question(known: &Known, number: u64) -> Question {
    Question {
        number,
        at: Duration::from_secs(number),
        changes: known.changes(),
    }
}

fn list(known: &mut Known, number: u64, dir: &str, names: &[&str]) {
    let entry = |name: &&str| {
        let stat = stat(name.len() as u64, Kind::File);
        (Name::new(name.as_bytes()).unwrap(), stat)
    };
    let question = question(known, number);
    known.put_listing(question, &path(dir), names.iter().map(entry).collect());
}

fn found(known: &Known, at: &str) -> Option<Found> {
    known.get(&path(at), Ask::Itself).map(|answer| answer.found)
}

#[test]
fn a_whole_listing_says_what_is_missing() {
    let mut known = Known::new(100);
    assert_eq!(found(&known, "d/a"), None);
    list(&mut known, 1, "d", &["a", "Bb"]);
    assert_eq!(found(&known, "d/a"), Some(there(1)));
    assert_eq!(found(&known, "d/no"), Some(Found::Missing));
    assert_eq!(found(&known, "d/BB"), None, "it exists in another case");
    assert_eq!(found(&known, "d/no~1"), None, "a short name");
    assert_eq!(found(&known, "d/né"), None);
    assert_eq!(found(&known, "e/no"), None);
    assert_eq!(known.resolve(&path("d/bB")).unwrap().0, path("d/Bb"));
    assert_eq!(known.resolve(&path("d/no")).unwrap().0, path("d/no"));
    assert_eq!(known.resolve(&path("d/no/x")), None);
    // A later listing counts more than an earlier answer, and less than a later one.
    list(&mut known, 2, "d", &["Bb"]);
    assert_eq!(found(&known, "d/a"), Some(Found::Missing));
    let asked = question(&known, 3);
    known.put(asked, &path("d/a"), Ask::Itself, there(7));
    assert_eq!(found(&known, "d/a"), Some(there(7)));
}

#[test]
fn a_link_is_not_what_it_leads_to() {
    let mut known = Known::new(100);
    let link = Found::There(stat(5, Kind::Symlink));
    let asked = question(&known, 1);
    known.put(asked, &path("l"), Ask::Itself, link);
    assert_eq!(known.get(&path("l"), Ask::Followed), None);
    known.put(asked, &path("l"), Ask::Followed, there(9));
    assert_eq!(known.get(&path("l"), Ask::Followed).unwrap().found, there(9));
    assert_eq!(found(&known, "l"), Some(link));
    // What leads somewhere may be a link or not.
    known.put(asked, &path("f"), Ask::Followed, there(9));
    assert_eq!(found(&known, "f"), None);
    known.put(asked, &path("g"), Ask::Itself, there(9));
    assert_eq!(known.get(&path("g"), Ask::Followed).unwrap().found, there(9));
}

#[test]
fn the_root_is_known_however_it_was_opened() {
    let mut known = Known::new(100);
    let asked = question(&known, 1);
    known.put(asked, &RelPath::root(), Ask::Followed, there(9));
    assert_eq!(found(&known, ""), Some(there(9)));
}

#[test]
fn own_changes_remove_what_they_touch() {
    let mut known = Known::new(100);
    list(&mut known, 1, "", &["d", "e"]);
    list(&mut known, 1, "d", &["f", "g"]);
    list(&mut known, 1, "d/f", &["h"]);
    let asked = question(&known, 2);
    known.changed(&path("D/F"));
    assert_eq!(found(&known, "d/f"), None, "whatever the spelling");
    assert_eq!(found(&known, "d/f/h"), None);
    assert_eq!(known.listing(&path("d")), None);
    assert!(found(&known, "d/g").is_some() && found(&known, "e").is_some());
    // Answers that are older than the change.
    known.put(asked, &path("d/f"), Ask::Itself, there(1));
    known.put_listing(asked, &path("d"), Vec::new());
    assert_eq!((found(&known, "d/f"), found(&known, "d/no")), (None, None));
    let asked = question(&known, 3);
    for _ in 0..2 * CHANGES_MAX {
        known.changed(&path("z"));
    }
    known.put(asked, &path("y"), Ask::Itself, Found::Missing);
    assert_eq!(found(&known, "y"), None, "too many changes to judge");
    known.clear();
    assert_eq!((found(&known, "e"), known.count), (None, 0));
}

#[test]
fn the_table_is_bounded() {
    let mut known = Known::new(50);
    let mut random = fastrand::Rng::with_seed(3);
    for number in 0..5000 {
        let name = format!("{}/{}", random.u8(0..20), random.u8(..));
        match random.u8(0..4) {
            0 => list(&mut known, number, &name, &["a", "b", "c"]),
            1 => known.changed(&path(&name)),
            2 => known.changed(&path(name.split('/').next().unwrap())),
            _ => {
                let asked = question(&known, number);
                known.put(asked, &path(&name), Ask::Followed, Found::Missing);
            }
        }
        let counted: usize = known.places.values().map(Place::count).sum();
        assert_eq!(known.count, counted);
        assert!(counted <= 50 && known.order.len() <= 170);
    }
    list(&mut known, 9999, "big", &["x"; 13]);
    assert_eq!(known.listing(&path("big")), None);
}
