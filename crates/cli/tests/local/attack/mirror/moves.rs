use std::path::PathBuf;

use super::{below, put, reads};
use crate::support::Place;

/// A move renamed a file to find out whether both ends are one. If it ended just then, the file
/// kept the other name, and the next move copied it under that name.
#[test]
fn an_interrupted_move_leaves_every_file_its_name() {
    for rule in [
        "source:rename:nth=2,errno=EIO,times=99",
        "source:remove:nth=1,errno=EIO,times=99",
        "target:open:nth=1,errno=EIO,times=99",
    ] {
        let place = Place::new();
        put(&place.join("source/f"), "precious");
        put(&place.join("source/d/g"), "precious too");
        let arguments = ["--move", "-T", "--retries", "0", "source", "target"];
        let broken = place
            .ropeway("copy")
            .args(arguments)
            .args(["--fault", rule])
            .run();
        for (name, content) in [("f", "precious"), ("d/g", "precious too")] {
            let (source, target) = (place.join("source").join(name), place.join("target").join(name));
            assert_eq!(reads(&target), content, "{rule}: {broken}");
            assert!(!source.exists() || reads(&source) == content, "{rule}");
        }
        place.ropeway("copy").args(arguments).ok();
        assert_eq!(below(&place.join("source")), Vec::<PathBuf>::new(), "{rule}");
        assert_eq!(
            below(&place.join("target")),
            ["d", "d/g", "f"].map(PathBuf::from),
            "{rule}"
        );
    }
}

/// Later changes would not be moved.
#[test]
fn a_move_that_watches_is_refused() {
    let place = Place::new();
    put(&place.join("source/f"), "x");
    let finished = place
        .ropeway("copy")
        .args(["--move", "--watch", "-T", "source", "target"])
        .exits(1);
    assert!(
        finished.mentions("hint:") && finished.mentions("--watch"),
        "{finished}"
    );
    assert!(place.join("source/f").exists() && !place.join("target").exists());
}

/// Trees of empty folders stayed if no file moved.
#[test]
fn empty_folders_are_moved_too() {
    let place = Place::new();
    for folder in [
        "source/a/b/c",
        "source/with/empty",
        "source/kept/empty",
        "source/only",
    ] {
        place.folder(folder);
    }
    put(&place.join("source/with/f"), "x");
    put(&place.join("source/kept/x.tmp"), "excluded");
    let arguments = ["--move", "--exclude", "*.tmp", "-T", "source", "target"];
    place.ropeway("copy").args(arguments).ok();
    assert_eq!(
        below(&place.join("source")),
        ["kept", "kept/x.tmp"].map(PathBuf::from)
    );
    let there = [
        "a",
        "a/b",
        "a/b/c",
        "kept",
        "kept/empty",
        "only",
        "with",
        "with/empty",
        "with/f",
    ];
    assert_eq!(below(&place.join("target")), there.map(PathBuf::from));
    // The same if no file moves at all.
    place.folder("source2/x/y");
    place
        .ropeway("copy")
        .args(["--move", "-T", "source2", "target2"])
        .ok();
    assert!(!place.join("source2/x").exists() && place.join("target2/x/y").is_dir());
}

/// The table of arrived files took 49 bytes a node, and twice that while it grew: 178 MB for
/// 1,000,000 files.
#[test]
fn a_move_of_very_many_files_needs_little_memory() {
    let place = Place::in_memory();
    for folder in 0..120 {
        let folder = place.folder(&format!("source/{folder}"));
        for number in 0..2_000 {
            std::fs::File::create(folder.join(number.to_string())).unwrap();
        }
    }
    let finished = place
        .ropeway("copy")
        .args(["--json", "--move", "-T", "source", "target"])
        .ok();
    assert_eq!(finished.number("files"), 240_000);
    // The limit is 64 MiB of resident memory.
    assert!(finished.peak_kib() <= 64 << 10, "{} KiB", finished.peak_kib());
    assert_eq!(below(&place.join("source")), Vec::<PathBuf>::new());
}
