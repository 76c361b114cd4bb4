use std::fs;
use std::path::Path;

use crate::dirty::Throttle;
use crate::support::{self, Place, skip};

/// Both slow devices of the laboratory, at a tiny scale: the figures mean nothing on a busy machine.
#[test]
fn the_laboratory_compares_both_devices_and_leaves_nothing() {
    if !support::is_root() || !Path::new("/dev/fuse").exists() || !Path::new(Throttle::FILE).exists() {
        skip!("needs root, FUSE and the throttle of cgroup v1");
    }
    let place = Place::new();
    let ground = place.folder("ground");
    let run = place
        .ropeway("lab")
        .args(["dirty", "--check", "--json", "--bytes", "64M", "--rate", "40MB"]);
    let finished = run.arg(&ground).arg("--out").arg(place.join("report")).run();
    finished.assert_code(&[0, 7]);
    let lines = finished.of_type("lab_dirty_check");
    assert_eq!(lines.len(), 2, "{finished}");
    for line in &lines {
        let figures = &line["figures"];
        assert!(figures["machine"]["looks"].as_u64() > Some(2), "{finished}");
        assert!(figures["drain_seconds"].as_f64() > Some(0.1), "{finished}");
        // syncfs(2) alone does not wait for FUSE.
        assert!(figures["left_bytes"].as_f64() < Some(2e6), "{finished}");
    }
    assert!(place.join("report/report.md").is_file());
    assert_eq!(fs::read_dir(&ground).unwrap().count(), 0);
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(ground.to_str().unwrap()), "{mounts}");
}
