//! The files with most bytes: whose offsets are drawn.

use std::collections::HashMap;

use super::super::sums::bytes_of;
use super::{SERIES, Series};
use crate::trace_file::Operation;

/// Most files that are counted at a time. When there are more, the half with fewest bytes is
/// forgotten; the busiest one of all stays.
const FILES_MAX: usize = 65_536;

/// Bytes by file, for reads and writes.
#[derive(Debug, Default)]
pub(in crate::commands::trace) struct Busiest {
    files: [HashMap<String, u64>; SERIES],
}

impl Busiest {
    /// Counts an operation.
    pub(in crate::commands::trace) fn take(&mut self, operation: &Operation) {
        let bytes = bytes_of(operation);
        let series = Series::of(operation);
        if bytes == 0 || series == Series::Other {
            return;
        }
        let files = &mut self.files[series as usize];
        let path = written_path(operation);
        if files.len() >= FILES_MAX && !files.contains_key(path) {
            let mut sizes: Vec<u64> = files.values().copied().collect();
            let (_, median, _) = sizes.select_nth_unstable(FILES_MAX / 2);
            let bound = *median;
            let mut room = FILES_MAX / 2;
            files.retain(|_, bytes| {
                let keep = *bytes >= bound && room > 0;
                room -= usize::from(keep);
                keep
            });
        }
        match files.get_mut(path) {
            Some(sum) => *sum = sum.saturating_add(bytes),
            None => {
                files.insert(path.to_owned(), bytes);
            }
        }
    }

    /// Returns the file with most bytes of a series.
    pub(super) fn name(&self, series: Series) -> Option<&str> {
        let files = self.files[series as usize].iter();
        let most = files.max_by(|a, b| a.1.cmp(b.1).then_with(|| b.0.cmp(a.0)));
        most.map(|(path, _)| path.as_str())
    }

    /// Whether the offset of an operation is drawn: the file is the busiest of its series, or all are.
    pub(super) fn is_drawn(&self, operation: &Operation, series: Series) -> bool {
        match self.name(series) {
            Some(name) => written_path(operation) == name,
            None => self.files.iter().all(HashMap::is_empty),
        }
    }

    /// Forgets all but the busiest files.
    pub(in crate::commands::trace) fn settle(&mut self) {
        for series in Series::ALL {
            let name = self.name(series).map(str::to_owned);
            let files = &mut self.files[series as usize];
            files.retain(|path, _| Some(path) == name.as_ref());
        }
    }
}

/// Returns the path that an offset belongs to: that of the target, where there are two.
fn written_path(operation: &Operation) -> &str {
    match operation.to.as_str() {
        "" => &operation.path,
        to => to,
    }
}
