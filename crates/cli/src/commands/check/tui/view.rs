//! Draws `check --tui`: a table with both sides, what is under way, and the keys.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};
use ropeway_copy::Side;
use ropeway_live::clean;
use ropeway_vfs::{Kind, Timestamp};

use super::app::{CheckApp, Mode, Work};
use super::list::{Direction, Fate, List, Row};
use super::work::{Activity, Shared};
use crate::tui::Theme;
use crate::tui::text::{bar, head, keys, padded, percent, right, share, tail, width as columns};
use crate::ui::format;

/// Columns of a size and of a time.
const SIZE: usize = 10;
const TIME: usize = 16;
/// Columns of a reason.
const WHY: usize = 10;
/// Width from which times are shown besides sizes.
const TIMES_MIN: usize = 90;

const HELP: [&str; 15] = [
    "space    choose this difference, or not any more",
    "a  n     choose all that are shown; choose none",
    "/        show only paths or reasons with a text",
    "s        sort by path, reason, size, time, or as found",
    ">  →     copy what is chosen from the source to the target (asks first)",
    "<  ←     copy it back, from the target to the source (asks first)",
    "p        pause or resume what is under way",
    "Esc      stop what is under way",
    "r        compare again",
    "q        leave",
    "",
    "missing: the target lacks it. extra: only the target has it.",
    "newer, older: the source's file is. content: sizes and times are equal.",
    "Copies are ordinary ones: temporary names, a journal, durable at their end.",
    "Nothing is deleted here; `ropeway mirror` does that.",
];

/// Draws everything.
pub(super) fn draw<W: Work>(frame: &mut Frame<'_>, app: &CheckApp<W>, theme: Theme) {
    let (ends, shared) = (app.ends(), app.shared().lock());
    let parts = [
        Constraint::Length(2),
        Constraint::Fill(1),
        Constraint::Length(2),
        Constraint::Length(1),
    ];
    let [top, middle, state, bottom] = Layout::vertical(parts).areas(frame.area());
    let width = usize::from(top.width);
    let title = format!(" {} ⇄ {}", clean(&ends.0), clean(&ends.1));
    let mut lines = vec![Line::styled(head(&title, width), theme.heading())];
    lines.push(Line::styled(head(&summary(&shared.list), width), theme.faint()));
    frame.render_widget(Paragraph::new(lines), top);
    match app.mode {
        Mode::Help => help(frame, middle, theme),
        _ => table(frame, middle, &shared.list, theme),
    }
    frame.render_widget(Paragraph::new(activity(&shared, width, theme)), state);
    frame.render_widget(Paragraph::new(last_line(app, &shared, width, theme)), bottom);
}

fn summary(list: &List) -> String {
    let mut parts = vec![
        format!(" {}", format::counted(list.total(), "difference", "differences")),
        format!("{} shown", format::count(list.shown().len() as u64)),
        format!("{} chosen", format::count(list.chosen() as u64)),
        format!("by {}", list.sort().name()),
    ];
    if !list.filter().is_empty() {
        parts.push(format!("with {:?}", list.filter()));
    }
    if list.more() > 0 {
        parts.push(format!("{} more are not kept", format::count(list.more())));
    }
    parts.join(" · ")
}

fn help(frame: &mut Frame<'_>, area: Rect, theme: Theme) {
    let lines: Vec<Line<'_>> = HELP.iter().map(|line| Line::raw(*line)).collect();
    let block = Block::bordered().title(Span::styled(" ropeway check ", theme.heading()));
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

/// The keys, the most important first.
const KEYS: &[(&str, &str)] = &[
    ("q", "quit"),
    ("space", "choose"),
    (">", "copy"),
    ("<", "copy back"),
    ("/", "filter"),
    ("s", "sort"),
    ("a", "all"),
    ("n", "none"),
    ("?", "help"),
    ("p", "pause"),
    ("r", "compare again"),
];

/// Widths of the table's columns.
struct Widths {
    path: usize,
    why: usize,
    size: usize,
    time: usize,
}

impl Widths {
    fn of(width: usize) -> Self {
        let time = if width >= TIMES_MIN { TIME } else { 0 };
        let size = if width >= 44 { SIZE } else { 0 };
        let why = if width >= 24 { WHY } else { 0 };
        let others = [why, size, size, time, time];
        let taken: usize = others.iter().map(|width| width + usize::from(*width > 0)).sum();
        Self {
            // Four columns for the marks of choice and of fate.
            path: width.saturating_sub(taken + 4),
            why,
            size,
            time,
        }
    }

    fn line(&self, marks: &str, path: &str, why: &str, sides: [(String, String); 2]) -> String {
        let mut cells = vec![format!("{marks}{}", padded(&tail(path, self.path), self.path))];
        if self.why > 0 {
            cells.push(padded(why, self.why));
        }
        for (size, time) in sides {
            if self.size > 0 {
                cells.push(right(&size, self.size));
            }
            if self.time > 0 {
                cells.push(right(&time, self.time));
            }
        }
        cells.join(" ")
    }
}

fn table(frame: &mut Frame<'_>, area: Rect, list: &List, theme: Theme) {
    let width = usize::from(area.width);
    let widths = Widths::of(width);
    let heading = widths.line(
        "    ",
        "PATH",
        "WHY",
        [
            ("SOURCE".to_owned(), "CHANGED".to_owned()),
            ("TARGET".to_owned(), "CHANGED".to_owned()),
        ],
    );
    let mut lines = vec![Line::styled(head(&heading, width), theme.faint())];
    let room = usize::from(area.height).saturating_sub(1);
    let first = (list.cursor() + 1).saturating_sub(room);
    for (index, row) in list.shown().enumerate().skip(first).take(room) {
        let text = head(&row_text(row, &widths), width);
        let style = match (&row.fate, index == list.cursor()) {
            (_, true) => theme.chosen(),
            (Fate::Failed(_), _) => theme.bad(),
            (Fate::Copied(_), _) => theme.paint(Color::Green),
            (Fate::UnderWay, _) => theme.warning(),
            (Fate::Untouched, _) => Style::default(),
        };
        lines.push(Line::styled(padded(&text, width), style));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn row_text(row: &Row, widths: &Widths) -> String {
    let chosen = if row.is_chosen { "[x]" } else { "[ ]" };
    let fate = match &row.fate {
        Fate::Untouched => ' ',
        Fate::UnderWay => '…',
        Fate::Copied(Direction::Forward) => '→',
        Fate::Copied(Direction::Back) => '←',
        Fate::Failed(_) => '!',
    };
    let path = clean(&row.difference.path.to_string());
    let path = if path.is_empty() { "." } else { &path };
    let sides = [row.difference.source.as_ref(), row.difference.target.as_ref()].map(side);
    widths.line(&format!("{chosen}{fate}"), path, row.why, sides)
}

/// Returns size and time of one side.
fn side(side: Option<&Side>) -> (String, String) {
    let Some(side) = side else {
        return ("-".to_owned(), String::new());
    };
    let size = match side.kind {
        Kind::File => format::bytes(side.size),
        Kind::Directory => "folder".to_owned(),
        Kind::Symlink => "link".to_owned(),
        Kind::Fifo => "FIFO".to_owned(),
        Kind::Socket => "socket".to_owned(),
        Kind::CharDevice | Kind::BlockDevice => "device".to_owned(),
    };
    (size, time(side.modified))
}

/// Formats a time in local time, to the minute.
fn time(time: Timestamp) -> String {
    if !time.is_known() {
        return "?".to_owned();
    }
    match jiff::Timestamp::from_nanosecond(time.0) {
        Ok(time) => {
            let local = time.to_zoned(jiff::tz::TimeZone::system());
            local.strftime("%Y-%m-%d %H:%M").to_string()
        }
        Err(_) => "?".to_owned(),
    }
}

/// Returns what is under way, and what is said of the row below the cursor.
fn activity(shared: &Shared, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let line = match &shared.activity {
        Activity::Idle => Line::raw(""),
        Activity::Comparing(watch) => {
            let outcome = watch.outcome();
            let paused = if watch.limit().is_paused() {
                "PAUSED"
            } else {
                "comparing …"
            };
            let text = format!(" {paused} {}", format::counted(outcome.files, "node", "nodes"));
            Line::styled(head(&text, width), theme.warning())
        }
        Activity::Compared(outcome) => {
            let text = format!(
                " compared {}, {}; {} failed",
                format::counted(outcome.files, "node", "nodes"),
                format::bytes(outcome.bytes),
                format::count(outcome.errors),
            );
            Line::raw(head(&text, width))
        }
        Activity::Copied(text) => Line::raw(head(&format!(" {text}"), width)),
        Activity::Copying(copying) => {
            let counters = copying.counters();
            let state = match (copying.is_stopping, copying.is_paused()) {
                (true, _) => "stopping",
                (false, true) => "PAUSED",
                (false, false) => "copying",
            };
            let arrow = match copying.direction {
                Direction::Forward => '→',
                Direction::Back => '←',
            };
            let done = share(counters.bytes_sent, counters.bytes_total);
            let text = format!(
                " {state} {arrow} {} · sent {} of {} · durable {} {} ",
                format::counted(copying.files as u64, "node", "nodes"),
                format::bytes(counters.bytes_sent),
                format::bytes(counters.bytes_total),
                format::bytes(counters.bytes_durable),
                percent(done),
            );
            let room = width.saturating_sub(columns(&text) + 1).min(60);
            Line::from(vec![
                Span::styled(head(&text, width), theme.warning()),
                Span::styled(bar(done, room), theme.paint(Color::Cyan)),
            ])
        }
    };
    let below = match (shared.list.current().map(|row| &row.fate), shared.errors.first()) {
        (Some(Fate::Failed(why)), _) => Line::styled(head(&format!(" {}", clean(why)), width), theme.bad()),
        (_, Some(error)) => {
            let text = format!(" not compared: {}", clean(error));
            Line::styled(head(&text, width), theme.bad())
        }
        _ => Line::raw(""),
    };
    vec![line, below]
}

fn last_line<W: Work>(app: &CheckApp<W>, shared: &Shared, width: usize, theme: Theme) -> Line<'static> {
    let asked = |text: &str| {
        Line::from(vec![
            Span::styled(
                format!(" {} ", head(text, width.saturating_sub(9))),
                theme.warning(),
            ),
            Span::raw("[y/N]"),
        ])
    };
    match &app.mode {
        Mode::Copy(_, text) => asked(text),
        Mode::Leave => asked("stop what is under way and leave?"),
        Mode::Filter => Line::from(vec![
            Span::styled(" show: ", theme.heading()),
            Span::raw(tail(shared.list.filter(), width.saturating_sub(9))),
            Span::styled(" ", theme.chosen()),
        ]),
        _ if !app.notice.is_empty() => {
            Line::styled(head(&format!(" {}", app.notice), width), theme.heading())
        }
        Mode::Help => Line::styled(" any key leaves the help", theme.faint()),
        Mode::Normal => keys(KEYS, width, theme),
    }
}
