//! The details of a copy, a mirror or a comparison.

use ratatui::style::Color;
use ratatui::text::{Line, Span};
use ropeway_live::model::{Job, Message};

use super::piece::{Graph, Piece};
use crate::tui::Theme;
use crate::tui::text;
use crate::ui::format;

/// Messages that are shown.
const MESSAGES_SHOWN: usize = 5;

/// Returns the pieces for a job.
pub(super) fn pieces(job: &Job, width: usize, theme: Theme) -> Vec<Piece<'static>> {
    let mut lines = vec![Line::raw(text::head(&job.ends(), width)), state(job, theme)];
    if job.kind == "check" {
        lines.push(Line::raw(text::head(&compared(job), width)));
    } else {
        lines.extend(counters(job, width, theme));
        lines.push(Line::raw(text::head(&files(job), width)));
    }
    let mut pieces = vec![Piece::Lines(lines), Piece::Graphs(graphs(job))];
    pieces.extend(messages(&job.messages, width, theme));
    pieces
}

/// Returns what the job does, what limits it, and how long it will take.
fn state(job: &Job, theme: Theme) -> Line<'static> {
    let state = job.state();
    let style = match job.paused || job.stopping {
        true => theme.warning(),
        false => theme.heading(),
    };
    let mut spans = vec![Span::styled(state, style)];
    let mut add = |text: String| spans.push(Span::raw(format!(" · {text}")));
    add(text::seconds(job.seconds));
    if let Some(eta) = job.eta.as_ref().filter(|_| !job.paused) {
        add(format!("ETA {}", format::eta(eta)));
    }
    if let Some(limit) = job.limit.filter(|_| !job.paused) {
        add(format!("limit: {}", format::limit(limit)));
    }
    match (job.bwlimit.is_empty(), job.bwlimit_bytes_per_s) {
        (true, _) => {}
        // A timetable does not say which rate it is now.
        (false, Some(rate)) if job.bwlimit.contains(',') => add(format!(
            "--bwlimit {} ({})",
            job.bwlimit,
            format::rate(rate as f64)
        )),
        (false, Some(_)) => add(format!("--bwlimit {}", job.bwlimit)),
        (false, None) => add(format!("--bwlimit {} (no limit now)", job.bwlimit)),
    }
    if job.errors > 0 {
        let errors = format::counted(job.errors, "error", "errors");
        spans.push(Span::styled(format!(" · {errors}"), theme.bad()));
    }
    Line::from(spans)
}

/// Returns the three counters with their bars.
fn counters(job: &Job, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let counters = &job.counters;
    let total = counters.bytes_total;
    let more = if counters.totals_final { "" } else { "+" };
    let whole = format!("{}{more}", format::bytes(total));
    let rows = [
        ("read", counters.bytes_read, job.rates.read, Color::Blue),
        ("sent", counters.bytes_sent, job.rates.written, Color::Cyan),
        ("durable", counters.bytes_durable, job.rates.durable, Color::Green),
    ];
    let line = |(name, bytes, rate, color): (&str, u64, f64, Color)| {
        let share = text::share(bytes, total);
        let left = format!("{name:<8}{:>10} of {whole:<11}", format::bytes(bytes));
        let right = format!(" {:>4} {:>11}", text::percent(share), format::rate(rate));
        let room = width.saturating_sub(text::width(&left) + text::width(&right) + 1);
        let bar = text::bar(share, room.min(100));
        Line::from(vec![
            Span::raw(left),
            Span::styled(bar, theme.paint(color)),
            Span::raw(right),
        ])
    };
    rows.into_iter().map(line).collect()
}

fn files(job: &Job) -> String {
    let counters = &job.counters;
    let mut parts = vec![
        format!(
            "{}/{}{} files",
            format::count(counters.files_done),
            format::count(counters.files_total),
            if counters.totals_final { "" } else { "+" },
        ),
        text::per_second(job.rates.files),
    ];
    let counts = job.special_counts();
    parts.extend(counts.map(|(word, count)| format!("{} {word}", format::count(count))));
    parts.join(" · ")
}

fn compared(job: &Job) -> String {
    let counters = &job.counters;
    format!(
        "{} compared ({}) · {} · {}",
        format::counted(counters.files_done, "node", "nodes"),
        format::bytes(counters.bytes_done),
        text::per_second(job.rates.files),
        format::counted(job.differences, "difference", "differences"),
    )
}

fn graphs(job: &Job) -> Vec<Graph> {
    let history = &job.history;
    // What is read and not sent, such as with a comparison, moves too.
    let (name, data) = match history.written.is_empty() {
        true => ("read", &history.read),
        false => ("sent", &history.written),
    };
    vec![
        throughput(name, data, Color::Cyan),
        operations(&history.operations),
    ]
}

/// Returns a graph of bytes a second.
pub(super) fn throughput(name: &str, data: &[u64], color: Color) -> Graph {
    let now = data.last().copied().unwrap_or(0);
    let most = data.iter().copied().max().unwrap_or(0);
    Graph {
        title: format!(
            "{name} {}, at most {}",
            format::rate(now as f64),
            format::rate(most as f64)
        ),
        data: data.to_vec(),
        color,
    }
}

/// Returns a graph of operations a second.
pub(super) fn operations(data: &[u64]) -> Graph {
    let now = data.last().copied().unwrap_or(0);
    let most = data.iter().copied().max().unwrap_or(0);
    Graph {
        title: format!(
            "operations {}, at most {}",
            text::per_second(now as f64),
            text::per_second(most as f64)
        ),
        data: data.to_vec(),
        color: Color::Magenta,
    }
}

/// Returns the last messages.
pub(super) fn messages(messages: &[Message], width: usize, theme: Theme) -> Option<Piece<'static>> {
    let last = &messages[messages.len().saturating_sub(MESSAGES_SHOWN)..];
    let line = |message: &Message| {
        let style = if message.is_error {
            theme.bad()
        } else {
            theme.faint()
        };
        Line::styled(text::head(&message.text, width), style)
    };
    (!last.is_empty()).then(|| Piece::Lines(last.iter().map(line).collect()))
}
