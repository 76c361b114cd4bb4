//! Graphs of the last minutes, as lines of an SVG.

use std::fmt::Write as _;

use ropeway_live::format;
use ropeway_live::history::SAMPLES;
use serde::Serialize;

use super::Tone;

/// Size of the drawing: one unit for each sample of five minutes, and a hundred for the largest value.
pub(crate) const WIDTH: usize = SAMPLES;
/// See [`WIDTH`].
pub(crate) const HEIGHT: usize = 100;

/// Seconds that are shown, the shortest first, with what stands below their beginning.
const SPANS: [(usize, &str); 3] = [
    (60, "1 minute ago"),
    (150, "2½ minutes ago"),
    (SAMPLES, "5 minutes ago"),
];

/// Amounts by the second, newest last.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Graph {
    pub(crate) name: String,
    pub(crate) now: String,
    pub(crate) most: String,
    /// The line as the data of an SVG path; empty without values.
    pub(crate) line: String,
    /// The surface below it.
    pub(crate) area: String,
    /// When the drawing begins.
    pub(crate) since: String,
    pub(crate) tone: Tone,
}

impl Graph {
    /// Makes a graph of bytes a second.
    pub(super) fn bytes(name: &str, data: &[u64], tone: Tone) -> Self {
        Self::new(name, data, tone, format::rate)
    }

    /// Makes a graph of operations or files a second.
    pub(super) fn count(name: &str, data: &[u64]) -> Self {
        Self::new(name, data, Tone::Operations, format::per_second)
    }

    fn new(name: &str, data: &[u64], tone: Tone, shown: fn(f64) -> String) -> Self {
        let data = &data[data.len().saturating_sub(SAMPLES)..];
        let most = data.iter().copied().max().unwrap_or(0);
        let span = SPANS.iter().find(|(span, _)| data.len() <= *span);
        let (span, since) = span.unwrap_or(&SPANS[SPANS.len() - 1]);
        let (line, area) = drawn(data, most, *span);
        Self {
            name: name.to_owned(),
            now: shown(data.last().copied().unwrap_or(0) as f64),
            most: format!("at most {}", shown(most as f64)),
            line,
            area,
            since: (*since).to_owned(),
            tone,
        }
    }
}

/// Returns line and surface; the newest value is at the right, and `span` values fill the width.
fn drawn(data: &[u64], most: u64, span: usize) -> (String, String) {
    if most == 0 || data.is_empty() {
        return (String::new(), String::new());
    }
    let step = WIDTH / span;
    let first = WIDTH - data.len() * step;
    let mut line = String::with_capacity(data.len() * 9);
    for (index, value) in data.iter().enumerate() {
        let y = HEIGHT as f64 * (1.0 - *value as f64 / most as f64);
        let command = if line.is_empty() { 'M' } else { 'L' };
        let x = first + (index + 1) * step;
        // Writing to a string does not fail.
        _ = write!(line, "{command}{x} {}", (y * 10.0).round() / 10.0);
    }
    let area = format!("{line}L{WIDTH} {HEIGHT}L{} {HEIGHT}Z", first + step);
    (line, area)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_newest_value_is_at_the_right() {
        let graph = Graph::bytes("sent", &[0, 1024, 512], Tone::Sent);
        assert_eq!(graph.line, "M290 100L295 0L300 50");
        assert_eq!(graph.area, "M290 100L295 0L300 50L300 100L290 100Z");
        assert_eq!(
            (graph.now.as_str(), graph.most.as_str()),
            ("512 B/s", "at most 1.0 KiB/s")
        );
        assert_eq!(Graph::count("operations", &[0, 0]).line, "");
    }

    proptest! {
        #[test]
        fn a_graph_is_bounded(data in proptest::collection::vec(any::<u64>(), 0..1000)) {
            let graph = Graph::bytes("x", &data, Tone::Read);
            prop_assert!(graph.line.len() <= SAMPLES * 12, "{}", graph.line.len());
            prop_assert!(!graph.line.contains("NaN") && !graph.line.contains('-'));
        }
    }
}
