//! The list of processes.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::super::app::TopApp;
use super::super::collect::{Processes, Row, State};
use super::words;
use crate::tui::Theme;
use crate::tui::text;
use crate::ui::format;

/// Draws the list with its heading.
pub(super) fn draw<P: Processes>(frame: &mut Frame<'_>, area: Rect, app: &TopApp<P>, theme: Theme) {
    let width = usize::from(area.width);
    let mut title = format!(
        " ropeway top · {}",
        format::counted(app.rows.len() as u64, "process", "processes")
    );
    if !app.left_out.is_empty() {
        title.push_str(&format!(
            " · {} left out: {}",
            app.left_out.len(),
            app.left_out.join("; ")
        ));
    }
    let mut lines = vec![Line::styled(
        text::padded(&text::head(&title, width), width),
        theme.heading(),
    )];
    let room = usize::from(area.height).saturating_sub(1);
    let chosen = app.chosen_index();
    let first = chosen.map_or(0, |chosen| (chosen + 1).saturating_sub(room));
    for (index, row) in app.rows.iter().enumerate().skip(first).take(room) {
        lines.push(line(row, chosen == Some(index), width, theme));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn line(row: &Row, is_chosen: bool, width: usize, theme: Theme) -> Line<'static> {
    let pid = format!("{:>7}", row.address.pid);
    let (command, state, rate, what) = match (&row.state, &row.snapshot) {
        (State::Ended, snapshot) => {
            let command = snapshot.as_ref().map_or("", |snapshot| &snapshot.process.command);
            (
                command.to_owned(),
                "ended".to_owned(),
                String::new(),
                String::new(),
            )
        }
        (State::Failing(why), None) => (String::new(), "?".to_owned(), String::new(), why.clone()),
        (State::Found, None) | (_, None) => (String::new(), "…".to_owned(), String::new(), String::new()),
        (state, Some(snapshot)) => {
            let told = match (state, snapshot.jobs.first()) {
                (State::Failing(_), _) => "silent".to_owned(),
                (_, Some(job)) => match (job.paused || job.stopping, job.share_done()) {
                    (false, Some(share)) => text::percent(share),
                    _ => job.state().to_owned(),
                },
                (_, None) if snapshot.process.stopping => "stopping".to_owned(),
                _ => String::new(),
            };
            let rate = format::rate(words::throughput(&snapshot.rates()));
            let what = words::parts(snapshot).into_iter().next().unwrap_or_default();
            (snapshot.process.command.clone(), told, rate, what)
        }
    };
    let head = format!(
        "{pid} {} {} {}",
        text::padded(&command, 6),
        text::padded(&state, 9),
        text::right(&rate, 12),
    );
    let left = width.saturating_sub(text::width(&head) + 2);
    let tail = match left {
        0..8 => String::new(),
        left => format!("  {}", text::tail(&what, left)),
    };
    let style = match &row.state {
        _ if is_chosen => theme.chosen(),
        State::Failing(_) => theme.bad(),
        State::Ended | State::Found => theme.faint(),
        State::Alive if state == "PAUSED" => theme.warning(),
        State::Alive => Default::default(),
    };
    Line::from(Span::styled(text::padded(&format!("{head}{tail}"), width), style))
}
