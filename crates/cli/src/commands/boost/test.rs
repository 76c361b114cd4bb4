//! `ropeway boost test`: whether a device is fit for a cache.

use std::time::Duration;

use ropeway_cache::qualify::{
    self, Figures, MeasureError, READS_LEAST, Refusal, Series, WRITES_LEAST, advise, judge,
};
use serde_json::{Value, json};

use super::source;
use crate::args::BoostTestArgs;
use crate::failure::{Failure, code};
use crate::servers::Servers;
use crate::ui::{format, messages};

/// Runs the command and returns its exit code.
///
/// # Errors
/// The device or the source could not be measured.
pub(crate) fn run(args: &BoostTestArgs) -> Result<u8, Failure> {
    let figures = qualify::measure(&args.folder).map_err(|error| failure(args, &error))?;
    let source = match &args.source {
        Some(source) => {
            let servers = Servers::new(&args.share)?;
            Some(super::super::nodes::run(
                &servers,
                source::measure(source, &servers),
            )?)
        }
        None => None,
    };
    let refusals = judge(&figures, source.as_ref());
    if args.json {
        messages::print_line(&object(args, &figures, source.as_ref(), &refusals).to_string());
    } else {
        for line in lines(args, &figures, source.as_ref(), &refusals) {
            messages::print_line(&line);
        }
    }
    Ok(if refusals.is_empty() {
        code::DONE
    } else {
        code::REFUSED
    })
}

fn failure(args: &BoostTestArgs, error: &MeasureError) -> Failure {
    let folder = args.folder.display();
    match error {
        MeasureError::Io(error) => {
            let message = format!("cannot test {folder}: {}", crate::ends::cause(error));
            Failure::of_end(message, error, code::TARGET).hint("name a folder that you may write to")
        }
        MeasureError::NoSpace { .. } => Failure::new(code::TARGET, format!("cannot test {folder}: {error}"))
            .hint("make room on the device"),
        error => Failure::new(code::REFUSED, format!("cannot test {folder}: {error}"))
            .hint("name a folder on a flash device with a file system such as ext4, xfs or btrfs"),
    }
}

fn lines(
    args: &BoostTestArgs,
    figures: &Figures,
    source: Option<&Series>,
    refusals: &[Refusal],
) -> Vec<String> {
    let mut lines = vec![
        row("random reads of 4 KB", &figures.reads, Some(READS_LEAST)),
        row("random writes of 512 KB", &figures.writes, Some(WRITES_LEAST)),
    ];
    lines.extend(source.map(|source| row("source, reads of 4 KB", source, None)));
    lines.push(format!(
        "tested on {} of {} free",
        format::bytes(figures.file_bytes),
        format::bytes(figures.free_bytes)
    ));
    lines.extend(refusals.iter().map(|refusal| refused(*refusal, figures)));
    lines.push(match (refusals, advise(figures.free_bytes)) {
        ([], 0) => "fit for a cache, but there is too little free space for one".to_owned(),
        ([], size) => format!(
            "{} is fit for a cache; advised size: {}",
            args.folder.display(),
            format::bytes(size)
        ),
        _ => format!("{} is not fit for a cache", args.folder.display()),
    });
    lines
}

fn row(name: &str, series: &Series, least: Option<f64>) -> String {
    let least = least.map_or_else(String::new, |least| format!(", needed {}", format::rate(least)));
    format!(
        "{name:<24}{:>12}  p50 {}, p90 {}, p99 {}, max {}{least}",
        format::rate(series.bytes_per_s),
        millis(series.p50),
        millis(series.p90),
        millis(series.p99),
        millis(series.max)
    )
}

fn millis(span: Duration) -> String {
    format!("{:.2} ms", span.as_secs_f64() * 1e3)
}

fn refused(refusal: Refusal, figures: &Figures) -> String {
    let reads = format::rate(figures.reads.bytes_per_s);
    match refusal {
        Refusal::SlowReads => format!("refused: random reads give {reads}"),
        Refusal::SlowWrites => {
            let writes = format::rate(figures.writes.bytes_per_s);
            format!("refused: random writes give {writes}")
        }
        Refusal::SlowerThanSource(rate) => {
            let source = format::rate(rate);
            format!("refused: the source answers random reads with {source}, the device with {reads}")
        }
        _ => "refused".to_owned(),
    }
}

fn object(args: &BoostTestArgs, figures: &Figures, source: Option<&Series>, refusals: &[Refusal]) -> Value {
    let reason = |refusal: &Refusal| match refusal {
        Refusal::SlowReads => "slow-reads",
        Refusal::SlowWrites => "slow-writes",
        Refusal::SlowerThanSource(_) => "slower-than-source",
        _ => "other",
    };
    json!({
        "type": "boost-test",
        "folder": args.folder.display().to_string(),
        "fit": refusals.is_empty(),
        "refusals": refusals.iter().map(reason).collect::<Vec<_>>(),
        "random_reads": series(&figures.reads),
        "random_writes": series(&figures.writes),
        "source_reads": source.map(series),
        "reads_needed_bytes_per_s": READS_LEAST,
        "writes_needed_bytes_per_s": WRITES_LEAST,
        "file_bytes": figures.file_bytes,
        "free_bytes": figures.free_bytes,
        "advised_bytes": advise(figures.free_bytes),
    })
}

fn series(series: &Series) -> Value {
    let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
    json!({
        "block_bytes": series.block_bytes,
        "operations": series.operations,
        "bytes_per_s": series.bytes_per_s,
        "p50_us": micros(series.p50),
        "p90_us": micros(series.p90),
        "p99_us": micros(series.p99),
        "max_us": micros(series.max),
    })
}
