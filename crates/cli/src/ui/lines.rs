//! The text of the progress bar: two lines for any width. Pure.
//!
//! A narrow terminal shows less, and never half of it: percent, rate and estimate are kept the
//! longest.

use ropeway_vfs::event::{Counters, Event, LostConnection, Phase};

use super::format;

/// Fewest files a second that are shown: below, bytes tell more.
const FILES_RATE_MIN: f64 = 2.0;

/// Returns the name of a phase.
pub(super) fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Preflight => "counting before the first write",
        Phase::Copying => "copying",
        Phase::Flushing => "written; waiting for the device",
        Phase::Verifying => "reading back from the device",
        Phase::Watching => "watching for changes",
        Phase::Done => "done",
    }
}

/// Returns the two lines of the bar, each of at most `width` columns.
pub(super) fn bar(progress: &Event, phase: Option<Phase>, width: usize) -> [String; 2] {
    [first(progress, phase, width), second(progress, phase, width)]
}

/// Returns everything in one line of any length.
pub(super) fn one_line(progress: &Event, phase: Option<Phase>) -> String {
    let [first, second] = bar(progress, phase, usize::MAX);
    format!("{} ·{second}", first.trim())
}

/// Returns the widest of these lines that fits, else the narrowest, which is the last.
fn fitting(candidates: Vec<Vec<String>>, separator: &str, width: usize) -> String {
    let joined = |parts: Vec<String>| {
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        format!(" {}", parts.join(separator))
    };
    let mut last = String::new();
    for line in candidates.into_iter().map(joined) {
        if line.chars().count() <= width {
            return line;
        }
        last = line;
    }
    last.chars().take(width).collect()
}

/// Percent, amount, rate, estimate.
fn first(progress: &Event, phase: Option<Phase>, width: usize) -> String {
    let Event::Progress {
        counters,
        rate,
        percent,
        eta,
        paused,
        connection_lost,
        ..
    } = progress
    else {
        return String::new();
    };
    let more = if counters.totals_final { "" } else { "+" };
    let durable = format::bytes(counters.bytes_durable);
    let amount = format!("{durable} / {}{more}", format::bytes(counters.bytes_total));
    let percent = percent.map_or_else(String::new, |percent| format!("{:>3.0}%", percent.floor()));
    let rate = format::rate(*rate);
    let is_moving = !paused && connection_lost.is_none();
    let [long, short] = match eta {
        // Nobody knows when a pause ends, or when a server is back.
        _ if !is_moving || phase == Some(Phase::Watching) => Default::default(),
        Some(eta) => [
            format!("ETA {}", format::eta(eta)),
            format!("ETA {}", format::eta_alone(eta)),
        ],
        None if !counters.totals_final => ["counting".to_owned(), "counting".to_owned()],
        None => Default::default(),
    };
    let lead = match percent.is_empty() {
        true => durable,
        false => percent.clone(),
    };
    fitting(
        vec![
            vec![
                percent.clone(),
                format!("durable {amount}"),
                format!("{rate} to device"),
                long.clone(),
            ],
            vec![percent, amount, rate.clone(), long.clone()],
            vec![lead.clone(), rate.clone(), long],
            vec![lead, rate, short],
        ],
        "  ",
        width,
    )
}

/// What it does, files, files a second, and what else fits.
fn second(progress: &Event, phase: Option<Phase>, width: usize) -> String {
    let Event::Progress {
        counters,
        limit,
        paused,
        files_rate,
        connection_lost,
        ..
    } = progress
    else {
        return String::new();
    };
    let (state, short) = match (connection_lost, phase) {
        _ if *paused => ("PAUSED".to_owned(), "PAUSED".to_owned()),
        (Some(lost), _) => lost_words(lost),
        (None, Some(phase @ (Phase::Preflight | Phase::Flushing | Phase::Verifying | Phase::Watching))) => {
            (phase_name(phase).to_owned(), phase_name(phase).to_owned())
        }
        _ => Default::default(),
    };
    let more = if counters.totals_final { "" } else { "+" };
    let mut parts = vec![format!(
        "{}/{}{more} files",
        format::count(counters.files_done),
        format::count(counters.files_total)
    )];
    if *files_rate >= FILES_RATE_MIN && state.is_empty() {
        parts.push(format!("{}/s", format::count(files_rate.round() as u64)));
    }
    parts.extend(extras(counters));
    if let Some(limit) = limit.filter(|_| state.is_empty()) {
        parts.push(format!("limit: {}", format::limit(limit)));
    }
    parts.push(format!("read {}", format::bytes(counters.bytes_read)));
    parts.push(format!("sent {}", format::bytes(counters.bytes_sent)));
    let with = |state: &String, count: usize| -> Vec<String> {
        [state].into_iter().chain(&parts[..count]).cloned().collect()
    };
    let mut candidates: Vec<Vec<String>> = (0..=parts.len()).rev().map(|count| with(&state, count)).collect();
    if state.is_empty() {
        // One part is always shown.
        candidates.pop();
    } else {
        candidates.push(vec![short]);
    }
    fitting(candidates, " · ", width)
}

/// Returns what to say of a lost connection, long and short.
fn lost_words(lost: &LostConnection) -> (String, String) {
    let seconds = |seconds: f64| format!("{:.0} s", seconds.max(0.0).ceil());
    match (lost.seconds_left, lost.silent_seconds) {
        (Some(left), _) => (
            format!("connection lost, trying again ({} left)", seconds(left)),
            format!("connection lost, {} left", seconds(left)),
        ),
        (None, Some(silent)) => {
            let silent = seconds(silent);
            (
                format!("no answer from {} for {silent}", lost.server),
                format!("no answer for {silent}"),
            )
        }
        (None, None) => ("connection lost".to_owned(), "connection lost".to_owned()),
    }
}

/// Returns the counters that are shown only if they are not zero.
pub(super) fn extras(counters: &Counters) -> Vec<String> {
    let named = [
        (counters.files_failed, "failed"),
        (counters.files_skipped, "skipped"),
        (counters.deleted, "deleted"),
        (counters.retries, "retried"),
    ];
    let worth = named.into_iter().filter(|(number, _)| *number > 0);
    worth
        .map(|(number, word)| format!("{} {word}", format::count(number)))
        .collect()
}

#[cfg(test)]
#[path = "lines_tests.rs"]
mod tests;
