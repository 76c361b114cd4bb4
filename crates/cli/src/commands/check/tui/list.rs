//! The differences of a comparison: which are shown, in which order, which are chosen, and what became
//! of them.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeSet;

use ropeway_copy::{Difference, Side};
use ropeway_vfs::{Kind, RelPath};

/// Most differences that are kept: 300 bytes each, so 30 MiB.
pub(super) const ROWS_MAX: usize = 100_000;

/// The direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From the source to the target.
    Forward,
    /// From the target back to the source.
    Back,
}

/// What became of a chosen difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nothing yet.
    Untouched,
    /// It is being copied.
    UnderWay,
    /// It was copied.
    Copied(Direction),
    /// It was not; the text says why.
    Failed(String),
}

/// One difference.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) difference: Difference,
    /// Why it is one, in a word or two.
    pub(super) why: &'static str,
    pub(super) is_chosen: bool,
    pub(super) fate: Fate,
}

/// The order of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    /// As they were found.
    #[default]
    Found,
    /// By path.
    Path,
    /// By reason.
    Why,
    /// By the larger size, largest first.
    Size,
    /// By the later time, latest first.
    Time,
}

/// The differences.
#[derive(Debug, Default)]
pub(super) struct List {
    rows: Vec<Row>,
    /// Indices of the rows that are shown, in order.
    shown: Vec<usize>,
    /// Index in `shown`.
    cursor: usize,
    filter: String,
    sort: Sort,
    /// Differences beyond [`ROWS_MAX`].
    more: u64,
    /// Whether new rows are not in their places yet.
    is_stale: bool,
}

impl Sort {
    /// Returns the next order.
    fn next(self) -> Self {
        match self {
            Self::Found => Self::Path,
            Self::Path => Self::Why,
            Self::Why => Self::Size,
            Self::Size => Self::Time,
            Self::Time => Self::Found,
        }
    }

    /// Returns its name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Found => "order found",
            Self::Path => "path",
            Self::Why => "reason",
            Self::Size => "size",
            Self::Time => "time",
        }
    }
}

impl Direction {
    /// Returns what a copy in this direction reads.
    fn source(self, row: &Row) -> Option<&Side> {
        match self {
            Self::Forward => row.difference.source.as_ref(),
            Self::Back => row.difference.target.as_ref(),
        }
    }

    /// Returns the path of a difference where such a copy begins.
    pub(super) fn path(self, difference: &Difference) -> &RelPath {
        match self {
            Self::Forward => &difference.path,
            Self::Back => &difference.target_path,
        }
    }
}

/// Returns why two sides differ.
fn why(difference: &Difference) -> &'static str {
    match (difference.action, &difference.source, &difference.target) {
        ("missing", ..) => "missing",
        ("extra", ..) => "extra",
        ("attributes", ..) => "attributes",
        (_, Some(source), Some(target)) if source.kind != target.kind => "kind",
        (_, Some(source), Some(target)) if source.size != target.size => "size",
        (_, Some(source), Some(target)) if source.modified > target.modified => "newer",
        (_, Some(source), Some(target)) if source.modified < target.modified => "older",
        _ => "content",
    }
}

impl List {
    /// Adds differences in the order in which they were found.
    pub(super) fn add(&mut self, differences: impl IntoIterator<Item = Difference>) {
        for difference in differences {
            if self.rows.len() >= ROWS_MAX {
                self.more += 1;
                continue;
            }
            let row = Row {
                why: why(&difference),
                difference,
                is_chosen: false,
                fate: Fate::Untouched,
            };
            // Thousands come each second. Most orders are made again before the next drawing.
            match self.sort {
                Sort::Found if matches(&row, &self.filter.to_lowercase()) => self.shown.push(self.rows.len()),
                Sort::Found => {}
                _ => self.is_stale = true,
            }
            self.rows.push(row);
        }
    }

    /// Puts new rows in their places.
    pub(super) fn refresh(&mut self) {
        if self.is_stale {
            self.arrange();
        }
    }

    /// Forgets everything, for another comparison. Filter and order stay.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.more = 0;
        self.arrange();
    }

    /// Returns the rows that are shown, in order.
    pub(super) fn shown(&self) -> impl ExactSizeIterator<Item = &Row> {
        self.shown.iter().map(|index| &self.rows[*index])
    }

    /// Returns all rows.
    pub(super) fn all(&self) -> &[Row] {
        &self.rows
    }

    /// Returns the number of differences, also of those that are not kept.
    pub(super) fn total(&self) -> u64 {
        self.rows.len() as u64 + self.more
    }

    /// Returns the number of differences that are not kept.
    pub(super) fn more(&self) -> u64 {
        self.more
    }

    /// Returns the number of differences that are not copied.
    pub(super) fn left(&self) -> u64 {
        let copied = |row: &&Row| matches!(row.fate, Fate::Copied(_));
        self.total() - self.rows.iter().filter(copied).count() as u64
    }

    /// Returns the position of the cursor among the rows that are shown.
    pub(super) fn cursor(&self) -> usize {
        self.cursor
    }

    /// Returns the row below the cursor.
    pub(super) fn current(&self) -> Option<&Row> {
        self.shown.get(self.cursor).map(|index| &self.rows[*index])
    }

    /// Moves the cursor.
    pub(super) fn step(&mut self, by: isize) {
        let last = self.shown.len().saturating_sub(1);
        self.cursor = self.cursor.saturating_add_signed(by).min(last);
    }

    /// Returns the filter.
    pub(super) fn filter(&self) -> &str {
        &self.filter
    }

    /// Shows only rows whose path or reason has this text; case makes no difference.
    pub(super) fn set_filter(&mut self, filter: &str) {
        self.filter = filter.to_owned();
        self.arrange();
    }

    /// Returns the order.
    pub(super) fn sort(&self) -> Sort {
        self.sort
    }

    /// Takes the next order.
    pub(super) fn next_sort(&mut self) {
        self.sort = self.sort.next();
        self.arrange();
    }

    /// Chooses the row below the cursor, or not any more, and goes to the next.
    pub(super) fn toggle(&mut self) {
        if let Some(index) = self.shown.get(self.cursor) {
            let row = &mut self.rows[*index];
            row.is_chosen = !row.is_chosen;
            self.step(1);
        }
    }

    /// Chooses all rows that are shown, or none at all.
    pub(super) fn choose_all(&mut self, is_chosen: bool) {
        match is_chosen {
            true => self
                .shown
                .iter()
                .for_each(|index| self.rows[*index].is_chosen = true),
            false => self.rows.iter_mut().for_each(|row| row.is_chosen = false),
        }
    }

    /// Returns the number of chosen rows.
    pub(super) fn chosen(&self) -> usize {
        self.rows.iter().filter(|row| row.is_chosen).count()
    }

    /// Returns the chosen rows that can be copied in a direction, and the bytes of files among them.
    pub(super) fn copyable(&self, direction: Direction) -> (Vec<usize>, u64) {
        let (mut indices, mut bytes) = (Vec::new(), 0_u64);
        for (index, row) in self.rows.iter().enumerate() {
            let Some(side) = direction.source(row).filter(|_| row.is_chosen) else {
                continue;
            };
            indices.push(index);
            let is_data = side.kind == Kind::File && row.difference.action != "attributes";
            bytes = bytes.saturating_add(if is_data { side.size } else { 0 });
        }
        (indices, bytes)
    }

    /// Notes that a copy of these rows begins.
    pub(super) fn begin(&mut self, indices: &[usize]) {
        for index in indices {
            if let Some(row) = self.rows.get_mut(*index) {
                row.fate = Fate::UnderWay;
            }
        }
    }

    /// Notes how the copy of these rows ended: `failures` has the paths that failed, on the end where
    /// the copy began; `stopped` says why the rest was not reached, and `done` has the paths that were
    /// copied before. A failure below a chosen folder is one of the folder.
    pub(super) fn end(
        &mut self,
        (direction, indices): (Direction, &[usize]),
        failures: &[(RelPath, String)],
        stopped: Option<&str>,
        done: &BTreeSet<RelPath>,
    ) {
        for index in indices {
            let Some(row) = self.rows.get_mut(*index) else {
                continue;
            };
            let path = direction.path(&row.difference);
            let failed = failures
                .iter()
                .find(|(failed, _)| failed.strip_prefix(path).is_some());
            let is_folder = direction
                .source(row)
                .is_some_and(|side| side.kind == Kind::Directory);
            row.fate = match (failed, stopped) {
                (Some((_, why)), _) => Fate::Failed(why.clone()),
                (None, Some(why)) if is_folder || !done.contains(path) => Fate::Failed(why.to_owned()),
                _ => Fate::Copied(direction),
            };
            row.is_chosen = matches!(row.fate, Fate::Failed(_));
        }
    }

    /// Puts the rows in order again. The cursor stays on its row if that is still shown.
    fn arrange(&mut self) {
        let current = self.shown.get(self.cursor).copied();
        let wanted = self.filter.to_lowercase();
        let mut shown: Vec<usize> = (0..self.rows.len())
            .filter(|index| matches(&self.rows[*index], &wanted))
            .collect();
        let rows = &self.rows;
        shown.sort_by(|a, b| compare(self.sort, &rows[*a], &rows[*b]));
        let cursor = shown.iter().position(|index| Some(*index) == current);
        self.cursor = cursor.unwrap_or_else(|| self.cursor.min(shown.len().saturating_sub(1)));
        self.shown = shown;
        self.is_stale = false;
    }
}

/// Whether a row has this lower-case text in its path, or as its reason.
fn matches(row: &Row, wanted: &str) -> bool {
    wanted.is_empty() || row.why == wanted || row.difference.path.to_string().to_lowercase().contains(wanted)
}

fn compare(sort: Sort, a: &Row, b: &Row) -> Ordering {
    let sides = |row: &Row| {
        [row.difference.source, row.difference.target]
            .into_iter()
            .flatten()
    };
    let size = |row: &Row| sides(row).map(|side| side.size).max();
    let time = |row: &Row| sides(row).map(|side| side.modified).max();
    match sort {
        // The sort is stable.
        Sort::Found => Ordering::Equal,
        Sort::Path => a.difference.path.cmp(&b.difference.path),
        Sort::Why => (a.why, &a.difference.path).cmp(&(b.why, &b.difference.path)),
        Sort::Size => Reverse(size(a)).cmp(&Reverse(size(b))),
        Sort::Time => Reverse(time(a)).cmp(&Reverse(time(b))),
    }
}

#[cfg(test)]
#[path = "list_tests.rs"]
mod tests;
