//! The document of `lab nas`.

use super::Options;
use super::plan::{self, OPERATIONS, Step};
use crate::local::warnings;
use crate::report::{Axis, CellKey, Curve, Document, LinkSummary, Series, Setting, WorkSummary};
use crate::run::curves::Sampler;
use crate::run::machine::document;
use crate::run::tools::Tools;
use crate::scenario::ONCE_ABOVE;

/// Published bytes a second against record size (facts file, C): Windows XP with requests of 60 KiB,
/// and Vista SP1 with requests of 1 MiB.
const PUBLISHED_WRITE: [[f64; 2]; 2] = [[61_440.0, 70e6], [1_048_576.0, 100.2e6]];
/// See [`PUBLISHED_WRITE`].
const PUBLISHED_READ: [[f64; 2]; 2] = [[61_440.0, 70e6], [1_048_576.0, 107.5e6]];
/// Published limit of 1 Gbit/s, as measured there.
const PUBLISHED_LIMIT_BPS: f64 = 113e6;

/// Returns the document before the first worker.
pub(super) fn begun(options: &Options, tools: &Tools) -> Document {
    let works = options.sizes.iter().map(|&bytes| {
        let size = plan::size(bytes);
        WorkSummary::one_file(&size, format!("one file of {size} that does not compress"), bytes)
    });
    Document {
        versions: tools.versions.clone(),
        settings: settings(options),
        works: works.collect(),
        links: options
            .records
            .iter()
            .map(|record| link(options, *record))
            .collect(),
        skipped: tools.missing.clone(),
        warnings: warnings(&[&options.dir], options.relay),
        ..document("nas", "Throughput of a NAS by file size and record size")
    }
}

/// Returns the network for requests of one size, which is a row of the tables.
fn link(options: &Options, record: u64) -> LinkSummary {
    let spec = plan::lan(options.rate, options.rtt);
    let network = LinkSummary::emulated(&plan::size(record), &spec, options.relay);
    LinkSummary {
        described: format!("requests of {} over {}", plan::size(record), network.described),
        ..network
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
             its own process; transfer: from CREATE to the response of CLOSE, no FLUSH: the server may still have to \
             write dirty pages to its disk"
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
            "1 Gbit/s, measured limit 113 MB/s; 60 KiB requests about 70 MB/s; folder of 4.35 GB by Vista SP1 written \
             at 100.2 and read at 107.5 MB/s; one disk 103.8 and 92.2, three 101.2 and 105.2; PCI cards 60 to 70; \
             256 KiB records best for cached writes, reads better with longer records past 32 MB"
                .to_owned(),
        ),
    ];
    Setting::list(pairs)
}

/// Returns the results of a run's passes as a line for people.
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

/// Replaces all curves of the document by those of its cells.
pub(super) fn curves(document: &mut Document, options: &Options, disk: Option<&[Sampler; 2]>) {
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
                let axes = [
                    Axis::logarithmic("record size", "B"),
                    Axis::new("throughput", "B/s"),
                ];
                let id = format!("{operation}-{}-{word}", server.name());
                let title = format!("{operation}, {} as server, {mode}", server.name());
                let all = all.into_iter().chain(published(operation)).collect();
                curves.push(Curve::lines(id, title, axes, all));
            }
        }
    }
    if let Some([read, written]) = disk.filter(|[read, _]| !read.points().is_empty()) {
        let axes = [Axis::new("time", "s"), Axis::new("disk", "B/s")];
        let all = [("read", read), ("written", written)]
            .map(|(name, sampler)| Series::measured(name, sampler.points().to_vec()));
        let title = "Reads and writes of the server's disk over the whole lab";
        curves.push(Curve::lines("disk", title, axes, all.to_vec()));
    }
    document.curves = curves;
}

/// Returns a series for each file size: bytes a second against record size.
fn series(document: &Document, options: &Options, key: impl Fn(&Step) -> Option<CellKey>) -> Vec<Series> {
    let mut all = Vec::new();
    for size in &options.sizes {
        let mut points: Vec<[f64; 2]> = plan::steps(&options.servers, &[*size], &options.records)
            .iter()
            .filter_map(|step| {
                let key = key(step)?;
                let seconds = document.cell(&key)?.seconds()?.value;
                Some([step.record as f64, (*size as f64 / seconds).round()])
            })
            .collect();
        points.sort_by(|a, b| a[0].total_cmp(&b[0]));
        if !points.is_empty() {
            all.push(Series::measured(plan::size(*size), points));
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
    [
        Series::published("requests of 60 KiB and 1 MiB", points.to_vec()),
        Series::published(
            "limit of the line",
            points.map(|[record, _]| [record, PUBLISHED_LIMIT_BPS]).to_vec(),
        ),
    ]
}
