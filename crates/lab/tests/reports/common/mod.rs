//! A document for the tests: a report of TR-3869 with computed seconds, and with the failures, warnings
//! and further curves of other labs.

use ropeway_lab::report::{Axis, Curve, Document, Drawing, Outcome, Score, ScorePart, Series, Warning, load};

/// A run with all four clients and two of its curves. Not the report of the docs, which every run of the lab
/// replaces.
const REPORT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reports/data/tr3869.json");

/// Returns the document.
pub(crate) fn sample() -> Document {
    let mut doc = load(REPORT.as_ref()).expect("the report is kept");
    compute_seconds(&mut doc);
    spoil(&mut doc);
    assert_eq!(doc.curves.len(), 2);
    let points = (0..97).map(|second| [f64::from(second), 10.4e6]);
    let published = Series::published("win7-smb2", points.collect());
    doc.curves[0].series.push(published);
    doc.curves.extend([by_record(), by_engine()]);
    let part = |name: &str, value| ScorePart {
        name: name.to_owned(),
        value,
        weight: 1.0,
    };
    doc.score = Some(Score {
        described: "The geometric mean of seconds of Windows 7 with SMB 2 divided by those of ropeway."
            .to_owned(),
        value: 1.62,
        parts: vec![part("spreadsheet", 1.08), part("office files", 2.43)],
        published: [("Vista SP1 over RTM".to_owned(), 1.145)].into(),
    });
    doc
}

/// Replaces measured seconds by multiples of the floor, so that the tests know them.
fn compute_seconds(doc: &mut Document) {
    for cell in &mut doc.cells {
        let factor = match cell.key.client.as_str() {
            "ropeway" => 1.012,
            "rsync" => 1.06,
            "smbclient" => 1.35,
            _ => 2.6,
        };
        let floor = cell.floor_seconds.expect("every cell has a floor");
        for (number, run) in cell.runs.iter_mut().enumerate() {
            let seconds = floor * factor * (1.0 + 0.011 * number as f64);
            run.whole_seconds = seconds + 0.02;
            run.transfer_seconds = Some(seconds);
        }
    }
}

/// Adds failures and warnings.
fn spoil(doc: &mut Document) {
    let find = |doc: &Document, link: &str, work: &str, direction: &str, client: &str| {
        let wanted = [link, work, direction, client];
        let mut keys = doc.cells.iter().map(|cell| &cell.key);
        let found = keys.position(|key| [&key.link, &key.work, &key.direction, &key.client] == wanted);
        found.expect("the cell is there")
    };
    let at = find(doc, "75ms-622mbit", "dirset1gb", "write", "ropeway");
    doc.cells[at].target_seconds = Some(14.9);
    for run in &mut doc.cells[at].runs {
        run.whole_seconds = 19.1;
        run.transfer_seconds = Some(19.0);
    }
    doc.warnings.push(Warning {
        cell: Some(doc.cells[at].key.clone()),
        text: "Cause: smbd answered CREATE after 41 ms in the middle; 14 folders wait for one another."
            .to_owned(),
    });
    let at = find(doc, "75ms-52mbit", "dirset1gb", "write", "smbclient");
    for run in &mut doc.cells[at].runs {
        run.outcome = Outcome::TimedOut("600 s were given".to_owned());
    }
    let at = find(doc, "32ms-1000mbit", "file100mb", "read", "rclone");
    for run in &mut doc.cells[at].runs {
        run.outcome = Outcome::Failed("exit status 1: couldn't connect SMB: EOF <at line 3>".to_owned());
    }
    let at = find(doc, "32ms-155mbit", "file100mb", "read", "rsync");
    doc.cells[at].runs[2].transfer_seconds = Some(9.4);
    doc.warnings.push(Warning {
        cell: None,
        text: "Others kept 0.3 of 2 processors busy for 41 s.".to_owned(),
    });
}

fn by_record() -> Curve {
    let sizes = |name: &str, most: f64| {
        let sizes = (12..=22).map(|power| f64::from(1_u32 << power));
        let points = sizes.map(|size| [size, most * size / (size + 90_000.0)]);
        Series::measured(name, points.collect())
    };
    Curve {
        id: "nas-records".to_owned(),
        title: "Throughput by record size, gigabit".to_owned(),
        drawing: Drawing::Lines,
        x: Axis::logarithmic("Record size", "B"),
        y: Axis::new("Throughput", "B/s"),
        series: vec![
            sizes("write", 113e6),
            sizes("read", 109e6),
            sizes("random read", 61e6),
        ],
    }
}

fn by_engine() -> Curve {
    let seconds = |name: &str, values: [f64; 4]| {
        let points = values.into_iter().enumerate();
        Series::measured(name, points.map(|(at, value)| [at as f64, value]).collect())
    };
    Curve {
        id: "vista-engines".to_owned(),
        title: "2.5 GB to a USB stick by engine".to_owned(),
        drawing: Drawing::Bars,
        x: Axis {
            names: ["xp", "vista", "vista-sp1", "auto"].map(str::to_owned).to_vec(),
            ..Axis::new("Engine", "")
        },
        y: Axis::new("Time", "s"),
        series: vec![
            seconds("one file", [402.0, 371.0, 366.0, 312.0]),
            seconds("300 files", [455.0, 498.0, 421.0, 318.0]),
        ],
    }
}
