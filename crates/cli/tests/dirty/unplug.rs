use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::support::{self, Place, Volume, needs, or_skip, wait_until};
use crate::{Holder, dirty_file, number};

/// Runs the program in a mount name space in which a loop device says that it is removable.
pub(crate) fn removable(place: &Place, root: &Path, one: &Path) -> support::Run {
    removable_by(place, root, one, "dirty")
}

fn removable_by(place: &Place, root: &Path, one: &Path, command: &str) -> support::Run {
    fs::write(one, "1\n").unwrap();
    let folder = fs::canonicalize(format!("/sys/dev/block/{}", number(root))).unwrap();
    // Of a partition, the disk says it.
    let folder = match folder.join("partition").exists() {
        true => folder.parent().unwrap().to_owned(),
        false => folder,
    };
    let script = format!(
        "mount --bind '{}' '{}' && exec \"$@\"",
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
