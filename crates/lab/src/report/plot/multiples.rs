//! Small multiples: a panel for each of many lines, with the others in grey behind it, since more than four
//! lines in one plot cannot be told apart where they cross.

use super::super::model::{Curve, Series};
use super::curve::{axis_title, data, grid, line_class, points, shown_name, widest};
use super::panel::{PAD_PX, SMALL_PX, TEXT_PX};
use super::scale::Scale;
use super::svg::{Anchor, Svg, fitted, text_width};

/// Least width of a panel.
const PANEL_PX: f64 = 165.0;
/// Height of the area of a panel.
const AREA_PX: f64 = 96.0;
/// Height of a panel's name above, and of the labels below.
const HEAD_PX: f64 = 26.0;
const FOOT_PX: f64 = 30.0;
/// Gap between panels.
const GAP_PX: f64 = 14.0;
/// Most columns.
const COLUMNS_MAX: f64 = 4.0;

/// Draws all lines with common scales. Returns the height.
pub(super) fn draw(
    svg: &mut Svg,
    curve: &Curve,
    series: &[(usize, &Series)],
    (xs, ys): ((f64, f64), (f64, f64)),
    width: f64,
) -> f64 {
    let inner = width - 2.0 * PAD_PX;
    // At most four columns.
    let columns = ((inner + GAP_PX) / (PANEL_PX + GAP_PX))
        .floor()
        .clamp(1.0, COLUMNS_MAX) as usize;
    // Rows of nearly the same length.
    let columns = series.len().div_ceil(series.len().div_ceil(columns)).max(1);
    let each = (inner - GAP_PX * (columns as f64 - 1.0)) / columns as f64;
    let up = Scale::new(&curve.y, ys, (AREA_PX, 0.0), 34.0);
    let gutter = widest(&up) + 8.0;
    let along = Scale::new(&curve.x, xs, (gutter, each), 44.0);
    let title = format!(
        "{} against {}",
        axis_title(&curve.y, &up),
        axis_title(&curve.x, &along)
    );
    let title = fitted(&title, TEXT_PX, inner);
    svg.text("p-t", (PAD_PX, PAD_PX + 12.0), Anchor::Start, &title);
    let top = PAD_PX + 22.0;
    let row_px = HEAD_PX + AREA_PX + FOOT_PX;
    for (at, (color, own)) in series.iter().enumerate() {
        let left = PAD_PX + (each + GAP_PX) * (at % columns) as f64;
        let area_top = top + row_px * (at / columns) as f64 + HEAD_PX;
        let along = Scale::new(&curve.x, xs, (left + gutter, left + each), 44.0);
        let up = Scale::new(&curve.y, ys, (area_top + AREA_PX, area_top), 34.0);
        let name = fitted(&shown_name(own), TEXT_PX, each);
        svg.text("p-t", (left, area_top - 11.0), Anchor::Start, &name);
        axes(svg, &along, &up);
        for (_, other) in series.iter().filter(|(_, other)| !std::ptr::eq(*other, *own)) {
            svg.polyline("p-s p-other", "", &points(curve, other, (&along, &up), each));
        }
        svg.open(&data(&along, &up));
        let class = format!("p-s {}", line_class(*color, own.published));
        svg.polyline(&class, &own.name, &points(curve, own, (&along, &up), each));
        svg.close();
    }
    top + row_px * series.len().div_ceil(columns) as f64
}

fn axes(svg: &mut Svg, along: &Scale, up: &Scale) {
    grid(svg, along, up);
    let ((left, right), bottom) = (along.ends, up.ends.0);
    let mut free = left - 20.0;
    for (value, text) in &along.ticks {
        let (x, half) = (along.place(*value), text_width(text, SMALL_PX) / 2.0);
        svg.line("p-axis", (x, bottom), (x, bottom + 3.0));
        // Labels that would touch the one before are left out.
        let middle = x.min(right - half);
        if middle - half > free {
            svg.text("p-m", (middle, bottom + 15.0), Anchor::Middle, text);
            free = middle + half + 4.0;
        }
    }
}
