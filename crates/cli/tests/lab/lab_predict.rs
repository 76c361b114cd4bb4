//! `lab predict` as users run it.

use std::fs;
use std::path::Path;

use crate::support::Place;
use serde_json::Value;

/// Runs the lab; returns exit code, standard output and stderr.
fn predict(place: &Place, trace: &Path, flags: &[&str]) -> (i32, String, String) {
    let finished = place.ropeway("lab").arg("predict").arg(trace).args(flags).run();
    (finished.code().unwrap(), finished.out, finished.err)
}

/// A scan of 4,000 blocks of 64 KiB, one a request.
fn scan() -> String {
    (0..4000).map(|at| format!("{} 128 0 {at}\n", at * 128)).collect()
}

#[test]
fn a_scan_is_predicted_and_every_method_is_shown() {
    let place = Place::new();
    let trace = place.path().join("scan.lis");
    fs::write(&trace, scan()).unwrap();
    let flags = ["--cache", "5%", "--block", "64k", "--delay", "8", "--json"];
    let (code, out, _) = predict(&place, &trace, &flags);
    assert_eq!(code, 0);
    let line: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&line["type"], &line["delay"]),
        (&"lab_predict".into(), &8.into())
    );
    assert_eq!(
        (&line["requests"], &line["cache_blocks"]),
        (&4000.into(), &200.into())
    );
    assert!(line["hit_ratio"].as_f64().unwrap() > 0.98, "{line}");
    assert!(line["precision"].as_f64().unwrap() > 0.95, "{line}");
    assert!(line["extra_traffic"].as_f64().unwrap() < 1.05, "{line}");
    assert!(line["late_ratio"].as_f64().unwrap() < 0.02, "{line}");
    let methods = line["methods"].as_array().unwrap();
    let names: Vec<&str> = methods
        .iter()
        .map(|row| row["method"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["predict", "none", "read-ahead", "successor", "s3-fifo", "belady"]
    );
    assert_eq!(methods[1]["hit_ratio"], 0.0);
    assert_eq!(methods[1]["precision"], Value::Null);
    let (_, again, _) = predict(&place, &trace, &flags);
    assert_eq!(again, out, "the same seed gives the same figures");
}

#[test]
fn each_delay_is_a_table_or_a_line() {
    let place = Place::new();
    let trace = place.path().join("scan.lis");
    fs::write(&trace, scan()).unwrap();
    let (code, out, _) = predict(&place, &trace, &["--json"]);
    assert_eq!((code, out.lines().count()), (0, 4));
    let (code, out, _) = predict(&place, &trace, &["--delay", "0,32", "--cache", "1M"]);
    assert_eq!(code, 0);
    assert!(out.contains("a cache of 16 blocks"), "{out}");
    assert_eq!(out.matches("belady").count(), 2, "{out}");
    assert!(out.contains("a prefetch takes 32 requests"), "{out}");
}

#[test]
fn files_that_are_no_traces_are_refused_in_one_line() {
    let place = Place::new();
    let write = |name: &str, content: &[u8]| {
        let path = place.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let cases = [
        (place.path().join("absent.lis"), 3, "cannot read"),
        (write("trace.txt", b"1 1 0 0\n"), 1, "does not end in .lis"),
        (write("empty.lis", b""), 3, "no requests"),
        (
            write("words.lis", b"1 1 0 0\nfirst second\n"),
            3,
            "line 2: not a number",
        ),
        (write("packed.lis.zst", b"not zstd at all"), 3, "not a zstd file"),
        (write("packed.csv.gz", b"not gzip at all"), 3, "not a gzip file"),
    ];
    for (path, expected, message) in cases {
        let (code, out, error) = predict(&place, &path, &[]);
        assert_eq!((code, out.as_str()), (expected, ""), "{path:?}: {error}");
        assert!(
            error.contains(message) && error.contains("hint:"),
            "{path:?}: {error}"
        );
        let (code, out, _) = predict(&place, &path, &["--json"]);
        let line: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((code, &line["type"]), (expected, &"error".into()), "{line}");
    }
    for flags in [["--cache", "0%"], ["--block", "1000"], ["--delay", "5000"]] {
        let (code, ..) = predict(&place, &write("a.lis", b"1 1 0 0\n"), &flags);
        assert_eq!(code, 1, "{flags:?}");
    }
}
