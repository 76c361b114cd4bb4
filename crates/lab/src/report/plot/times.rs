//! Seconds by client: a plot for each work and direction, with a panel for each link.

use super::super::model::{Cell, Published};
use super::super::numbers;
use super::super::text;
use super::super::view::{Column, Row, Section, View, failure, floor_factor, verdict};
use super::panel::{self, Bar, Entry, PAD_PX, Panel, Swatch};
use super::style;
use super::svg::{Caption, Medium, Svg};

/// Largest number of panels in a plot.
const PANELS_MAX: usize = 24;
/// Largest number of published figures in a panel: the fastest and the slowest.
const PUBLISHED_MAX: usize = 6;
/// Least width of a plot with two columns.
const TWO_COLUMNS_PX: f64 = 700.0;

/// Draws a section.
pub(super) fn draw(
    view: &View<'_>,
    section: &Section<'_>,
    medium: Medium,
    width: f64,
    caption: &Caption,
) -> String {
    let mut rows: Vec<&Row<'_>> = section.rows.iter().collect();
    rows.sort_by(|a, b| {
        order(view, a)
            .partial_cmp(&order(view, b))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    rows.truncate(PANELS_MAX);
    let panels: Vec<Panel> = rows.iter().map(|row| panel(view, section, row)).collect();
    let mut svg = Svg::default();
    let inner = width - 2.0 * PAD_PX;
    let top = PAD_PX + panel::legend(&mut svg, &entries(&panels), (PAD_PX, PAD_PX), inner) + 10.0;
    let columns = if width >= TWO_COLUMNS_PX && panels.len() > 1 {
        2
    } else {
        1
    };
    let height = panel::panels(&mut svg, &panels, (PAD_PX, top), inner, columns);
    svg.finish(medium, (width, top + height + PAD_PX), caption)
}

/// Sort key: short round trips first, then low rates.
fn order(view: &View<'_>, row: &Row<'_>) -> (f64, u64) {
    view.link(row.link).map_or((f64::MAX, 0), |link| {
        (link.rtt_ms, link.up_bps.or(link.down_bps).unwrap_or(u64::MAX))
    })
}

/// Returns the description of the plot.
pub(super) fn describe(view: &View<'_>, section: &Section<'_>) -> String {
    let mut text = String::from(
        "Bars of seconds by client and server for each link, of whole processes where there is a floor or a target.",
    );
    for row in section.rows.iter().take(PANELS_MAX) {
        let medians = view.medians(section, row);
        if let Some((column, median)) = medians.min_by(|a, b| a.1.total_cmp(&b.1)) {
            let (link, label) = (numbers::name(row.link), column.label());
            text.push_str(&format!(
                " {link}: fastest {label}, {}.",
                numbers::seconds(median)
            ));
        }
    }
    text
}

fn panel(view: &View<'_>, section: &Section<'_>, row: &Row<'_>) -> Panel {
    let measured = section.columns.iter().zip(&row.cells);
    let judges = row.limits().iter().any(Option::is_some);
    let measured =
        measured.filter_map(|(column, cell)| Some(bar(*column, &view.columns[*column], (*cell)?, judges)));
    let mut bars: Vec<Bar> = measured.collect();
    bars.extend(few(&row.published).map(published));
    let marks = ["p-line", "p-floor", "p-target"].into_iter().zip(row.limits());
    Panel {
        title: numbers::name(row.link),
        note: view.link_figures(row.link),
        unit: "s".to_owned(),
        bars,
        marks: marks.filter_map(|(class, at)| Some((class, at?))).collect(),
        most: None,
    }
}

/// Returns the fastest and the slowest.
fn few<'a>(published: &'a [&'a Published]) -> impl Iterator<Item = &'a Published> {
    let (half, all) = (PUBLISHED_MAX / 2, published.len());
    let kept = move |at: usize| all <= PUBLISHED_MAX || at < half || at >= all - half;
    published
        .iter()
        .enumerate()
        .filter(move |(at, _)| kept(*at))
        .map(|(_, figure)| *figure)
}

/// Returns the bar of a cell. `judges`: it shows what floor and target are about, the whole process, so that
/// the bar reaches the target's mark where the target is missed.
fn bar(at: usize, column: &Column<'_>, cell: &Cell, judges: bool) -> Bar {
    let label = column.label();
    let class = format!("p-f{}", style::color(at));
    let transfer = cell.seconds();
    let median = if judges { cell.judged() } else { transfer };
    let Some(median) = transfer.and(median) else {
        let (text, reason) = failure(cell);
        return Bar {
            tip: format!("{label}: {text} {reason}"),
            label,
            class,
            text: text.to_owned(),
            verdict: verdict(cell),
            ..Bar::default()
        };
    };
    let mut tip = format!("{label}: {}", numbers::seconds(median.value));
    if median.number > 1 {
        let (least, most) = (numbers::number(median.least), numbers::seconds(median.most));
        tip.push_str(&format!(", {} runs from {least} to {most}", median.number));
    }
    if let Some(factor) = floor_factor(cell) {
        tip.push_str(&format!(", {} the floor", numbers::factor(factor)));
    }
    if let Some(transfer) = transfer.filter(|transfer| judges && transfer.value < median.value) {
        let seconds = numbers::seconds(transfer.value);
        tip.push_str(&format!("; the transfer alone {seconds}"));
    }
    Bar {
        label,
        class,
        value: Some(median.value),
        spread: Some((median.least, median.most)),
        text: numbers::seconds(median.value),
        verdict: verdict(cell),
        tip,
        ..Bar::default()
    }
}

fn published(figure: &Published) -> Bar {
    let label = numbers::name(&format!("{} → {}", figure.client, figure.server));
    let text = format!("{} s", text::exact(figure.seconds));
    Bar {
        tip: format!("{label}: {text}, published in {}", figure.source),
        label,
        class: "p-pub".to_owned(),
        value: Some(figure.seconds),
        text,
        published: true,
        ..Bar::default()
    }
}

fn entries(panels: &[Panel]) -> Vec<Entry> {
    let mark = |class: &str| {
        panels
            .iter()
            .any(|panel| panel.marks.iter().any(|mark| mark.0 == class))
    };
    let bar = |of: &dyn Fn(&Bar) -> bool| panels.iter().flat_map(|panel| &panel.bars).any(of);
    let all = [
        (mark("p-line"), "p-line", Swatch::Upright, "line time"),
        (mark("p-floor"), "p-floor", Swatch::Upright, "floor: bare TCP"),
        (mark("p-target"), "p-target", Swatch::Upright, "target"),
        (
            bar(&|bar| bar.spread.is_some_and(|spread| spread.1 > spread.0)),
            "p-spread",
            Swatch::Line,
            "least to most",
        ),
        (
            bar(&|bar| bar.published),
            "p-pub",
            Swatch::Box,
            "published by others",
        ),
    ];
    let shown = all.into_iter().filter(|entry| entry.0);
    shown
        .map(|(_, class, swatch, text)| (class.to_owned(), swatch, text.to_owned()))
        .collect()
}
