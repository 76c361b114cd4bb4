//! General plots: lines over an axis, or bars by name.

use super::super::model::{Axis, Curve, Drawing, Series};
use super::super::numbers;
use super::super::view::View;
use super::multiples;
use super::panel::{self, Entry, PAD_PX, Panel, SMALL_PX, Swatch, TEXT_PX};
use super::scale::{Scale, is_drawn};
use super::style::SERIES_MAX;
use super::svg::{Anchor, Caption, Medium, Svg, fitted, text_width};

/// Largest number of lines in a plot: twice the number of colours.
const LINES_MAX: usize = 2 * SERIES_MAX;
/// Largest number of names in a plot of bars.
const NAMES_MAX: usize = 40;
/// Largest number of points in a line for which points are marked.
const MARKED_MAX: usize = 24;

/// Draws a curve.
pub(super) fn draw(view: &View<'_>, curve: &Curve, medium: Medium, width: f64, caption: &Caption) -> String {
    let series = colored(view, curve);
    let mut svg = Svg::default();
    let height = match curve.drawing {
        Drawing::Lines => lines(&mut svg, curve, &series, width),
        Drawing::Bars => bars(&mut svg, curve, &series, width),
    };
    svg.finish(medium, (width, height), caption)
}

/// Returns the description of the plot.
pub(super) fn describe(curve: &Curve) -> String {
    let (y, x) = (named_axis(&curve.y), named_axis(&curve.x));
    let mut text = format!("{y} against {x}.");
    for series in curve.series.iter().take(LINES_MAX) {
        let values = series
            .points
            .iter()
            .map(|point| point[1])
            .filter(|value| value.is_finite());
        let most = values.fold(f64::NEG_INFINITY, f64::max);
        if most.is_finite() {
            let name = numbers::name(&series.name);
            text.push_str(&format!(" {name}: up to {}.", with_unit(most, &curve.y.unit)));
        }
    }
    text
}

fn with_unit(value: f64, unit: &str) -> String {
    match unit {
        "B" | "B/s" | "bit/s" => numbers::prefixed(value, unit),
        "1/s" => format!("{} a second", numbers::number(value)),
        unit => format!("{} {unit}", numbers::number(value)).trim_end().to_owned(),
    }
}

fn named_axis(axis: &Axis) -> String {
    numbers::name(&axis.label)
}

/// Returns series with their colours. A client has the same colour in all plots.
fn colored<'a>(view: &View<'_>, curve: &'a Curve) -> Vec<(usize, &'a Series)> {
    let mut used = [false; SERIES_MAX];
    let mut colored = Vec::new();
    for series in curve.series.iter().take(LINES_MAX) {
        let own = view
            .columns
            .iter()
            .position(|column| series.name.starts_with(&column.label()) || series.name == column.client);
        let own = own.filter(|at| *at < SERIES_MAX && !used[*at] && !series.published);
        let free = used.iter().position(|used| !used);
        let color = own.or(free).unwrap_or(colored.len() % SERIES_MAX);
        used[color] = true;
        colored.push((color, series));
    }
    colored
}

/// More measured lines than this are drawn in panels of their own.
const TOGETHER_MAX: usize = 4;

fn lines(svg: &mut Svg, curve: &Curve, series: &[(usize, &Series)], width: f64) -> f64 {
    let all = || series.iter().flat_map(|(_, series)| drawn(curve, series));
    let ranges = range(all().map(|point| point[0])).zip(range(all().map(|point| point[1])));
    let Some(ranges) = ranges else {
        svg.text("p-m", (width / 2.0, 40.0), Anchor::Middle, "nothing was measured");
        return 80.0;
    };
    let measured = series.iter().filter(|(_, series)| !series.published);
    match measured.count() {
        0..=TOGETHER_MAX => together(svg, curve, series, ranges, width),
        _ => multiples::draw(svg, curve, series, ranges, width),
    }
}

/// Draws all lines in one area.
fn together(
    svg: &mut Svg,
    curve: &Curve,
    series: &[(usize, &Series)],
    (xs, ys): ((f64, f64), (f64, f64)),
    width: f64,
) -> f64 {
    let inner = width - 2.0 * PAD_PX;
    let entries: Vec<Entry> = series
        .iter()
        .map(|(color, series)| {
            (
                line_class(*color, series.published),
                Swatch::Line,
                shown_name(series),
            )
        })
        .collect();
    let legend = panel::legend(svg, &entries, (PAD_PX, PAD_PX), inner);
    let top = PAD_PX + legend + 32.0;
    let bottom = top + (width * 0.46).clamp(170.0, 300.0);
    let up = Scale::new(&curve.y, ys, (bottom, top), 36.0);
    let gutter = widest(&up) + 8.0;
    let ends = (PAD_PX + gutter, width - PAD_PX - 8.0);
    let along = spaced(&curve.x, xs, ends);
    axes(svg, curve, (&along, &up), width);
    svg.open(&data(&along, &up));
    let marked = series.iter().all(|(_, series)| series.points.len() <= MARKED_MAX);
    for (color, series) in series {
        let points = points(curve, series, (&along, &up), width);
        svg.polyline(
            &format!("p-s {}", line_class(*color, series.published)),
            &series.name,
            &points,
        );
        if marked {
            for point in &points {
                svg.circle(&format!("p-f{color}"), *point, 2.6);
            }
        }
    }
    svg.close();
    bottom + 42.0
}

/// Returns the name of a line, and whether it was published.
pub(super) fn shown_name(series: &Series) -> String {
    let name = numbers::name(&series.name);
    match series.published {
        true => format!("{name} (published)"),
        false => name,
    }
}

/// Returns the attributes by which the page's script reads values off a group of lines.
pub(super) fn data(along: &Scale, up: &Scale) -> String {
    let units = [&along.unit, &up.unit].map(|unit| numbers::escape(unit));
    format!(
        r#"class="p-plot" data-x="{}" data-y="{}" data-xu="{}" data-yu="{}""#,
        along.data(),
        up.data(),
        units[0],
        units[1]
    )
}

/// Returns the points that the axes can show.
fn drawn<'a>(curve: &Curve, series: &'a Series) -> impl Iterator<Item = &'a [f64; 2]> {
    let (log_x, log_y) = (curve.x.logarithmic, curve.y.logarithmic);
    let points = series.points.iter();
    points.filter(move |point| is_drawn(point[0], log_x) && is_drawn(point[1], log_y))
}

/// Returns the places of a line's points.
pub(super) fn points(
    curve: &Curve,
    series: &Series,
    (along, up): (&Scale, &Scale),
    width: f64,
) -> Vec<(f64, f64)> {
    thinned(drawn(curve, series).copied().collect(), width)
        .into_iter()
        .map(|point| (along.place(point[0]), up.place(point[1])))
        .collect()
}

/// Whether the curve is a line of at least two points, or bars.
pub(super) fn is_worth_drawing(curve: &Curve) -> bool {
    match curve.drawing {
        Drawing::Bars => true,
        Drawing::Lines => {
            let mut all = curve.series.iter().flat_map(|series| drawn(curve, series));
            let first = all.next();
            first.is_none_or(|first| all.any(|point| point[0] != first[0]))
        }
    }
}

pub(super) fn line_class(color: usize, published: bool) -> String {
    format!("p-s p-k{color}{}", if published { " p-old" } else { "" })
}

/// Returns the width of the widest label.
pub(super) fn widest(scale: &Scale) -> f64 {
    let widths = scale.ticks.iter().map(|tick| text_width(&tick.1, SMALL_PX));
    widths.fold(0.0, f64::max)
}

/// Returns the horizontal scale whose ticks have room for their labels.
fn spaced(axis: &Axis, range: (f64, f64), ends: (f64, f64)) -> Scale {
    let mut apart = 56.0;
    loop {
        let scale = Scale::new(axis, range, ends, apart);
        let places = scale
            .ticks
            .windows(2)
            .map(|pair| scale.place(pair[1].0) - scale.place(pair[0].0));
        if widest(&scale) + 8.0 <= places.fold(f64::INFINITY, f64::min) || apart > 400.0 {
            return scale;
        }
        apart *= 1.3;
    }
}

fn axes(svg: &mut Svg, curve: &Curve, (along, up): (&Scale, &Scale), width: f64) {
    grid(svg, along, up);
    let (right, (bottom, top)) = (along.ends.1, up.ends);
    for (value, text) in &along.ticks {
        let x = along.place(*value);
        svg.line("p-axis", (x, bottom), (x, bottom + 4.0));
        // The last label ends at the edge.
        let over = (x + text_width(text, SMALL_PX) / 2.0 - (width - 2.0)).max(0.0);
        svg.text("p-m", (x - over, bottom + 17.0), Anchor::Middle, text);
    }
    let title = fitted(&axis_title(&curve.y, up), TEXT_PX, width - 2.0 * PAD_PX);
    svg.text("p-t", (PAD_PX, top - 13.0), Anchor::Start, &title);
    let title = fitted(&axis_title(&curve.x, along), TEXT_PX, width - 2.0 * PAD_PX);
    svg.text("p-t", (right, bottom + 33.0), Anchor::End, &title);
}

/// Draws the lines of the upright scale with their labels, and the axis below.
pub(super) fn grid(svg: &mut Svg, along: &Scale, up: &Scale) {
    let (left, right) = along.ends;
    for (value, text) in &up.ticks {
        let y = up.place(*value);
        svg.line("p-grid", (left, y), (right, y));
        svg.text("p-m", (left - 6.0, y + 3.8), Anchor::End, text);
    }
    let bottom = up.ends.0;
    svg.line("p-axis", (left, bottom), (right, bottom));
}

/// Returns what an axis shows, with its unit if the labels lack it.
pub(super) fn axis_title(axis: &Axis, scale: &Scale) -> String {
    let (label, unit) = (numbers::name(&numbers::capital(&axis.label)), &scale.unit);
    if unit.is_empty() || scale.ticks_have_unit() {
        label
    } else {
        format!("{label}, {unit}")
    }
}

fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |range, value| {
        let (least, most) = range.unwrap_or((value, value));
        Some((f64::min(least, value), f64::max(most, value)))
    })
}

/// Returns at most two points for three pixels: the lowest and the highest.
fn thinned(points: Vec<[f64; 2]>, width: f64) -> Vec<[f64; 2]> {
    // The number of pixels: some hundreds.
    let most = (width as usize * 2 / 3).clamp(16, 2000);
    if points.len() <= most {
        return points;
    }
    let each = points.len().div_ceil(most / 2);
    let mut kept = Vec::with_capacity(most + 2);
    for group in points.chunks(each) {
        let by = |a: &(usize, &[f64; 2]), b: &(usize, &[f64; 2])| a.1[1].total_cmp(&b.1[1]);
        let low = group.iter().enumerate().min_by(by);
        let high = group.iter().enumerate().max_by(by);
        if let (Some(low), Some(high)) = (low, high) {
            kept.push(group[low.0.min(high.0)]);
            if low.0 != high.0 {
                kept.push(group[low.0.max(high.0)]);
            }
        }
    }
    kept
}

fn bars(svg: &mut Svg, curve: &Curve, series: &[(usize, &Series)], width: f64) -> f64 {
    let inner = width - 2.0 * PAD_PX;
    let names: Vec<&String> = curve.x.names.iter().take(NAMES_MAX).collect();
    let value = |series: &Series, at: usize| {
        let point = series.points.iter().find(|point| point[0] == at as f64);
        point
            .map(|point| point[1])
            .filter(|value| is_drawn(*value, false))
    };
    let unit = &curve.y.unit;
    let mut panels: Vec<Panel> = Vec::new();
    if let [(color, one)] = series {
        let bars = names
            .iter()
            .enumerate()
            .filter_map(|(at, name)| Some(panel::plain(name, *color, value(one, at)?, unit, one.published)));
        panels.push(Panel {
            title: named_axis(&curve.y),
            unit: unit.clone(),
            bars: bars.collect(),
            ..Panel::default()
        });
    } else {
        for (at, name) in names.iter().enumerate() {
            let bars = series.iter().filter_map(|(color, series)| {
                Some(panel::plain(
                    &series.name,
                    *color,
                    value(series, at)?,
                    unit,
                    series.published,
                ))
            });
            panels.push(Panel {
                title: numbers::name(name),
                unit: unit.clone(),
                bars: bars.collect(),
                ..Panel::default()
            });
        }
    }
    // All panels have the same scale.
    let values = panels
        .iter()
        .flat_map(|panel| &panel.bars)
        .filter_map(|bar| bar.value);
    let most = values.fold(0.0, f64::max) * 1.03;
    for panel in &mut panels {
        panel.most = Some(most);
    }
    let columns = if width >= 700.0 && panels.len() > 3 { 2 } else { 1 };
    let height = panel::panels(svg, &panels, (PAD_PX, PAD_PX), inner, columns);
    height + 2.0 * PAD_PX
}
