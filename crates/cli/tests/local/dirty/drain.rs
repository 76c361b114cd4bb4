use std::fs;

use rustix::process::Signal;

use crate::dirty::{MIB, Throttle, device, dirty_file, look_while_dirty, number, owes};
use crate::support::{Finished, Place, Volume, or_skip};

/// What is left at least of 40 MiB if another test's sync(2) began to write it back.
const SOME: u64 = 8 * MIB;

/// What is owed, where it waits, and the way to nothing.
#[test]
fn a_slow_device_is_watched_and_drained() {
    let volume = or_skip!(Volume::ext4(300));
    let bdi = number(&volume.root());
    let _throttle = or_skip!(Throttle::new(&volume.root(), 20_000_000));
    let place = Place::new();
    let look = || {
        let run = place.ropeway("dirty").args(["--json", "--by", "file"]);
        run.arg(volume.root()).ok()
    };
    let untouched = |seen: &Finished| owes(seen, 40) && seen.summary()["devices"][0]["state"] == "waiting";
    let finished = look_while_dirty(&volume.join("file"), 40, look, untouched);
    let summary = finished.summary();
    let own = device(&summary, &bdi);
    assert_eq!(
        (&own["state"], &own["medium"]),
        (&"waiting".into(), &"fixed".into()),
        "{finished}"
    );
    // No process has it open any more.
    let files = summary["offenders"]["files"].as_array().unwrap();
    let kernel_tells = files
        .iter()
        .any(|file| file["path"].as_str().unwrap().ends_with("/file"));
    assert!(kernel_tells || !has_cachestat(), "{finished}");
    assert!(
        own["layers"][0]["kind"] == "image" && own["layers"][0]["path"].is_string(),
        "{finished}"
    );
    let drained = place
        .ropeway("dirty")
        .args(["drain", "--json"])
        .arg(volume.root())
        .ok();
    let summary = drained.summary();
    assert_eq!(
        (&summary["verdict"], &summary["cache_flush"]),
        (&"durable".into(), &"device".into()),
        "{drained}"
    );
    let lines = drained.of_type("progress");
    let left: Vec<u64> = lines
        .iter()
        .filter_map(|line| line["bytes_left"].as_u64())
        .collect();
    assert!(left.is_sorted_by(|one, next| one >= next), "{drained}");
    assert!(
        lines.iter().any(|line| line["eta"]["seconds"].is_f64()),
        "{drained}"
    );
    assert!(summary["bytes_written_back"].as_u64() > Some(SOME), "{drained}");
    let after = place.ropeway("dirty").arg("--json").arg(volume.root()).ok();
    assert_eq!(device(&after.summary(), &bdi)["state"], "clean", "{after}");
}

fn has_cachestat() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release
        .split(['.', '-'])
        .filter_map(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(5))
}

#[test]
fn a_drain_that_is_given_up_ends_at_once_and_says_what_is_left() {
    let volume = or_skip!(Volume::ext4(300));
    let _throttle = or_skip!(Throttle::new(&volume.root(), 10_000_000));
    let place = Place::new();
    dirty_file(&volume.join("file"), 40);
    let late = place
        .ropeway("dirty")
        .args(["drain", "--timeout", "1s"])
        .arg(volume.root())
        .exits(2);
    assert!(
        late.mentions("not drained in time") && late.mentions("left"),
        "{late}"
    );
    let mut running = place
        .ropeway("dirty")
        .args(["drain", "--json"])
        .arg(volume.root())
        .start();
    assert!(running.until(|running| running.stdout().contains("progress")));
    running.signal(Signal::INT);
    let interrupted = running.wait();
    interrupted.assert_code(&[130]);
    assert_eq!(interrupted.summary()["exit_code"], 130, "{interrupted}");
}

#[test]
fn a_failed_write_back_is_reported() {
    let outer = or_skip!(Volume::tmpfs(24));
    let options = [
        "-q",
        "-F",
        "-m",
        "0",
        "-E",
        "lazy_itable_init=0,lazy_journal_init=0",
    ];
    let volume = or_skip!(Volume::within(&outer, "ext4", 64, "mkfs.ext4", &options));
    dirty_file(&volume.join("file"), 40);
    let place = Place::new();
    let failed = place.ropeway("dirty").arg("drain").arg(volume.root()).exits(4);
    assert!(
        failed.mentions("write-back failed") && failed.mentions("hint:"),
        "{failed}"
    );
}
