//! Output for people.

use std::collections::HashSet;
use std::io::{self, IsTerminal};
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_copy::{Durability, Outcome, Status};
use ropeway_dirty::judge::Verdict;
use ropeway_vfs::event::{Counters, Event, Phase, Summary};

use super::bar::Bar;
use super::json::CheckSummary;
use super::messages::{self, Color, paint, print_line};
use super::{RunInfo, format};
use crate::args::OutputArgs;

/// Maximum number of errors printed one by one; the log has all of them.
const ERRORS_SHOWN_MAX: u64 = 20;
/// Maximum number of notes printed one by one.
const NOTES_SHOWN_MAX: u64 = 10;
/// The bar appears after this time.
const BAR_AFTER_SECONDS: f64 = 1.0;

/// Prints for people: the bar, errors and notes on stderr; items and the result on standard output.
pub(super) struct Human {
    bar: Bar,
    quiet: bool,
    items: bool,
    verbose: bool,
    has_log: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    phase: Option<Phase>,
    errors: u64,
    notes: u64,
    hints: HashSet<String>,
}

impl Human {
    pub(super) fn new(args: &OutputArgs, items: bool) -> Self {
        Self {
            // A list of items would break up the bar.
            bar: Bar::new(!args.quiet && !args.no_progress && !items),
            quiet: args.quiet,
            items: items && !args.quiet,
            verbose: args.verbose,
            has_log: args.log.is_some(),
            state: Mutex::default(),
        }
    }

    pub(super) fn has_bar(&self) -> bool {
        self.bar.is_wanted()
    }

    pub(super) fn say(&self, text: &str) {
        self.bar.say(text);
    }

    /// Says where the web page is.
    pub(super) fn listening(&self, url: &str) {
        if !self.quiet {
            self.say(&format!("page: {url}"));
        }
    }

    pub(super) fn event(&self, event: &Event) {
        match event {
            Event::Phase { phase } => self.state.lock().phase = Some(*phase),
            // A fatal error is printed at the end.
            Event::ItemError { fatal: true, .. } => {}
            Event::ItemError { message, .. } => self.error(message),
            Event::Note { path, message } => self.note(path.as_deref(), message),
            // The list of a dry run leaves out what it would skip.
            Event::Item { action: "skip", .. } if !self.verbose => {}
            Event::Item { path, action, bytes } if self.items => print_line(&item_line(action, path, *bytes)),
            _ => {}
        }
    }

    pub(super) fn progress(&self, progress: &Event) {
        if let Event::Progress { seconds, .. } = progress
            && *seconds >= BAR_AFTER_SECONDS
        {
            let phase = self.state.lock().phase;
            self.bar.show(bar_lines(progress, phase));
        }
    }

    pub(super) fn finish(&self, outcome: &Outcome, info: &RunInfo) {
        self.bar.clear();
        self.report_hidden();
        let terminal = io::stdout().is_terminal();
        let lines = final_lines(outcome, info, terminal);
        let failed = outcome.status != Status::Done;
        if let Some(fatal) = &outcome.fatal {
            messages::print_stderr(&format!("{} {fatal}", messages::error_mark()));
            if let Some(hint) = &outcome.hint {
                messages::print_stderr(&format!("  hint: {hint}"));
            }
        }
        match (self.quiet, failed) {
            (true, false) => {}
            // A failed verdict is printed even with --quiet, on stderr.
            (true, true) => messages::print_stderr(&lines[0]),
            (false, _) => lines.iter().for_each(|line| print_line(line)),
        }
    }

    pub(super) fn finish_check(&self, summary: &CheckSummary) {
        self.bar.clear();
        self.report_hidden();
        if self.quiet {
            return;
        }
        let good = summary.exit_code == 0;
        let mark = if good {
            paint(Color::Green, "✓", io::stdout().is_terminal())
        } else {
            paint(Color::Red, "✗", io::stdout().is_terminal())
        };
        let how = if summary.checksum {
            "contents compared"
        } else {
            "sizes, times and attributes compared"
        };
        let mut line = format!(
            " {mark} {} · {} · {how} · {}",
            if summary.differences == 0 {
                "no difference".to_owned()
            } else {
                format::counted(summary.differences, "difference", "differences")
            },
            format::counted(summary.files, "file", "files"),
            format::duration(Duration::from_secs_f64(summary.seconds.max(0.0))),
        );
        if summary.errors > 0 {
            line.push_str(&format!(
                " · {} could not be compared",
                format::count(summary.errors)
            ));
        }
        print_line(&line);
    }

    fn error(&self, message: &str) {
        let (message, hint) = split_hint(message);
        let hint = {
            let mut state = self.state.lock();
            state.errors += 1;
            if state.errors > ERRORS_SHOWN_MAX {
                return;
            }
            // Each hint is printed once.
            hint.filter(|hint| state.hints.insert((*hint).to_owned()))
        };
        self.bar.say(&format!("{} {message}", messages::error_mark()));
        if let Some(hint) = hint {
            self.bar.say(&format!("  hint: {hint}"));
        }
    }

    fn note(&self, path: Option<&str>, message: &str) {
        if self.quiet {
            return;
        }
        {
            let mut state = self.state.lock();
            state.notes += 1;
            if state.notes > NOTES_SHOWN_MAX {
                return;
            }
        }
        match path {
            Some(path) => self.bar.say(&format!("note: {path}: {message}")),
            None => self.bar.say(&format!("note: {message}")),
        }
    }

    /// Prints how many errors and notes were left out.
    fn report_hidden(&self) {
        let state = self.state.lock();
        let place = if self.has_log {
            "; the log has all of them"
        } else {
            "; --log FILE keeps all of them"
        };
        if state.errors > ERRORS_SHOWN_MAX {
            messages::print_stderr(&format!(
                "… and {} more errors{place}",
                format::count(state.errors - ERRORS_SHOWN_MAX)
            ));
        }
        if state.notes > NOTES_SHOWN_MAX {
            messages::print_stderr(&format!(
                "… and {} more notes{place}",
                format::count(state.notes - NOTES_SHOWN_MAX)
            ));
        }
    }
}

/// Splits an item's message from its hint, which stands in brackets at the end.
fn split_hint(message: &str) -> (&str, Option<&str>) {
    match message
        .rsplit_once(" (hint: ")
        .and_then(|(head, rest)| Some((head, rest.strip_suffix(')')?)))
    {
        Some((head, hint)) => (head, Some(hint)),
        None => (message, None),
    }
}

/// Returns the text for a phase.
pub(super) fn phase_name(phase: Phase) -> String {
    match phase {
        Phase::Preflight => "counting before the first write",
        Phase::Copying => "copying",
        Phase::Flushing => "written; waiting for the device",
        Phase::Verifying => "reading back from the device",
        Phase::Watching => "watching for changes",
        Phase::Done => "done",
    }
    .to_owned()
}

fn item_line(action: &str, path: &str, bytes: u64) -> String {
    match bytes {
        0 => format!("{action:<10} {path}"),
        bytes => format!("{action:<10} {path}  ({})", format::bytes(bytes)),
    }
}

/// Returns the two lines of the bar.
fn bar_lines(progress: &Event, phase: Option<Phase>) -> [String; 2] {
    let Event::Progress {
        counters,
        rate,
        eta,
        limit,
        paused,
        ..
    } = progress
    else {
        return Default::default();
    };
    let total = format::bytes(counters.bytes_total);
    let more = if counters.totals_final { "" } else { "+" };
    let mut first = format!(
        " read {}  sent {}  durable {} / {total}{more}   {} to device",
        format::bytes(counters.bytes_read),
        format::bytes(counters.bytes_sent),
        format::bytes(counters.bytes_durable),
        format::rate(*rate),
    );
    match eta {
        // Nobody knows when a pause ends.
        _ if *paused => {}
        Some(eta) => first.push_str(&format!("   ETA {}", format::eta(eta))),
        None if !counters.totals_final => first.push_str("   counting"),
        None => {}
    }
    let mut parts = Vec::new();
    match phase {
        _ if *paused => parts.push("PAUSED".to_owned()),
        Some(Phase::Copying | Phase::Done) | None => {
            if let Some(limit) = limit {
                parts.push(format!("limit: {}", format::limit(*limit)));
            }
        }
        Some(phase) => parts.push(phase_name(phase)),
    }
    parts.push(format!(
        "{}/{}{more} files",
        format::count(counters.files_done),
        format::count(counters.files_total)
    ));
    parts.extend(extras(counters));
    [first, format!(" {}", parts.join(" · "))]
}

/// Returns the counters that are shown only if they are not zero.
fn extras(counters: &Counters) -> Vec<String> {
    let named = [
        (counters.files_skipped, "skipped"),
        (counters.files_failed, "failed"),
        (counters.deleted, "deleted"),
        (counters.retries, "retried"),
    ];
    let worth = named.into_iter().filter(|(number, _)| *number > 0);
    worth
        .map(|(number, word)| format!("{} {word}", format::count(number)))
        .collect()
}

/// Returns the status as one line, for SIGUSR1.
pub(super) fn status_line(progress: &Event) -> String {
    let [first, second] = bar_lines(progress, None);
    format!("{} ·{second}", first.trim())
}

/// Returns the final report: the verdict, then the facts and the losses.
fn final_lines(outcome: &Outcome, info: &RunInfo, terminal: bool) -> Vec<String> {
    let summary = &outcome.summary;
    let mut lines = vec![verdict(outcome, info, terminal)];
    if !info.dry_run {
        lines.push(format!("   {}", facts(summary)));
    }
    for (loss, number) in &summary.losses {
        lines.push(format!("   note: {} {}", format::count(*number), loss.describe()));
    }
    lines
}

fn verdict(outcome: &Outcome, info: &RunInfo, terminal: bool) -> String {
    let summary = &outcome.summary;
    let counters = &summary.counters;
    let took = summary.durable.unwrap_or(summary.perceived) + summary.verified.unwrap_or_default();
    let (color, mark, word) = match outcome.status {
        Status::Done if info.dry_run => (Color::Green, "✓", "would be done"),
        Status::Done => (Color::Green, "✓", "done"),
        Status::SomeFailed => (Color::Yellow, "✗", "partly done"),
        Status::Differs => (Color::Red, "✗", "verification found differences"),
        Status::Interrupted => (Color::Yellow, "✗", "interrupted"),
        Status::Refused => (Color::Red, "✗", "refused"),
        _ => (Color::Red, "✗", "stopped"),
    };
    let mut parts = vec![format!(
        " {} {word} {}",
        paint(color, mark, terminal),
        format::duration(took)
    )];
    if info.dry_run {
        parts.push(format!(
            "{} of {} would be copied, nothing was changed",
            format::bytes(counters.bytes_done.saturating_sub(counters.bytes_skipped)),
            format::counted(
                counters.files_done.saturating_sub(counters.files_skipped),
                "file",
                "files"
            ),
        ));
        parts.extend(
            (counters.deleted > 0).then(|| format!("{} would be deleted", format::count(counters.deleted))),
        );
        return parts.join(" · ");
    }
    let durable = info.durability != Durability::None && summary.durable.is_some();
    parts.push(if durable {
        format!("{} durable", format::bytes(counters.bytes_durable))
    } else {
        format!("{} written, not yet durable", format::bytes(counters.bytes_done))
    });
    parts.extend((summary.errors > 0).then(|| format::counted(summary.errors, "error", "errors")));
    parts.extend((summary.torn > 0).then(|| format::counted(summary.torn, "torn copy", "torn copies")));
    parts.extend((summary.repaired > 0).then(|| format!("{} repaired", format::count(summary.repaired))));
    parts.extend((summary.differences > 0).then(|| format!("{} differ", format::count(summary.differences))));
    if outcome.status == Status::Done {
        parts.extend(summary.verified.map(|_| "verified from device".to_owned()));
        let words = info.verdict.filter(|_| durable).map(Verdict::words);
        parts.extend(words.filter(|words| !words.is_empty()).map(str::to_owned));
    } else if outcome.status == Status::Interrupted || outcome.fatal.is_some() {
        parts.push("run it again to resume".to_owned());
    }
    parts.join(" · ")
}

fn facts(summary: &Summary) -> String {
    let counters = &summary.counters;
    let mut parts = vec![format!("seemed done {}", format::duration(summary.perceived))];
    parts.extend(
        summary
            .durable
            .map(|time| format!("durable {}", format::duration(time))),
    );
    parts.extend(
        summary
            .verified
            .map(|time| format!("verifying took {}", format::duration(time))),
    );
    parts.push(format::counted(counters.files_done, "file", "files"));
    parts.push(format!("read {}", format::bytes(counters.bytes_read)));
    parts.push(format!("sent {}", format::bytes(counters.bytes_sent)));
    parts.extend(extras(counters));
    if summary.resumed {
        parts.push(match summary.bytes_resumed {
            0 => "resumed an earlier run".to_owned(),
            bytes => format!("resumed an earlier run ({} inside files)", format::bytes(bytes)),
        });
    }
    parts.extend(
        summary
            .limit
            .map(|limit| format!("limit: {}", format::limit(limit))),
    );
    parts.join(" · ")
}

#[cfg(test)]
#[path = "human_tests.rs"]
mod tests;
