//! `lab documents` as users run it.

use crate::support::{Place, needs, or_skip};
use serde_json::Value;

#[test]
fn days_without_and_with_predictions_are_shown() {
    or_skip!(needs(true, &["nsenter", "fusermount3"]));
    let place = Place::new();
    let link = ["link", "--quiet", "--rtt", "4ms", "--rate", "622mbit", "--"];
    let days = [
        "lab",
        "documents",
        "--files",
        "9",
        "--pause",
        "20ms",
        "--days",
        "3",
        "--json",
    ];
    let lab = place
        .ropeway("lab")
        .args(link)
        .arg(env!("CARGO_BIN_EXE_ropeway"))
        .args(days);
    let finished = lab.run();
    assert_eq!(finished.code(), Some(0), "{finished}");
    let lines = finished
        .out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let lines: Vec<Value> = lines.collect();
    let days: Vec<_> = lines
        .iter()
        .map(|line| (line["prefetch"].as_str().unwrap(), line["day"].as_u64().unwrap()))
        .collect();
    assert_eq!(
        days,
        [
            ("off", 1),
            ("off", 2),
            ("off", 3),
            ("auto", 1),
            ("auto", 2),
            ("auto", 3)
        ]
    );
    for line in &lines {
        let (median, p90) = (
            line["median_s"].as_f64().unwrap(),
            line["p90_s"].as_f64().unwrap(),
        );
        assert!(0.0 < median && median <= p90, "{line}");
        assert!(
            line["without_waiting"].as_u64() <= Some(9) && line["documents"] == 9,
            "{line}"
        );
        assert!(line["round_trip_s"].as_f64() >= Some(0.004), "{line}");
    }
}

#[test]
fn without_a_line_one_is_asked_for() {
    let place = Place::new();
    let lab = place.ropeway("lab").arg("documents");
    let finished = lab.run();
    assert_eq!(finished.code(), Some(1), "{finished}");
    assert!(
        finished
            .err
            .contains("lab link --rtt 75ms --rate 622mbit -- ropeway lab documents"),
        "{finished}"
    );
}
