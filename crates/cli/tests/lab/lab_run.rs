//! `ropeway lab run` as users run it: a tiny scenario run to its end, interrupted and resumed;
//! invalid files. Where links are forbidden the lab uses relays, so nothing here is skipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::{self, Place, Running, program, text, wait_until};
use rustix::process::Signal;
use serde_json::Value;

const SCENARIO: &str = r#"
name = "tiny"
title = "A tiny lab"
works = ["file100mb"]
directions = ["read", "write"]
pairs = [PAIRS]
runs = 3
scale = 0.005
budget = "2m"
side_by_side = "640mbit"

[[link]]
name = "short"
rtt = "4ms"
rate = "200mbit"
"#;

/// Returns the scenario with ropeway and every other client that is installed.
fn scenario(place: &Place) -> (PathBuf, usize) {
    let mut pairs = vec!["\"ropeway:ropeway\"", "\"cp:smbd\""];
    if program("rsync").is_some() {
        pairs.push("\"rsync:rsyncd\"");
    }
    if program("smbclient").is_some() && program("smbd").is_some() && program("pdbedit").is_some() {
        pairs.push("\"smbclient:smbd\"");
    }
    let path = place.join("tiny.toml");
    text(&path, &SCENARIO.replace("PAIRS", &pairs.join(", ")));
    // `cp` takes no part, and both directions are measured.
    (path, (pairs.len() - 1) * 2)
}

fn report(folder: &Path) -> Value {
    serde_json::from_slice(&fs::read(folder.join("report.json")).unwrap()).unwrap()
}

fn runs(report: &Value) -> usize {
    let cells = report["cells"].as_array().unwrap();
    cells
        .iter()
        .map(|cell| cell["runs"].as_array().unwrap().len())
        .sum()
}

/// Returns the folders and processes of a lab with this process id that still exist.
fn left(id: u32) -> Vec<String> {
    let mark = format!("ropeway-lab-{id}-");
    let mut found = Vec::new();
    for parent in [PathBuf::from("/dev/shm"), std::env::temp_dir()] {
        let entries = fs::read_dir(parent).into_iter().flatten().flatten();
        found.extend(entries.map(|entry| entry.file_name().to_string_lossy().into_owned()));
    }
    found.retain(|name| name.starts_with(&mark));
    let lines = fs::read_dir("/proc").unwrap().flatten();
    let lines = lines.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    found.extend(lines.filter(|line| line.contains(&mark)));
    found
}

fn await_first_run(running: &mut Running) {
    let begun = wait_until(Duration::from_secs(60), || {
        running.stdout().contains(" run 1 ") || !running.runs()
    });
    assert!(
        begun && running.runs(),
        "{}{}",
        running.stdout(),
        running.stderr()
    );
}

#[test]
fn an_interrupted_lab_cleans_up_and_resumes() {
    let place = Place::new();
    let (path, cells) = scenario(&place);
    let out = place.join("out");
    let run = || place.ropeway("lab").arg("run").arg(&path).arg("--out").arg(&out);
    let mut running = run().start();
    let id = running.id();
    await_first_run(&mut running);
    running.signal(Signal::INT);
    let finished = running.wait();
    finished.assert_code(&[130]);
    assert!(finished.mentions("the same command goes on"), "{finished}");
    assert_eq!(left(id), Vec::<String>::new());
    let read = fs::read_to_string(out.join("report.md")).unwrap();
    assert!(read.contains("tiny"), "the partial report can be read: {read}");
    let part = report(&out);
    assert_eq!(part["complete"], false);
    let before = runs(&part);
    assert!((1..cells * 3).contains(&before), "{before}");

    // A part of the scenario is not the whole.
    let finished = run().args(["--directions", "read"]).exits(2);
    assert_eq!(report(&out)["complete"], false, "{finished}");

    let finished = run().ok();
    let whole = report(&out);
    assert_eq!(
        (whole["complete"].as_bool(), runs(&whole)),
        (Some(true), cells * 3),
        "{finished}"
    );
    assert_eq!(whole["started"], part["started"]);
    assert!(
        whole["skipped"]["cp"].as_str().unwrap().contains("mount"),
        "{finished}"
    );
    for cell in whole["cells"].as_array().unwrap() {
        let discarded: Vec<_> = cell["runs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|run| &run["discarded"])
            .collect();
        assert_eq!(discarded, [true, false, false]);
        for run in cell["runs"].as_array().unwrap() {
            assert_eq!(run["outcome"]["state"], "done", "{cell}");
            assert!(run["whole_seconds"].as_f64().unwrap() > 0.02, "{cell}");
        }
    }
    for name in ["report.md", "report.html"] {
        assert!(out.join(name).exists(), "{name}");
    }
    let finished = run().ok();
    assert_eq!(
        report(&out)["cells"],
        whole["cells"],
        "nothing is measured again: {finished}"
    );
    let finished = run().args(["--scale", "0.002"]).exits(8);
    assert!(
        finished.mentions("the work file100mb") && finished.mentions("hint:"),
        "{finished}"
    );
}

#[test]
fn a_second_signal_ends_the_lab_at_once_and_leaves_nothing() {
    let place = Place::new();
    let (path, _) = scenario(&place);
    let run = place.ropeway("lab").arg("run").arg(&path).args(["--out", "out"]);
    let mut running = run.start();
    let id = running.id();
    await_first_run(&mut running);
    // Two different signals: one sent twice may arrive once.
    running.signal(Signal::INT);
    running.signal(Signal::TERM);
    let finished = running.wait();
    finished.assert_code(&[130]);
    assert!(finished.mentions("stopping at once"), "{finished}");
    assert_eq!(left(id), Vec::<String>::new());
    // The report is complete at any time.
    assert_eq!(report(&place.join("out"))["complete"], false, "{finished}");
}

#[test]
fn relays_are_named_in_the_report() {
    let place = Place::new();
    let (path, _) = scenario(&place);
    let run = place
        .ropeway("lab")
        .arg("run")
        .arg(&path)
        .args(["--relay", "--json"]);
    let finished = run
        .args(["--out", "out", "--clients", "ropeway", "--runs", "1"])
        .ok();
    let report = report(&place.join("out"));
    assert_eq!(report["links"][0]["kind"], "relay");
    let warnings = report["warnings"].to_string();
    assert!(warnings.contains("no packets"), "{warnings}");
    let lines = finished.json();
    let kinds: Vec<_> = lines.iter().filter_map(|line| line["type"].as_str()).collect();
    for kind in ["planned", "run", "lab"] {
        assert!(kinds.contains(&kind), "{finished}");
    }
}

/// The client's first packet meets the cut, so each run has to wait until the cut ends. If cuts
/// counted from the start of the link, no run would meet one.
#[test]
fn a_link_is_cut_in_each_run() {
    let place = Place::new();
    let (path, _) = scenario(&place);
    let plain = fs::read_to_string(&path).unwrap();
    let cut = "up_delay = \"1ms\"\ndown_delay = \"3ms\"\ncuts = [{ at = \"1ms\", for = \"900ms\" }]";
    text(&path, &plain.replace("rtt = \"4ms\"", cut));
    let lab = place.ropeway("lab").arg("run").arg(&path).args(["--out", "out"]);
    let finished = lab.args(["--clients", "ropeway", "--runs", "2"]).ok();
    let report = report(&place.join("out"));
    let link = &report["links"][0];
    if link["kind"] == "relay" {
        support::skip!("no links of packets here");
    }
    let delays = ["rtt_ms", "up_delay_ms", "down_delay_ms"].map(|name| link[name].as_f64());
    assert_eq!(delays, [4.0, 1.0, 3.0].map(Some), "{link}");
    assert_eq!(
        link["cuts"],
        serde_json::json!([{ "at_seconds": 0.001, "seconds": 0.9 }])
    );
    assert!(report["settings"].to_string().contains("no target"), "{finished}");
    let cells = report["cells"].as_array().unwrap();
    assert_eq!((cells.len(), runs(&report)), (2, 4), "{finished}");
    for cell in cells {
        // The floor is that of the link without cuts.
        assert!(cell["floor_seconds"].as_f64().unwrap() < 0.8, "{cell}");
        assert!(cell.get("target_seconds").is_none(), "{cell}");
        for run in cell["runs"].as_array().unwrap() {
            assert_eq!(run["outcome"]["state"], "done", "{cell}");
            assert!(run["whole_seconds"].as_f64().unwrap() > 0.9, "{cell}");
        }
    }
}

/// All rows of the scenario `mount` on a short line: reads and writes, the second reading of a cache,
/// also after a restart of the mount, and a counted listing.
#[test]
fn a_mounted_share_is_measured_with_and_without_a_cache() {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        support::skip!("mounts need root and /dev/fuse");
    }
    let place = Place::new();
    let path = place.join("mounts.toml");
    let clients = [
        "mount",
        "mount-later",
        "mount-boost",
        "mount-boost-again",
        "mount-boost-restart",
    ];
    let pairs = clients.map(|client| format!("\"{client}:ropeway\"")).join(", ");
    let works = "\"files64mib\", \"dirset1gb\", \"list10k\"";
    let text_of = SCENARIO
        .replace("\"file100mb\"", works)
        .replace("PAIRS", &pairs)
        .replace("runs = 3", "runs = 1");
    text(&path, &text_of);
    let finished = place
        .ropeway("lab")
        .arg("run")
        .arg(&path)
        .args(["--out", "out"])
        .ok();
    let report = report(&place.join("out"));
    let cells = report["cells"].as_array().unwrap();
    // Four clients read each set, three write one, and one lists.
    assert_eq!((cells.len(), runs(&report)), (4 + 4 + 3 + 1, 12), "{finished}");
    for cell in cells {
        let run = &cell["runs"][0];
        assert_eq!(run["outcome"]["state"], "done", "{cell}");
        let (whole, transfer) = (run["whole_seconds"].as_f64(), run["transfer_seconds"].as_f64());
        assert!(transfer.unwrap() > 0.0 && transfer < whole, "{cell}");
        let client = cell["key"]["client"].as_str().unwrap();
        let is_second = client.ends_with("-again") || client.ends_with("-restart");
        if is_second && report["links"][0]["kind"] == "packets" {
            assert!(cell["target_seconds"].as_f64().is_some(), "{cell}");
        }
        let trips = run["round_trips"].as_f64();
        assert_eq!(trips.is_some(), cell["key"]["work"] == "list10k", "{cell}");
    }
    let read = fs::read_to_string(place.join("out/report.md")).unwrap();
    assert!(read.contains("round trips"), "{read}");
}

/// A report changed by hand or by another program.
#[test]
fn impossible_figures_in_a_report_do_not_stop_a_lab() {
    let place = Place::new();
    let (path, _) = scenario(&place);
    let lab = || {
        let lab = place.ropeway("lab").arg("run").arg(&path).args(["--out", "out"]);
        lab.args(["--clients", "ropeway", "--directions", "read", "--runs", "2"])
    };
    lab().ok();
    let file = place.join("out/report.json");
    let mut document = report(&place.join("out"));
    document["cells"][0]["runs"].as_array_mut().unwrap().truncate(1);
    document["cells"][0]["runs"][0]["whole_seconds"] = (-1.0).into();
    fs::write(&file, document.to_string()).unwrap();
    let finished = lab().ok();
    assert_eq!(runs(&report(&place.join("out"))), 2, "{finished}");
}

#[test]
fn errors_in_a_scenario_name_the_line() {
    let place = Place::new();
    let (path, _) = scenario(&place);
    let good = fs::read_to_string(&path).unwrap();
    for (old, new, line) in [
        ("runs = 3", "runs = 0", 7),
        ("scale", "scail", 8),
        ("\"4ms\"", "\"4 parsecs\"", 14),
        ("[[link]]", "[[link", 12),
        ("\"4ms\"", "\"4ms\"\ncuts = [{ at = \"never\" }]", 15),
    ] {
        text(&path, &good.replacen(old, new, 1));
        let finished = place.ropeway("lab").arg("run").arg(&path).exits(1);
        assert!(
            finished.mentions(&format!("tiny.toml:{line}:")) && finished.mentions("hint:"),
            "{finished}"
        );
        assert!(!place.join("lab-tiny").exists());
    }
    text(&path, &good);
    let run = || place.ropeway("lab").arg("run").arg(&path);
    for (flags, word) in [
        (["--clients", "wget"], "there are ropeway"),
        (["--links", "moon"], "there are short"),
        (["--scale", "0"], "scale"),
        (["--runs", "1000"], "between 1 and 100"),
        (["--budget", "9999h"], "week"),
        (["--side-by-side", "much"], "not a rate"),
        (["--clients", "cp"], "no cifs"),
    ] {
        let finished = run().args(flags).exits(1);
        assert!(
            finished.mentions(word) || word == "no cifs" && finished.mentions("mount"),
            "{finished}"
        );
        assert!(finished.mentions("hint:"), "{finished}");
    }
    let finished = place.ropeway("lab").args(["run", "nothing.toml"]).exits(1);
    assert!(finished.mentions("tr3869"), "{finished}");
    text(&place.folder("out").join("report.json"), "not a report");
    let finished = run().args(["--out", "out"]).exits(1);
    assert!(finished.mentions("no report of a lab"), "{finished}");
}

#[test]
fn the_built_in_labs_are_listed() {
    let place = Place::new();
    let finished = place.ropeway("lab").arg("list").ok();
    for name in ["tr3869: ", "tr3869-small-window: ", "quick: "] {
        assert!(finished.out.contains(name), "{finished}");
    }
    let finished = place.ropeway("lab").args(["list", "--json"]).ok();
    assert!(finished.json().len() >= 3, "{finished}");
}

/// The scenario `far` in small: cubic for everybody on one link, and for those who ask for nothing on the
/// other. The report tells what the sockets of both ends used.
#[test]
fn a_lossy_link_shows_the_congestion_control_of_both_ends() {
    let controls = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    if !["bbr", "cubic"]
        .iter()
        .all(|name| controls.split_whitespace().any(|known| known == *name))
    {
        support::skip!("this kernel lacks bbr or cubic");
    }
    if program("ss").is_none() {
        support::skip!("ss is not installed");
    }
    let place = Place::new();
    let lab = place.ropeway("lab").arg("far").args(["--out", "out"]);
    let lab = lab.args(["--scale", "0.05", "--runs", "1", "--budget", "3m"]);
    let lab = lab.args(["--links", "cubic-1,open-1", "--directions", "write"]);
    let finished = lab.args(["--clients", "ropeway", "--servers", "ropeway"]).ok();
    let report = report(&place.join("out"));
    if report["links"][0]["kind"] == "relay" {
        support::skip!("no links of packets here");
    }
    let cells = report["cells"].as_array().unwrap();
    assert_eq!((cells.len(), runs(&report)), (2, 2), "{finished}");
    // Inside the lab's namespaces every user has CAP_NET_ADMIN.
    for (cell, expected) in cells.iter().zip(["cubic", "bbr"]) {
        let sockets = &cell["runs"][0]["sockets"];
        for end in ["near", "far"] {
            assert_eq!(sockets[end]["congestion"], expected, "{end}: {cell}");
            assert!(sockets[end]["connections"].as_u64().unwrap() >= 2, "{cell}");
        }
    }
    let text = fs::read_to_string(place.join("out/report.md")).unwrap();
    assert!(text.contains("## Bare TCP and the connections"), "{text}");
}
