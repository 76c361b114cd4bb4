//! Heat maps: a figure for each row and column, its size as a colour.
//!
//! ```text
//!   MB/s   40.2 ▂▃▄▅▆▇ 196
//!            4K    64K     1M
//!     1M   40.2    196    196
//!     4G   40.2    196    196
//! ```

use super::super::numbers;
use super::panel::{PAD_PX, SMALL_PX, TEXT_PX};
use super::scale::is_drawn;
use super::style::{HEAT_DARK, HEAT_MAX};
use super::svg::{Anchor, Caption, Medium, Svg, fitted, text_width};

/// Height of a row.
const ROW_PX: f64 = 30.0;
/// Gap between two cells.
const GAP_PX: f64 = 2.0;
/// Height of the legend and of the names of the columns.
const LEGEND_PX: f64 = 26.0;
const NAMES_PX: f64 = 20.0;
/// Width of one colour of the legend.
const SWATCH_PX: f64 = 16.0;
/// Largest numbers of rows and columns.
const AXIS_MAX: usize = 64;

/// A heat map.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct HeatMap {
    /// Unique name in the document; fit for a file name.
    pub(crate) id: String,
    /// One line for people.
    pub(crate) title: String,
    /// What rows and columns are.
    pub(crate) axes: [String; 2],
    /// Names of the rows.
    pub(crate) rows: Vec<String>,
    /// Names of the columns.
    pub(crate) columns: Vec<String>,
    /// Base unit of the figures: `B/s`.
    pub(crate) unit: String,
    /// Unit in which they are shown: its name, and its number of base units.
    pub(crate) shown: (String, f64),
    /// Figures by row and column.
    pub(crate) values: Vec<Vec<Option<f64>>>,
    /// A sentence about each figure.
    pub(crate) tips: Vec<Vec<String>>,
}

impl HeatMap {
    fn known(&self) -> impl Iterator<Item = f64> {
        let values = self.values.iter().take(AXIS_MAX).flatten();
        values.flatten().copied().filter(|value| is_drawn(*value, true))
    }

    fn range(&self) -> Option<(f64, f64)> {
        let least = self.known().fold(f64::INFINITY, f64::min);
        let most = self.known().fold(f64::NEG_INFINITY, f64::max);
        (least <= most).then_some((least, most))
    }

    fn figure(&self, value: f64) -> String {
        numbers::number(value / self.shown.1)
    }
}

/// Returns the colour of a value: by its logarithm, from the least to the largest.
fn level(value: f64, (least, most): (f64, f64)) -> usize {
    let share = (value / least).ln() / (most / least).ln();
    // All values are equal: the lightest.
    let share = if share.is_finite() {
        share.clamp(0.0, 1.0)
    } else {
        1.0
    };
    (share * (HEAT_MAX - 1) as f64).round() as usize
}

/// Draws a heat map.
pub(super) fn draw(map: &HeatMap, medium: Medium, width: f64, caption: &Caption) -> String {
    let mut svg = Svg::default();
    let rows = map.rows.len().min(AXIS_MAX);
    let columns = map.columns.len().min(AXIS_MAX);
    let height = PAD_PX + LEGEND_PX + NAMES_PX + rows as f64 * ROW_PX + PAD_PX;
    let Some(range) = map.range().filter(|_| rows > 0 && columns > 0) else {
        svg.text(
            "p-m",
            (width / 2.0, height / 2.0),
            Anchor::Middle,
            "nothing was measured",
        );
        return svg.finish(medium, (width, height), caption);
    };
    legend(&mut svg, map, range, width);
    let names = map.rows.iter().take(rows).map(|name| text_width(name, TEXT_PX));
    let gutter = names.fold(0.0, f64::max).min(width * 0.25) + 10.0;
    let left = PAD_PX + gutter;
    let each = (width - PAD_PX - left) / columns as f64;
    let top = PAD_PX + LEGEND_PX + NAMES_PX;
    for (at, name) in map.columns.iter().take(columns).enumerate() {
        let x = left + each * (at as f64 + 0.5);
        svg.text(
            "p-m",
            (x, top - 7.0),
            Anchor::Middle,
            &fitted(name, SMALL_PX, each),
        );
    }
    for (at, name) in map.rows.iter().take(rows).enumerate() {
        let y = top + ROW_PX * at as f64;
        let name = fitted(name, TEXT_PX, gutter - 8.0);
        svg.text("p-t", (left - 8.0, y + ROW_PX / 2.0 + 4.0), Anchor::End, &name);
        for column in 0..columns {
            let value = map
                .values
                .get(at)
                .and_then(|row| row.get(column).copied().flatten());
            let place = (left + each * column as f64 + GAP_PX / 2.0, y + GAP_PX / 2.0);
            let size = (each - GAP_PX, ROW_PX - GAP_PX);
            let Some(value) = value.filter(|value| is_drawn(*value, true)) else {
                continue;
            };
            let tip = map
                .tips
                .get(at)
                .and_then(|row| row.get(column))
                .map_or("", String::as_str);
            cell(
                &mut svg,
                level(value, range),
                place,
                size,
                tip,
                &map.figure(value),
            );
        }
    }
    svg.finish(medium, (width, height), caption)
}

fn cell(svg: &mut Svg, level: usize, place: (f64, f64), size: (f64, f64), tip: &str, figure: &str) {
    svg.rect(&format!("p-q{level}"), place, size, tip);
    let ink = if level < HEAT_DARK { "p-on" } else { "p-off" };
    let middle = (place.0 + size.0 / 2.0, place.1 + size.1 / 2.0 + 4.0);
    // A figure that does not fit is in the tip, and the colour is there anyway.
    if text_width(figure, SMALL_PX) <= size.0 {
        svg.text(ink, middle, Anchor::Middle, figure);
    }
}

fn legend(svg: &mut Svg, map: &HeatMap, range: (f64, f64), width: f64) {
    let base = PAD_PX + 12.0;
    let [down, across] = &map.axes;
    let unit = &map.shown.0;
    let what = format!("{unit}; {down} down, {across} across");
    let colours = SWATCH_PX * HEAT_MAX as f64;
    let (least, most) = (map.figure(range.0), map.figure(range.1));
    let needed = text_width(&least, SMALL_PX) + colours + text_width(&most, SMALL_PX) + 12.0;
    let room = (width - 2.0 * PAD_PX - needed - 16.0).max(0.0);
    // Where there is little room, the names on the axes say enough.
    let what = if text_width(&what, SMALL_PX) <= room {
        &what
    } else {
        unit
    };
    svg.text(
        "p-m",
        (PAD_PX, base),
        Anchor::Start,
        &fitted(what, SMALL_PX, room),
    );
    let right = width - PAD_PX;
    svg.text("p-m", (right, base), Anchor::End, &most);
    let end = right - text_width(&most, SMALL_PX) - 6.0;
    for level in 0..HEAT_MAX {
        let x = end - colours + SWATCH_PX * level as f64;
        svg.rect(&format!("p-q{level}"), (x, base - 10.0), (SWATCH_PX, 12.0), "");
    }
    svg.text("p-m", (end - colours - 6.0, base), Anchor::End, &least);
}

/// Returns the description of a heat map.
pub(super) fn describe(map: &HeatMap) -> String {
    let [down, across] = &map.axes;
    let Some((least, most)) = map.range() else {
        return "Nothing was measured.".to_owned();
    };
    format!(
        "{} by {down} and {across}: from {} to {}.",
        map.shown.0,
        numbers::prefixed(least, &map.unit),
        numbers::prefixed(most, &map.unit)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(values: Vec<Vec<Option<f64>>>) -> HeatMap {
        HeatMap {
            id: "x".to_owned(),
            title: "A <map>".to_owned(),
            axes: ["size".to_owned(), "record".to_owned()],
            rows: values
                .iter()
                .enumerate()
                .map(|(at, _)| format!("row {at}"))
                .collect(),
            columns: values
                .first()
                .map_or(Vec::new(), |row| vec!["c".to_owned(); row.len()]),
            unit: "B/s".to_owned(),
            shown: ("MB/s".to_owned(), 1e6),
            values,
            tips: Vec::new(),
        }
    }

    fn drawn(map: &HeatMap) -> String {
        let caption = Caption {
            id: "x".to_owned(),
            title: map.title.clone(),
            description: describe(map),
        };
        draw(map, Medium::File, 400.0, &caption)
    }

    #[test]
    fn the_colour_follows_the_logarithm() {
        let range = (1e6, 1e9);
        let levels = [1e6, 3e7, 1e9].map(|value| level(value, range));
        assert_eq!(levels, [0, HEAT_MAX / 2, HEAT_MAX - 1]);
        assert_eq!(level(5.0, (5.0, 5.0)), HEAT_MAX - 1);
    }

    #[test]
    fn missing_and_strange_figures_are_no_cells() {
        let svg = drawn(&map(vec![
            vec![Some(1e6), None, Some(f64::NAN)],
            vec![Some(-1.0), Some(1e9), Some(f64::INFINITY)],
        ]));
        assert!(roxmltree::Document::parse(&svg).is_ok());
        // Two cells, and the colours of the legend.
        assert_eq!(svg.matches("<rect class=\"p-q").count(), 2 + HEAT_MAX);
        assert!(
            svg.contains(">1,000<") && svg.contains("from 1 MB/s to 1 GB/s"),
            "{svg}"
        );
        assert!(drawn(&map(Vec::new())).contains("nothing was measured"));
    }
}
