//! `ropeway bench` as users run it, at a tiny scale. No figure is judged.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::support::{self, Mounted, Place, Run, Served, or_skip};
use rustix::process::Signal;
use serde_json::Value;

/// Flags of a run that takes a second.
const TINY: [&str; 4] = [
    "--sizes=64K,256K",
    "--records=4K,64K",
    "--files=20",
    "--depth=1,4",
];

fn bench(place: &Place, target: &Path, rounds: u32) -> Run {
    let run = place.ropeway("bench").arg(target).args(TINY);
    run.arg(format!("--runs={rounds}"))
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().count() == 0
}

/// Returns what an array of lines has under a key.
fn words(lines: &[Value], key: &str) -> BTreeSet<String> {
    lines
        .iter()
        .map(|line| line[key].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn a_folder_is_measured_and_two_runs_are_compared() {
    let place = Place::new();
    let folder = place.folder("here");
    let report = place.join("one");
    let finished = bench(&place, &folder, 1)
        .arg("--json")
        .arg("--report")
        .arg(&report)
        .ok();
    assert!(is_empty(&folder));
    let cells = finished.of_type("cell");
    // Two sizes, of which one has one record size less: none. Seven patterns cached, three flushed,
    // and direct where the volume has it.
    let per_mode = |mode: &str| cells.iter().filter(|cell| cell["mode"] == mode).count();
    assert_eq!(
        (per_mode("cached"), per_mode("fsync")),
        (4 * 2 * 7, 4 * 2 * 3),
        "{finished}"
    );
    let left = finished.of_type("left_out");
    assert!(
        per_mode("direct") == 4 * 2 * 7 || words(&left, "what").contains("mode direct"),
        "{finished}"
    );
    for cell in &cells {
        assert!(
            cell["bytes_per_s"].as_f64().unwrap() > 0.0 && cell["runs"] == 1,
            "{cell}"
        );
    }
    assert_eq!(finished.of_type("names").len(), 10, "{finished}");
    assert!(
        words(&finished.of_type("warning"), "reason").contains("page-cache"),
        "{finished}"
    );
    let all = finished.json();
    assert_eq!(all[0]["type"], "plan", "{finished}");
    let last = all.last().unwrap();
    assert_eq!(
        (&last["type"], &last["ended"], &last["complete"]),
        (&"summary".into(), &"done".into(), &true.into())
    );
    for name in [
        "bench.json",
        "bench.html",
        "bench.md",
        "map-read-cached-1.png",
        "map-read-cached-1.svg",
    ] {
        assert!(report.join(name).is_file(), "{name}");
    }

    let compare = |other: &Path| place.ropeway("bench").arg("--compare").arg(&report).arg(other);
    compare(&report.join("bench.json")).ok();
    // The same with half of the rate of all cells.
    let text = fs::read_to_string(report.join("bench.json")).unwrap();
    let mut slow: Value = serde_json::from_str(&text).unwrap();
    for cell in slow["cells"].as_array_mut().unwrap() {
        let run = &mut cell["runs"][0];
        run["seconds"] = (run["seconds"].as_f64().unwrap() * 2.0).into();
    }
    let other = place.join("slow.json");
    fs::write(&other, slow.to_string()).unwrap();
    let finished = compare(&other).exits(7);
    assert!(finished.mentions("0.50 SLOWER"), "{finished}");
    let finished = compare(&other).arg("--json").exits(7);
    assert_eq!(finished.json()[0]["worse"], true, "{finished}");
    compare(&place.join("nothing")).exits(3);
    fs::write(&other, "{}").unwrap();
    let finished = compare(&other).exits(3);
    assert!(
        finished.mentions("no report of bench") && finished.mentions("hint:"),
        "{finished}"
    );
}

#[test]
fn the_tables_fit_80_columns_and_name_what_they_show() {
    let place = Place::new();
    let folder = place.folder("here");
    let finished = bench(&place, Path::new("here"), 1).ok();
    assert!(is_empty(&folder));
    for line in finished.out.lines() {
        assert!(line.chars().count() <= 80, "{line}\n{finished}");
    }
    for part in [
        "File of 256 KiB, records of 64 KiB: MB/s by requests in flight",
        "random-read cached, 4",
        "Names, 20 files: operations a second",
        "in flight: MB/s by size of file (down) and record",
        "Warnings",
    ] {
        assert!(finished.out.contains(part), "{part}\n{finished}");
    }
    assert!(!finished.out.contains('\x1b'), "{finished}");
}

#[test]
fn a_share_is_measured_and_a_rate_above_the_line_is_explained() {
    let served = Served::start(&[]);
    let run = served.run("bench").arg(served.url("")).args(TINY);
    // More than this line carries comes out of any machine.
    let finished = run
        .args(["--json", "--runs=1", "--link-rate=1mbit", "--encrypt=required"])
        .ok();
    assert!(is_empty(&served.behind("")), "{finished}");
    let cells = finished.of_type("cell");
    assert_eq!(
        words(&cells, "mode"),
        BTreeSet::from(["cached", "fsync"].map(str::to_owned))
    );
    assert!(
        words(&finished.of_type("left_out"), "what").contains("mode direct"),
        "{finished}"
    );
    let reasons = words(&finished.of_type("warning"), "reason");
    assert!(
        reasons.contains("above-link") && reasons.contains("server-cache"),
        "{finished}"
    );
    let target = &finished.json().pop().unwrap()["target"];
    assert!(
        target["connection"].as_str().unwrap().contains("encrypted"),
        "{target}"
    );
    assert!(!finished.mentions(support::PASSWORD));
    served.run("bench").arg(served.url("nowhere")).exits(4);
}

#[test]
fn a_mount_is_measured() {
    let mounted = or_skip!(Mounted::new(&[]));
    let finished = bench(&mounted.place, &mounted.at(""), 1).arg("--json").ok();
    assert!(
        words(&finished.of_type("cell"), "mode").contains("cached"),
        "{finished}"
    );
    let reasons = words(&finished.of_type("warning"), "reason");
    assert!(reasons.contains("behind-mount"), "{finished}");
    assert!(
        is_empty(&mounted.at("")) && is_empty(&mounted.behind("")),
        "{finished}"
    );
}

#[test]
fn an_interrupted_run_leaves_nothing_and_continues() {
    let place = Place::new();
    let folder = place.folder("here");
    let report = place.join("report");
    let prepared = || {
        bench(&place, &folder, 3)
            .args(["--json", "--report"])
            .arg(&report)
    };
    let mut running = prepared().start();
    let begun = running.until(|running| running.stdout().matches("\"type\":\"run\"").count() > 10);
    assert!(begun, "{}{}", running.stdout(), running.stderr());
    running.signal(Signal::INT);
    let finished = running.wait();
    finished.assert_code(&[130]);
    assert!(is_empty(&folder), "{finished}");
    assert_eq!(finished.json().pop().unwrap()["ended"], "stopped", "{finished}");
    let finished = prepared().ok();
    let notes = words(&finished.of_type("note"), "message");
    assert!(
        notes.iter().any(|note| note.starts_with("continues the run of")),
        "{finished}"
    );
    assert!(
        finished.of_type("cell").iter().all(|cell| cell["runs"] == 3),
        "{finished}"
    );
    assert!(is_empty(&folder));
}

#[test]
fn nothing_is_written_where_bench_has_no_place() {
    // No machine has a terabyte of free memory to spare.
    let place = Place::in_memory();
    let file = place.join("file");
    fs::write(&file, "content").unwrap();
    bench(&place, &file, 1).exits(1);
    assert_eq!(fs::read(&file).unwrap(), b"content");
    let finished = bench(&place, Path::new("/dev/null"), 1).exits(8);
    assert!(
        finished.mentions("device") && finished.mentions("hint:"),
        "{finished}"
    );
    bench(&place, Path::new("nowhere"), 1).exits(4);
    let folder = place.folder("here");
    let finished = place.ropeway("bench").arg(&folder).arg("--sizes=1T").exits(4);
    assert!(
        finished.mentions("does not fit") && is_empty(&folder),
        "{finished}"
    );
    for bad in [
        &["--records=100"][..],
        &["--modes=fast"],
        &["--compare"],
        &["--cache=direct", "--modes=cached"],
    ] {
        place.ropeway("bench").arg(&folder).args(bad).exits(1);
    }
    let help = place.ropeway("bench").arg("--help").ok();
    assert_eq!(
        help.out.matches("\n  ropeway bench ").count(),
        3,
        "three examples\n{help}"
    );
}

#[test]
fn an_estimate_measures_nothing_and_a_trace_has_every_request() {
    let place = Place::new();
    let folder = place.folder("here");
    let finished = bench(&place, &folder, 1).args(["--estimate", "--json"]).ok();
    assert!(is_empty(&folder));
    assert!(finished.of_type("cell").is_empty(), "{finished}");
    assert_eq!(finished.json().pop().unwrap()["ended"], "planned", "{finished}");
    let plan = &finished.of_type("plan")[0];
    assert!(
        plan["cells"].as_u64().unwrap() > 50 && plan["written_bytes"].as_u64().unwrap() > 0,
        "{plan}"
    );

    let trace = place.join("trace");
    let run = place.ropeway("bench").arg(&folder).arg("--trace").arg(&trace);
    run.args([
        "--sizes=64K",
        "--records=4K",
        "--patterns=write",
        "--modes=fsync",
        "--depth=1",
        "--runs=1",
        "--files=0",
    ])
    .ok();
    let shown = place.ropeway("trace").arg(&trace).arg("--json").ok();
    let writes = shown.json().into_iter().filter(|line| {
        line["kind"] == "write" && line["path"].as_str().is_some_and(|path| path.contains("/new-"))
    });
    // 16 files of 16 records.
    assert_eq!(writes.count(), 256, "{shown}");
}
