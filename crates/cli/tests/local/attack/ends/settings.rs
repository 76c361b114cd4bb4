//! Flags that delete or move work on the command line only; files from Windows editors are read
//! correctly.

use std::fs;

use crate::support::{Place, mixed, text};

/// Makes `tree` with some files, and `other`, an empty folder.
fn ground() -> Place {
    let place = Place::new();
    mixed(&place.join("tree"));
    place.folder("other");
    place
}

/// A forgotten variable or line of the configuration turned every copy into a move.
#[test]
fn a_copy_becomes_a_move_only_on_the_command_line() {
    let place = ground();
    for value in ["1", "true", "yes"] {
        let finished = place
            .ropeway("copy")
            .args(["tree", "other"])
            .env("ROPEWAY_MOVE", value)
            .exits(1);
        assert!(
            finished.mentions("ROPEWAY_MOVE") && finished.mentions("hint:"),
            "{finished}"
        );
    }
    for config in ["move = true\n", "[copy]\nmove = true\n"] {
        fs::write(place.config_file(), config).unwrap();
        let finished = place.ropeway("copy").args(["tree", "other"]).exits(1);
        assert!(
            finished.mentions("config.toml") && finished.mentions("--move"),
            "{finished}"
        );
    }
    assert!(place.join("tree/one byte").exists() && !place.join("other/tree").exists());
    // Turned off there, it changes nothing; on the command line it works.
    fs::write(place.config_file(), "move = false\n").unwrap();
    place.ropeway("copy").args(["tree", "other"]).ok();
    assert!(place.join("tree/one byte").exists());
    place
        .ropeway("copy")
        .args(["--move", "tree", "other"])
        .env("ROPEWAY_MOVE", "1")
        .ok();
    assert!(!place.join("tree/one byte").exists() && place.join("other/tree/one byte").exists());
}

/// `yes = true` in a configuration confirmed every mirror and every `rm -r`.
#[test]
fn deletions_are_confirmed_on_the_command_line_only() {
    let place = ground();
    text(&place.join("other/only here"), "x");
    let unharmed = |place: &Place| {
        assert!(place.join("other/only here").exists() && place.join("tree/one byte").exists());
    };
    for (name, command, arguments) in [
        ("ROPEWAY_YES", "mirror", &["tree", "other"][..]),
        (
            "ROPEWAY_DELETE_EXCLUDED",
            "mirror",
            &["--yes", "--exclude", "only*", "tree", "other"],
        ),
        ("ROPEWAY_YES", "rm", &["-r", "tree"]),
        ("ROPEWAY_RECURSIVE", "rm", &["--yes", "tree"]),
        ("ROPEWAY_FORCE", "rm", &["-r", "--yes", "tree"]),
        ("ROPEWAY_FORCE", "mv", &["tree/one byte", "other/only here"]),
    ] {
        let finished = place.ropeway(command).args(arguments).env(name, "1").exits(1);
        assert!(finished.mentions(name), "{finished}");
        unharmed(&place);
    }
    for (config, command, arguments) in [
        ("[mirror]\nyes = true\n", "mirror", &["tree", "other"][..]),
        (
            "delete-excluded = true\n",
            "mirror",
            &["--yes", "--exclude", "only*", "tree", "other"],
        ),
        ("[rm]\nyes = true\nrecursive = true\n", "rm", &["tree"]),
        (
            "[mv]\nforce = true\n",
            "mv",
            &["tree/one byte", "other/only here"],
        ),
    ] {
        fs::write(place.config_file(), config).unwrap();
        let finished = place.ropeway(command).args(arguments).exits(1);
        assert!(finished.mentions("config.toml"), "{finished}");
        unharmed(&place);
    }
    // A limit on deletions is not a deletion.
    fs::write(place.config_file(), "max-delete = 0\n").unwrap();
    place.ropeway("mirror").args(["--yes", "tree", "other"]).exits(8);
    unharmed(&place);
}

/// The first line of a file with a byte-order mark matched nothing, so an excluded file was copied.
#[test]
fn the_first_line_after_a_byte_order_mark_counts() {
    let place = Place::new();
    let source = place.folder("source");
    for name in ["secret.key", "b.tmp", "keep"] {
        text(&source.join(name), name);
    }
    let names = |target: &str| {
        let mut names: Vec<_> = fs::read_dir(place.join(target))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    fs::write(place.join("patterns"), "\u{feff}*.key\r\n*.tmp\r\n").unwrap();
    place
        .copy("source", "excluded")
        .args(["--exclude-from", "patterns"])
        .ok();
    assert_eq!(names("excluded"), ["keep"]);
    fs::write(place.join("list"), "\u{feff}keep\r\nb.tmp\r\n").unwrap();
    place.copy("source", "listed").args(["--files-from", "list"]).ok();
    assert_eq!(names("listed"), ["b.tmp", "keep"]);
    fs::write(
        place.config_file(),
        "\u{feff}exclude = [\"*.key\"]\r\nverify = true\r\n",
    )
    .unwrap();
    let finished = place.copy("source", "configured").ok();
    assert_eq!(names("configured"), ["b.tmp", "keep"]);
    assert_eq!(finished.summary()["verified"], true);
    // UTF-16 is never meant as a pattern file.
    fs::write(place.config_file(), "").unwrap();
    fs::write(place.join("wide"), b"\xff\xfe*\0.\0k\0e\0y\0").unwrap();
    let finished = place
        .copy("source", "wide target")
        .args(["--exclude-from", "wide"])
        .exits(1);
    assert!(
        finished.mentions("UTF-16") && !place.join("wide target").exists(),
        "{finished}"
    );
}

/// A manifest saved by such an editor still names the same files.
#[test]
fn a_manifest_with_windows_line_ends_is_read() {
    let place = Place::new();
    text(&place.folder("source").join("a"), "content");
    place.copy("source", "target").args(["--manifest", "sums"]).ok();
    let sums = fs::read_to_string(place.join("sums")).unwrap();
    fs::write(
        place.join("sums"),
        format!("\u{feff}{}", sums.replace('\n', "\r\n")),
    )
    .unwrap();
    place.ropeway("check").args(["--manifest", "sums", "target"]).ok();
}
