use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::{mirror, put};
use crate::support::{Place, same, set_times};

/// Each name became a separate file where a folder had been.
#[test]
fn hard_links_are_kept_when_they_replace_a_folder() {
    let place = Place::new();
    put(&place.join("source/a"), "one file");
    for name in ["b", "c"] {
        fs::hard_link(place.join("source/a"), place.join("source").join(name)).unwrap();
    }
    put(&place.join("target/a/x"), "x");
    put(&place.join("target/c/x"), "x");
    mirror(&place, &[]).assert_code(&[0]);
    same(&place.join("source"), &place.join("target"));
    let again = mirror(&place, &[]);
    again.assert_code(&[0]);
    assert_eq!(again.number("bytes_sent"), 0);
}

/// Two files of the source are one file on the target and differ in mode: each run set the mode of
/// one, which changed that of the other.
#[test]
fn files_that_are_hard_links_on_the_target_only_converge() {
    let place = Place::new();
    for (name, mode) in [("source/f", 0o644), ("source/g", 0o600), ("target/f", 0o640)] {
        put(&place.join(name), "the same");
        set_times(&place.join(name), 1_500_000_000, 7);
        fs::set_permissions(place.join(name), Permissions::from_mode(mode)).unwrap();
    }
    fs::hard_link(place.join("target/f"), place.join("target/g")).unwrap();
    mirror(&place, &[]).assert_code(&[0]);
    same(&place.join("source"), &place.join("target"));
    let inodes = || ["f", "g"].map(|name| fs::metadata(place.join("target").join(name)).unwrap().ino());
    let before = inodes();
    let again = mirror(&place, &["-v"]);
    again.assert_code(&[0]);
    assert!(
        again.of_type("item").iter().all(|item| item["action"] == "skip"),
        "{again}"
    );
    assert_eq!(inodes(), before);
}

/// Groups of hard links that differ in mode; on the target they are one group.
#[test]
fn groups_that_are_one_on_the_target_converge() {
    let place = Place::new();
    for (first, second, mode) in [("a", "b", 0o644), ("c", "d", 0o600)] {
        let first = place.join("source").join(first);
        put(&first, "the same");
        set_times(&first, 1_500_000_000, 7);
        fs::set_permissions(&first, Permissions::from_mode(mode)).unwrap();
        fs::hard_link(&first, place.join("source").join(second)).unwrap();
    }
    let one = place.join("target/a");
    put(&one, "the same");
    set_times(&one, 1_500_000_000, 7);
    fs::set_permissions(&one, Permissions::from_mode(0o640)).unwrap();
    for name in ["b", "c", "d"] {
        fs::hard_link(&one, place.join("target").join(name)).unwrap();
    }
    mirror(&place, &[]).assert_code(&[0]);
    same(&place.join("source"), &place.join("target"));
    let again = mirror(&place, &[]);
    again.assert_code(&[0]);
    assert_eq!(again.number("bytes_sent"), 0);
    same(&place.join("source"), &place.join("target"));
}
