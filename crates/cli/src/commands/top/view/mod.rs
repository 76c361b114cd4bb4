//! Draws `top`: the list of processes above or at the left, details of the chosen one, keys at the
//! bottom. Works at any size; what does not fit is left out, the most important stays.

mod job;
mod list;
mod others;
mod piece;
mod server;
pub(super) mod words;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

use self::piece::Piece;
use super::app::{Mode, TopApp};
use super::collect::{Processes, Row, State};
use crate::tui::Theme;
use crate::tui::text;

/// Width from which the list stands at the left.
const WIDE_MIN: u16 = 110;
/// Width of the list there: a third, and within these bounds. Below it shows no places.
const LIST_WIDTH: std::ops::RangeInclusive<u16> = 40..=72;
/// Most rows of the list above.
const LIST_ROWS_MAX: u16 = 8;

const HELP: [&str; 13] = [
    "↑ ↓      choose a process (also k, j, Tab)",
    "p        pause its jobs: what is under way ends, nothing new begins",
    "r        resume them",
    "b        change --bwlimit: 20M, a timetable, or off",
    "c        end the process as Ctrl-C does (asks first)",
    "← →      choose a session of a server",
    "x        end that session (asks first); its client may log in again",
    "?        this help",
    "q        leave; the processes go on",
    "",
    "read, sent, durable: what a copy has taken, passed on, and knows to be safe.",
    "Graphs have one column for each second, the newest at the right.",
    "docs/top.md explains the figures and the socket behind them.",
];

/// Draws everything.
pub(super) fn draw<P: Processes>(frame: &mut Frame<'_>, app: &TopApp<P>, theme: Theme) {
    let area = frame.area();
    let [main, bottom] = Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(area);
    if app.mode == Mode::Help {
        help(frame, main, theme);
    } else if main.width >= WIDE_MIN {
        let list_width = (main.width / 3).clamp(*LIST_WIDTH.start(), *LIST_WIDTH.end());
        let sides = [
            Constraint::Length(list_width),
            Constraint::Length(1),
            Constraint::Fill(1),
        ];
        let [list_area, _, details_area] = Layout::horizontal(sides).areas(main);
        list::draw(frame, list_area, app, theme);
        details(frame, details_area, app, theme);
    } else {
        let wanted = u16::try_from(app.rows.len().max(1)).unwrap_or(u16::MAX);
        // At least two thirds for the details.
        let rows = wanted.min(LIST_ROWS_MAX).min(main.height / 3).max(1) + 1;
        let parts = [Constraint::Length(rows), Constraint::Fill(1)];
        let [list_area, details_area] = Layout::vertical(parts).areas(main);
        list::draw(frame, list_area, app, theme);
        details(frame, details_area, app, theme);
    }
    last_line(frame, bottom, app, theme);
}

/// Draws keys, a question, or what was said.
fn last_line<P: Processes>(frame: &mut Frame<'_>, area: Rect, app: &TopApp<P>, theme: Theme) {
    let width = usize::from(area.width);
    let line = match (&app.mode, &app.notice) {
        (Mode::Rate(rate), _) => {
            let label = " --bwlimit: ";
            let room = width.saturating_sub(text::width(label) + 1);
            let hint = "  (20M, off; Enter sets, Esc leaves it)";
            Line::from(vec![
                Span::styled(label, theme.heading()),
                Span::raw(text::tail(rate, room)),
                Span::styled(" ", theme.chosen()),
                Span::styled(hint, theme.faint()),
            ])
        }
        (Mode::Confirm(question), _) => {
            let asked = text::head(&question.text, width.saturating_sub(9));
            Line::from(vec![
                Span::styled(format!(" {asked} "), theme.warning()),
                Span::raw("[y/N]"),
            ])
        }
        (_, Some(notice)) => {
            let style = if notice.is_error {
                theme.bad()
            } else {
                theme.heading()
            };
            Line::styled(
                format!(" {}", text::head(&notice.text, width.saturating_sub(2))),
                style,
            )
        }
        (Mode::Help, None) => Line::styled(" any key leaves the help", theme.faint()),
        (Mode::Normal, None) => text::keys(KEYS, width, theme),
    };
    frame.render_widget(Paragraph::new(line), area);
}

/// The keys, the most important first.
const KEYS: &[(&str, &str)] = &[
    ("q", "quit"),
    ("↑↓", "choose"),
    ("p", "pause"),
    ("r", "resume"),
    ("b", "bwlimit"),
    ("c", "cancel"),
    ("?", "help"),
    ("←→", "session"),
    ("x", "end it"),
];

fn help(frame: &mut Frame<'_>, area: Rect, theme: Theme) {
    let lines: Vec<Line<'_>> = HELP.iter().map(|line| Line::raw(*line)).collect();
    let block = Block::bordered().title(Span::styled(" ropeway top ", theme.heading()));
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

/// Draws the details of the chosen process.
fn details<P: Processes>(frame: &mut Frame<'_>, area: Rect, app: &TopApp<P>, theme: Theme) {
    let width = usize::from(area.width);
    let Some(row) = app.chosen_row() else {
        let mut lines = vec![Line::styled("no ropeway is running", theme.faint())];
        let left_out = app.left_out.iter();
        lines.extend(left_out.map(|why| Line::styled(format!("left out: {why}"), theme.warning())));
        return frame.render_widget(Paragraph::new(lines), area);
    };
    let mut pieces = vec![header(row, width, theme)];
    if let Some(snapshot) = &row.snapshot {
        for job in &snapshot.jobs {
            pieces.extend(job::pieces(job, width, theme));
        }
        for server in &snapshot.servers {
            pieces.extend(server::pieces(server, app.session, width, theme));
        }
        for mount in &snapshot.mounts {
            pieces.extend(others::mount(mount, width, theme));
        }
        for cache in &snapshot.caches {
            pieces.extend(others::cache(cache, width, theme));
        }
        pieces.extend(others::dirty(snapshot, width, theme));
        pieces.extend(others::page_cache(snapshot, width, theme));
        for run in &snapshot.runs {
            pieces.extend(others::run(run, width, theme));
        }
    }
    piece::draw(frame, area, &pieces, theme);
}

/// Returns what is said of every process: its command line, its state, what it takes.
fn header<'a>(row: &Row, width: usize, theme: Theme) -> Piece<'a> {
    let mut lines = Vec::new();
    if let Some(snapshot) = &row.snapshot {
        let process = &snapshot.process;
        let command = format!("{} {}", process.pid, process.arguments.join(" "));
        lines.push(Line::styled(text::head(&command, width), theme.heading()));
        lines.push(Line::styled(
            text::head(&words::resources(snapshot), width),
            theme.faint(),
        ));
    } else {
        lines.push(Line::styled(
            format!("process {}", row.address.pid),
            theme.heading(),
        ));
    }
    match &row.state {
        State::Alive => {}
        State::Found => lines.push(Line::styled("asking it …", theme.faint())),
        State::Ended => lines.push(Line::styled(
            "it has ended; these are its last figures",
            theme.warning(),
        )),
        State::Failing(why) => lines.push(Line::styled(text::head(why, width), theme.bad())),
    }
    Piece::Lines(lines)
}

#[cfg(test)]
#[path = "../view_tests.rs"]
mod tests;
