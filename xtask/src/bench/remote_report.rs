//! Sections of `bench wan` and `bench smb` in `docs/benchmarks.md`.

use std::fmt::Write as _;

use ropeway_lab::link::Link;

use super::course::{Results, Row, Sample};
use super::remote::Installed;
use super::report::{Machine, SPREAD_MAX, Stats, cell, own_command};
use crate::worksets::Content;

/// What bare TCP needed, by number of connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Floor {
    seconds: [Vec<f64>; 3],
}

impl Floor {
    /// How many connections are tried.
    pub(super) const CONNECTIONS: [usize; 3] = [1, 4, 16];

    /// Adds a measurement.
    pub(super) fn add(&mut self, connections: usize, seconds: f64) {
        if let Some(index) = Self::CONNECTIONS.iter().position(|&tried| tried == connections) {
            self.seconds[index].push(seconds);
        }
    }

    /// Whether nothing was measured.
    pub(super) fn is_empty(&self) -> bool {
        self.seconds.iter().all(Vec::is_empty)
    }

    /// The least median.
    pub(super) fn best(&self) -> Option<f64> {
        self.seconds
            .iter()
            .filter_map(|values| Some(Stats::of(values)?.median))
            .min_by(f64::total_cmp)
    }

    fn describe(&self) -> String {
        let each: Vec<String> = Self::CONNECTIONS
            .iter()
            .zip(&self.seconds)
            .map(|(connections, values)| format!("{connections}: {}", cell(values, 2)))
            .collect();
        each.join(", ")
    }
}

/// What a section of `bench wan` says.
pub(super) struct WanSection<'a> {
    /// The work.
    pub(super) title: &'a str,
    /// What it holds.
    pub(super) content: Content,
    /// The link, still there.
    pub(super) link: &'a Link,
    /// Time of the bytes on the line alone.
    pub(super) line_seconds: f64,
    /// Bare TCP, read and write.
    pub(super) floors: [Floor; 2],
    /// What is to be reached, read and write.
    pub(super) goals: [Option<f64>; 2],
    /// Counted rounds.
    pub(super) runs: usize,
    /// The tools.
    pub(super) rows: &'a [Row],
}

fn head(title: &str, content: Content, machine: &Machine, clients: &[Installed], notes: &[String]) -> String {
    let mut text = format!(
        "## {title} ({} files, {:.1} MB)\n\n{}. Made by `{}`.\n",
        content.files,
        content.bytes as f64 / 1e6,
        machine.describe(),
        own_command(),
    );
    let mut versions: Vec<&str> = clients
        .iter()
        .map(|installed| installed.version.as_str())
        .collect();
    versions.dedup();
    let _ = writeln!(text, "Versions: {}.", versions.join("; "));
    for note in notes.iter().cloned().chain(machine.busy()) {
        let _ = writeln!(text, "\n> {note}");
    }
    text
}

/// The section of one work over one link.
pub(super) fn wan_section(
    section: &WanSection<'_>,
    machine: &Machine,
    clients: &[Installed],
    notes: &[String],
) -> String {
    let spec = section.link.spec();
    let rate = spec.up.map(|rate| rate.to_string()).unwrap_or_default();
    let title = format!(
        "Over a WAN: {}, {} ms, {rate}",
        section.title,
        spec.rtt.as_millis()
    );
    let mut text = head(&title, section.content, machine, clients, notes);
    let buffers = match spec.tcp.buffer_max_bytes {
        Some(bytes) => format!("TCP buffers of at most {} MiB", bytes >> 20),
        None => "TCP buffers as the system has them".to_owned(),
    };
    let _ = writeln!(
        text,
        "\nThe link: {}, a queue of {:.1} MB, {buffers}; the bytes alone take {:.2} s on the line. The server is smbd (for \
         rsync its own daemon), files are in memory. Bare TCP by number of connections, read: {}; write: {}; the best is \
         the floor.",
        section.link.congestion(),
        spec.queue_bytes(spec.up) as f64 / 1e6,
        section.line_seconds,
        section.floors[0].describe(),
        section.floors[1].describe(),
    );
    let _ = writeln!(
        text,
        "\nMedian (min-max) of {} interleaved runs:\n\n\
         | tool | read s | x floor | write s | x floor | user+sys s, read | write | peak MiB, read | write |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|",
        section.runs
    );
    let floors = [section.floors[0].best(), section.floors[1].best()];
    let [read, write] = floors.map(|floor| floor.map_or_else(|| "-".to_owned(), |s| format!("{s:.2}")));
    let _ = writeln!(text, "| bare TCP | {read} | 1.00 | {write} | 1.00 | | | | |");
    if let [Some(read), Some(write)] = section.goals {
        let _ = writeln!(text, "| *to reach* | *{read:.2}* | | *{write:.2}* | | | | | |");
    }
    for row in section.rows {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            row.name,
            seconds(&row.read),
            times(&row.read, floors[0]),
            seconds(&row.write),
            times(&row.write, floors[1]),
            numbers(&row.read, 2, |sample| sample.cpu),
            numbers(&row.write, 2, |sample| sample.cpu),
            numbers(&row.read, 1, |sample| sample.peak_mib),
            numbers(&row.write, 1, |sample| sample.peak_mib),
        );
    }
    add_noise(&mut text, section.rows);
    text
}

/// What a section of `bench smb` says.
pub(super) struct SmbSection<'a> {
    /// The work.
    pub(super) title: &'a str,
    /// What it holds.
    pub(super) content: Content,
    /// Counted rounds.
    pub(super) runs: usize,
    /// How it was protected, and the tools.
    pub(super) tables: &'a [(&'static str, Vec<Row>)],
}

/// The section of one work on this machine.
pub(super) fn smb_section(
    section: &SmbSection<'_>,
    machine: &Machine,
    clients: &[Installed],
    notes: &[String],
) -> String {
    let title = format!("A server on the same machine: {}", section.title);
    let mut text = head(&title, section.content, machine, clients, notes);
    text.push_str("\nThe server is smbd, files are in memory; *smbd s* is the server's own user+sys.\n");
    for (protection, rows) in section.tables {
        let _ = writeln!(
            text,
            "\n**{protection}**, median (min-max) of {} interleaved runs:\n\n\
             | tool | | time s | of smbclient's | user+sys s | of smbclient's | smbd s | peak MiB |\n\
             |---|---|--:|--:|--:|--:|--:|--:|",
            section.runs
        );
        let base = rows.iter().find(|row| row.name == "smbclient");
        for (way, pick) in [("read", read as fn(&Row) -> &Results), ("write", write)] {
            for row in rows {
                let (own, base) = (pick(row), base.map(pick));
                let _ = writeln!(
                    text,
                    "| {} | {way} | {} | {} | {} | {} | {} | {} |",
                    row.name,
                    seconds(own),
                    part(own, base, |sample| sample.seconds),
                    numbers(own, 2, |sample| sample.cpu),
                    part(own, base, |sample| sample.cpu),
                    numbers(own, 2, |sample| sample.server_cpu),
                    numbers(own, 1, |sample| sample.peak_mib),
                );
            }
        }
        add_noise(&mut text, rows);
    }
    text
}

fn read(row: &Row) -> &Results {
    &row.read
}

fn write(row: &Row) -> &Results {
    &row.write
}

fn seconds(results: &Results) -> String {
    match &results.failed {
        Some(reason) if results.samples.is_empty() => reason.replace('|', "/"),
        _ => numbers(results, 2, |sample| sample.seconds),
    }
}

fn numbers(results: &Results, decimals: usize, of: impl Fn(&Sample) -> f64) -> String {
    cell(&results.values(of), decimals)
}

fn times(results: &Results, floor: Option<f64>) -> String {
    let own = Stats::of(&results.values(|sample| sample.seconds));
    match (own, floor) {
        (Some(own), Some(floor)) if floor > 0.0 => format!("{:.2}", own.median / floor),
        _ => "-".to_owned(),
    }
}

fn part(own: &Results, base: Option<&Results>, of: impl Fn(&Sample) -> f64 + Copy) -> String {
    let base = base.and_then(|base| Stats::of(&base.values(of)));
    match (Stats::of(&own.values(of)), base) {
        (Some(own), Some(base)) if base.median > 0.0 => format!("{:.2} x", own.median / base.median),
        _ => "-".to_owned(),
    }
}

fn add_noise(text: &mut String, rows: &[Row]) {
    for row in rows {
        for (way, results) in [("read", &row.read), ("write", &row.write)] {
            let spread = Stats::of(&results.values(|sample| sample.seconds)).map_or(0.0, Stats::spread);
            if spread > SPREAD_MAX {
                let _ = writeln!(
                    text,
                    "\n> noisy: {}, {way}: spread {:.0} %",
                    row.name,
                    spread * 100.0
                );
            }
            if let Some(reason) = results.failed.as_ref().filter(|_| !results.samples.is_empty()) {
                let _ = writeln!(text, "\n> {}, {way}: not all runs: {reason}", row.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(seconds: &[f64]) -> Results {
        let sample = |&seconds: &f64| Sample {
            seconds,
            cpu: seconds / 2.0,
            server_cpu: 0.25,
            peak_mib: 10.0,
        };
        Results {
            samples: seconds.iter().map(sample).collect(),
            failed: None,
        }
    }

    #[test]
    fn the_floor_is_the_best_median() {
        let mut floor = Floor::default();
        assert!(floor.is_empty() && floor.best().is_none());
        for (connections, seconds) in [(1, 3.0), (1, 2.0), (4, 2.4), (16, 9.0), (5, 1.0)] {
            floor.add(connections, seconds);
        }
        assert_eq!(floor.best(), Some(2.4));
        assert_eq!(floor.describe(), "1: 2.50 (2.00-3.00), 4: 2.40, 16: 9.00");
    }

    #[test]
    fn cells_compare_and_say_why_they_are_empty() {
        let (own, base) = (results(&[1.5]), results(&[2.0, 2.0]));
        assert_eq!(times(&own, Some(1.0)), "1.50");
        assert_eq!(part(&own, Some(&base), |sample| sample.seconds), "0.75 x");
        assert_eq!(part(&own, None, |sample| sample.seconds), "-");
        let failed = Results {
            samples: Vec::new(),
            failed: Some("> 300 s".to_owned()),
        };
        assert_eq!(seconds(&failed), "> 300 s");
        assert_eq!(
            (times(&failed, Some(1.0)), numbers(&failed, 1, |_| 1.0)),
            ("-".into(), "-".into())
        );
    }

    #[test]
    fn noise_and_lost_runs_are_told() {
        let mut read = results(&[1.0, 2.0]);
        read.failed = Some("failed: gone".to_owned());
        let row = Row {
            name: "rsync daemon",
            read,
            write: results(&[1.0]),
        };
        let mut text = String::new();
        add_noise(&mut text, &[row]);
        assert!(
            text.contains("> noisy: rsync daemon, read: spread 67 %"),
            "{text}"
        );
        assert!(
            text.contains("> rsync daemon, read: not all runs: failed: gone"),
            "{text}"
        );
    }
}
