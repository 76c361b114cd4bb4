//! Offsets against time: each operation of a short trace, a grid for a long one.

use super::{SERIES, Series};
use crate::trace_file::Operation;

/// Most operations that are drawn one by one.
const STROKES_MAX: usize = 6000;
/// Cells of the grid: time, offset. About the pixels of a picture, so that few of them differ from
/// drawing everything.
const COLUMNS: usize = 500;
const ROWS: usize = 165;
/// Size of a cell at the beginning; powers of two, so that they can double exactly.
const COLUMN_NS: u128 = 1 << 10;
const ROW_BYTES: u128 = 1 << 9;

/// A transfer: start and end, first byte and the one behind the last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stroke {
    pub(super) series: Series,
    pub(super) from: (u128, u128),
    pub(super) to: (u128, u128),
}

/// Gathers transfers.
#[derive(Debug, Default)]
pub(super) struct Offsets {
    strokes: Vec<Stroke>,
    /// In place of strokes, once there are too many.
    grid: Option<Grid>,
}

#[derive(Debug)]
struct Grid {
    column_ns: u128,
    row_bytes: u128,
    /// For each cell a bit for each series.
    cells: Vec<u8>,
}

impl Offsets {
    pub(super) fn add(&mut self, operation: &Operation, series: Series) {
        let Ok(done) = u64::try_from(operation.result) else {
            return;
        };
        if done == 0 {
            return;
        }
        let (start, first) = (u128::from(operation.t_ns), u128::from(operation.offset));
        let stroke = Stroke {
            series,
            from: (start, first),
            to: (
                start + u128::from(operation.duration_ns),
                first + u128::from(done),
            ),
        };
        if let Some(grid) = &mut self.grid {
            grid.add(&stroke);
        } else if self.strokes.len() < STROKES_MAX {
            self.strokes.push(stroke);
        } else {
            let mut grid = Grid::new();
            for stroke in self.strokes.drain(..).chain([stroke]) {
                grid.add(&stroke);
            }
            self.grid = Some(grid);
        }
    }

    /// Returns what to draw.
    pub(super) fn strokes(&self) -> Vec<Stroke> {
        match &self.grid {
            Some(grid) => grid.strokes(),
            None => self.strokes.clone(),
        }
    }
}

impl Grid {
    fn new() -> Self {
        Self {
            column_ns: COLUMN_NS,
            row_bytes: ROW_BYTES,
            cells: vec![0; COLUMNS * ROWS],
        }
    }

    fn add(&mut self, stroke: &Stroke) {
        let (last_ns, last_byte) = (stroke.to.0, stroke.to.1 - 1);
        while last_ns / self.column_ns >= COLUMNS as u128 {
            self.double((2, 1));
            self.column_ns *= 2;
        }
        while last_byte / self.row_bytes >= ROWS as u128 {
            self.double((1, 2));
            self.row_bytes *= 2;
        }
        // All are within the grid.
        let column = |ns: u128| (ns / self.column_ns) as usize;
        let row = |byte: u128| (byte / self.row_bytes) as usize;
        let (left, right) = (column(stroke.from.0), column(last_ns));
        let (low, high) = (row(stroke.from.1), row(last_byte));
        let steps = (right - left).max(high - low).max(1);
        for step in 0..=steps {
            let (column, row) = (
                left + (right - left) * step / steps,
                low + (high - low) * step / steps,
            );
            self.cells[row * COLUMNS + column] |= 1 << stroke.series as u8;
        }
    }

    /// Merges cells, in both directions by these factors.
    fn double(&mut self, (along, up): (usize, usize)) {
        let mut cells = vec![0; COLUMNS * ROWS];
        for (at, cell) in self.cells.iter().enumerate() {
            let (column, row) = (at % COLUMNS / along, at / COLUMNS / up);
            cells[row * COLUMNS + column] |= cell;
        }
        self.cells = cells;
    }

    /// Returns a stroke for each run of cells above each other.
    fn strokes(&self) -> Vec<Stroke> {
        let mut strokes = Vec::new();
        for series in Series::ALL.into_iter().take(SERIES) {
            for column in 0..COLUMNS {
                let is_set = |row: &usize| self.cells[row * COLUMNS + column] & 1 << series as u8 != 0;
                let mut row = 0;
                while row < ROWS {
                    if !is_set(&row) {
                        row += 1;
                        continue;
                    }
                    let end = (row..ROWS).find(|row| !is_set(row)).unwrap_or(ROWS);
                    let middle = column as u128 * self.column_ns + self.column_ns / 2;
                    strokes.push(Stroke {
                        series,
                        from: (middle, row as u128 * self.row_bytes),
                        to: (middle, end as u128 * self.row_bytes),
                    });
                    row = end;
                }
            }
        }
        strokes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn write(t_ns: u64, offset: u64, result: i64) -> Operation {
        Operation {
            kind: "write".to_owned(),
            t_ns,
            duration_ns: 1000,
            offset,
            result,
            ..Operation::default()
        }
    }

    #[test]
    fn long_traces_become_a_grid_that_covers_the_same() {
        let mut offsets = Offsets::default();
        let count = 10 * STROKES_MAX as u64;
        for number in 0..count {
            offsets.add(&write(number * 10_000, number * 65_536, 65_536), Series::Write);
        }
        assert!(offsets.strokes.capacity() <= 2 * STROKES_MAX);
        let strokes = offsets.strokes();
        assert!(strokes.len() <= COLUMNS * ROWS / 2);
        let last = strokes.iter().map(|stroke| stroke.to.1).max().unwrap();
        let end = u128::from(count * 65_536);
        assert!(last >= end && last < end * 11 / 10, "{last} of {end}");
        // A straight line stays one.
        for stroke in &strokes {
            let expected = stroke.from.0 / 10_000 * 65_536;
            assert!(stroke.from.1.abs_diff(expected) < end / 50, "{stroke:?}");
        }
    }

    proptest! {
        // Each case doubles the grid a hundred times.
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn hostile_numbers_are_drawn_somewhere(
            operations in proptest::collection::vec((any::<u64>(), any::<u64>(), any::<i64>()), 1..20),
        ) {
            let mut grid = Grid::new();
            for (start, offset, result) in operations {
                let mut offsets = Offsets::default();
                offsets.add(&write(start, offset, result), Series::Read);
                for stroke in offsets.strokes() {
                    grid.add(&stroke);
                }
            }
            for stroke in grid.strokes() {
                prop_assert!(stroke.to.1 > stroke.from.1);
            }
        }
    }
}
