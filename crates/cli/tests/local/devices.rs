//! Block and character devices: skipped without --devices.

use std::fs;
use std::path::Path;

use crate::support::{Place, needs, or_skip, text, tool};

fn make(program: &str, path: &Path, rest: &[&str]) {
    let mut arguments = vec![path.to_str().unwrap()];
    arguments.extend(rest);
    tool(program, &arguments).unwrap();
}

/// Root created every device that a source had, and users of a share choose what it has.
#[test]
fn devices_are_created_only_on_request() {
    or_skip!(needs(true, &["mknod"]));
    let place = Place::new();
    let source = place.folder("source");
    make("mknod", &source.join("null"), &["c", "1", "3"]);
    make("mknod", &source.join("loop"), &["b", "7", "99"]);
    make("mkfifo", &source.join("fifo"), &[]);
    text(&source.join("file"), "x");
    let target = place.join("target");
    let devices = ["null", "loop"];
    let made = |name: &str| fs::symlink_metadata(target.join(name)).is_ok();
    let finished = place.copy(&source, &target).ok();
    assert!(devices.iter().all(|name| !made(name)), "{finished}");
    assert!(made("file") && made("fifo"));
    for name in devices {
        let said = finished
            .err
            .matches(&format!("{name}: a device; skipped"))
            .count()
            + finished
                .of_type("note")
                .iter()
                .filter(|note| note["path"].as_str().is_some_and(|path| path.ends_with(name)))
                .count();
        assert_eq!(said, 1, "{name} is listed once: {finished}");
    }
    assert_eq!(finished.number("skipped"), 2, "{finished}");
    assert_eq!(finished.number("errors"), 0, "{finished}");
    // A comparison ignores skipped devices without --devices.
    place.ropeway("check").arg(&source).arg(&target).ok();
    let missed = place
        .ropeway("check")
        .args(["--devices", "--json"])
        .arg(&source)
        .arg(&target)
        .exits(7);
    assert_eq!(missed.number("differences"), 2, "{missed}");
    place.copy(&source, &target).args(["-T", "-D"]).ok();
    assert!(devices.iter().all(|name| made(name)));
    place.ropeway("check").arg("-D").arg(&source).arg(&target).ok();
    // A skipped name is not deleted from the target, whatever it is there.
    fs::remove_file(target.join("loop")).unwrap();
    text(&target.join("loop"), "a file of that name");
    text(&target.join("extra"), "goes");
    let mirror = || {
        place
            .ropeway("mirror")
            .args(["--json", "--yes"])
            .arg(&source)
            .arg(&target)
            .ok()
    };
    let finished = mirror();
    assert!(
        devices.iter().all(|name| made(name)) && !made("extra"),
        "{finished}"
    );
    assert_eq!(
        fs::read_to_string(target.join("loop")).unwrap(),
        "a file of that name"
    );
    place.ropeway("check").arg(&source).arg(&target).ok();
    // A move leaves devices where they are.
    let moved = place.join("moved");
    place.copy(&source, &moved).arg("--move").ok();
    assert!(fs::symlink_metadata(source.join("null")).is_ok() && !source.join("file").exists());
}
