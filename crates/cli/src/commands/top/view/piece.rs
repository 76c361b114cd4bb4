//! Pieces of the details, one below the other: lines, graphs, tables. Each gets what it needs if there
//! is room, and what is left is shared by those that want more.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Sparkline};

use crate::tui::Theme;
use crate::tui::text;

/// Rows of a graph with its title: at least, and at most.
const GRAPH_ROWS: (u16, u16) = (3, 9);
/// Width from which two graphs stand side by side.
const SIDE_BY_SIDE_MIN: u16 = 60;

/// Smallest column for what is left: a few letters of a name say nothing.
const REST_MIN: usize = 6;

/// A piece of the details.
pub(super) enum Piece<'a> {
    /// Lines of text.
    Lines(Vec<Line<'a>>),
    /// Graphs, side by side if there is room, else the first.
    Graphs(Vec<Graph>),
    /// Rows under a heading.
    Table(Table),
}

/// Amounts by the second, newest last.
pub(super) struct Graph {
    pub(super) title: String,
    pub(super) data: Vec<u64>,
    pub(super) color: Color,
}

/// Rows under a heading.
pub(super) struct Table {
    /// What the rows are.
    pub(super) title: String,
    /// Headings with the width of their columns; negative: aligned to the right; 0: what is left.
    pub(super) columns: Vec<(&'static str, i16)>,
    pub(super) rows: Vec<Vec<String>>,
    pub(super) chosen: Option<usize>,
}

impl Piece<'_> {
    /// Returns the rows that it needs, and those that it would like.
    fn need(&self) -> (u16, u16) {
        let count = |number: usize| u16::try_from(number).unwrap_or(u16::MAX);
        match self {
            Self::Lines(lines) => (count(lines.len()), count(lines.len())),
            Self::Graphs(_) => GRAPH_ROWS,
            Self::Table(table) => {
                let all = count(table.rows.len().saturating_add(2));
                (all.min(4), all)
            }
        }
    }
}

/// Shares rows: first what each needs, in order, then one by one what they would like.
pub(super) fn allocate(needs: &[(u16, u16)], height: u16) -> Vec<u16> {
    let mut left = height;
    let mut given: Vec<u16> = needs
        .iter()
        .map(|(least, _)| {
            let rows = (*least).min(left);
            left -= rows;
            rows
        })
        .collect();
    while left > 0 {
        let before = left;
        for (given, (_, most)) in given.iter_mut().zip(needs) {
            if left > 0 && *given < *most {
                *given += 1;
                left -= 1;
            }
        }
        if left == before {
            break;
        }
    }
    given
}

/// Draws pieces one below the other.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, pieces: &[Piece<'_>], theme: Theme) {
    let needs: Vec<(u16, u16)> = pieces.iter().map(Piece::need).collect();
    let mut y = area.y;
    for (piece, height) in pieces.iter().zip(allocate(&needs, area.height)) {
        let part = Rect { y, height, ..area };
        y = y.saturating_add(height);
        if part.is_empty() {
            continue;
        }
        match piece {
            Piece::Lines(lines) => frame.render_widget(Paragraph::new(lines.clone()), part),
            Piece::Graphs(graphs) => draw_graphs(frame, part, graphs, theme),
            Piece::Table(table) => draw_table(frame, part, table, theme),
        }
    }
}

fn draw_graphs(frame: &mut Frame<'_>, area: Rect, graphs: &[Graph], theme: Theme) {
    let [first, rest @ ..] = graphs else { return };
    match rest {
        [second, ..] if area.width >= SIDE_BY_SIDE_MIN => {
            let sides = [Constraint::Fill(1), Constraint::Length(2), Constraint::Fill(1)];
            let [left, _, right] = Layout::horizontal(sides).areas(area);
            draw_graph(frame, left, first, theme);
            draw_graph(frame, right, second, theme);
        }
        _ => draw_graph(frame, area, first, theme),
    }
}

fn draw_graph(frame: &mut Frame<'_>, area: Rect, graph: &Graph, theme: Theme) {
    let parts = [Constraint::Length(1), Constraint::Fill(1)];
    let [title, bars] = Layout::vertical(parts).areas(area);
    let label = text::head(&graph.title, usize::from(title.width));
    frame.render_widget(Paragraph::new(Line::styled(label, theme.faint())), title);
    if bars.is_empty() {
        return;
    }
    let columns = fitted(&graph.data, usize::from(bars.width));
    let sparkline = Sparkline::default().style(theme.paint(graph.color)).data(columns);
    frame.render_widget(sparkline, bars);
}

/// Returns one value for each column, the newest at the right, small enough for the arithmetic of the
/// widget.
fn fitted(data: &[u64], width: usize) -> Vec<u64> {
    let shown = &data[data.len().saturating_sub(width)..];
    let most = shown.iter().copied().max().unwrap_or(0);
    // The widget multiplies by eight times its height.
    let shift = (u64::BITS - most.leading_zeros()).saturating_sub(40);
    let missing = std::iter::repeat_n(0, width - shown.len());
    missing.chain(shown.iter().map(|value| value >> shift)).collect()
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, table: &Table, theme: Theme) {
    let width = usize::from(area.width);
    let widths = widths(&table.columns, width);
    let line = |cells: &mut dyn Iterator<Item = &str>, style: Style| {
        let columns = table.columns.iter().zip(&widths).zip(cells);
        let cells: Vec<String> = columns
            .filter(|((_, width), _)| **width > 0)
            .map(|(((_, wanted), width), cell)| match *wanted {
                wanted if wanted < 0 => text::right(cell, *width),
                0 => text::padded(&text::tail(cell, *width), *width),
                _ => text::padded(cell, *width),
            })
            .collect();
        Line::styled(text::head(&cells.join(" "), width), style)
    };
    let mut lines = vec![Line::styled(text::head(&table.title, width), theme.heading())];
    let mut headings = table.columns.iter().map(|(heading, _)| *heading);
    lines.push(line(&mut headings, theme.faint()));
    let room = usize::from(area.height).saturating_sub(lines.len());
    // The chosen row is in sight.
    let first = table.chosen.map_or(0, |chosen| (chosen + 1).saturating_sub(room));
    for (index, row) in table.rows.iter().enumerate().skip(first).take(room) {
        let style = match table.chosen == Some(index) {
            true => theme.chosen(),
            false => Style::default(),
        };
        lines.push(line(&mut row.iter().map(String::as_str), style));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

/// Returns the width of each column, 0 for those that do not fit.
fn widths(columns: &[(&'static str, i16)], width: usize) -> Vec<usize> {
    let (mut used, mut widths) = (0, Vec::with_capacity(columns.len()));
    for (_, wanted) in columns {
        let wanted = usize::from(wanted.unsigned_abs());
        let space = usize::from(used > 0 || !widths.is_empty());
        let fits = used + wanted + space <= width;
        widths.push(if fits { wanted } else { 0 });
        used += if fits { wanted + space } else { 0 };
    }
    let left = width.saturating_sub(used);
    if let Some(rest) = columns.iter().position(|(_, wanted)| *wanted == 0) {
        widths[rest] = if left < REST_MIN { 0 } else { left };
    }
    widths
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_piece_gets_what_it_needs_first() {
        let needs = [(2, 2), (3, 9), (4, 20)];
        assert_eq!(allocate(&needs, 5), [2, 3, 0]);
        assert_eq!(allocate(&needs, 9), [2, 3, 4]);
        assert_eq!(allocate(&needs, 15), [2, 6, 7]);
        assert_eq!(allocate(&needs, 100), [2, 9, 20]);
        assert_eq!(allocate(&[], 10), Vec::<u16>::new());
    }

    #[test]
    fn graphs_end_at_the_right() {
        assert_eq!(fitted(&[1, 2], 4), [0, 0, 1, 2]);
        assert_eq!(fitted(&[1, 2, 3, 4], 2), [3, 4]);
        assert_eq!(fitted(&[], 2), [0, 0]);
        assert!(fitted(&[u64::MAX, 1], 2).iter().all(|value| *value < 1 << 41));
    }

    proptest! {
        #[test]
        fn no_more_rows_are_given_than_there_are(needs in proptest::collection::vec((0_u16..30, 0_u16..60), 0..9), height in 0_u16..200) {
            let given = allocate(&needs, height);
            prop_assert!(given.iter().map(|rows| u32::from(*rows)).sum::<u32>() <= u32::from(height));
            for (given, (least, most)) in given.iter().zip(&needs) {
                prop_assert!(given <= most.max(least));
            }
        }

        #[test]
        fn columns_fit(columns in proptest::collection::vec(-20_i16..20, 0..9), width in 0_usize..120) {
            let columns: Vec<(&'static str, i16)> = columns.into_iter().map(|width| ("x", width)).collect();
            let widths = widths(&columns, width);
            prop_assert!(widths.iter().all(|one| *one <= width));
        }
    }
}
