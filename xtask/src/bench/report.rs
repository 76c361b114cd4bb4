//! Results as Markdown, the same on the terminal and in `docs/benchmarks.md`.
//!
//! Each benchmark owns a section between two marker comments and replaces only that.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use super::client::{Installed, Purpose, Sample};
use crate::process::capture;
use crate::worksets::Content;
use crate::workspace::Workspace;

/// Spread (max - min over the median) above which a result is called noisy.
pub(super) const SPREAD_MAX: f64 = 0.20;

/// Load average above which the machine is called busy: a guess; half a core is taken by someone else.
const LOAD_MAX: f64 = 0.5;

/// Where a measurement was made.
#[derive(Debug)]
pub(super) struct Machine {
    processor: String,
    cores: usize,
    memory_gib: u64,
    kernel: String,
    date: String,
    load: f64,
}

impl Machine {
    /// This machine, now. What cannot be told is left empty.
    pub(super) fn look() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split(':').nth(1))
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        let kib: u64 = field(&read("/proc/meminfo"), "MemTotal")
            .trim_end_matches(" kB")
            .parse()
            .unwrap_or(0);
        Self {
            processor: field(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_gib: kib.div_ceil(1 << 20),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            date: capture(Command::new("date").args(["-u", "+%F"]))
                .unwrap_or_default()
                .trim()
                .to_owned(),
            load: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|load| load.parse().ok())
                .unwrap_or(0.0),
        }
    }

    /// A warning if others are at work here.
    pub(super) fn busy(&self) -> Option<String> {
        let busy = self.load > LOAD_MAX;
        busy.then(|| {
            format!(
                "**the machine was busy**: load average {:.2} at the start",
                self.load
            )
        })
    }

    /// Processor, memory and kernel.
    pub(super) fn kind(&self) -> String {
        format!(
            "{}, {} cores, {} GiB, Linux {}",
            self.processor, self.cores, self.memory_gib, self.kernel
        )
    }

    /// Processor, memory, kernel and day.
    pub(super) fn describe(&self) -> String {
        format!("{}, {}", self.kind(), self.date)
    }
}

/// Median and range of some measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stats {
    pub(super) median: f64,
    min: f64,
    max: f64,
}

impl Stats {
    /// Of values; `None` of none.
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        let (&min, &max) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            0 => (values[middle - 1] + values[middle]) / 2.0,
            _ => values[middle],
        };
        Some(Self { median, min, max })
    }

    /// Range over the median.
    pub(super) fn spread(self) -> f64 {
        (self.max - self.min) / self.median.max(f64::MIN_POSITIVE)
    }
}

/// What one tool needed.
#[derive(Debug)]
pub(super) struct Row {
    name: &'static str,
    perceived: Vec<f64>,
    durable: Vec<f64>,
    cpu: Vec<f64>,
    peak_mib: Vec<f64>,
    /// Why it was left out, if it was.
    pub(super) failed: Option<String>,
}

impl Row {
    /// A tool without results.
    pub(super) fn new(name: &'static str) -> Self {
        Self {
            name,
            perceived: Vec::new(),
            durable: Vec::new(),
            cpu: Vec::new(),
            peak_mib: Vec::new(),
            failed: None,
        }
    }

    /// Adds a run. CPU and memory are those of the run that ends durable: the default.
    pub(super) fn add(&mut self, sample: Sample, purpose: Purpose) {
        self.perceived.extend(sample.perceived);
        self.durable.extend(sample.durable);
        if purpose != Purpose::Perceived {
            self.cpu.push(sample.cpu);
            self.peak_mib.push(sample.peak_kib as f64 / 1024.0);
        }
    }

    /// A warning if the runs differ much.
    pub(super) fn noisy(&self) -> Option<String> {
        let spreads = [("perceived", &self.perceived), ("durable", &self.durable)]
            .into_iter()
            .filter_map(|(what, values)| Some((what, Stats::of(values)?.spread())))
            .filter(|(_, spread)| *spread > SPREAD_MAX)
            .map(|(what, spread)| format!("{what} {:.0} %", spread * 100.0))
            .collect::<Vec<_>>();
        (!spreads.is_empty()).then(|| format!("noisy: {}: spread {}", self.name, spreads.join(", ")))
    }
}

/// The results with one state of the cache.
#[derive(Debug)]
pub(super) struct Table {
    /// `warm` or `cold`.
    pub(super) cache: &'static str,
    /// Counted rounds.
    pub(super) runs: usize,
    /// Warnings.
    pub(super) notes: Vec<String>,
    /// The tools.
    pub(super) rows: Vec<Row>,
}

/// The turns of a round: everyone begins once.
pub(super) fn rotated<T: Copy>(turns: &[T], round: usize) -> Vec<T> {
    let mut order = turns.to_vec();
    if !order.is_empty() {
        let by = round % order.len();
        order.rotate_left(by);
    }
    order
}

/// A time for the terminal.
pub(super) fn seconds(time: Option<f64>) -> String {
    time.map_or_else(|| "      -".to_owned(), |time| format!("{time:7.2}"))
}

/// Median and range as a cell of a table.
pub(super) fn cell(values: &[f64], decimals: usize) -> String {
    match Stats::of(values) {
        None => "-".to_owned(),
        Some(Stats { median, min, max }) if values.len() > 1 => {
            format!("{median:.decimals$} ({min:.decimals$}-{max:.decimals$})")
        }
        Some(Stats { median, .. }) => format!("{median:.decimals$}"),
    }
}

/// The arguments this process was called with.
pub(super) fn own_command() -> String {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    format!("cargo xtask {}", arguments.join(" "))
}

/// The section of `bench local` for one work set.
pub(super) fn local_section(
    work: &str,
    content: Content,
    ground: &str,
    machine: &Machine,
    clients: &[Installed],
    notes: &[String],
    tables: &[Table],
) -> String {
    let mut text = format!(
        "## Local copy: {work} ({} files, {:.2} GiB), {ground}\n\n{}. Made by `{}`.\n",
        content.files,
        content.bytes as f64 / (1u64 << 30) as f64,
        machine.describe(),
        own_command(),
    );
    let versions: Vec<&str> = clients
        .iter()
        .map(|installed| installed.version.as_str())
        .collect();
    let _ = writeln!(text, "Versions: {}.", versions.join("; "));
    for note in notes {
        let _ = writeln!(text, "\n> {note}");
    }
    for table in tables {
        table.write(&mut text);
    }
    text
}

impl Table {
    fn write(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "\n**{}**, median (min-max) of {} interleaved runs:\n",
            self.cache, self.runs
        );
        text.push_str("| tool | perceived s | durable s | durable vs cp | user+sys s | peak MiB |\n");
        text.push_str("|---|--:|--:|--:|--:|--:|\n");
        let cp = self
            .rows
            .iter()
            .find(|row| row.name == "cp -a")
            .and_then(|row| Stats::of(&row.durable));
        for row in &self.rows {
            if let Some(reason) = &row.failed {
                let _ = writeln!(
                    text,
                    "| {} | left out: {} | | | | |",
                    row.name,
                    reason.replace('|', "/")
                );
                continue;
            }
            let factor = match (cp, Stats::of(&row.durable)) {
                (Some(cp), Some(own)) => format!("{:.2} x", cp.median / own.median.max(f64::MIN_POSITIVE)),
                _ => "-".to_owned(),
            };
            let _ = writeln!(
                text,
                "| {} | {} | {} | {factor} | {} | {} |",
                row.name,
                cell(&row.perceived, 2),
                cell(&row.durable, 2),
                cell(&row.cpu, 2),
                cell(&row.peak_mib, 1),
            );
        }
        for note in &self.notes {
            let _ = writeln!(text, "\n> {note}");
        }
    }
}

/// One reader's latencies beside one copying tool.
#[derive(Debug)]
pub(super) struct ReaderRow {
    /// What else ran.
    pub(super) name: &'static str,
    /// Medians of the reader, one value a run.
    pub(super) p50_ms: Vec<f64>,
    /// Its 99th percentiles.
    pub(super) p99_ms: Vec<f64>,
    /// Its slowest reads.
    pub(super) max_ms: Vec<f64>,
    /// How long the copy took, until durable.
    pub(super) copy_seconds: Vec<f64>,
}

/// The section of `bench responsiveness`.
pub(super) fn responsiveness_section(
    content: Content,
    ground: &str,
    machine: &Machine,
    notes: &[String],
    rows: &[ReaderRow],
) -> String {
    let mut text = format!(
        "## Another process's 4 KiB reads while {:.2} GiB are copied, {ground}\n\n{}. Made by `{}`.\n",
        content.bytes as f64 / (1u64 << 30) as f64,
        machine.describe(),
        own_command(),
    );
    text.push_str(
        "The reader reads an uncached file on the target's file system, cold, one block each 2 ms.\n\n",
    );
    text.push_str(
        "| beside | p50 ms | p99 ms | slowest ms | copy, until durable s |\n|---|--:|--:|--:|--:|\n",
    );
    for row in rows {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            row.name,
            cell(&row.p50_ms, 2),
            cell(&row.p99_ms, 2),
            cell(&row.max_ms, 1),
            cell(&row.copy_seconds, 2),
        );
    }
    for note in notes {
        let _ = writeln!(text, "\n> {note}");
    }
    text
}

/// Puts a section into `docs/benchmarks.md`, unless the work was scaled down.
///
/// # Errors
/// If the file cannot be read or written.
pub(super) fn write(workspace: &Workspace, name: &str, body: &str, scale: f64) -> Result<()> {
    if scale < 1.0 {
        println!("less than the whole work: docs/benchmarks.md stays as it is");
        return Ok(());
    }
    let path = workspace.root().join("docs/benchmarks.md");
    let old = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => HEAD.to_owned(),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    fs::write(&path, replaced(&old, name, body))
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("written to docs/benchmarks.md");
    Ok(())
}

const HEAD: &str = "\
# Benchmarks

Everything between markers is written by the command that its section names; run it again to repeat it.

* *perceived*: until the process ends; ropeway runs with `--durability none --cache keep`;
* *durable*: until the data is on the device; ropeway runs with its defaults, the others are followed by `sync -f`;
* *user+sys*, *peak*: of the process, in the run that ends durable (`wait4`; kernel threads are not in it).

Source and target are separate, fresh file systems; the first round is not counted.
";

fn replaced(old: &str, name: &str, body: &str) -> String {
    let (begin, end) = (
        format!("<!-- {name} begin -->\n"),
        format!("<!-- {name} end -->\n"),
    );
    let section = format!("{begin}{}\n{end}", body.trim_end());
    let found = old.find(&begin).and_then(|from| {
        let length = old[from..].find(&end)?;
        Some((from, from + length + end.len()))
    });
    match found {
        Some((from, to)) => format!("{}{section}{}", &old[..from], &old[to..]),
        None => format!("{}\n\n{section}", old.trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_replaces_only_itself() {
        let one = replaced("# Head\n", "a", "first");
        let two = replaced(&one, "b", "second");
        let three = replaced(&two, "a", "third\n");
        assert_eq!(
            three,
            "# Head\n\n<!-- a begin -->\nthird\n<!-- a end -->\n\n<!-- b begin -->\nsecond\n<!-- b end -->\n"
        );
    }

    #[test]
    fn everyone_goes_first_once() {
        let firsts: Vec<i32> = (0..3).map(|round| rotated(&[1, 2, 3], round)[0]).collect();
        assert_eq!(firsts, [1, 2, 3]);
        assert!(rotated::<i32>(&[], 5).is_empty());
    }

    #[test]
    fn medians_and_noise() {
        let stats = Stats::of(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((stats.median, stats.min, stats.max), (2.0, 1.0, 3.0));
        assert_eq!(Stats::of(&[1.0, 2.0]).unwrap().median, 1.5);
        assert!(Stats::of(&[]).is_none());
        let mut row = Row::new("cp -a");
        row.perceived = vec![1.0, 1.1];
        assert!(row.noisy().is_none());
        row.durable = vec![1.0, 1.5];
        assert_eq!(row.noisy().unwrap(), "noisy: cp -a: spread durable 40 %");
        assert_eq!(
            (cell(&[], 1), cell(&[2.0], 1), cell(&[1.0, 2.0], 1)),
            ("-".into(), "2.0".into(), "1.5 (1.0-2.0)".into())
        );
    }

    #[test]
    fn a_table_compares_with_cp_and_names_who_failed() {
        let mut cp = Row::new("cp -a");
        cp.durable = vec![4.0];
        let mut ropeway = Row::new("ropeway");
        ropeway.durable = vec![2.0];
        let mut xcp = Row::new("xcp");
        xcp.failed = Some("a|b".into());
        let table = Table {
            cache: "warm",
            runs: 1,
            notes: vec!["new".into()],
            rows: vec![ropeway, cp, xcp],
        };
        let mut text = String::new();
        table.write(&mut text);
        assert!(text.contains("| ropeway | - | 2.00 | 2.00 x | - | - |"), "{text}");
        assert!(text.contains("| xcp | left out: a/b |") && text.contains("> new"));
    }
}
