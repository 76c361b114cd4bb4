//! Output for people.

use std::collections::HashSet;
use std::io::{self, IsTerminal};
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_copy::{Durability, Outcome, Status};
use ropeway_dirty::judge::Verdict;
use ropeway_vfs::event::{Counters, Event, Limit, Phase, Reason, Summary};

use super::bar::Bar;
use super::json::CheckSummary;
use super::messages::{self, Color, paint, print_line};
use super::{Kept, RunInfo, format, lines, reasons};
use crate::args::OutputArgs;
use crate::line::LineReport;

/// Maximum number of errors printed one by one; the log has all of them.
const ERRORS_SHOWN_MAX: u64 = 20;
/// Maximum number of notes printed one by one.
const NOTES_SHOWN_MAX: u64 = 10;
/// Why owners differ after a copy by an ordinary user.
const OWNER_HINT: &str =
    "   hint: only root can give files away: a copy by root keeps owners; --no-owner leaves them out";
/// The bar appears after this time.
const BAR_AFTER_SECONDS: f64 = 1.0;

/// Prints for people: the bar, errors and notes on stderr; items and the result on standard output.
pub(super) struct Human {
    bar: Bar,
    quiet: bool,
    items: bool,
    verbose: bool,
    has_log: bool,
    /// Seconds from one plain line of progress to the next; `None` without such lines.
    line_every: Option<f64>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    phase: Option<Phase>,
    /// Plain lines printed.
    lines: u64,
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
            line_every: None,
            state: Mutex::default(),
        }
    }

    /// Prints a plain line each `every` instead of a bar.
    pub(super) fn with_lines(self, every: Duration) -> Self {
        Self {
            bar: Bar::new(false),
            line_every: (!self.quiet).then_some(every.as_secs_f64()),
            ..self
        }
    }

    /// Goes on after the process was stopped: what is on the terminal is not the bar any more.
    pub(super) fn continued(&self) {
        self.bar.leave();
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
            Event::Phase { phase } => self.phase(*phase),
            // A fatal error is printed at the end.
            Event::ItemError { fatal: true, .. } => {}
            Event::ItemError { message, .. } => self.error(message),
            Event::Note { path, message } => self.note(path.as_deref(), message),
            // The list of a dry run leaves out what it would skip.
            Event::Item { action: "skip", .. } if !self.verbose => {}
            Event::Item {
                path,
                action,
                bytes,
                reasons,
            } if self.items => print_line(&item_line(action, path, *bytes, reasons)),
            _ => {}
        }
    }

    pub(super) fn progress(&self, progress: &Event) {
        let Event::Progress { seconds, .. } = progress else {
            return;
        };
        let phase = self.state.lock().phase;
        if let Some(every) = self.line_every {
            let due = (seconds / every) as u64;
            let before = std::mem::replace(&mut self.state.lock().lines, due);
            if due > before {
                messages::print_stderr(&lines::one_line(progress, phase));
            }
        } else if *seconds >= BAR_AFTER_SECONDS {
            self.bar.show(|width| lines::bar(progress, phase, width));
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
            format::files_and_folders(summary.files, summary.directories),
            format::duration(Duration::from_secs_f64(summary.seconds.max(0.0))),
        );
        if summary.errors > 0 {
            line.push_str(&format!(
                " · {} could not be compared",
                format::count(summary.errors)
            ));
        }
        print_line(&line);
        if let Some(tally) = reasons::tally(&summary.tally) {
            print_line(&format!("   {tally}"));
        }
        if summary.tally.owner > 0 && !rustix::process::geteuid().is_root() {
            print_line(OWNER_HINT);
        }
    }

    fn phase(&self, phase: Phase) {
        self.state.lock().phase = Some(phase);
        // The bar says it too, but not everybody has one.
        if phase == Phase::Watching && !self.quiet && !self.has_bar() {
            self.bar.say(lines::phase_name(phase));
        }
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

fn item_line(action: &str, path: &str, bytes: u64, reasons: &[Reason]) -> String {
    if !reasons.is_empty() {
        return format!("{action:<10} {path}  ({})", reasons::text(reasons));
    }
    match bytes {
        0 => format!("{action:<10} {path}"),
        bytes => format!("{action:<10} {path}  ({})", format::bytes(bytes)),
    }
}

/// Returns the status as one line, for SIGUSR1.
pub(super) fn status_line(progress: &Event) -> String {
    lines::one_line(progress, None)
}

/// Returns the final report: the verdict, then the facts and the losses.
fn final_lines(outcome: &Outcome, info: &RunInfo, terminal: bool) -> Vec<String> {
    let summary = &outcome.summary;
    let mut lines = vec![verdict(outcome, info, terminal)];
    if !info.dry_run && !is_untouched(outcome, info) {
        lines.push(format!("   {}", facts(summary, info.line.as_ref())));
    }
    if let Some(kept) = info.kept.as_ref().filter(|_| outcome.status != Status::Done) {
        lines.extend(resume_lines(&summary.counters, kept));
    }
    lines.extend(info.ejected.as_ref().map(|done| format!("   {done}")));
    let news = summary
        .losses
        .iter()
        .filter(|(loss, _)| !info.told.contains(loss));
    for (loss, number) in news {
        lines.push(format!("   note: {} {}", format::count(*number), loss.describe()));
    }
    lines
}

/// Whether a run ended before the first write.
fn is_untouched(outcome: &Outcome, info: &RunInfo) -> bool {
    let counters = &outcome.summary.counters;
    let nothing = counters.files_done + counters.bytes_sent + counters.deleted + counters.directories == 0;
    outcome.fatal.is_some() && info.kept.is_none() && nothing
}

/// Returns where the data of an unfinished job lies, and what the next run does.
fn resume_lines(counters: &Counters, kept: &Kept) -> Vec<String> {
    let more = if counters.totals_final { "" } else { "+" };
    let mut done = format!(
        "{}: {} of {}{more} files done",
        kept.target,
        format::count(counters.files_done),
        format::count(counters.files_total),
    );
    if let Some(bytes) = kept.bytes.filter(|bytes| *bytes > 0) {
        let bytes = format::bytes(bytes);
        done.push_str(&format!(
            "; {bytes} of unfinished files are kept under temporary names"
        ));
    }
    let id = &kept.job;
    vec![
        format!("   {done}"),
        format!(
            "   the same command, or `ropeway jobs resume {id}`, goes on there; `ropeway jobs rm {id}` gives it up"
        ),
    ]
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
    if is_untouched(outcome, info) {
        parts.push("nothing was changed".to_owned());
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
    } else if info.kept.is_some() && (outcome.status == Status::Interrupted || outcome.fatal.is_some()) {
        parts.push("run it again to resume".to_owned());
    }
    parts.join(" · ")
}

fn facts(summary: &Summary, line: Option<&LineReport>) -> String {
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
    parts.push(format::files_and_folders(
        counters.files_done,
        counters.directories,
    ));
    parts.push(format!("read {}", format::bytes(counters.bytes_read)));
    parts.push(match summary.bytes_reused {
        0 => format!("sent {}", format::bytes(counters.bytes_sent)),
        reused => format!(
            "sent {} ({} of changed or moved files were there)",
            format::bytes(counters.bytes_sent),
            format::bytes(reused),
        ),
    });
    parts.extend(line.and_then(LineReport::compression));
    parts.extend(lines::extras(counters));
    if summary.resumed {
        parts.push(match summary.bytes_resumed {
            0 => "resumed an earlier run".to_owned(),
            bytes => format!("resumed an earlier run ({} inside files)", format::bytes(bytes)),
        });
    }
    parts.extend(summary.limit.map(|limit| {
        let loss = line.filter(|_| limit == Limit::Loss);
        let more = loss.map(LineReport::explanation).unwrap_or_default();
        format!("limit: {}{more}", format::limit(limit))
    }));
    parts.join(" · ")
}

#[cfg(test)]
#[path = "human_tests.rs"]
mod tests;
