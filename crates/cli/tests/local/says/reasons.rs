//! Why `check` calls two nodes different.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

use crate::support::{Place, is_root, text};

/// Makes pairs that differ in one way each.
fn ground() -> Place {
    let place = Place::new();
    for side in ["source", "target"] {
        place.folder(side);
        for name in ["same", "mode", "size", "time", "content"] {
            text(&place.join(format!("{side}/{name}")), "content");
        }
    }
    text(&place.join("source/missing"), "x");
    text(&place.join("target/extra"), "x");
    text(&place.join("source/kind"), "x");
    place.folder("target/kind");
    symlink("one", place.join("source/link")).unwrap();
    symlink("two", place.join("target/link")).unwrap();
    text(&place.join("target/size"), "longer content");
    text(&place.join("target/content"), "CONTENT");
    fs::set_permissions(place.join("target/mode"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(place.join("source/mode"), fs::Permissions::from_mode(0o640)).unwrap();
    let time = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    for side in ["source", "target"] {
        for name in ["same", "mode", "size", "time", "content"] {
            let file = fs::File::options()
                .write(true)
                .open(place.join(format!("{side}/{name}")))
                .unwrap();
            let later = Duration::from_secs(u64::from(side == "target" && name == "time") * 60);
            file.set_modified(time + later).unwrap();
        }
    }
    place
}

#[test]
fn each_difference_says_why() {
    let place = ground();
    let flags = ["--checksum", "source", "target"];
    let finished = place.ropeway("check").args(flags).exits(7);
    for line in [
        "differs    size  (size 7 B -> 14 B)",
        "differs    content  (content)",
        "attributes mode  (mode 640 -> 600)",
        "differs    kind  (kind file -> directory)",
        "differs    link  (link",
        "attributes time  (time ",
        "missing    missing",
        "extra      extra",
        "1 missing · 1 extra · 1 of another kind · 2 with other content · 1 with another size · 1 with",
    ] {
        assert!(finished.out.contains(line), "{line}: {finished}");
    }
    let finished = place.ropeway("check").arg("--json").args(flags).exits(7);
    let item = |path: &str| {
        let items = finished.of_type("item");
        items.into_iter().find(|item| item["path"] == path).unwrap()
    };
    let reason = |path: &str, index: usize| item(path)["reasons"][index].clone();
    assert_eq!(reason("content", 0)["reason"], "content");
    assert_eq!(reason("size", 0)["target"], 14);
    assert_eq!(reason("time", 0)["source"], 1_700_000_000.0);
    assert_eq!(reason("mode", 0)["source"], 0o640);
    assert_eq!(reason("kind", 0)["target"], "directory");
    assert_eq!(item("missing")["reasons"], Value::Null);
    let counts = &finished.summary()["reasons"];
    assert_eq!((&counts["missing"], &counts["content"]), (&1.into(), &2.into()));
    let without = place.ropeway("check").args(["source", "target"]).exits(7);
    assert!(
        without.out.contains("differs    size  (size 7 B -> 14 B)"),
        "{without}"
    );
    assert!(!without.out.contains(" same"), "{without}");
}

#[test]
fn owners_alone_are_counted_apart() {
    if !is_root() {
        crate::support::skip!("only root gives files away");
    }
    let place = Place::new();
    place.folder("source");
    text(&place.join("source/file"), "content");
    place.copy("source", "target").ok();
    std::os::unix::fs::chown(place.join("target/file"), Some(1234), Some(1234)).unwrap();
    let finished = place.ropeway("check").args(["source", "target"]).exits(7);
    assert!(
        finished.out.contains("attributes file  (owner 0:0 -> 1234:1234)"),
        "{finished}"
    );
    assert!(finished.out.contains("1 with another owner only"), "{finished}");
    // Root's copy would have kept it.
    assert!(!finished.out.contains("hint"), "{finished}");
    place
        .ropeway("check")
        .args(["--no-owner", "source", "target"])
        .ok();
    if let Ok(run) = place.ropeway_as_nobody("check") {
        let finished = run.args(["source", "target"]).exits(7);
        assert!(finished.out.contains("a copy by root keeps owners"), "{finished}");
    }
}
