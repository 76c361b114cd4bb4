//! Panels of bars: names on the left, bars with whiskers and marks, a column of figures on the right.
//!
//! ```text
//!   OC3                              155 Mbit/s, 32 ms
//!   ropeway → smbd    ████████┆|               5.49 s ✓
//!   smbclient → smbd  ████████┆|███████        10.2 s
//!   win7 → fas3140    ▒▒▒▒▒▒▒▒                 5.00 s
//!                     0        5        10   s
//! ```

use super::super::numbers;
use super::super::view::Verdict;
use super::scale::{Scale, is_drawn};
use super::svg::{Anchor, Svg, fitted, text_width};

const ROW_PX: f64 = 19.0;
const BAR_PX: f64 = 11.0;
const HEAD_PX: f64 = 26.0;
const AXIS_PX: f64 = 24.0;
/// Gaps between panels, horizontal and vertical.
const GAP_PX: (f64, f64) = (44.0, 18.0);
/// Least distance of ticks.
const TICK_PX: f64 = 66.0;
/// Least width of the column of figures.
const FIGURES_PX: f64 = 40.0;
/// Least length of a whisker that is drawn.
const SPREAD_PX: f64 = 4.0;
/// Padding around all panels.
pub(super) const PAD_PX: f64 = 12.0;
/// Sizes of text, as in the style.
pub(super) const TEXT_PX: f64 = 12.0;
pub(super) const SMALL_PX: f64 = 11.0;
const TITLE_PX: f64 = 13.0;
/// A published figure larger than this multiple of all measured ones ends at the edge.
const PUBLISHED_SHARE: f64 = 2.0;

/// One bar.
#[derive(Clone, Debug, Default)]
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) class: String,
    /// The figure, if there is one.
    pub(super) value: Option<f64>,
    /// Least and largest figure.
    pub(super) spread: Option<(f64, f64)>,
    /// Text on the right.
    pub(super) text: String,
    pub(super) verdict: Verdict,
    /// Whether it is a published figure.
    pub(super) published: bool,
    pub(super) tip: String,
}

/// Bars with one scale.
#[derive(Clone, Debug, Default)]
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) note: String,
    pub(super) unit: String,
    pub(super) bars: Vec<Bar>,
    /// Lines across all bars: class and value.
    pub(super) marks: Vec<(&'static str, f64)>,
    /// End of the scale; by default the largest value.
    pub(super) most: Option<f64>,
}

impl Panel {
    fn height(&self) -> f64 {
        HEAD_PX + ROW_PX * self.bars.len() as f64 + AXIS_PX
    }

    /// Returns the end of the scale.
    fn reach(&self) -> f64 {
        let drawn = |value: &f64| is_drawn(*value, false) && *value > 0.0;
        let own = self.bars.iter().filter(|bar| !bar.published);
        let own = own
            .flat_map(|bar| [bar.value, bar.spread.map(|spread| spread.1)])
            .flatten();
        let marks = self.marks.iter().map(|mark| mark.1);
        let own = own.chain(marks).filter(drawn).fold(0.0, f64::max);
        let others = self
            .bars
            .iter()
            .filter(|bar| bar.published)
            .filter_map(|bar| bar.value);
        let others = others
            .filter(drawn)
            .filter(|value| own == 0.0 || *value <= own * PUBLISHED_SHARE);
        self.most.unwrap_or(others.fold(own, f64::max) * 1.03)
    }
}

/// An entry of a legend: class, swatch and text.
pub(super) type Entry = (String, Swatch, String);

/// Symbol of a class in a legend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Swatch {
    Upright,
    Line,
    Box,
}

/// Draws a legend at a position, in as many rows as needed. Returns the height.
pub(super) fn legend(svg: &mut Svg, entries: &[Entry], place: (f64, f64), width: f64) -> f64 {
    const ROW: f64 = 19.0;
    let (mut x, mut y) = (0.0, 0.0);
    for (class, swatch, text) in entries {
        let text = fitted(text, SMALL_PX, width - 24.0);
        let needed = 24.0 + text_width(&text, SMALL_PX) + 14.0;
        if x > 0.0 && x + needed - 14.0 > width {
            (x, y) = (0.0, y + ROW);
        }
        let (left, middle) = (place.0 + x, place.1 + y + 8.0);
        match swatch {
            Swatch::Upright => svg.line(class, (left + 9.0, middle - 7.0), (left + 9.0, middle + 7.0)),
            Swatch::Line => svg.line(class, (left, middle), (left + 18.0, middle)),
            Swatch::Box => svg.rect(class, (left + 1.0, middle - 5.0), (16.0, 10.0), ""),
        }
        svg.text("p-m", (left + 24.0, middle + 4.0), Anchor::Start, &text);
        x += needed;
    }
    if entries.is_empty() { 0.0 } else { y + ROW }
}

/// Draws panels in columns at a position, the first column first. Returns the height.
pub(super) fn panels(svg: &mut Svg, panels: &[Panel], place: (f64, f64), width: f64, columns: usize) -> f64 {
    let columns = columns.clamp(1, panels.len().max(1));
    let rows = panels.len().div_ceil(columns);
    let each = (width - GAP_PX.0 * (columns as f64 - 1.0)) / columns as f64;
    let mut top = place.1;
    for row in 0..rows {
        let in_row = (0..columns).filter_map(|column| Some((column, panels.get(column * rows + row)?)));
        let mut height: f64 = 0.0;
        for (column, panel) in in_row {
            let left = place.0 + (each + GAP_PX.0) * column as f64;
            draw(svg, panel, (left, top), each);
            height = height.max(panel.height());
        }
        top += height + if row + 1 < rows { GAP_PX.1 } else { 0.0 };
    }
    top - place.1
}

fn draw(svg: &mut Svg, panel: &Panel, (left, top): (f64, f64), width: f64) {
    let title = fitted(&panel.title, TITLE_PX, width * 0.62);
    let rest = width - text_width(&title, TITLE_PX) - 16.0;
    svg.text("p-h", (left, top + 13.0), Anchor::Start, &title);
    svg.text(
        "p-m",
        (left + width, top + 13.0),
        Anchor::End,
        &fitted(&panel.note, SMALL_PX, rest),
    );
    let widest = |of: &dyn Fn(&Bar) -> &str| {
        panel
            .bars
            .iter()
            .map(|bar| text_width(of(bar), TEXT_PX))
            .fold(0.0, f64::max)
    };
    let names = widest(&|bar| &bar.label).min(width * 0.42);
    let figures = (widest(&|bar| &bar.text) + 20.0).clamp(FIGURES_PX, width * 0.32);
    let ends = (left + names + 10.0, left + width - figures - 6.0);
    let scale = Scale::bars(panel.reach(), &panel.unit, ends, TICK_PX);
    let first = top + HEAD_PX;
    let bottom = first + ROW_PX * panel.bars.len() as f64;
    axis(svg, &scale, (first, bottom));
    for (at, bar) in panel.bars.iter().enumerate() {
        let middle = first + ROW_PX * (at as f64 + 0.5);
        let (class, size_px) = if bar.published {
            ("p-m", SMALL_PX)
        } else {
            ("p-t", TEXT_PX)
        };
        let label = fitted(&bar.label, size_px, names + 1.0);
        svg.text(class, (left + names, middle + 4.0), Anchor::End, &label);
        draw_bar(svg, &scale, bar, middle);
        figure(svg, bar, (left + width, middle + 4.0), figures);
    }
    for (class, value) in &panel.marks {
        if is_drawn(*value, false) {
            let x = scale.place(*value);
            svg.line(class, (x, first - 2.0), (x, bottom + 2.0));
        }
    }
}

fn axis(svg: &mut Svg, scale: &Scale, (top, bottom): (f64, f64)) {
    for (value, _) in &scale.ticks {
        let x = scale.place(*value);
        svg.line("p-grid", (x, top - 2.0), (x, bottom + 3.0));
    }
    svg.line("p-axis", (scale.ends.0, top - 2.0), (scale.ends.0, bottom + 3.0));
    for (at, (value, text)) in scale.ticks.iter().enumerate() {
        let x = scale.place(*value);
        let is_last = at + 1 == scale.ticks.len();
        if is_last && !scale.unit.is_empty() {
            // The unit extends to the right, below the figures, so that the number stays under its tick.
            let left = x - text_width(text, SMALL_PX) / 2.0;
            let room = scale.ends.1 + FIGURES_PX - left;
            let text = fitted(&format!("{text} {}", scale.unit), SMALL_PX, room);
            svg.text("p-m", (left, bottom + 15.0), Anchor::Start, &text);
        } else {
            svg.text("p-m", (x, bottom + 15.0), Anchor::Middle, text);
        }
    }
}

fn draw_bar(svg: &mut Svg, scale: &Scale, bar: &Bar, middle: f64) {
    let Some(value) = bar.value.filter(|value| is_drawn(*value, false) && *value >= 0.0) else {
        return;
    };
    let (from, to) = (scale.ends.0, scale.place(value));
    // Even the shortest bar is visible.
    let long = (to - from).max(1.5);
    svg.rect(
        &bar.class,
        (from, middle - BAR_PX / 2.0),
        (long, BAR_PX),
        &bar.tip,
    );
    if let Some((least, most)) = bar.spread.filter(|spread| spread.1 > spread.0) {
        let (a, b) = (scale.place(least), scale.place(most));
        if b - a >= SPREAD_PX {
            svg.line("p-spread", (a, middle), (b, middle));
            for end in [a, b] {
                svg.line("p-spread", (end, middle - 3.0), (end, middle + 3.0));
            }
        }
    }
    if scale.is_beyond(value) {
        for shift in [-9.0, -5.0] {
            let x = to + shift;
            svg.line(
                "p-break",
                (x - 2.0, middle + BAR_PX / 2.0 + 1.0),
                (x + 2.0, middle - BAR_PX / 2.0 - 1.0),
            );
        }
    }
}

fn figure(svg: &mut Svg, bar: &Bar, (right, base): (f64, f64), room: f64) {
    let class = match (bar.value, bar.published) {
        (None, _) => "p-m p-no",
        (_, true) => "p-m",
        _ => "p-v",
    };
    let text = fitted(&bar.text, TEXT_PX, room - 16.0);
    svg.text(class, (right - 16.0, base), Anchor::End, &text);
    match bar.verdict {
        Verdict::Reached => svg.mark(true, (right, base)),
        Verdict::Missed => svg.mark(false, (right, base)),
        Verdict::NoTarget => {}
    }
}

/// Returns the bar for a figure of a general plot.
pub(super) fn plain(label: &str, color: usize, value: f64, unit: &str, published: bool) -> Bar {
    let text = match unit {
        "B" | "B/s" | "bit/s" => numbers::prefixed(value, unit),
        unit => format!("{} {}", numbers::number(value), numbers::clean(unit, 24))
            .trim_end()
            .to_owned(),
    };
    let label = numbers::name(label);
    Bar {
        tip: format!("{label}: {text}"),
        label,
        class: if published {
            "p-pub".to_owned()
        } else {
            format!("p-f{color}")
        },
        value: Some(value),
        text,
        published,
        ..Bar::default()
    }
}
