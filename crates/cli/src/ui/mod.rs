//! The output of a job, for people and for programs.
//!
//! One [`Reporter`] receives all events of a job and its periodic progress. It prints either text
//! for people (with a progress bar on a terminal) or JSON JsonLines. The log gets every event in
//! both cases.

pub(crate) mod bar;
mod human;
mod json;
mod lines;
mod log;
pub(crate) mod messages;
pub(crate) mod places;
mod reasons;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ropeway_copy::{Durability, Outcome};
use ropeway_dirty::judge::Verdict;
use ropeway_page::Page;
use ropeway_vfs::Loss;
use ropeway_vfs::event::Event;

pub(crate) use ropeway_live::format;

use crate::args::OutputArgs;
use crate::failure::Failure;
use crate::line::LineReport;
use crate::live::{JobPart, Watched};
use human::Human;
use json::JsonLines;
use log::Log;

pub(crate) use json::{Begin, CheckSummary};

/// The program's version.
pub(crate) const VERSION: &str = json::VERSION;

/// Facts about a job that its final report needs.
#[derive(Clone, Debug)]
pub(crate) struct RunInfo {
    /// The requested durability.
    pub(crate) durability: Durability,
    /// Whether it was a dry run.
    pub(crate) dry_run: bool,
    /// Name of the copy engine.
    pub(crate) engine: &'static str,
    /// Name of the I/O engine.
    pub(crate) io: &'static str,
    /// What may be said of the target at the end, once everything is durable.
    pub(crate) verdict: Option<Verdict>,
    /// What the next run can use, if the job is not done.
    pub(crate) kept: Option<Kept>,
    /// The line to the server, if there is one.
    pub(crate) line: Option<LineReport>,
    /// What `--eject` did.
    pub(crate) ejected: Option<String>,
    /// Losses that were said of the target's server before; people know them.
    pub(crate) told: BTreeSet<Loss>,
}

/// What an unfinished job has left for its next run.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    /// The job's id.
    pub(crate) job: String,
    /// Its target.
    pub(crate) target: String,
    /// Bytes of unfinished files on the target; `None` where that is not known without a server.
    pub(crate) bytes: Option<u64>,
}

/// Receives and prints all output of a job.
pub(crate) struct Reporter {
    format: Format,
    log: Option<Log>,
    /// What other processes see of the job.
    live: Option<Arc<JobPart>>,
}

enum Format {
    Human(Human),
    Json(JsonLines),
}

impl Reporter {
    /// Makes a reporter for the flags. `items`: list items for people even without --verbose.
    ///
    /// # Errors
    /// The log cannot be opened.
    pub(crate) fn new(args: &OutputArgs, items: bool) -> Result<Self, Failure> {
        let log = args.log.as_deref().map(open_log).transpose()?;
        let format = if args.json {
            Format::Json(JsonLines::new())
        } else {
            Format::Human(Human::new(args, items || args.verbose))
        };
        Ok(Self {
            format,
            log,
            live: None,
        })
    }

    /// Returns the reporter with the part that hears the same events.
    pub(crate) fn with_live(self, part: &Arc<JobPart>) -> Self {
        Self {
            live: Some(Arc::clone(part)),
            ..self
        }
    }

    /// Returns the reporter with a plain line of progress each `every`, if one is asked for.
    pub(crate) fn with_lines(mut self, every: Option<Duration>) -> Self {
        self.format = match (self.format, every) {
            (Format::Human(human), Some(every)) => Format::Human(human.with_lines(every)),
            (format, _) => format,
        };
        self
    }

    /// Says what runs, to programs.
    pub(crate) fn begin(&self, begin: Begin) {
        if let Format::Json(lines) = &self.format {
            lines.begin(begin);
        }
    }

    /// Goes on after the process was stopped and continued.
    pub(crate) fn continued(&self) {
        if let Format::Human(human) = &self.format {
            human.continued();
        }
    }

    /// Attaches the job to what other processes see.
    pub(crate) fn attach(&self, watched: Watched) {
        if let Some(live) = &self.live {
            live.attach(watched);
        }
    }

    /// Notes that the job was asked to stop.
    pub(crate) fn stopping(&self) {
        if let Some(live) = &self.live {
            live.stopping();
        }
    }

    /// Returns whether progress is needed several times a second.
    pub(crate) fn wants_frequent_progress(&self) -> bool {
        match &self.format {
            Format::Human(human) => human.has_bar(),
            Format::Json(_) => true,
        }
    }

    /// Handles an event of the job; may be called from any thread.
    pub(crate) fn event(&self, event: &Event) {
        if let Some(live) = &self.live {
            live.event(event);
        }
        if let Some(log) = &self.log {
            log.event(event);
        }
        match &self.format {
            Format::Human(human) => human.event(event),
            Format::Json(lines) => lines.event(event),
        }
    }

    /// Handles a progress report, for the bar or as a JSON line (`line`: one is due).
    pub(crate) fn progress(&self, progress: &Event, line: bool) {
        if let Some(live) = &self.live {
            live.event(progress);
        }
        match &self.format {
            Format::Human(human) => human.progress(progress),
            Format::Json(lines) if line => lines.event(progress),
            Format::Json(_) => {}
        }
        if let (Some(log), true) = (&self.log, line) {
            log.flush();
        }
    }

    /// Prints one line of status on stderr, in either format (SIGUSR1).
    pub(crate) fn status(&self, progress: &Event) {
        let text = human::status_line(progress);
        match &self.format {
            Format::Human(human) => human.say(&text),
            Format::Json(_) => messages::print_stderr(&text),
        }
    }

    /// Prints a message on stderr while the job runs; programs get it as a note.
    pub(crate) fn say(&self, text: &str) {
        match &self.format {
            Format::Human(human) => human.say(text),
            Format::Json(_) => self.event(&Event::Note {
                path: None,
                message: text.to_owned(),
            }),
        }
    }

    /// Says where the web page is, if there is one.
    pub(crate) fn listening(&self, page: Option<&Page>) {
        match (&self.format, page) {
            (_, None) => {}
            (Format::Human(human), Some(page)) => human.listening(&page.url()),
            (Format::Json(lines), Some(page)) => lines.object(&crate::page::listening(page)),
        }
    }

    /// Reports the end of a job that ran.
    pub(crate) fn finish(&self, outcome: &Outcome, info: &RunInfo) {
        match &self.format {
            Format::Human(human) => human.finish(outcome, info),
            Format::Json(lines) => lines.summary(outcome, info),
        }
        if let Some(log) = &self.log {
            log.finish(outcome);
        }
    }

    /// Reports the end of a check.
    pub(crate) fn finish_check(&self, summary: &CheckSummary) {
        match &self.format {
            Format::Human(human) => human.finish_check(summary),
            Format::Json(lines) => lines.check(summary),
        }
        if let Some(log) = &self.log {
            log.flush();
        }
    }
}

fn open_log(path: &Path) -> Result<Log, Failure> {
    Log::open(path).map_err(|error| {
        Failure::usage(format!("cannot write the log {}: {error}", path.display()))
            .hint("give a file in a folder that exists and is writable")
    })
}
