//! Filters: by name, size, age and list.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::support::{self, Place, text};

/// Makes a tree with something for each filter.
fn with_tree() -> Place {
    let place = Place::new();
    let source = place.folder("source");
    for folder in ["src", "build/out", "docs/build", "cache"] {
        fs::create_dir_all(source.join(folder)).unwrap();
    }
    for name in [
        "src/a.c",
        "src/a.o",
        "src/b.c",
        "build/out/x",
        "docs/build/page",
        "docs/readme",
        "cache/c",
        "top.o",
    ] {
        text(&source.join(name), name);
    }
    place
}

/// Returns the files below a folder, sorted, as text.
fn files(root: &Path) -> Vec<String> {
    support::walk(root)
        .into_iter()
        .filter(|path| !path.is_dir())
        .map(|path| path.strip_prefix(root).unwrap().to_str().unwrap().to_owned())
        .collect()
}

#[track_caller]
fn copied(place: &Place, flags: &[&str]) -> Vec<String> {
    let target = place.join("target");
    if target.exists() {
        fs::remove_dir_all(&target).unwrap();
    }
    place.copy("source", "target").args(flags).ok();
    if target.exists() {
        files(&target)
    } else {
        Vec::new()
    }
}

#[test]
fn patterns_are_those_of_gitignore() {
    let place = with_tree();
    assert_eq!(
        copied(&place, &["--exclude", "*.o", "--exclude", "/build"]),
        ["cache/c", "docs/build/page", "docs/readme", "src/a.c", "src/b.c"]
    );
    assert_eq!(
        copied(&place, &["--exclude", "build/", "--exclude", "cache"]),
        ["docs/readme", "src/a.c", "src/a.o", "src/b.c", "top.o"]
    );
    assert_eq!(
        copied(
            &place,
            &["--exclude", "*.o", "--include", "top.o", "--exclude", "build/"]
        ),
        ["cache/c", "docs/readme", "src/a.c", "src/b.c", "top.o"]
    );
    assert_eq!(copied(&place, &["--include", "*.c"]), ["src/a.c", "src/b.c"]);
    text(&place.join("patterns"), "*.o\n# a comment\n\n/build\n");
    assert_eq!(
        copied(&place, &["--exclude-from", "patterns", "--exclude", "docs"]),
        ["cache/c", "src/a.c", "src/b.c"]
    );
}

#[test]
fn sizes() {
    let place = Place::new();
    let source = place.folder("source");
    for size in [0_u64, 1, 1_023, 1_024, 1_025, 100_000] {
        support::file(&source.join(format!("{size:06}")), size, size);
    }
    assert_eq!(
        copied(&place, &["--min-size", "1K"]),
        ["001024", "001025", "100000"]
    );
    assert_eq!(
        copied(&place, &["--max-size", "1024"]),
        ["000000", "000001", "001023", "001024"]
    );
    assert_eq!(
        copied(&place, &["--min-size", "1", "--max-size", "1KB"]),
        ["000001"]
    );
}

#[test]
fn ages() {
    let place = Place::new();
    let source = place.folder("source");
    for days in [0_u64, 3, 10] {
        let path = source.join(format!("{days} days"));
        text(&path, "x");
        let time = SystemTime::now() - Duration::from_secs(days * 86_400 + 60);
        fs::File::open(&path).unwrap().set_modified(time).unwrap();
    }
    assert_eq!(copied(&place, &["--newer", "5d"]), ["0 days", "3 days"]);
    assert_eq!(copied(&place, &["--older", "1d"]), ["10 days", "3 days"]);
    assert_eq!(copied(&place, &["--older", "1d", "--newer", "1w"]), ["3 days"]);
    assert_eq!(copied(&place, &["--newer", "2001-01-01"]).len(), 3);
}

#[test]
fn lists_of_files() {
    let place = with_tree();
    text(&place.join("list"), "src/a.c\ndocs\n\ntop.o\n");
    assert_eq!(
        copied(&place, &["--files-from", "list"]),
        ["docs/build/page", "docs/readme", "src/a.c", "top.o"]
    );
    fs::write(place.join("list0"), b"src/a.c\0cache\0").unwrap();
    assert_eq!(
        copied(&place, &["--files-from", "list0", "-0"]),
        ["cache/c", "src/a.c"]
    );
    assert_eq!(
        copied(&place, &["--files-from", "list", "--exclude", "*.o"]),
        ["docs/build/page", "docs/readme", "src/a.c"]
    );
}

#[test]
fn listed_names_that_the_source_lacks_are_named() {
    let place = with_tree();
    text(&place.join("list"), "src/a.c\nsrc/missing\nno folder/x\nbuild\n");
    let finished = place
        .copy("source", "target")
        .args(["--files-from", "list"])
        .exits(2);
    for missing in ["src/missing", "no folder/x"] {
        finished.mentions(missing);
    }
    assert!(
        !finished.err.contains("a.c") && !finished.err.contains("build"),
        "{finished}"
    );
    assert_eq!(files(&place.join("target")), ["build/out/x", "src/a.c"]);
    assert_eq!(finished.number("errors"), 2);
}

#[test]
fn an_include_that_takes_nothing_is_told() {
    let place = with_tree();
    let told = |flags: &[&str]| {
        let finished = place.copy("source", "target").args(flags).ok();
        finished.out.contains("--include took no file") || finished.err.contains("--include took no file")
    };
    assert!(told(&["--include", "*.C"]));
    assert!(!told(&["--include", "*.c"]));
    assert!(!told(&["--include", "*.C", "--exclude", "src"]));
}

#[test]
fn invalid_filters_are_refused() {
    let place = with_tree();
    for flags in [
        ["--exclude", "[z-a]"],
        ["--exclude", "["],
        ["--min-size", "huge"],
        ["--newer", "yesteryear"],
        ["--files-from", "no such list"],
        ["--exclude-from", "no such list"],
    ] {
        let finished = place.copy("source", "target").args(flags).exits(1);
        assert!(!place.join("target").exists(), "{finished}");
    }
}
