//! Plots in the terminal.

use std::io::{self, Write};

use super::picture::offsets_title;
use super::{Plots, Series};
use crate::commands::trace::view::{one_line, short_time};
use crate::ui::format;

/// Width where the terminal does not tell it, and its bounds.
const WIDTH: usize = 80;
const WIDTH_MIN: usize = 40;
const WIDTH_MAX: usize = 200;
/// Width of the labels on the left.
const LABEL: usize = 14;
/// Heights in lines.
const HEIGHT: usize = 6;
const TALL: usize = 16;
/// Eighths of a block.
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Braille patterns have 2 x 4 dots; bits of the dots by column and row (Unicode 15, U+2800).
const DOTS: [[u8; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];

/// Draws all plots.
pub(super) fn draw(plots: &Plots<'_>, out: &mut dyn Write) -> io::Result<()> {
    let width = width().saturating_sub(LABEL + 1);
    let timeline = &plots.timeline;
    let end_s = timeline.times().last().copied().unwrap_or(0.0);
    let sum = |values: &dyn Fn(Series) -> Vec<f64>| -> Vec<f64> {
        let [read, write, other] = Series::ALL.map(values);
        let all = read.iter().zip(&write).zip(&other);
        all.map(|((read, write), other)| read + write + other).collect()
    };
    let operations = sum(&|series| timeline.operations(series));
    let per_second = |value: f64| format!("{}/s", format::count(value as u64));
    graph(out, "operations/s", &operations, width, &per_second)?;
    for (name, series) in [("bytes read/s", Series::Read), ("bytes written/s", Series::Write)] {
        let bytes = timeline.bytes(series);
        if bytes.iter().any(|value| *value > 0.0) {
            graph(out, name, &bytes, width, &format::rate)?;
        }
    }
    graph(out, "in flight (mean)", &timeline.in_flight(), width, &|value| {
        format!("{value:.1}")
    })?;
    writeln!(
        out,
        "{:LABEL$} 0{:>width$}\n",
        "",
        short_time(end_s * 1e9),
        width = width - 1
    )?;
    sizes(plots, out, width)?;
    offsets(plots, out, width)
}

/// Returns the width of the terminal.
fn width() -> usize {
    let told = rustix::termios::tcgetwinsize(io::stdout()).ok();
    let columns = told
        .map(|size| usize::from(size.ws_col))
        .filter(|columns| *columns > 0);
    columns.unwrap_or(WIDTH).clamp(WIDTH_MIN, WIDTH_MAX)
}

/// Returns the values in as many columns, the largest one of each.
fn columns(values: &[f64], width: usize) -> Vec<f64> {
    let column = |at: usize| {
        let from = at * values.len() / width;
        let to = ((at + 1) * values.len() / width).max(from + 1).min(values.len());
        values[from.min(to)..to].iter().copied().fold(0.0, f64::max)
    };
    (0..width).map(column).collect()
}

/// Draws a graph of blocks, with the largest value at its top.
fn graph(
    out: &mut dyn Write,
    title: &str,
    values: &[f64],
    width: usize,
    text: &dyn Fn(f64) -> String,
) -> io::Result<()> {
    let columns = columns(values, width);
    let most = columns.iter().copied().fold(0.0, f64::max);
    writeln!(out, "{title}")?;
    for line in (0..HEIGHT).rev() {
        let label = match line {
            line if line + 1 == HEIGHT => text(most),
            0 => text(0.0),
            _ => String::new(),
        };
        let blocks: String = columns
            .iter()
            .map(|value| {
                let eighths = if most > 0.0 {
                    value / most * (HEIGHT * 8) as f64
                } else {
                    0.0
                };
                // Between 0 and 8.
                let here = (eighths - (line * 8) as f64).clamp(0.0, 8.0).round() as usize;
                BLOCKS[here]
            })
            .collect();
        writeln!(out, "{label:>LABEL$} {}", blocks.trim_end())?;
    }
    Ok(())
}

/// Draws the histogram of sizes.
fn sizes(plots: &Plots<'_>, out: &mut dyn Write, width: usize) -> io::Result<()> {
    let classes = plots.sizes.classes();
    if classes.is_empty() {
        return Ok(());
    }
    writeln!(out, "reads and writes by size, up to (r: reads, w: writes)")?;
    let all = |class: &super::sizes::Class| class.count(Series::Read) + class.count(Series::Write);
    let most = classes.iter().map(all).max().unwrap_or(0).max(1);
    let room = width.saturating_sub(24);
    for class in classes {
        let (reads, writes) = (class.count(Series::Read), class.count(Series::Write));
        // Shares of the room.
        let part = |count: u64| (count as f64 / most as f64 * room as f64).ceil() as usize;
        let bar = "r".repeat(part(reads).min(room)) + &"w".repeat(part(writes).min(room));
        let counts = match (reads, writes) {
            (reads, 0) => format::count(reads),
            (0, writes) => format::count(writes),
            (reads, writes) => format!("{} + {}", format::count(reads), format::count(writes)),
        };
        writeln!(out, "{:>LABEL$} {bar} {counts}", class.name)?;
    }
    writeln!(out)
}

/// Draws offsets as dots.
fn offsets(plots: &Plots<'_>, out: &mut dyn Write, width: usize) -> io::Result<()> {
    let strokes = plots.offsets.strokes();
    let last = |of: &dyn Fn(&super::offsets::Stroke) -> u128| strokes.iter().map(of).max().unwrap_or(0);
    let (end, top) = (last(&|stroke| stroke.to.0), last(&|stroke| stroke.to.1));
    if top == 0 {
        return Ok(());
    }
    writeln!(out, "{}", one_line(&offsets_title(plots)))?;
    let (wide, high) = (width * 2, TALL * 4);
    let mut cells = vec![0_u8; width * TALL];
    let place = |value: u128, most: u128, room: usize| {
        let share = value as f64 / (most.max(1)) as f64;
        ((share * room as f64) as usize).min(room - 1)
    };
    for stroke in &strokes {
        let (left, right) = (place(stroke.from.0, end, wide), place(stroke.to.0, end, wide));
        let (low, up) = (place(stroke.from.1, top, high), place(stroke.to.1 - 1, top, high));
        let steps = (right - left).max(up - low).max(1);
        for step in 0..=steps {
            let (x, y) = (
                left + (right - left) * step / steps,
                low + (up - low) * step / steps,
            );
            let row = high - 1 - y;
            cells[row / 4 * width + x / 2] |= DOTS[x % 2][row % 4];
        }
    }
    let byte_text = |value: u128| format::bytes(u64::try_from(value).unwrap_or(u64::MAX));
    for (line, cells) in cells.chunks(width).enumerate() {
        let label = match line {
            0 => byte_text(top),
            line if line + 1 == TALL => "0 B".to_owned(),
            _ => String::new(),
        };
        let dots: String = cells
            .iter()
            .map(|dots| match dots {
                0 => ' ',
                dots => char::from_u32(0x2800 + u32::from(*dots)).unwrap_or(' '),
            })
            .collect();
        writeln!(out, "{label:>LABEL$} {}", dots.trim_end())?;
    }
    writeln!(
        out,
        "{:LABEL$} 0{:>width$}",
        "",
        short_time(end as f64),
        width = width - 1
    )
}
