//! Compares two reports: their conditions, and the cells that changed by more than their noise. Pure.

use std::fmt::Write as _;

use serde::Serialize;

use crate::bench::cell::Key;
use crate::bench::result::{NodeCell, NodeOperation, Report};
use crate::report::numbers::{self, number};
use crate::report::{Median, noise};

/// Largest number of lines of one kind in the text.
const LINES_MAX: usize = 500;

/// Changes from one report to another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Conditions that differ: name, value before, value after.
    pub conditions: Vec<[String; 3]>,
    /// Cells of both, in the order of the first.
    pub cells: Vec<Change<Key>>,
    /// Operations on names of both.
    pub nodes: Vec<Change<(NodeOperation, u32)>>,
    /// Cells that only the first has.
    pub only_before: Vec<Key>,
    /// Cells that only the second has.
    pub only_after: Vec<Key>,
}

/// A figure of both reports.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change<K> {
    /// Key.
    pub key: K,
    /// Bytes or operations a second in the first.
    pub before: Median,
    /// The same in the second.
    pub after: Median,
    /// The second median divided by the first: above 1 is faster.
    pub ratio: f64,
    /// Verdict.
    pub verdict: Verdict,
}

/// Verdict on a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The difference is within the noise.
    Same,
    /// More a second than before, by more than the noise.
    Faster,
    /// Less a second than before, by more than the noise.
    Slower,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Faster => "faster",
            Self::Slower => "SLOWER",
        }
    }
}

/// Compares two reports.
pub fn compare(before: &Report, after: &Report) -> Comparison {
    let cells = before.cells.iter().filter_map(|cell| {
        let other = after.cell(&cell.key)?;
        change(cell.key, cell.rate()?, other.rate()?)
    });
    let same =
        |cell: &NodeCell, other: &NodeCell| (cell.operation, cell.depth) == (other.operation, other.depth);
    let nodes = before.nodes.iter().filter_map(|cell| {
        let other = after.nodes.iter().find(|other| same(cell, other))?;
        change((cell.operation, cell.depth), cell.rate()?, other.rate()?)
    });
    let without = |one: &Report, other: &Report| -> Vec<Key> {
        let keys = one.cells.iter().map(|cell| cell.key);
        keys.filter(|key| other.cell(key).is_none()).collect()
    };
    Comparison {
        conditions: conditions(before, after),
        cells: cells.collect(),
        nodes: nodes.collect(),
        only_before: without(before, after),
        only_after: without(after, before),
    }
}

fn change<K>(key: K, before: Median, after: Median) -> Option<Change<K>> {
    let ratio = after.value / before.value;
    let difference = after.value - before.value;
    let verdict = if difference.abs() <= noise(&before, &after) {
        Verdict::Same
    } else if difference > 0.0 {
        Verdict::Faster
    } else {
        Verdict::Slower
    };
    ratio.is_finite().then_some(Change {
        key,
        before,
        after,
        ratio,
        verdict,
    })
}

fn conditions(before: &Report, after: &Report) -> Vec<[String; 3]> {
    let of = |report: &Report| {
        let (target, conditions, settings) = (&report.target, &report.conditions, &report.settings);
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let machine = &conditions.machine;
        [
            ("program", report.program.clone()),
            ("complete", report.complete.to_string()),
            ("target", target.shown.clone()),
            ("file system", text(&target.file_system)),
            ("connection", text(&target.connection)),
            ("kernel", machine.kernel.clone()),
            (
                "processor",
                format!("{} x {}", machine.processors, machine.processor),
            ),
            ("memory", numbers::bytes(machine.memory_bytes)),
            ("engine", settings.engine.clone()),
            (
                "cache",
                format!(
                    "kept {}, all dropped {}",
                    settings.keep_cache, settings.drop_caches
                ),
            ),
            ("runs", settings.runs.to_string()),
            ("pass", format!("{} s", settings.pass_seconds)),
            ("seed", settings.seed.to_string()),
        ]
    };
    let both = of(before).into_iter().zip(of(after));
    let differ = both.filter(|(before, after)| before.1 != after.1);
    differ
        .map(|(before, after)| [before.0.to_owned(), before.1, after.1])
        .collect()
}

impl Comparison {
    /// Whether a figure became worse beyond the noise.
    pub fn is_worse(&self) -> bool {
        let worse = |verdict: Verdict| verdict == Verdict::Slower;
        self.cells.iter().any(|cell| worse(cell.verdict)) || self.nodes.iter().any(|node| worse(node.verdict))
    }

    /// Formats the comparison: conditions first, then every figure.
    pub fn table(&self) -> String {
        let mut text = String::new();
        if self.conditions.is_empty() {
            text.push_str("Measured with the same program, machine and settings.\n");
        } else {
            text.push_str("Measured with other conditions:\n");
        }
        for [what, before, after] in &self.conditions {
            let shown = |value: &str| match value {
                "" => "–".to_owned(),
                value => numbers::name(value),
            };
            _ = writeln!(text, "  {what}: {} -> {}", shown(before), shown(after));
        }
        let rows: Vec<[String; 5]> = self.rows().take(LINES_MAX).collect();
        let wide = rows
            .iter()
            .map(|row| row[0].chars().count())
            .max()
            .unwrap_or(0)
            .max(4);
        if !rows.is_empty() {
            let (head, before, after) = ("cell", "before", "after");
            _ = writeln!(text, "\n{head:<wide$} {before:>9} {after:>9} {:>6}", "ratio");
        }
        for [name, before, after, ratio, verdict] in &rows {
            _ = writeln!(text, "{name:<wide$} {before:>9} {after:>9} {ratio:>6} {verdict}");
        }
        let all = self.cells.len() + self.nodes.len();
        if all > rows.len() {
            _ = writeln!(text, "  and {} more", all - rows.len());
        }
        for (head, keys) in [
            ("Only before:", &self.only_before),
            ("Only after:", &self.only_after),
        ] {
            if !keys.is_empty() {
                _ = writeln!(text, "\n{head}");
            }
            for key in keys.iter().take(LINES_MAX) {
                _ = writeln!(text, "  {key}");
            }
        }
        _ = writeln!(text, "\n{}", self.summary());
        text
    }

    fn rows(&self) -> impl Iterator<Item = [String; 5]> {
        let row = |name: String, unit: f64, before: &Median, after: &Median, ratio: f64, verdict: Verdict| {
            let figure = |median: &Median| number(median.value / unit);
            let ratio = format!("{ratio:.2}");
            [
                name,
                figure(before),
                figure(after),
                ratio,
                verdict.word().to_owned(),
            ]
        };
        let cells = self.cells.iter().map(move |cell| {
            row(
                short(&cell.key),
                1e6,
                &cell.before,
                &cell.after,
                cell.ratio,
                cell.verdict,
            )
        });
        let nodes = self.nodes.iter().map(move |node| {
            let name = format!("{} per second, {}", node.key.0, node.key.1);
            row(name, 1.0, &node.before, &node.after, node.ratio, node.verdict)
        });
        cells.chain(nodes)
    }

    /// Summarises the comparison in one sentence.
    pub fn summary(&self) -> String {
        let verdicts = || {
            let cells = self.cells.iter().map(|cell| cell.verdict);
            cells.chain(self.nodes.iter().map(|node| node.verdict))
        };
        let of = |wanted: Verdict| verdicts().filter(|verdict| *verdict == wanted).count();
        match verdicts().count() {
            0 => "No figure is in both.".to_owned(),
            all => format!(
                "{}: {} slower, {} faster, {} the same within the noise. Figures are MB/s, and operations a second.",
                numbers::counted(all, "figure", "figures"),
                of(Verdict::Slower),
                of(Verdict::Faster),
                of(Verdict::Same)
            ),
        }
    }
}

/// Formats a key for a table of 80 columns: `random-read direct 16 1G/4K`.
fn short(key: &Key) -> String {
    let (size, record) = (super::cell::short(key.size), super::cell::short(key.record));
    format!("{} {} {} {size}/{record}", key.pattern, key.mode, key.depth)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::cell::{Mode, Pattern};
    use crate::bench::result::{Conditions, Sample, Settings, Target};

    fn report(rates: &[(u64, &[f64])]) -> Report {
        let mut report = Report::new(
            Target::default(),
            Conditions::default(),
            Settings::default(),
            String::new(),
        );
        for (record, rates) in rates {
            for rate in *rates {
                let key = Key {
                    size: 1 << 30,
                    record: *record,
                    mode: Mode::Direct,
                    depth: 16,
                    pattern: Pattern::RandomRead,
                };
                let run = Sample {
                    seconds: 1.0,
                    bytes: (rate * 1e6) as u64,
                    operations: 10,
                    ..Sample::default()
                };
                report.add(key, run.clone());
                if *record == 4096 {
                    report.add_node(NodeOperation::Create, 1, run);
                }
            }
        }
        report
    }

    #[test]
    fn only_what_differs_beyond_the_noise_counts() {
        let before = report(&[
            (4096, &[100.0, 101.0, 99.0]),
            (8192, &[100.0, 130.0, 90.0]),
            (16384, &[100.0]),
            (32768, &[5.0]),
        ]);
        let mut after = report(&[
            (4096, &[80.0, 81.0, 79.0]),
            (8192, &[120.0, 120.0, 120.0]),
            (16384, &[104.0]),
            (65536, &[5.0]),
        ]);
        after.settings.runs = 3;
        let found = compare(&before, &after);
        let verdicts: Vec<Verdict> = found.cells.iter().map(|cell| cell.verdict).collect();
        assert_eq!(verdicts, [Verdict::Slower, Verdict::Same, Verdict::Same]);
        assert!((found.cells[0].ratio - 0.8).abs() < 1e-9 && found.is_worse());
        assert_eq!(found.nodes[0].verdict, Verdict::Same);
        assert_eq!((found.only_before.len(), found.only_after.len()), (1, 1));
        let table = found.table();
        for line in [
            "runs: 0 -> 3",
            "random-read direct 16 1G/4K",
            "0.80 SLOWER",
            "create per second, 1",
            "4 figures: 1 slower, 0 faster, 3 the same",
            "Only before:",
        ] {
            assert!(table.contains(line), "{line}\nis not in\n{table}");
        }
        assert!(table.lines().all(|line| line.chars().count() <= 120));
        assert!(!compare(&before, &before).is_worse());
        assert!(
            compare(&report(&[]), &before)
                .table()
                .contains("No figure is in both")
        );
    }
}
