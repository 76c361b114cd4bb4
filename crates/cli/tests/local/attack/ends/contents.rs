//! `check --checksum` and `copy --verify`: contents that differ although sizes and times do not.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Ground, Place, file, no_temporaries, or_skip, same, set_times, small_files, walk};

/// Changes one byte of a file without changing its metadata.
fn rot(path: &Path) {
    let before = fs::metadata(path).unwrap();
    let mut content = fs::read(path).unwrap();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    fs::write(path, content).unwrap();
    fs::File::open(path)
        .unwrap()
        .set_modified(before.modified().unwrap())
        .unwrap();
}

/// Makes a source and a copy with small, empty and bigger files, and corrupts some of the copy.
fn rotten(place: &Place, copy: &Path) -> Vec<String> {
    let source = place.join("source");
    small_files(&source, 700, 3);
    for number in 0..300 {
        fs::write(source.join(format!("d000/empty{number}")), "").unwrap();
    }
    for (number, size) in [
        65_536,
        65_537,
        (1 << 20) - 1,
        1 << 20,
        (1 << 20) + 1,
        (9 << 20) + 3,
    ]
    .into_iter()
    .enumerate()
    {
        file(&source.join(format!("d001/big{number}")), size, number as u64);
    }
    place.copy("source", copy).arg("-T").ok();
    let files: Vec<PathBuf> = walk(copy)
        .into_iter()
        .filter(|path| path.is_file() && fs::metadata(path).unwrap().len() > 0)
        .collect();
    let (bad, _): (Vec<_>, Vec<_>) = files
        .iter()
        .enumerate()
        .partition(|(number, path)| number % 50 == 7 || path.to_str().unwrap().contains("big"));
    let mut names: Vec<String> = bad
        .into_iter()
        .map(|(_, path)| {
            rot(path);
            path.strip_prefix(copy).unwrap().to_str().unwrap().to_owned()
        })
        .collect();
    names.sort();
    names
}

/// Many files are compared at once. Every difference is found, once, and always in the same order.
#[test]
fn a_check_of_contents_finds_every_difference_in_a_stable_order() {
    let place = Place::in_memory();
    let bad = rotten(&place, &place.join("copy"));
    let differing = |flags: &[&str]| -> Vec<String> {
        let finished = place
            .ropeway("check")
            .args(["--json", "-c", "source", "copy"])
            .args(flags)
            .exits(7);
        assert_eq!(finished.number("differences"), bad.len() as u64);
        assert_eq!(finished.number("files"), 1_000 + 6);
        let items = finished.of_type("item").into_iter();
        items
            .map(|item| {
                assert_eq!(item["action"], "differs", "{item}");
                item["path"].as_str().unwrap().to_owned()
            })
            .collect()
    };
    let found = differing(&[]);
    assert_eq!(found, differing(&[]));
    let mut sorted = found;
    sorted.sort();
    assert_eq!(sorted, bad);
    // With a record of every operation.
    let mut traced = differing(&["--trace", "trace"]);
    traced.sort();
    assert_eq!(traced, bad);
    // Missing and extra files are reported in between.
    fs::remove_file(place.join("copy/d003/f00300")).unwrap();
    fs::write(place.join("copy/d003/surplus"), "x").unwrap();
    let finished = place
        .ropeway("check")
        .args(["--json", "-c", "source", "copy"])
        .exits(7);
    let lines: Vec<String> = finished
        .of_type("item")
        .iter()
        .map(|item| format!("{} {}", item["action"], item["path"]).replace('"', ""))
        .collect();
    for line in ["missing d003/f00300", "extra d003/surplus"] {
        assert!(lines.iter().any(|found| found == line), "{line}: {lines:?}");
    }
}

#[test]
fn a_check_of_contents_on_a_share_finds_every_difference() {
    let ground = or_skip!(Ground::start());
    let copy = ground.behind("data/copy");
    let bad = rotten(&ground.place, &copy);
    let finished = ground
        .run("check")
        .args(["--json", "-c", "source", &ground.url("data/copy")])
        .exits(7);
    let mut found: Vec<String> = finished
        .of_type("item")
        .iter()
        .map(|item| item["path"].as_str().unwrap().to_owned())
        .collect();
    found.sort();
    assert_eq!(found, bad);
    assert_eq!(finished.number("errors"), 0, "{finished}");
}

/// Equal contents under another time differ in attributes only.
#[test]
fn times_alone_do_not_make_contents_differ() {
    let place = Place::new();
    small_files(&place.join("source"), 20, 1);
    place.copy("source", "copy").arg("-T").ok();
    set_times(&place.join("copy/d000/f00005"), 1_000_000_000, 0);
    let finished = place
        .ropeway("check")
        .args(["--json", "-c", "source", "copy"])
        .exits(7);
    assert_eq!(finished.of_type("item")[0]["action"], "attributes", "{finished}");
    place
        .ropeway("check")
        .args(["-c", "--no-times", "source", "copy"])
        .ok();
}

/// A file that looked equal but differed made each run fail, and nothing repaired it.
#[test]
fn verification_repairs_a_corrupted_file() {
    for flags in [
        &[][..],
        &["--durability", "file"],
        &["--manifest", "sums"],
        &["--inplace"],
    ] {
        let place = Place::new();
        let target = place.join("target");
        small_files(&place.join("source"), 30, 2);
        file(&place.join("source/big"), 5 << 20, 3);
        let copy = || {
            place
                .copy("source", "target")
                .args(["-T", "--verify"])
                .args(flags)
        };
        copy().ok();
        let whole = copy().ok();
        for name in ["d000/f00003", "d000/f00017", "big"] {
            rot(&target.join(name));
        }
        let finished = copy().ok();
        assert_eq!(
            (finished.number("repaired"), finished.number("differences")),
            (3, 0),
            "{finished}"
        );
        assert_eq!(finished.number("files"), 31, "{finished}");
        assert_eq!(finished.number("bytes_durable"), whole.number("bytes_durable"));
        same(&place.join("source"), &target);
        no_temporaries(&target);
        assert_eq!(copy().ok().number("repaired"), 0);
        if flags.contains(&"--manifest") {
            place.ropeway("check").args(["--manifest", "sums", "target"]).ok();
        }
    }
}

/// With `--ignore-existing` existing files stay unchanged, and the message says what would repair
/// the difference.
#[test]
fn verification_suggests_a_repair_that_it_must_not_make() {
    let place = Place::new();
    small_files(&place.join("source"), 5, 2);
    place.copy("source", "target").arg("-T").ok();
    rot(&place.join("target/d000/f00003"));
    let finished = place
        .copy("source", "target")
        .args(["-T", "--verify", "--ignore-existing"])
        .exits(7);
    assert_eq!(
        (finished.number("repaired"), finished.number("differences")),
        (0, 1),
        "{finished}"
    );
    assert!(finished.mentions("--checksum"), "{finished}");
}
