//! Labs for this machine's own devices as users run them, at a tiny scale.

use std::fs;
use std::path::Path;

use crate::support::{self, Place, Running};

/// Returns whether a folder is on a file system in memory, which has no write-back.
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
    // The kernel's own limit, and the limit computed from its settings; free memory changes between
    // the two.
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
fn too_little_space_and_file_systems_in_memory_are_refused() {
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

/// Returns a lab's leftovers in a folder.
fn left(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

fn report(place: &Place, folder: &str) -> serde_json::Value {
    let bytes = fs::read(place.join(folder).join("report.json")).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

#[test]
fn engines_are_compared_on_all_targets_and_nothing_stays() {
    let place = Place::new();
    let folder = place.folder("ground");
    let run = place
        .ropeway("lab")
        .args(["vista", "--json", "--scale", "0.0004", "--runs", "1"]);
    let run = run
        .args(["--engines", "vista,vista-sp1", "--out"])
        .arg(place.join("report"));
    let finished = run.arg("--dir").arg(&folder).run();
    finished.assert_code(&[0]);
    let report = report(&place, "report");
    let cells = report["cells"].as_array().unwrap();
    assert_eq!(
        (cells.len(), &report["complete"]),
        (32, &true.into()),
        "{finished}"
    );
    for cell in cells {
        assert_eq!(cell["runs"][0]["outcome"]["state"], "done", "{cell}");
        assert!(cell["runs"][0]["durable_seconds"].as_f64().is_some(), "{cell}");
    }
    let score = &report["score"];
    assert!(
        score["parts"].as_array().unwrap().len() == 5 && score["value"].as_f64() > Some(0.0),
        "{score}"
    );
    assert!(left(&folder).is_empty(), "{:?}", left(&folder));
}

/// Starts a lab that has begun to measure, with its folders in `folder`.
fn begun(place: &Place, folder: &Path) -> Running {
    let run = place
        .ropeway("lab")
        .args(["vista", "--scale", "0.01", "--targets", "stick", "--out"]);
    let mut running = run.arg(place.join("report")).arg("--dir").arg(folder).start();
    assert!(running.until(|running| running.stdout().lines().count() > 1));
    running
}

#[test]
fn a_lab_that_is_interrupted_keeps_its_report_and_nothing_else() {
    let place = Place::new();
    let folder = place.folder("ground");
    let running = begun(&place, &folder);
    running.signal(rustix::process::Signal::INT);
    running.wait().assert_code(&[130]);
    let report = report(&place, "report");
    assert_eq!(report["complete"], false);
    assert!(!report["cells"].as_array().unwrap().is_empty());
    assert!(left(&folder).is_empty(), "{:?}", left(&folder));
}

#[test]
fn a_second_signal_leaves_no_folder_either() {
    let place = Place::new();
    let folder = place.folder("ground");
    let running = begun(&place, &folder);
    // Two different signals: one sent twice may arrive once.
    running.signal(rustix::process::Signal::INT);
    running.signal(rustix::process::Signal::TERM);
    running.wait().assert_code(&[130]);
    assert!(left(&folder).is_empty(), "{:?}", left(&folder));
}

#[test]
fn a_sweep_has_a_cell_for_each_pass() {
    let place = Place::new();
    let folder = place.folder("ground");
    let run = place
        .ropeway("lab")
        .args(["nas", "--json", "--sizes", "1M,2M", "--records", "64K,1M"]);
    let run = run
        .args(["--servers", "ropeway", "--runs", "2", "--out"])
        .arg(place.join("report"));
    let finished = run.arg("--dir").arg(&folder).run();
    finished.assert_code(&[0]);
    let report = report(&place, "report");
    let cells = report["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 2 * 2 * 2 * 4, "{finished}");
    for cell in cells {
        let runs = cell["runs"].as_array().unwrap();
        let discarded: Vec<bool> = runs.iter().filter_map(|run| run["discarded"].as_bool()).collect();
        assert_eq!(discarded, [true, false], "{cell}");
        for run in runs {
            assert_eq!(run["outcome"]["state"], "done", "{cell}");
            // The process also has to start and to log in.
            let seconds = |name: &str| run[name].as_f64().unwrap();
            assert!(seconds("transfer_seconds") < seconds("whole_seconds"), "{cell}");
            for name in ["client_cpu_seconds", "server_cpu_seconds", "others_busy"] {
                assert!(run[name].as_f64().is_some(), "{name}: {cell}");
            }
            assert!(run["server_memory_bytes"].as_u64() > Some(0), "{cell}");
        }
    }
    let curves = report["curves"].as_array().unwrap();
    let single = curves.iter().find(|curve| curve["id"] == "read-ropeway-single");
    assert_eq!(
        single.unwrap()["series"].as_array().unwrap().len(),
        2 + 2,
        "two sizes, two published"
    );
    assert!(left(&folder).is_empty(), "{:?}", left(&folder));
}

#[test]
fn invalid_labs_give_one_line_and_a_hint() {
    let place = Place::new();
    for arguments in [
        &["vista", "--scale", "0"][..],
        &["vista", "--targets", "moon"],
        &["vista", "--engines", "dos"],
        &["nas", "--records", "1"],
        &["nas", "--sizes", "1"],
        &["nas", "--servers", "rsyncd"],
        &["nas", "--rate", "10"],
        &["nas", "--runs", "0"],
    ] {
        let finished = place.ropeway("lab").args(arguments).exits(1);
        support::one_line_and_a_hint(&finished);
    }
    let finished = place
        .ropeway("lab")
        .args(["vista", "--scale", "4", "--dir", "nowhere"])
        .run();
    finished.assert_code(&[4]);
}

#[test]
fn programs_are_quick_again_sooner_with_a_warm_cache() {
    support::or_skip!(support::needs(true, &["umount"]));
    support::or_skip!(support::can_mount());
    let place = Place::new();
    let folder = place.folder("here");
    let measure = |out: &str| {
        let run = place.ropeway("lab").args(["boost", "--quick", "--json"]);
        let run = run.arg("--dir").arg(&folder).args(["--limit", "60s", "--out"]);
        run.arg(place.join(out)).ok()
    };
    let back = |finished: &support::Finished| {
        let lines = finished.out.lines().chain(finished.err.lines());
        let back =
            lines.filter(|line| line.contains("predicting, idle first") && line.contains("brought back"));
        back.count()
    };
    let mut report = "report";
    let mut finished = measure(report);
    if back(&finished) == 0 {
        // Nothing is brought back while others keep the disks busy, as builds beside the tests do.
        report = "second report";
        finished = measure(report);
    }
    let last = finished.json().pop().unwrap();
    assert_eq!(
        (&last["lab"], &last["complete"], &last["cells"]),
        (&"boost".into(), &true.into(), &6.into()),
        "{finished}"
    );
    let document: serde_json::Value =
        serde_json::from_slice(&fs::read(place.join(report).join("report.json")).unwrap()).unwrap();
    let seconds = |client: &str| {
        let cells = document["cells"].as_array().unwrap();
        let cell = cells.iter().find(|cell| cell["key"]["client"] == client);
        cell.unwrap()["runs"][0]["whole_seconds"].as_f64().unwrap()
    };
    // 128 blocks, each a seek of 10 ms at least.
    let without = seconds("no boost");
    assert!(without > 1.0, "{without} s: the hogs left the programs in memory");
    let warm = seconds("boost, warm, predicting");
    assert!(warm * 2.0 < without, "{warm} s instead of {without} s");
    // What the hogs threw out is back before the programs start.
    assert_eq!(back(&finished), 1, "{finished}");
    let idle = seconds("boost, warm, predicting, idle first");
    assert!(idle * 4.0 < without, "{idle} s instead of {without} s");
    assert!(place.join(report).join("report.md").exists());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}
