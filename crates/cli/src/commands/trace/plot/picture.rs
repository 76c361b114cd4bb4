//! Plots as a picture.

use std::io;
use std::path::Path;

use ropeway_lab::report::{Axis, Figure, FigurePanel, FigureShape, Medium, figure_png, figure_svg};

use super::{Plots, Series};

/// Names of files in a title are cut from this length on.
const NAME_MAX: usize = 60;

/// Writes an SVG.
pub(super) fn svg(plots: &Plots<'_>, path: &Path) -> io::Result<()> {
    write(path, figure_svg(&figure(plots), Medium::File).as_bytes())
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    std::fs::write(path, bytes)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// Writes a PNG.
pub(super) fn png(plots: &Plots<'_>, path: &Path) -> io::Result<()> {
    let png = figure_png(&figure(plots)).map_err(io::Error::other)?;
    write(path, &png)
}

fn figure(plots: &Plots<'_>) -> Figure {
    let times = plots.timeline.times();
    let line = |values: Vec<f64>| {
        let points = times.iter().zip(values).map(|(time, value)| [*time, value]);
        FigureShape::Line(points.collect())
    };
    let has_any = |values: &[f64]| values.iter().any(|value| *value > 0.0);
    let of_each = |values: &dyn Fn(Series) -> Vec<f64>| -> Vec<(usize, FigureShape)> {
        let series = Series::ALL
            .into_iter()
            .map(|series| (series as usize, values(series)));
        let used = series.filter(|(_, values)| has_any(values));
        used.map(|(series, values)| (series, line(values))).collect()
    };
    let panel = |y: Axis, shapes| FigurePanel {
        x: Axis::new("time", "s"),
        y,
        is_wide: false,
        shapes,
    };
    let panels = vec![
        panel(
            Axis::new("operations per second", "1/s"),
            of_each(&|series| plots.timeline.operations(series)),
        ),
        panel(
            Axis::new("bytes per second", "B/s"),
            of_each(&|series| plots.timeline.bytes(series)),
        ),
        panel(
            Axis::new("operations in flight, mean", ""),
            vec![(Series::Other as usize, line(plots.timeline.in_flight()))],
        ),
        sizes(plots),
        offsets(plots),
    ];
    Figure {
        title: plots.title.clone(),
        description:
            "Operations and bytes per second, operations in flight, and offsets of reads and writes \
                      against time; and how many reads and writes had which size."
                .to_owned(),
        series: Series::ALL.map(|series| series.name().to_owned()).to_vec(),
        panels,
    }
}

fn sizes(plots: &Plots<'_>) -> FigurePanel {
    let classes = plots.sizes.classes();
    let bars = |series: Series| {
        let counts = classes.iter().map(|class| class.count(series) as f64);
        (series as usize, FigureShape::Bars(counts.collect()))
    };
    let mut x = Axis::new("size of a read or write, up to", "");
    x.names = classes.iter().map(|class| class.name.clone()).collect();
    FigurePanel {
        x,
        y: Axis::new("reads and writes by size", ""),
        is_wide: false,
        shapes: if classes.is_empty() {
            Vec::new()
        } else {
            vec![bars(Series::Read), bars(Series::Write)]
        },
    }
}

fn offsets(plots: &Plots<'_>) -> FigurePanel {
    let strokes = plots.offsets.strokes();
    let shapes = [Series::Read, Series::Write].into_iter().filter_map(|series| {
        let own = strokes.iter().filter(|stroke| stroke.series == series);
        let lines: Vec<[f64; 4]> = own
            .map(|stroke| {
                let seconds = |ns: u128| ns as f64 / 1e9;
                let (from, to) = (stroke.from, stroke.to);
                [seconds(from.0), from.1 as f64, seconds(to.0), to.1 as f64]
            })
            .collect();
        (!lines.is_empty()).then_some((series as usize, FigureShape::Strokes(lines)))
    });
    FigurePanel {
        x: Axis::new("time", "s"),
        y: Axis::new(&offsets_title(plots), "B"),
        is_wide: true,
        shapes: shapes.collect(),
    }
}

/// Returns the title of the plot of offsets: which files it shows.
pub(super) fn offsets_title(plots: &Plots<'_>) -> String {
    let read = plots.busiest.name(Series::Read);
    let written = plots.busiest.name(Series::Write);
    match (read, written) {
        (None, None) => "offset".to_owned(),
        (Some(read), Some(written)) if read == written => format!("offset in {}", cut(read)),
        (Some(read), Some(written)) => format!("offset; read {}, write {}", cut(read), cut(written)),
        (Some(one), None) | (None, Some(one)) => format!("offset in {}", cut(one)),
    }
}

/// Returns the end of a long path.
fn cut(path: &str) -> String {
    let count = path.chars().count();
    if count <= NAME_MAX {
        return path.to_owned();
    }
    let end: String = path.chars().skip(count - NAME_MAX).collect();
    format!("…{end}")
}
