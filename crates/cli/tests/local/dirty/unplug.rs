use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::dirty::{Holder, dirty_file, number};
use crate::support::{self, Place, Volume, needs, or_skip, wait_until};

/// Runs the program in a mount name space in which a loop device says that it is removable.
pub(crate) fn removable(place: &Place, root: &Path, one: &Path) -> support::Run {
    removable_by(place, root, one, "dirty")
}

fn removable_by(place: &Place, root: &Path, one: &Path, command: &str) -> support::Run {
    removable_with(place, root, one, command, "exec \"$@\"")
}

/// The same; `last` is what the shell does at the end with the program.
fn removable_with(place: &Place, root: &Path, one: &Path, command: &str, last: &str) -> support::Run {
    fs::write(one, "1\n").unwrap();
    let folder = fs::canonicalize(format!("/sys/dev/block/{}", number(root))).unwrap();
    // Of a partition, the disk says it.
    let folder = match folder.join("partition").exists() {
        true => folder.parent().unwrap().to_owned(),
        false => folder,
    };
    let script = format!(
        "mount --bind '{}' '{}' && {last}",
        one.display(),
        folder.join("removable").display()
    );
    place.ropeway_by(&["unshare", "-m", "sh", "-c", &script, "sh"], command)
}

#[test]
fn a_stick_is_safe_once_nobody_writes_to_it() {
    or_skip!(needs(true, &["unshare"]));
    let volume = or_skip!(Volume::ext4(100));
    let place = Place::new();
    let one = place.join("one");
    let writer = Holder::start(
        "exec 9>>\"$1\"; echo x >&9; exec sleep 1000",
        &volume.join("open file"),
    );
    assert!(wait_until(Duration::from_secs(10), || {
        fs::metadata(volume.join("open file")).is_ok_and(|node| node.len() > 0)
    }));
    let drain = |flags: &[&str]| {
        removable(&place, &volume.root(), &one)
            .arg("drain")
            .args(flags)
            .arg(volume.root())
    };
    let refused = drain(&["--no-wait"]).exits(2);
    let who = format!("({}) has", writer.0.id());
    assert!(
        refused.mentions("NOT SAFE") && refused.out.contains(&who),
        "{refused}"
    );
    assert!(refused.out.contains("open file"), "{refused}");
    // It waits until the file is closed.
    let mut waiting = drain(&["--json"]).start();
    let waits = |out: &str| {
        out.lines()
            .any(|line| line.contains("\"pid\":") && line.contains("progress"))
    };
    assert!(
        waiting.until(|running| waits(&running.stdout())),
        "{}",
        waiting.stdout()
    );
    drop(writer);
    let safe = waiting.wait();
    safe.assert_code(&[0]);
    let verdict = safe.summary()["verdict"].as_str().unwrap().to_owned();
    // In a container not all processes are seen.
    assert!(
        matches!(verdict.as_str(), "safe_to_unplug" | "safe_as_far_as_seen"),
        "{safe}"
    );
    let said = drain(&[]).ok();
    assert!(said.out.contains("SAFE TO UNPLUG"), "{said}");
    assert!(said.out.lines().next().unwrap().chars().count() <= 130, "{said}");
}

/// A copy ends with the same words: only of what people unplug, and only if nobody else writes there.
#[test]
fn a_copy_calls_only_a_quiet_stick_safe() {
    or_skip!(needs(true, &["unshare"]));
    let volume = or_skip!(Volume::ext4(100));
    let memory = or_skip!(Volume::tmpfs(16));
    let place = Place::new();
    let one = place.join("one");
    dirty_file(&place.join("source"), 1);
    let verdict = |finished: &support::Finished| finished.summary()["verdict"].as_str().unwrap().to_owned();
    let fixed = place.copy(place.join("source"), volume.join("a")).ok();
    assert_eq!(verdict(&fixed), "durable", "{fixed}");
    let in_memory = place
        .ropeway("copy")
        .arg(place.join("source"))
        .arg(memory.join("a"))
        .ok();
    assert!(
        in_memory.mentions("in memory only") && !in_memory.mentions("unplug"),
        "{in_memory}"
    );
    let copy = |name: &str| {
        let run = removable_by(&place, &volume.root(), &one, "copy");
        run.args(["--json"])
            .arg(place.join("source"))
            .arg(volume.join(name))
    };
    let safe = copy("b").ok();
    assert_eq!(verdict(&safe), "safe_to_unplug", "{safe}");
    let _writer = Holder::start(
        "exec 9>>\"$1\"; echo x >&9; exec sleep 1000",
        &volume.join("open"),
    );
    assert!(wait_until(Duration::from_secs(10), || volume
        .join("open")
        .exists()));
    let used = copy("c").ok();
    assert_eq!(verdict(&used), "in_use", "{used}");
}

/// `--eject` unmounts what it may, and names whoever keeps it from that.
#[test]
fn a_copy_ejects_a_stick_that_nobody_uses() {
    or_skip!(needs(true, &["unshare"]));
    let volume = or_skip!(Volume::ext4(100));
    let place = Place::new();
    let one = place.join("one");
    support::text(&place.join("source"), "content");
    let copy = |name: &str, last: &str| {
        let run = removable_with(&place, &volume.root(), &one, "copy", last);
        run.args(["--eject"])
            .arg(place.join("source"))
            .arg(volume.join(name))
    };
    let ejected = copy("a", "exec \"$@\"").ok();
    let unmounted = format!("unmounted {}", volume.root().display());
    assert!(ejected.out.contains(&unmounted), "{ejected}");
    assert!(ejected.out.contains("has no switch"), "{ejected}");
    let root = volume.root();
    let held = format!(
        "cd '{}' && {{ sleep 1000 & }} && HELD=$! && cd / && \"$@\"; CODE=$?; kill $HELD; exit $CODE",
        root.display()
    );
    let refused = copy("b", &held).exits(2);
    assert!(refused.err.contains("is in use by sleep ("), "{refused}");
    assert!(volume.join("a").exists() && volume.join("b").exists());
    let fixed = place
        .ropeway("copy")
        .arg("--eject")
        .arg(place.join("source"))
        .arg(volume.join("c"))
        .exits(8);
    assert!(
        fixed.err.contains("not on a device that people unplug"),
        "{fixed}"
    );
    assert!(!volume.join("c").exists(), "{fixed}");
    let share = place
        .ropeway("copy")
        .args(["--eject", "--anonymous", "source", "smb://127.0.0.1:1/share/x"])
        .run();
    share.assert_code(&[6, 8]);
}
