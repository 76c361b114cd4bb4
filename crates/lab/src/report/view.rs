//! A document sorted for display: sections by work and direction, rows by link, columns by client and
//! server.

use std::collections::HashMap;

use super::model::{Cell, CellKey, Document, LinkSummary, Median, Outcome, Published, WorkSummary};
use super::numbers;

/// Largest number of sections (a guess; the largest lab has 12).
const SECTIONS_MAX: usize = 64;
/// Largest number of rows in a section.
const ROWS_MAX: usize = 128;
/// Largest number of columns in all sections.
const COLUMNS_MAX: usize = 48;
/// Spread (range divided by median) from which a cell is marked.
const SPREAD_NOTED: f64 = 0.05;
/// Spread of the second mark.
const SPREAD_LARGE: f64 = 0.20;

/// A client with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Column<'a> {
    pub(super) client: &'a str,
    pub(super) server: &'a str,
    pub(super) variant: &'a str,
}

impl Column<'_> {
    /// Returns the label `ropeway → smbd, xp`.
    pub(super) fn label(&self) -> String {
        let label = format!("{} → {}", self.client, self.server);
        numbers::name(&if self.variant.is_empty() {
            label
        } else {
            format!("{label}, {}", self.variant)
        })
    }

    /// Whether the client is ropeway.
    pub(super) fn is_ours(&self) -> bool {
        self.client.starts_with("ropeway")
    }
}

/// All cells of one link in a section.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) link: &'a str,
    /// The cells, by column of the section.
    pub(super) cells: Vec<Option<&'a Cell>>,
    /// Published figures, the fastest first.
    pub(super) published: Vec<&'a Published>,
}

impl<'a> Row<'a> {
    /// Returns the first figure that a cell of this row has.
    fn first(&self, of: impl Fn(&'a Cell) -> Option<f64>) -> Option<f64> {
        self.cells.iter().flatten().copied().find_map(of)
    }

    /// Returns line time, floor and target.
    pub(super) fn limits(&self) -> [Option<f64>; 3] {
        [
            self.first(|cell| cell.line_seconds),
            self.first(|cell| cell.floor_seconds),
            self.first(|cell| cell.target_seconds),
        ]
    }
}

/// One work in one direction.
#[derive(Debug)]
pub(super) struct Section<'a> {
    pub(super) work: &'a str,
    pub(super) direction: &'a str,
    /// Indices of columns of the [`View`].
    pub(super) columns: Vec<usize>,
    pub(super) rows: Vec<Row<'a>>,
}

/// A missed target.
#[derive(Debug)]
pub(super) struct Miss<'a> {
    pub(super) cell: &'a Cell,
    pub(super) target: f64,
    /// Measured seconds; `None` if no run counts.
    pub(super) seconds: Option<f64>,
}

/// Whether a cell reached its target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Verdict {
    Reached,
    Missed,
    #[default]
    NoTarget,
}

/// Returns the verdict of a cell.
pub(super) fn verdict(cell: &Cell) -> Verdict {
    let all_done = cell.runs.iter().all(|run| run.outcome == Outcome::Done);
    match (cell.target_seconds, cell.judged()) {
        (None, _) => Verdict::NoTarget,
        (Some(target), Some(median)) if all_done && median.value <= target => Verdict::Reached,
        _ => Verdict::Missed,
    }
}

/// Returns the mark for the spread of the runs; `None` if it is small.
pub(super) fn spread_mark(median: &Median) -> Option<&'static str> {
    if median.number == 1 {
        Some("¹")
    } else if median.spread() >= SPREAD_LARGE {
        Some("≈")
    } else {
        (median.spread() >= SPREAD_NOTED).then_some("~")
    }
}

/// Returns the end of a cell without a median, and the reason if it is known.
pub(super) fn failure(cell: &Cell) -> (&'static str, &str) {
    let last = cell.runs.iter().rev().find(|run| run.outcome != Outcome::Done);
    match last.map(|run| &run.outcome) {
        Some(Outcome::Failed(reason)) => ("failed", reason),
        Some(Outcome::TimedOut(reason)) => ("timed out", reason),
        Some(Outcome::Done) | None => ("–", ""),
    }
}

/// Returns the time of the whole process divided by its floor, which also has connections and set-up.
pub(super) fn floor_factor(cell: &Cell) -> Option<f64> {
    let floor = cell.floor_seconds.filter(|floor| *floor > 0.0)?;
    Some(cell.judged()?.value / floor)
}

/// A sorted document.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub(super) doc: &'a Document,
    pub(super) columns: Vec<Column<'a>>,
    pub(super) sections: Vec<Section<'a>>,
    /// Number of cells beyond the limits, which are not shown.
    pub(super) omitted: usize,
}

impl<'a> View<'a> {
    /// Sorts a document.
    pub(super) fn of(doc: &'a Document) -> Self {
        let mut builder = Builder::default();
        let omitted = doc.cells.iter().filter(|cell| !builder.take(cell)).count();
        let Builder {
            columns,
            mut sections,
        } = builder;
        let mut published: HashMap<_, Vec<&Published>> = HashMap::new();
        for figure in doc.published.iter().filter(|figure| figure.seconds.is_finite()) {
            let key = (
                figure.link.as_str(),
                figure.work.as_str(),
                figure.direction.as_str(),
            );
            published.entry(key).or_default().push(figure);
        }
        for section in &mut sections {
            for row in &mut section.rows {
                if let Some(figures) = published.get(&(row.link, section.work, section.direction)) {
                    row.published.clone_from(figures);
                    row.published.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
                }
            }
            section.remove_empty_columns();
        }
        Self {
            doc,
            columns,
            sections,
            omitted,
        }
    }

    /// Returns the link of a name.
    pub(super) fn link(&self, name: &str) -> Option<&'a LinkSummary> {
        self.doc.links.iter().find(|link| link.name == name)
    }

    /// Returns the work of a name.
    pub(super) fn work(&self, name: &str) -> Option<&'a WorkSummary> {
        self.doc.works.iter().find(|work| work.name == name)
    }

    /// Returns `155 Mbit/s, 32 ms` or `…, 20 ms + 55 ms, cut`; empty for an unknown link.
    pub(super) fn link_figures(&self, name: &str) -> String {
        let Some(link) = self.link(name) else {
            return String::new();
        };
        let rate = match (link.up_bps, link.down_bps) {
            (Some(up), Some(down)) if up != down => {
                format!(
                    "{} up, {} down, ",
                    numbers::bits(up as f64),
                    numbers::bits(down as f64)
                )
            }
            (Some(rate), _) | (_, Some(rate)) => format!("{}, ", numbers::bits(rate as f64)),
            (None, None) => String::new(),
        };
        if link.kind == "none" && rate.is_empty() && link.rtt_ms == 0.0 {
            return String::new();
        }
        let ms = |value: f64| numbers::prefixed(value, "ms");
        let trip = match (link.up_delay_ms, link.down_delay_ms) {
            (Some(up), Some(down)) => format!("{} + {}", ms(up), ms(down)),
            _ => ms(link.rtt_ms),
        };
        let cut = if link.cuts.is_empty() { "" } else { ", cut" };
        format!("{rate}{trip}{cut}")
    }

    /// Returns a title such as `One spreadsheet of 100 MB: read`.
    pub(super) fn section_title(&self, section: &Section<'_>) -> String {
        let work = self
            .work(section.work)
            .map_or(section.work, |work| work.title.as_str());
        format!(
            "{}: {}",
            numbers::name(&numbers::capital(work)),
            numbers::name(section.direction)
        )
    }

    /// Returns all missed targets.
    pub(super) fn missed(&self) -> Vec<Miss<'a>> {
        let missed = self
            .doc
            .cells
            .iter()
            .filter(|cell| verdict(cell) == Verdict::Missed);
        missed
            .map(|cell| Miss {
                cell,
                target: cell.target_seconds.unwrap_or_default(),
                seconds: cell.judged().map(|median| median.value),
            })
            .collect()
    }

    /// Returns the numbers of reached targets and of all targets.
    pub(super) fn reached(&self) -> (usize, usize) {
        let of = |wanted| {
            self.doc
                .cells
                .iter()
                .filter(|cell| verdict(cell) == wanted)
                .count()
        };
        let reached = of(Verdict::Reached);
        (reached, reached + of(Verdict::Missed))
    }

    /// Returns the number of rows in which our best median is at most the best published figure, and the
    /// number of rows that have both.
    pub(super) fn compared_with_published(&self) -> (usize, usize) {
        let rows = self.sections.iter().flat_map(|section| {
            section.rows.iter().filter_map(|row| {
                let best = row.published.first()?.seconds;
                Some(self.our_best(section, row)? <= best)
            })
        });
        rows.fold((0, 0), |(better, all), is| (better + usize::from(is), all + 1))
    }

    /// Returns the median seconds of a row with their columns.
    pub(super) fn medians(
        &self,
        section: &Section<'_>,
        row: &Row<'_>,
    ) -> impl Iterator<Item = (&Column<'a>, f64)> {
        let cells = section.columns.iter().zip(&row.cells);
        cells.filter_map(|(column, cell)| Some((&self.columns[*column], (*cell)?.seconds()?.value)))
    }

    fn our_best(&self, section: &Section<'_>, row: &Row<'_>) -> Option<f64> {
        let all = self.medians(section, row);
        let ours = all.filter(|(column, _)| column.is_ours());
        ours.map(|(_, median)| median).min_by(f64::total_cmp)
    }

    /// Returns the median of our factors to the floor. Links with cuts are left out, since their floor is
    /// that of the uncut link.
    pub(super) fn our_factor(&self) -> Option<Median> {
        let is_cut = |name: &str| self.link(name).is_some_and(|link| !link.cuts.is_empty());
        let ours = self
            .doc
            .cells
            .iter()
            .filter(|cell| cell.key.client.starts_with("ropeway") && !is_cut(&cell.key.link));
        Median::of(ours.filter_map(floor_factor).collect())
    }
}

impl Section<'_> {
    /// Removes columns without a cell.
    fn remove_empty_columns(&mut self) {
        let used: Vec<bool> = (0..self.columns.len())
            .map(|at| {
                self.rows
                    .iter()
                    .any(|row| row.cells.get(at).is_some_and(Option::is_some))
            })
            .collect();
        let kept = |at: usize| used.get(at).copied().unwrap_or(false);
        for row in &mut self.rows {
            row.cells.resize(used.len(), None);
            let mut at = 0;
            row.cells.retain(|_| {
                at += 1;
                kept(at - 1)
            });
        }
        self.columns.retain(|column| kept(*column));
    }
}

/// Returns the index of the item that `is_it` finds; `new` is added if there is none. `None` if it
/// has to be added and `most` are there.
fn place<T>(
    all: &mut Vec<T>,
    most: usize,
    is_it: impl Fn(&T) -> bool,
    new: impl FnOnce() -> T,
) -> Option<usize> {
    let found = all.iter().position(is_it);
    if found.is_none() && all.len() < most {
        all.push(new());
        return Some(all.len() - 1);
    }
    found
}

#[derive(Default)]
struct Builder<'a> {
    columns: Vec<Column<'a>>,
    sections: Vec<Section<'a>>,
}

impl<'a> Builder<'a> {
    /// Adds a cell. Returns false if a limit is reached or the place is taken.
    fn take(&mut self, cell: &'a Cell) -> bool {
        let slot = self.slot(&cell.key);
        let free = slot.as_ref().is_some_and(|slot| slot.is_none());
        if let Some(slot) = slot {
            slot.get_or_insert(cell);
        }
        free
    }

    /// Returns the place of a cell.
    fn slot(&mut self, key: &'a CellKey) -> Option<&mut Option<&'a Cell>> {
        let column = Column {
            client: &key.client,
            server: &key.server,
            variant: &key.variant,
        };
        let column = place(
            &mut self.columns,
            COLUMNS_MAX,
            |known| *known == column,
            || column,
        )?;
        let is_section = |known: &Section<'_>| known.work == key.work && known.direction == key.direction;
        let section = place(&mut self.sections, SECTIONS_MAX, is_section, || Section {
            work: &key.work,
            direction: &key.direction,
            columns: (0..COLUMNS_MAX).collect(),
            rows: Vec::new(),
        })?;
        let rows = &mut self.sections[section].rows;
        let row = place(
            rows,
            ROWS_MAX,
            |known| known.link == key.link,
            || Row {
                link: &key.link,
                cells: vec![None; COLUMNS_MAX],
                published: Vec::new(),
            },
        )?;
        rows[row].cells.get_mut(column)
    }
}
