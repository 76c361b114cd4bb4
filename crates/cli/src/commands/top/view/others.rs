//! The details of mounts, caches, what is not durable yet, and runs.

use ratatui::style::Color;
use ratatui::text::{Line, Span};
use ropeway_live::model::{Cache, Mount, Run, Snapshot};

use super::job::{messages, operations, throughput};
use super::piece::{Graph, Piece};
use super::server::kinds;
use crate::tui::Theme;
use crate::tui::text;
use crate::ui::format;

/// Returns the pieces for a mount.
pub(super) fn mount(mount: &Mount, width: usize, _: Theme) -> Vec<Piece<'static>> {
    let read_only = if mount.read_only { " (read-only)" } else { "" };
    let lines = [
        format!("{} on {}{read_only}", mount.source, mount.mountpoint),
        format!(
            "read {} · written {} · {} open · {} not flushed · {} requests",
            format::bytes(mount.bytes_read),
            format::bytes(mount.bytes_written),
            format::count(mount.open_files),
            format::bytes(mount.unflushed_bytes),
            format::count(mount.requests),
        ),
    ];
    let lines = lines
        .iter()
        .map(|line| Line::raw(text::head(line, width)))
        .collect();
    let history = &mount.history;
    let graphs = vec![
        match history.written.iter().sum::<u64>() > history.read.iter().sum() {
            true => throughput("written", &history.written, Color::Cyan),
            false => throughput("read", &history.read, Color::Cyan),
        },
        operations(&history.operations),
    ];
    let mut pieces = vec![Piece::Lines(lines), Piece::Graphs(graphs)];
    pieces.extend(kinds(&mount.operations, width));
    pieces
}

/// Returns the pieces for a cache.
pub(super) fn cache(cache: &Cache, width: usize, theme: Theme) -> Vec<Piece<'static>> {
    let status = &cache.status;
    let hits = status.hits();
    let left = format!("cache   {:>10}            ", format::bytes(status.size_bytes));
    let right = format!(
        " {:>4} hits, {}",
        text::percent(status.hit_ratio),
        format::rate(status.hit_read_bytes_per_s)
    );
    let room = width.saturating_sub(text::width(&left) + text::width(&right) + 1);
    let mut lines = vec![Line::from(vec![
        Span::raw(left),
        Span::styled(
            text::bar(status.hit_ratio, room.min(100)),
            theme.paint(Color::Green),
        ),
        Span::raw(right),
    ])];
    let figures = format!(
        "{} hits ({} from memory) · {} misses · {} blocks · {} written to flash",
        format::count(hits),
        format::count(status.memory_hits),
        format::count(status.misses),
        format::count(status.blocks),
        format::bytes(status.bytes_written),
    );
    lines.push(Line::raw(text::head(&figures, width)));
    if !status.is_on {
        let why = format!("the cache is off: {}", status.off_because);
        lines.push(Line::styled(text::head(&why, width), theme.bad()));
    }
    if status.is_offline {
        let since = text::seconds(status.offline_seconds);
        let why = format!("the source does not answer for {since}; reads are answered from the cache");
        lines.push(Line::styled(text::head(&why, width), theme.warning()));
    }
    let mut pieces = vec![Piece::Lines(lines)];
    if status.hours.len() > 1 {
        let share = |hour: &ropeway_boost::HourStatus| {
            let lookups = hour.hits.saturating_add(hour.misses);
            (text::share(hour.hits, lookups) * 1000.0) as u64
        };
        pieces.push(Piece::Graphs(vec![Graph {
            title: "hit ratio, one column for each hour".to_owned(),
            data: status.hours.iter().map(share).collect(),
            color: Color::Green,
        }]));
    }
    pieces
}

/// Returns what the page cache owes the devices, in one line.
pub(super) fn page_cache(snapshot: &Snapshot, width: usize, theme: Theme) -> Option<Piece<'static>> {
    let cache = snapshot.page_cache.as_ref()?;
    let line = text::head(&format::page_cache(cache), width);
    Some(Piece::Lines(vec![match cache.writers.as_str() {
        "held" | "would_wait" => Line::styled(line, theme.warning()),
        _ => Line::raw(line),
    }]))
}

/// Returns what is written and not known to be durable: of the process, and of each journal.
pub(super) fn dirty(snapshot: &Snapshot, width: usize, theme: Theme) -> Option<Piece<'static>> {
    let bytes = snapshot.dirty_bytes();
    if bytes == 0 && snapshot.backlogs.is_empty() {
        return None;
    }
    let mut lines = vec![Line::raw(format!("not durable yet: {}", format::bytes(bytes)))];
    for backlog in &snapshot.backlogs {
        let line = format!(
            "  to {}: {} in {}, the oldest {} old; journal {} of {}",
            backlog.far,
            format::bytes(backlog.bytes),
            format::counted(backlog.files, "file", "files"),
            text::seconds(backlog.oldest_s as f64),
            format::bytes(backlog.journal_bytes),
            format::bytes(backlog.journal_bytes_max),
        );
        lines.push(Line::raw(text::head(&line, width)));
        for why in [&backlog.last_error, &backlog.failing_because] {
            if !why.is_empty() {
                lines.push(Line::styled(text::head(&format!("  {why}"), width), theme.bad()));
            }
        }
    }
    Some(Piece::Lines(lines))
}

/// Returns the pieces for a run of the laboratory and the like.
pub(super) fn run(run: &Run, width: usize, theme: Theme) -> Vec<Piece<'static>> {
    let mut lines = vec![Line::styled(
        text::head(
            &format!("{} {} · {}", run.kind, run.name, text::seconds(run.seconds)),
            width,
        ),
        theme.heading(),
    )];
    if run.total > 0 {
        let share = text::share(run.done, run.total);
        let right = format!(" {} of {}", format::count(run.done), format::count(run.total));
        let room = width.saturating_sub(text::width(&right) + 1);
        lines.push(Line::from(vec![
            Span::styled(text::bar(share, room.min(100)), theme.paint(Color::Green)),
            Span::raw(right),
        ]));
    }
    lines.push(Line::raw(text::head(&run.step, width)));
    let mut pieces = vec![Piece::Lines(lines)];
    pieces.extend(messages(&run.messages, width, theme));
    pieces
}
