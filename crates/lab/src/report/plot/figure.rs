//! Figures: several panels in one picture, for what is not a lab's result (the plots of `trace`).
//!
//! ```text
//!   title
//!   legend
//!   ┌ panel ┐ ┌ panel ┐
//!   └───────┘ └───────┘
//!   ┌ wide panel ─────┐
//!   └─────────────────┘
//! ```

use std::fmt::Write as _;

use super::super::error::ReportError;
use super::super::model::Axis;
use super::super::numbers;
use super::panel::{self, Entry, PAD_PX, SMALL_PX, Swatch, TEXT_PX};
use super::scale::{Scale, is_drawn};
use super::style;
use super::svg::{Anchor, Caption, Medium, Svg, fitted, text_width};

/// Gap between panels.
const GAP_PX: f64 = 30.0;
/// Heights of plots, without labels.
const HEIGHT_PX: f64 = 170.0;
const TALL_PX: f64 = 330.0;
/// Room above a plot for its title, and below for ticks and the name of the axis.
const ABOVE_PX: f64 = 28.0;
const BELOW_PX: f64 = 40.0;

/// A picture of panels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figure {
    /// In one line.
    pub title: String,
    /// What can be seen, for readers who cannot see it.
    pub description: String,
    /// Names of the series, the same in all panels.
    pub series: Vec<String>,
    /// In the order of reading.
    pub panels: Vec<FigurePanel>,
}

/// One plot of a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct FigurePanel {
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis; its label is the title of the panel.
    pub y: Axis,
    /// Whether it takes the whole width, and is taller.
    pub is_wide: bool,
    /// What is drawn, with the number of the series.
    pub shapes: Vec<(usize, FigureShape)>,
}

/// What is drawn in a panel.
#[derive(Clone, Debug, PartialEq)]
pub enum FigureShape {
    /// A line through points.
    Line(Vec<[f64; 2]>),
    /// Strokes, each from one point to another: x, y, x, y.
    Strokes(Vec<[f64; 4]>),
    /// Bars, by the numbers of the names of the horizontal axis.
    Bars(Vec<f64>),
}

/// Style of figures, besides that of plots: strokes without dashes.
fn css(dark: bool) -> String {
    let mut css = String::new();
    for at in 0..style::SERIES_MAX {
        let color = style::series_color(at, dark);
        _ = write!(
            css,
            ".p-o{at}{{stroke:{color};stroke-width:1.4;fill:none;stroke-linejoin:round;stroke-linecap:round}}"
        );
    }
    css
}

/// Returns a figure as SVG.
pub fn figure_svg(figure: &Figure, medium: Medium) -> String {
    let width = super::WIDE_PX;
    let mut svg = Svg::default();
    svg.style(&css(false), &css(true));
    let entries: Vec<Entry> = figure
        .series
        .iter()
        .enumerate()
        .map(|(at, name)| (format!("p-f{}", style::color(at)), Swatch::Box, name.clone()))
        .collect();
    let mut top = PAD_PX + panel::legend(&mut svg, &entries, (PAD_PX, PAD_PX), width - 2.0 * PAD_PX);
    let half = (width - 2.0 * PAD_PX - GAP_PX) / 2.0;
    let mut is_right = false;
    for panel in &figure.panels {
        if panel.is_wide {
            if is_right {
                top += ABOVE_PX + HEIGHT_PX + BELOW_PX;
                is_right = false;
            }
            draw(&mut svg, figure, panel, (PAD_PX, top), width - 2.0 * PAD_PX);
            top += ABOVE_PX + TALL_PX + BELOW_PX;
            continue;
        }
        let left = if is_right { PAD_PX + half + GAP_PX } else { PAD_PX };
        draw(&mut svg, figure, panel, (left, top), half);
        if is_right {
            top += ABOVE_PX + HEIGHT_PX + BELOW_PX;
        }
        is_right = !is_right;
    }
    if is_right {
        top += ABOVE_PX + HEIGHT_PX + BELOW_PX;
    }
    let caption = Caption {
        id: "figure".to_owned(),
        title: figure.title.clone(),
        description: figure.description.clone(),
    };
    svg.finish(medium, (width, top + PAD_PX), &caption)
}

/// Renders a figure as PNG, with two pixels for one.
///
/// # Errors
/// The picture is too large.
pub fn figure_png(figure: &Figure) -> Result<Vec<u8>, ReportError> {
    super::png("figure", &figure_svg(figure, Medium::Picture))
}

fn draw(svg: &mut Svg, figure: &Figure, panel: &FigurePanel, (left, top): (f64, f64), width: f64) {
    let height = if panel.is_wide { TALL_PX } else { HEIGHT_PX };
    let (first, bottom) = (top + ABOVE_PX, top + ABOVE_PX + height);
    let mut points = panel
        .shapes
        .iter()
        .flat_map(|(_, shape)| corners(shape))
        .peekable();
    if points.peek().is_none() {
        svg.text(
            "p-t",
            (left, top + 14.0),
            Anchor::Start,
            &numbers::name(&panel.y.label),
        );
        svg.text(
            "p-m",
            (left + width / 2.0, (first + bottom) / 2.0),
            Anchor::Middle,
            "nothing to draw",
        );
        return;
    }
    let everything = (f64::INFINITY, f64::NEG_INFINITY, f64::INFINITY, f64::NEG_INFINITY);
    let (x0, x1, y0, y1) = points.fold(everything, |all, point| {
        (
            all.0.min(point[0]),
            all.1.max(point[0]),
            all.2.min(point[1]),
            all.3.max(point[1]),
        )
    });
    let up = Scale::new(&panel.y, (y0, y1), (bottom, first), 30.0);
    let gutter = up
        .ticks
        .iter()
        .map(|tick| text_width(&tick.1, SMALL_PX))
        .fold(0.0, f64::max)
        + 8.0;
    let ends = (left + gutter, left + width - 8.0);
    for (value, text) in &up.ticks {
        let y = up.place(*value);
        svg.line("p-grid", (ends.0, y), (ends.1, y));
        svg.text("p-m", (ends.0 - 6.0, y + 3.8), Anchor::End, text);
    }
    svg.line("p-axis", (ends.0, bottom), (ends.1, bottom));
    let title = fitted(&titled(&panel.y, &up), TEXT_PX, width);
    svg.text("p-t", (left, top + 14.0), Anchor::Start, &title);
    if panel.x.names.is_empty() {
        let along = Scale::along(&panel.x, (x0, x1), ends);
        for (value, text) in &along.ticks {
            let x = along.place(*value);
            svg.line("p-axis", (x, bottom), (x, bottom + 4.0));
            svg.text("p-m", (x, bottom + 16.0), Anchor::Middle, text);
        }
        let title = fitted(&titled(&panel.x, &along), TEXT_PX, width);
        svg.text("p-m", (ends.1, bottom + 31.0), Anchor::End, &title);
        for (series, shape) in &panel.shapes {
            stroke(svg, figure, *series, shape, (&along, &up));
        }
    } else {
        bars(svg, panel, ends, (bottom, &up));
    }
}

/// Draws lines and strokes.
fn stroke(svg: &mut Svg, figure: &Figure, series: usize, shape: &FigureShape, (along, up): (&Scale, &Scale)) {
    let class = format!("p-o{}", style::color(series));
    match shape {
        FigureShape::Line(points) => {
            let drawn = points.iter().filter(|point| is_point(point[0], point[1]));
            let points: Vec<(f64, f64)> = drawn
                .map(|point| (along.place(point[0]), up.place(point[1])))
                .collect();
            let name = figure.series.get(series).map_or("", String::as_str);
            svg.polyline(&class, name, &points);
        }
        FigureShape::Strokes(strokes) => {
            let drawn = strokes
                .iter()
                .filter(|[a, b, c, d]| is_point(*a, *b) && is_point(*c, *d));
            let lines: Vec<[(f64, f64); 2]> = drawn
                .map(|[a, b, c, d]| [(along.place(*a), up.place(*b)), (along.place(*c), up.place(*d))])
                .collect();
            svg.strokes(&class, &lines);
        }
        FigureShape::Bars(_) => {}
    }
}

/// Draws groups of bars above the names of the horizontal axis.
fn bars(svg: &mut Svg, panel: &FigurePanel, ends: (f64, f64), (bottom, up): (f64, &Scale)) {
    let names = &panel.x.names;
    let slot = (ends.1 - ends.0) / names.len().max(1) as f64;
    let each = (slot * 0.8 / panel.shapes.len().max(1) as f64).clamp(0.5, 28.0);
    let widest = names
        .iter()
        .map(|name| text_width(name, SMALL_PX))
        .fold(1.0, f64::max);
    // Every name that has room. A slot is wider than nothing.
    let every = ((widest + 8.0) / slot).ceil().max(1.0) as usize;
    for (at, name) in names.iter().enumerate() {
        let middle = ends.0 + slot * (at as f64 + 0.5);
        if at.is_multiple_of(every) {
            svg.text(
                "p-m",
                (middle, bottom + 16.0),
                Anchor::Middle,
                &numbers::name(name),
            );
        }
        let left = middle - each * panel.shapes.len() as f64 / 2.0;
        for (number, (series, shape)) in panel.shapes.iter().enumerate() {
            let FigureShape::Bars(values) = shape else {
                continue;
            };
            let value = values
                .get(at)
                .copied()
                .filter(|value| is_drawn(*value, false) && *value > 0.0);
            if let Some(value) = value {
                let y = up.place(value).min(bottom - 1.0);
                let class = format!("p-f{}", style::color(*series));
                let corner = (left + each * number as f64, y);
                svg.rect(&class, corner, ((each - 0.5).max(0.5), bottom - y), "");
            }
        }
    }
    let label = fitted(&numbers::name(&panel.x.label), TEXT_PX, ends.1 - ends.0);
    svg.text("p-m", (ends.1, bottom + 31.0), Anchor::End, &label);
}

fn is_point(x: f64, y: f64) -> bool {
    is_drawn(x, false) && is_drawn(y, false)
}

/// Returns all points that a shape needs room for.
fn corners(shape: &FigureShape) -> Vec<[f64; 2]> {
    let points: Vec<[f64; 2]> = match shape {
        FigureShape::Line(points) => points.clone(),
        FigureShape::Strokes(strokes) => strokes
            .iter()
            .flat_map(|[a, b, c, d]| [[*a, *b], [*c, *d]])
            .collect(),
        FigureShape::Bars(values) => values.iter().map(|value| [0.0, *value]).collect(),
    };
    points
        .into_iter()
        .filter(|point| is_point(point[0], point[1]))
        .collect()
}

fn titled(axis: &Axis, scale: &Scale) -> String {
    let label = numbers::name(&numbers::capital(&axis.label));
    if scale.unit.is_empty() || scale.ticks_have_unit() {
        label
    } else {
        format!("{label}, {}", scale.unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure() -> Figure {
        let panel = |y: &str, is_wide, shapes| FigurePanel {
            x: Axis::new("time", "s"),
            y: Axis::new(y, "B"),
            is_wide,
            shapes,
        };
        let mut sizes = panel(
            "sizes",
            false,
            vec![(0, FigureShape::Bars(vec![3.0, f64::NAN, 7.0]))],
        );
        sizes.x.names = ["4 KiB", "8 KiB", "<16>"].map(str::to_owned).to_vec();
        Figure {
            title: "a < b".to_owned(),
            description: "d".to_owned(),
            series: vec!["read".to_owned(), "write".to_owned()],
            panels: vec![
                panel(
                    "bytes",
                    false,
                    vec![(0, FigureShape::Line(vec![[0.0, 1.0], [1.0, 5.0]]))],
                ),
                sizes,
                panel("empty", false, Vec::new()),
                panel(
                    "offset",
                    true,
                    vec![(1, FigureShape::Strokes(vec![[0.0, 0.0, 1.0, 9.0]]))],
                ),
            ],
        }
    }

    #[test]
    fn a_figure_is_a_valid_picture() {
        let figure = figure();
        for medium in [Medium::File, Medium::Picture] {
            let svg = figure_svg(&figure, medium);
            let tree = roxmltree::Document::parse(&svg).unwrap();
            let texts: Vec<&str> = tree.descendants().filter_map(|node| node.text()).collect();
            assert!(texts.iter().any(|text| text.contains("a < b")), "{svg}");
            assert!(texts.contains(&"nothing to draw") && !svg.contains("NaN"));
        }
        let png = figure_png(&figure).unwrap();
        assert!(png.starts_with(b"\x89PNG"));
    }
}
