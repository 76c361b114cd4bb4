//! Labs of this machine's own devices as people run them, at a tiny scale.

#![allow(clippy::unwrap_used, reason = "a failed set-up fails the test")]

mod support;

use std::fs;
use std::path::Path;

use support::Place;

/// Whether a folder is on a file system in memory, where nothing is written back.
fn in_memory(folder: &Path) -> bool {
    rustix::fs::statfs(folder).is_ok_and(|state| state.f_type as u64 == 0x0102_1994)
}

#[test]
fn a_short_write_is_measured_and_leaves_nothing() {
    let place = Place::new();
    if in_memory(place.path()) {
        support::skip!("the folder for temporary files is in memory");
    }
    let folder = place.folder("here");
    let run = place.ropeway("lab").arg("dirty").arg(&folder).args([
        "--json",
        "--bytes",
        "24M",
        "--warm-up",
        "10ms",
        "--out",
    ]);
    let finished = run.arg(place.join("report")).ok();
    let last = finished.json().pop().unwrap();
    let found = &last["findings"];
    assert_eq!(last["type"], "lab_dirty", "{finished}");
    assert_eq!(found["written_bytes"].as_f64(), Some(25_165_824.0), "{finished}");
    assert!(
        found["durable_seconds"].as_f64() >= found["perceived_seconds"].as_f64(),
        "{finished}"
    );
    // The kernel's own limit and the sum from its settings; free memory changes between the two.
    let memory = &found["memory"];
    let (limit, dirtyable) = (&memory["kernel_limit_bytes"], &memory["dirtyable_bytes"]);
    assert!(
        limit.as_u64().unwrap() <= dirtyable.as_u64().unwrap() * 2,
        "{finished}"
    );
    let report: serde_json::Value =
        serde_json::from_slice(&fs::read(place.join("report/report.json")).unwrap()).unwrap();
    assert_eq!(
        (&report["complete"], report["curves"].as_array().unwrap().len()),
        (&true.into(), 4)
    );
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn what_has_no_room_or_is_never_written_back_is_refused() {
    let place = Place::new();
    let finished = place.ropeway("lab").arg("dirty").args(["--bytes", "900T"]).run();
    if in_memory(place.path()) {
        finished.assert_code(&[1]);
    } else {
        finished.assert_code(&[4]);
        assert!(
            finished.mentions("room") && finished.mentions("hint:"),
            "{finished}"
        );
    }
    if in_memory(Path::new("/dev/shm")) {
        let finished = place.ropeway("lab").args(["dirty", "/dev/shm"]).exits(1);
        assert!(finished.mentions("in memory"), "{finished}");
    }
    place.ropeway("lab").args(["dirty", "nowhere"]).exits(4);
}
