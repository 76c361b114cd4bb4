//! A document as `lab tr3869` writes it: plausible and published figures, curves, failures, warnings.

use ropeway_lab::report::{
    Axis, Cell, CellKey, Curve, Document, Drawing, LinkProof, LinkSummary, Machine, Outcome, Published, Run,
    Score, ScorePart, Series, Setting, VERSION, Warning, WorkSummary,
};

/// Name, bits a second.
const RATES: [(&str, u64); 4] = [
    ("OC1", 52_000_000),
    ("OC3", 155_000_000),
    ("OC12", 622_000_000),
    ("GbE", 1_000_000_000),
];
const TRIPS_MS: [u64; 2] = [32, 75];
const COLUMNS: [(&str, &str, f64); 5] = [
    ("ropeway", "smbd", 1.012),
    ("ropeway", "ropeway", 1.008),
    ("smbclient", "smbd", 1.35),
    ("rclone", "smbd", 2.6),
    ("rsync", "rsyncd", 1.06),
];
/// Printed seconds of xp-smb1, win7-smb1 and win7-smb2: 32 ms then 75 ms, each by rate.
const PRINTED: [[[[u32; 3]; 8]; 2]; 2] = [
    [
        [
            [99, 17, 17],
            [95, 7, 5],
            [84, 7, 2],
            [86, 7, 1],
            [213, 19, 18],
            [190, 16, 7],
            [187, 15, 5],
            [187, 14, 3],
        ],
        [
            [73, 17, 17],
            [62, 7, 6],
            [57, 7, 2],
            [57, 7, 2],
            [146, 19, 19],
            [136, 16, 8],
            [132, 14, 4],
            [132, 14, 3],
        ],
    ],
    [
        [
            [1111, 260, 212],
            [1013, 157, 97],
            [942, 152, 56],
            [995, 156, 52],
            [2204, 379, 266],
            [2104, 329, 150],
            [2079, 314, 110],
            [2072, 318, 108],
        ],
        [
            [940, 347, 354],
            [844, 235, 209],
            [803, 205, 119],
            [802, 208, 115],
            [1980, 581, 480],
            [1861, 470, 320],
            [1823, 441, 260],
            [1818, 440, 258],
        ],
    ],
];

/// The document.
pub(crate) fn sample() -> Document {
    let mut doc = Document {
        version: VERSION,
        lab: "tr3869".to_owned(),
        title: "TR-3869 again: a spreadsheet and a tree of office files over a WAN".to_owned(),
        started: "2026-11-21T22:14:03Z".to_owned(),
        updated: "2026-11-22T00:51:40Z".to_owned(),
        complete: true,
        machine: Machine {
            kernel: "6.12.8-amd64".to_owned(),
            processor: "AMD EPYC 7B13".to_owned(),
            processors: 2,
            memory_bytes: 8 << 30,
            system: "Debian GNU/Linux 12 (bookworm)".to_owned(),
        },
        works: works(),
        curves: curves(),
        ..Document::default()
    };
    for (name, version) in [
        ("ropeway", "0.1.0 (92de04d)"),
        ("smbclient", "4.17.12-Debian"),
        ("rclone", "1.60.1-DEV"),
        ("rsync", "3.2.7"),
    ] {
        doc.versions.insert(name.to_owned(), version.to_owned());
    }
    for (name, value) in [
        ("Scale", "1"),
        ("Repeats", "3, the first discarded; one above 60 s of line time"),
        ("Congestion control", "reno, both ends, all clients"),
        ("TCP", "tcp_no_metrics_save=1, buffers up to 64 MiB, ECN off"),
        ("Order", "interleaved"),
    ] {
        doc.settings.push(Setting::new(name, value));
    }
    add_links_and_cells(&mut doc);
    spoil(&mut doc);
    doc.skipped.insert(
        "cp on a mount".to_owned(),
        "mount.cifs is not installed (package cifs-utils)".to_owned(),
    );
    doc.score = Some(Score {
        described: "The geometric mean of seconds of Windows 7 with SMB 2 divided by those of ropeway."
            .to_owned(),
        value: 1.62,
        parts: vec![
            ScorePart {
                name: "spreadsheet".to_owned(),
                value: 1.08,
            },
            ScorePart {
                name: "office files".to_owned(),
                value: 2.43,
            },
        ],
        published: [("Vista SP1 over RTM".to_owned(), 1.145)].into(),
    });
    doc
}

fn works() -> Vec<WorkSummary> {
    let work = |name: &str, title: &str, files, folders, bytes| WorkSummary {
        name: name.to_owned(),
        title: title.to_owned(),
        files,
        folders,
        bytes,
        seed: 3869,
        scale: 1.0,
        lz4_ratio: 0.71,
    };
    vec![
        work("file100mb", "One spreadsheet of 100 MB", 1, 0, 100_000_000),
        work("dirset1gb", "1 GB in 300 office files", 300, 14, 1_000_000_000),
    ]
}

fn add_links_and_cells(doc: &mut Document) {
    for (trip, trip_ms) in TRIPS_MS.into_iter().enumerate() {
        for (rate, (name, bps)) in RATES.into_iter().enumerate() {
            let link = format!("{name}-{trip_ms}ms");
            doc.links.push(LinkSummary {
                name: link.clone(),
                kind: "packets".to_owned(),
                rtt_ms: trip_ms as f64,
                up_bps: Some(bps),
                down_bps: Some(bps),
                congestion: "reno".to_owned(),
                described: format!(
                    "{} Mbit/s, round trip {trip_ms} ms, queue 1.9 MiB, MTU 1500, reno",
                    bps / 1_000_000
                ),
                proof: Some(LinkProof {
                    rtt_ms: trip_ms as f64 * 1.004,
                    up_bps: bps as f64 * 0.998,
                    down_bps: bps as f64 * 0.9965,
                    loss: 0.0,
                    holds: true,
                }),
                ..LinkSummary::default()
            });
            for (work, ways) in PRINTED.iter().enumerate() {
                for (direction, printed) in ways.iter().enumerate() {
                    let printed = printed[trip * 4 + rate];
                    add_group(doc, &link, (trip_ms, bps), (work, direction), printed);
                }
            }
        }
    }
}

fn add_group(
    doc: &mut Document,
    link: &str,
    (trip_ms, bps): (u64, u64),
    (work, direction): (usize, usize),
    printed: [u32; 3],
) {
    let (name, bytes, files) = (
        doc.works[work].name.clone(),
        doc.works[work].bytes,
        doc.works[work].files,
    );
    let way = ["read", "write"][direction];
    let line = bytes as f64 * 1538.0 / 1448.0 * 8.0 / bps as f64;
    let trip = trip_ms as f64 / 1000.0;
    let floor = line + 4.0 * trip + trip * 3.0;
    for (column, (client, server, factor)) in COLUMNS.into_iter().enumerate() {
        let per_file = if client == "ropeway" {
            0.0
        } else {
            files as f64 * trip * column as f64 * 0.6
        };
        let seconds = floor * factor + per_file + if column > 1 { 2.0 * trip } else { 0.0 };
        let count = if line > 60.0 { 1 } else { 3 };
        let runs = (0..count).map(|number| Run {
            started: "2026-11-21T22:20:00Z".to_owned(),
            discarded: count > 1 && number == 0,
            whole_seconds: seconds * (1.0 + 0.011 * f64::from(number)) + 0.02,
            transfer_seconds: Some(seconds * (1.0 + 0.011 * f64::from(number))),
            durable_seconds: (client == "ropeway").then_some(seconds * 1.02),
            client_cpu_seconds: Some(0.2 + bytes as f64 / 1.4e9),
            server_cpu_seconds: Some(0.3 + bytes as f64 / 1.1e9),
            client_memory_bytes: Some(48 << 20),
            server_memory_bytes: Some(61 << 20),
            others_busy: Some(0.04),
            ..Run::default()
        });
        doc.cells.push(Cell {
            key: CellKey::new([link, &name, way, client, server]),
            payload_bytes: bytes,
            files,
            line_seconds: Some(line),
            floor_seconds: Some(floor),
            target_seconds: (client == "ropeway")
                .then_some(floor * if files == 1 { 1.05 } else { 1.04 } + 2.0 * trip),
            runs: runs.collect(),
        });
    }
    for (client, seconds) in ["xp-smb1", "win7-smb1", "win7-smb2"].into_iter().zip(printed) {
        doc.published.push(Published {
            source: "NetApp TR-3869, tables 1 to 8".to_owned(),
            link: link.to_owned(),
            work: name.clone(),
            direction: way.to_owned(),
            client: client.to_owned(),
            server: "fas3140".to_owned(),
            seconds: f64::from(seconds),
        });
    }
}

/// What goes wrong in a real run.
fn spoil(doc: &mut Document) {
    let find = |doc: &Document, link: &str, work: &str, way: &str, client: &str| {
        let found = doc.cells.iter().position(|cell| {
            let key = &cell.key;
            key.link == link && key.work == work && key.direction == way && key.client == client
        });
        found.expect("the cell is there")
    };
    let at = find(doc, "OC12-75ms", "dirset1gb", "write", "ropeway");
    for run in &mut doc.cells[at].runs {
        run.whole_seconds *= 1.31;
        run.transfer_seconds = run.transfer_seconds.map(|seconds| seconds * 1.31);
    }
    doc.warnings.push(Warning {
        cell: Some(doc.cells[at].key.clone()),
        text: "Cause: smbd answered CREATE after 41 ms in the middle; 14 folders wait for one another."
            .to_owned(),
    });
    let at = find(doc, "OC1-75ms", "dirset1gb", "write", "smbclient");
    for run in &mut doc.cells[at].runs {
        run.outcome = Outcome::TimedOut("600 s were given".to_owned());
    }
    let at = find(doc, "GbE-32ms", "file100mb", "read", "rclone");
    for run in &mut doc.cells[at].runs {
        run.outcome = Outcome::Failed("exit status 1: couldn't connect SMB: EOF <at line 3>".to_owned());
    }
    let at = find(doc, "OC3-32ms", "file100mb", "read", "rsync");
    doc.cells[at].runs[2].transfer_seconds = Some(9.4);
    doc.warnings.push(Warning {
        cell: None,
        text: "Others kept 0.3 of 2 processors busy for 41 s.".to_owned(),
    });
}

fn curves() -> Vec<Curve> {
    let mut curves = over_time();
    curves.extend([by_record(), by_engine()]);
    curves
}

fn over_time() -> Vec<Curve> {
    let wave = |name: &str, most: f64, length: f64, wobble: f64, published| Series {
        name: name.to_owned(),
        points: (0..=(length as u32))
            .map(|second| {
                let at = f64::from(second);
                let ramp = (at / 3.0).min(1.0) * if at + 1.0 > length { 0.3 } else { 1.0 };
                [at, most * ramp * (1.0 - wobble * (0.5 + 0.5 * (at * 1.7).sin()))]
            })
            .collect(),
        published,
    };
    let over_time = |id: &str, title: &str, y: Axis, series| Curve {
        id: id.to_owned(),
        title: title.to_owned(),
        drawing: Drawing::Lines,
        x: Axis::new("Time", "s"),
        y,
        series,
    };
    vec![
        over_time(
            "throughput-OC3-32ms-dirset1gb-read",
            "Throughput: 1 GB in 300 office files, read, OC3, 32 ms",
            Axis::new("Throughput", "B/s"),
            vec![
                wave("ropeway → smbd", 18.2e6, 57.0, 0.02, false),
                wave("smbclient → smbd", 13.9e6, 80.0, 0.3, false),
                wave("rclone → smbd", 9.3e6, 120.0, 0.5, false),
                wave("win7-smb2", 10.4e6, 97.0, 0.2, true),
            ],
        ),
        over_time(
            "operations-OC12-32ms-dirset1gb-read",
            "Operations a second: 1 GB in 300 office files, read, OC12, 32 ms",
            Axis::new("Operations", "1/s"),
            vec![
                wave("ropeway → smbd", 1430.0, 16.0, 0.1, false),
                wave("smbclient → smbd", 310.0, 44.0, 0.2, false),
                wave("win7-smb2", 800.0, 56.0, 0.25, true),
                wave("xp-smb1", 20.0, 240.0, 0.1, true),
            ],
        ),
    ]
}

fn by_record() -> Curve {
    let sizes = |name: &str, most: f64| Series {
        name: name.to_owned(),
        points: (12..=22)
            .map(|power| {
                let size = f64::from(1_u32 << power);
                [size, most * size / (size + 90_000.0)]
            })
            .collect(),
        published: false,
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
    Curve {
        id: "vista-engines".to_owned(),
        title: "2.5 GB to a USB stick by engine".to_owned(),
        drawing: Drawing::Bars,
        x: Axis {
            names: ["xp", "vista", "vista-sp1", "auto"].map(str::to_owned).to_vec(),
            ..Axis::new("Engine", "")
        },
        y: Axis::new("Time", "s"),
        series: ["one file", "300 files"]
            .into_iter()
            .zip([[402.0, 371.0, 366.0, 312.0], [455.0, 498.0, 421.0, 318.0]])
            .map(|(name, values)| Series {
                name: name.to_owned(),
                points: values
                    .into_iter()
                    .enumerate()
                    .map(|(at, value)| [at as f64, value])
                    .collect(),
                published: false,
            })
            .collect(),
    }
}
