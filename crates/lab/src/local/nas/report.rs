//! The document of `lab nas`.

use super::Options;
use super::plan::{self, OPERATIONS, Step};
use crate::link::describe;
use crate::local::doubts;
use crate::report::{
    Axis, Cell, CellKey, Curve, Document, Drawing, LinkSummary, Run, Series, Setting, VERSION, Warning,
    WorkSummary,
};
use crate::run::machine::{machine, now};
use crate::run::record;
use crate::run::tools::Tools;
use crate::scenario::ONCE_ABOVE;

/// Published bytes a second against record size (facts file, C): an XP client's 60 KiB requests, Vista SP1's of 1 MiB.
const PUBLISHED_WRITE: [[f64; 2]; 2] = [[61_440.0, 70e6], [1_048_576.0, 100.2e6]];
/// See [`PUBLISHED_WRITE`].
const PUBLISHED_READ: [[f64; 2]; 2] = [[61_440.0, 70e6], [1_048_576.0, 107.5e6]];
/// What they measured as the limit of 1 Gbit/s.
const PUBLISHED_LIMIT_BPS: f64 = 113e6;

/// The document before the first worker.
pub(super) fn begun(options: &Options, tools: &Tools, started: &str) -> Document {
    let mut warnings = doubts(&[&options.dir]);
    if options.relay {
        warnings.push(Warning {
            cell: None,
            text: "the network is a relay on the loopback, not packets".to_owned(),
        });
    }
    Document {
        version: VERSION,
        lab: "nas".to_owned(),
        title: "Throughput of a NAS by file size and record size".to_owned(),
        started: started.to_owned(),
        updated: now(),
        complete: false,
        machine: machine(),
        versions: tools.versions.clone(),
        settings: settings(options),
        works: options.sizes.iter().map(|size| work(*size)).collect(),
        links: options
            .records
            .iter()
            .map(|record| link(options, *record))
            .collect(),
        skipped: tools.missing.clone(),
        warnings,
        ..Document::default()
    }
}

/// The network as requests of one size see it: what the tables have rows for.
fn link(options: &Options, record: u64) -> LinkSummary {
    let spec = plan::link(options.rate, options.rtt);
    let congestion = if options.relay {
        "that of the loopback"
    } else {
        "reno"
    };
    LinkSummary {
        name: plan::size(record),
        kind: if options.relay { "relay" } else { "packets" }.to_owned(),
        rtt_ms: spec.rtt.as_secs_f64() * 1e3,
        up_delay_ms: None,
        down_delay_ms: None,
        up_bps: spec.up.map(|rate| rate.0),
        down_bps: spec.down.map(|rate| rate.0),
        loss: 0.0,
        cuts: Vec::new(),
        congestion: congestion.to_owned(),
        described: format!(
            "requests of {} over {}",
            plan::size(record),
            describe(&spec, congestion)
        ),
        proof: None,
    }
}

fn work(size: u64) -> WorkSummary {
    WorkSummary {
        name: plan::size(size),
        title: format!("one file of {} that does not compress", plan::size(size)),
        files: 1,
        folders: 0,
        bytes: size,
        seed: size,
        scale: 1.0,
        lz4_ratio: 1.0,
    }
}

fn settings(options: &Options) -> Vec<Setting> {
    let pairs = [
        ("folder", options.dir.display().to_string()),
        (
            "runs",
            format!(
                "{}, the servers in turns, the first discarded; one (which counts) where the passes over a file take more \
                 than {} s",
                options.runs,
                ONCE_ABOVE.as_secs_f64()
            ),
        ),
        (
            "passes",
            "write (a new file), rewrite (in place), read (dropped from the server's page cache before), reread; each by \
             a process of its own; transfer: from CREATE to the answer of CLOSE, no FLUSH: the server's page cache may \
             still owe its disk"
                .to_owned(),
        ),
        (
            "records",
            "one READ or WRITE each, signed, over one connection; one at a time, or as many as make 8 MiB, at least 4 \
             and at most 64"
                .to_owned(),
        ),
        (
            "published",
            "1 Gbit/s, 113 MB/s measured limit; 60 KiB requests about 70 MB/s; folder of 4.35 GB by Vista SP1 written \
             with 100.2 and read with 107.5 MB/s; one disk 103.8 and 92.2, three 101.2 and 105.2; PCI cards 60 to 70; \
             256 KiB records best for cached writes, reads better with longer records past 32 MB"
                .to_owned(),
        ),
    ];
    pairs
        .into_iter()
        .map(|(name, value)| Setting {
            name: name.to_owned(),
            value,
        })
        .collect()
}

/// The runs of a cell so far.
pub(super) fn runs<'a>(document: &'a Document, key: &CellKey) -> &'a [Run] {
    match document.cells.iter().find(|cell| cell.key == *key) {
        Some(cell) => &cell.runs,
        None => &[],
    }
}

/// Adds a run of a pass to its cell, which is made if need be.
pub(super) fn add(document: &mut Document, step: &Step, operation: &str, run: Run, options: &Options) {
    let key = step.key(operation);
    if document.cells.iter().all(|cell| cell.key != key) {
        document.cells.push(Cell {
            key: key.clone(),
            payload_bytes: step.size,
            files: 1,
            line_seconds: Some(step.line(options.rate).as_secs_f64()),
            floor_seconds: None,
            target_seconds: None,
            runs: Vec::new(),
        });
    }
    record::add_run(document, &key, run);
}

/// What the passes of a run found, for people.
pub(super) fn line(step: &Step, number: u32, found: &[(&str, Option<f64>)]) -> String {
    let rates: Vec<String> = found
        .iter()
        .map(|(operation, seconds)| match seconds {
            Some(seconds) => format!("{operation} {:6.1}", step.size as f64 / seconds / 1e6),
            None => format!("{operation} failed"),
        })
        .collect();
    format!("  {:44} run {number}  {} MB/s", step.name(), rates.join("  "))
}

/// Makes all curves anew from the cells.
pub(super) fn curves(document: &mut Document, options: &Options, disk: &[[f64; 3]]) {
    let mut curves = Vec::new();
    for server in &options.servers {
        for operation in OPERATIONS {
            for pipelined in [false, true] {
                let all = series(document, options, |step| {
                    (step.server == *server && (step.depth > 1) == pipelined).then(|| step.key(operation))
                });
                if all.is_empty() {
                    continue;
                }
                let (mode, word) = if pipelined {
                    ("records pipelined", "pipelined")
                } else {
                    ("one record at a time", "single")
                };
                curves.push(Curve {
                    id: format!("{operation}-{}-{word}", server.name()),
                    title: format!("{operation}, {} as server, {mode}", server.name()),
                    drawing: Drawing::Lines,
                    x: axis("record size", "B", true),
                    y: axis("throughput", "B/s", false),
                    series: all.into_iter().chain(published(operation)).collect(),
                });
            }
        }
    }
    if !disk.is_empty() {
        let points = |index: usize| disk.iter().map(|point| [point[0], point[index]]).collect();
        curves.push(Curve {
            id: "disk".to_owned(),
            title: "What the server's disk moved, over the whole lab".to_owned(),
            drawing: Drawing::Lines,
            x: axis("time", "s", false),
            y: axis("disk", "B/s", false),
            series: vec![plain("read", points(1)), plain("written", points(2))],
        });
    }
    document.curves = curves;
}

/// A series for each file size: bytes a second against record size.
fn series(document: &Document, options: &Options, key: impl Fn(&Step) -> Option<CellKey>) -> Vec<Series> {
    let mut all = Vec::new();
    for size in &options.sizes {
        let mut points: Vec<[f64; 2]> = plan::steps(&options.servers, &[*size], &options.records)
            .iter()
            .filter_map(|step| {
                let key = key(step)?;
                let cell = document.cells.iter().find(|cell| cell.key == key)?;
                let seconds = cell.seconds()?.value;
                Some([step.record as f64, (*size as f64 / seconds).round()])
            })
            .collect();
        points.sort_by(|a, b| a[0].total_cmp(&b[0]));
        if !points.is_empty() {
            all.push(plain(&plan::size(*size), points));
        }
    }
    all
}

fn published(operation: &str) -> [Series; 2] {
    let points = if operation.ends_with("read") {
        PUBLISHED_READ
    } else {
        PUBLISHED_WRITE
    };
    let series = |name: &str, points: Vec<[f64; 2]>| Series {
        published: true,
        ..plain(name, points)
    };
    [
        series("requests of 60 KiB and 1 MiB", points.to_vec()),
        series(
            "limit of the line",
            points.map(|[record, _]| [record, PUBLISHED_LIMIT_BPS]).to_vec(),
        ),
    ]
}

fn plain(name: &str, points: Vec<[f64; 2]>) -> Series {
    Series {
        name: name.to_owned(),
        points,
        published: false,
    }
}

fn axis(label: &str, unit: &str, logarithmic: bool) -> Axis {
    Axis {
        logarithmic,
        ..Axis::new(label, unit)
    }
}
