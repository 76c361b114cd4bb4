//! Figures of the tables of `docs/benchmarks.md`, from documents of the laboratory.
//!
//! Each benchmark has a section between two marker comments and replaces only that.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use ropeway_lab::report::{Cell, CellKey, Document, Median, Outcome, Run};

use crate::process::capture;
use crate::workspace::{Workspace, replaced_between};

/// Spread above which a result is called noisy: the range of the runs as a part of their median.
pub(super) const SPREAD_MAX: f64 = 0.20;
/// Processors that other processes used on average, above which a result gets a note. A guess: the
/// emulated link and both ends share the rest.
const OTHERS_MAX: f64 = 0.25;
/// Seconds above which a tool runs only once, which the table marks (`once_above` of the
/// scenarios).
const ONCE_ABOVE_SECONDS: f64 = 60.0;

/// Returns the cell of a key.
pub(super) fn find<'a>(
    document: &'a Document,
    [link, work, direction, client, server]: [&str; 5],
) -> Option<&'a Cell> {
    document.cells.iter().find(|cell| {
        let key = &cell.key;
        [&key.link, &key.work, &key.direction, &key.client, &key.server]
            == [link, work, direction, client, server]
    })
}

/// Returns a name of a cell for messages.
pub(super) fn shown(key: &CellKey) -> String {
    format!(
        "{} {} {}: {} with {}",
        key.link, key.work, key.direction, key.client, key.server
    )
}

/// Returns the name of a client in the tables.
pub(super) fn client_name(client: &str) -> &str {
    match client {
        "rclone" => "rclone -4",
        "rclone-32" => "rclone -32",
        "rsync" => "rsync daemon",
        "cp" => "cp -a",
        name => name,
    }
}

/// Returns the median of one value over the counted runs.
pub(super) fn middle(cell: Option<&Cell>, of: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
    Some(cell?.median(of)?.value)
}

/// Returns the seconds of a run's whole process.
pub(super) fn whole(run: &Run) -> Option<f64> {
    Some(run.whole_seconds)
}

/// Formats the median and range of some values.
pub(super) fn spread(median: Option<Median>, decimals: usize) -> String {
    match median {
        None => "-".to_owned(),
        Some(Median { value, number: 1, .. }) => format!("{value:.decimals$}"),
        Some(Median {
            value, least, most, ..
        }) => {
            format!("{value:.decimals$} ({least:.decimals$}-{most:.decimals$})")
        }
    }
}

/// Formats the median and range of one value over the counted runs.
pub(super) fn numbers(cell: Option<&Cell>, decimals: usize, of: impl Fn(&Run) -> Option<f64>) -> String {
    spread(cell.and_then(|cell| cell.median(of)), decimals)
}

/// Returns the peak memory of the client in MiB.
pub(super) fn client_mib(run: &Run) -> Option<f64> {
    run.client_memory_bytes.map(mib)
}

/// Returns the peak memory of the server in MiB.
pub(super) fn server_mib(run: &Run) -> Option<f64> {
    run.server_memory_bytes.map(mib)
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Formats the median and range of the seconds, or why there are none.
pub(super) fn seconds(cell: Option<&Cell>) -> String {
    match middle(cell, whole) {
        Some(_) => numbers(cell, 2, whole),
        None => median(cell),
    }
}

/// Formats the median of the seconds, with a mark if a slow tool ran only once, or why there are
/// none.
pub(super) fn median(cell: Option<&Cell>) -> String {
    if let Some(value) = middle(cell, whole) {
        let mark = if value > ONCE_ABOVE_SECONDS { "\\*" } else { "" };
        return format!("{value:.2}{mark}");
    }
    match cell
        .and_then(|cell| cell.runs.last())
        .map(|run| (&run.outcome, run.whole_seconds))
    {
        Some((Outcome::TimedOut(_), seconds)) => format!("> {seconds:.0}"),
        Some((Outcome::Failed(_), _)) => "failed".to_owned(),
        _ => "-".to_owned(),
    }
}

/// Returns the median of one value as a part of that of another cell.
pub(super) fn ratio(
    own: Option<&Cell>,
    base: Option<&Cell>,
    of: impl Fn(&Run) -> Option<f64> + Copy,
) -> Option<f64> {
    let (own, base) = (middle(own, of)?, middle(base, of)?);
    (base > 0.0).then(|| own / base)
}

/// Formats a ratio, in bold type if it meets its target.
pub(super) fn factor(ratio: Option<f64>, meets: impl Fn(f64) -> bool) -> String {
    match ratio {
        None => "-".to_owned(),
        // The rounded value is judged: 0.996 is 1.00.
        Some(ratio) if meets((ratio * 100.0).round() / 100.0) => format!("**{ratio:.2} x**"),
        Some(ratio) => format!("{ratio:.2} x"),
    }
}

/// Checks `--scale`.
///
/// # Errors
/// It is out of bounds.
pub(super) fn check_scale(scale: f64) -> Result<()> {
    ensure!(
        scale > 0.0 && scale <= 10.0,
        "--scale must be above 0 and at most 10"
    );
    Ok(())
}

/// Formats a quotient with two decimals.
pub(super) fn times(own: Option<f64>, base: Option<f64>) -> String {
    match (own, base) {
        (Some(own), Some(base)) if base > 0.0 => format!("{:.2}", own / base),
        _ => "-".to_owned(),
    }
}

/// Returns machine, date, command and versions, and the warnings about the whole document.
pub(super) fn provenance(document: &Document, base: &str) -> String {
    let machine = &document.machine;
    let mut text = format!(
        "{}, {} cores, {} GiB, Linux {}, {}. Made by `{base}`",
        machine.processor,
        machine.processors,
        machine.memory_bytes.div_ceil(1 << 30),
        machine.kernel,
        document.updated.get(..10).unwrap_or_default()
    );
    let own = own_command();
    if own != base {
        let _ = write!(text, ", in the end `{own}`");
    }
    let versions: Vec<&str> = document.versions.values().map(String::as_str).collect();
    text.push_str(".\n");
    if !versions.is_empty() {
        let _ = writeln!(text, "Versions: {}.", versions.join("; "));
    }
    for (what, why) in &document.skipped {
        let _ = writeln!(text, "\n> {what} was left out: {why}");
    }
    for warning in document.warnings.iter().filter(|warning| warning.cell.is_none()) {
        let _ = writeln!(text, "\n> **{}**", warning.text);
    }
    text
}

/// Returns machine, date and command, and a warning if other processes keep the machine busy.
pub(super) fn machine_line(base: &str) -> String {
    let document = Document {
        machine: ropeway_lab::run::this_machine(),
        updated: ropeway_lab::run::timestamp(),
        warnings: ropeway_lab::run::load_warning().into_iter().collect(),
        ..Document::default()
    };
    provenance(&document, base)
}

/// Returns the command line of this process.
pub(super) fn own_command() -> String {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    format!("cargo xtask {}", arguments.join(" "))
}

/// Returns notes about noisy, disturbed, ended and failed cells, one for each kind.
pub(super) fn doubts<'a>(title: &str, cells: impl Iterator<Item = &'a Cell>) -> Vec<String> {
    let (mut noisy, mut disturbed, mut ended, mut failed) = (vec![], vec![], vec![], vec![]);
    for cell in cells {
        let key = &cell.key;
        let who = format!(
            "{} with {}, {}",
            client_name(&key.client),
            key.server,
            key.direction
        );
        let spread = cell.judged().map_or(0.0, |median| median.spread());
        if spread > SPREAD_MAX {
            noisy.push(format!("{who}: {:.0} %", spread * 100.0));
        }
        let others = middle(Some(cell), |run| run.others_busy).unwrap_or(0.0);
        if others > OTHERS_MAX {
            disturbed.push(format!("{who}: {others:.2}"));
        }
        match cell.runs.last().map(|run| &run.outcome) {
            Some(Outcome::TimedOut(why)) => ended.push(format!("{who}: {why}")),
            Some(Outcome::Failed(why)) => failed.push(format!("{who}: {why}")),
            _ => {}
        }
    }
    let kinds = [
        ("noisy, spread of the runs", noisy),
        ("disturbed, processors that others kept busy meanwhile", disturbed),
        ("ended", ended),
        ("failed", failed),
    ];
    let kinds = kinds.into_iter().filter(|(_, cells)| !cells.is_empty());
    kinds
        .map(|(kind, cells)| format!("{title}: {kind}: {}", cells.join("; ").replace('|', "/")))
        .collect()
}

/// Writes a section of `docs/benchmarks.md`.
///
/// # Errors
/// The file cannot be read or written.
pub(super) fn write(workspace: &Workspace, name: &str, body: &str) -> Result<()> {
    write_to(workspace, "docs/benchmarks.md", name, body)
}

/// Writes a section of a page of the documentation.
///
/// # Errors
/// The file cannot be read or written.
pub(super) fn write_to(workspace: &Workspace, page: &str, name: &str, body: &str) -> Result<()> {
    let path = workspace.root().join(page);
    let old = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    fs::write(&path, replaced(&old, name, body))
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("written to {page}");
    Ok(())
}

fn replaced(old: &str, name: &str, body: &str) -> String {
    let (begin, end) = (
        format!("<!-- {name} begin -->\n"),
        format!("<!-- {name} end -->\n"),
    );
    let body = format!("{}\n", body.trim_end());
    replaced_between(old, &begin, &end, &body)
        .unwrap_or_else(|| format!("{}\n\n{begin}{body}{end}", old.trim_end()))
}

/// Returns the first line of a program's `--version`.
///
/// # Errors
/// The program does not run.
pub(super) fn version(program: &Path) -> Result<String> {
    let text = capture(Command::new(program).arg("--version"))?;
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

/// Documents for tests of the tables.
#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// Returns a cell with runs of these seconds; without any, its only run was ended after 300 s.
    pub(in crate::bench) fn cell(
        [link, work, direction, client, server]: [&str; 5],
        seconds: &[f64],
    ) -> Cell {
        let of = |seconds: f64, outcome: &str| {
            let text = format!(
                r#"{{"started":"","discarded":false,"outcome":{outcome},"whole_seconds":{seconds},
                "client_cpu_seconds":{},"server_cpu_seconds":0.25,"client_memory_bytes":10485760,
                "server_memory_bytes":20971520,"others_busy":0.0}}"#,
                seconds / 2.0
            );
            serde_json::from_str::<Run>(&text).unwrap()
        };
        let mut runs: Vec<Run> = seconds
            .iter()
            .map(|&seconds| of(seconds, r#"{"state":"done"}"#))
            .collect();
        if runs.is_empty() {
            runs.push(of(300.0, r#"{"state":"timed_out","reason":"ended after 300 s"}"#));
        }
        Cell {
            key: CellKey {
                link: link.to_owned(),
                work: work.to_owned(),
                direction: direction.to_owned(),
                client: client.to_owned(),
                server: server.to_owned(),
                variant: String::new(),
            },
            payload_bytes: 100_000_000,
            files: 3000,
            line_seconds: None,
            floor_seconds: None,
            target_seconds: None,
            judges_transfer: false,
            runs,
        }
    }

    /// Returns a document with these cells.
    pub(in crate::bench) fn document(cells: Vec<Cell>) -> Document {
        Document {
            updated: "2026-01-02T03:04:05Z".to_owned(),
            cells,
            ..Document::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{cell, document};
    use super::*;

    const KEY: [&str; 5] = ["l", "w", "read", "rsync", "rsyncd"];

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
    fn a_cell_shows_its_seconds_or_why_it_has_none() {
        let three = cell(KEY, &[3.0, 1.0, 2.0]);
        assert_eq!(median(Some(&three)), "2.00");
        assert_eq!(seconds(Some(&three)), "2.00 (1.00-3.00)");
        assert_eq!(times(middle(Some(&three), whole), Some(4.0)), "0.50");
        assert_eq!(median(Some(&cell(KEY, &[99.0]))), "99.00\\*");
        assert_eq!(
            (seconds(Some(&cell(KEY, &[]))), median(None)),
            ("> 300".into(), "-".into())
        );
    }

    #[test]
    fn noise_and_lost_runs_are_listed() {
        let cells = [cell(KEY, &[1.0, 2.0]), cell(KEY, &[])];
        assert_eq!(
            doubts("one", cells.iter()),
            [
                "one: noisy, spread of the runs: rsync daemon with rsyncd, read: 67 %",
                "one: ended: rsync daemon with rsyncd, read: ended after 300 s",
            ]
        );
    }

    #[test]
    fn machine_day_and_versions_are_named() {
        let mut document = document(Vec::new());
        document.versions.insert("rsync".to_owned(), "rsync 3".to_owned());
        document
            .skipped
            .insert("rclone".to_owned(), "not installed".to_owned());
        let text = provenance(&document, "cargo xtask bench x");
        assert!(
            text.contains(", 2026-01-02. Made by `cargo xtask bench x`"),
            "{text}"
        );
        assert!(text.contains("Versions: rsync 3.\n"), "{text}");
        assert!(text.contains("> rclone was left out: not installed"), "{text}");
    }
}
