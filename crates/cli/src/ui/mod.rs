//! What people and programs see of a job.
//!
//! One [`Reporter`] receives all events of a job and the periodic progress, and speaks with one voice: lines for
//! people (with a bar on a terminal) or JSON Lines. The log gets everything in both cases.

mod bar;
pub(crate) mod format;
mod human;
mod json;
mod log;
pub(crate) mod messages;

use std::path::Path;

use ropeway_copy::{Durability, Outcome};
use ropeway_vfs::event::Event;

use crate::args::OutputArgs;
use crate::failure::Failure;
use human::Human;
use json::Lines;
use log::Log;

pub(crate) use json::CheckSummary;

/// What is said about the job as a whole at its end.
#[derive(Clone, Debug)]
pub(crate) struct About {
    /// What durability was asked for.
    pub(crate) durability: Durability,
    /// Nothing was changed.
    pub(crate) dry_run: bool,
    /// Engine, as spelled.
    pub(crate) engine: &'static str,
    /// How blocks reach the kernel.
    pub(crate) io: &'static str,
}

/// Receives everything a job says.
pub(crate) struct Reporter {
    voice: Voice,
    log: Option<Log>,
}

enum Voice {
    Human(Human),
    Json(Lines),
}

impl Reporter {
    /// A reporter as the flags say. `items`: items are listed for people without being asked for.
    ///
    /// # Errors
    /// The log cannot be opened.
    pub(crate) fn new(args: &OutputArgs, items: bool) -> Result<Self, Failure> {
        let log = args.log.as_deref().map(open_log).transpose()?;
        let voice = if args.json {
            Voice::Json(Lines::new())
        } else {
            Voice::Human(Human::new(args, items || args.verbose))
        };
        Ok(Self { voice, log })
    }

    /// Whether progress is worth asking for several times a second.
    pub(crate) fn wants_frequent_progress(&self) -> bool {
        match &self.voice {
            Voice::Human(human) => human.has_bar(),
            Voice::Json(_) => true,
        }
    }

    /// Takes an event of the job; called from any thread.
    pub(crate) fn event(&self, event: &Event) {
        if let Some(log) = &self.log {
            log.event(event);
        }
        match &self.voice {
            Voice::Human(human) => human.event(event),
            Voice::Json(lines) => lines.event(event),
        }
    }

    /// Takes a progress report, for the bar or as a JSON line (`line`: one is due).
    pub(crate) fn progress(&self, progress: &Event, line: bool) {
        match &self.voice {
            Voice::Human(human) => human.progress(progress),
            Voice::Json(lines) if line => lines.event(progress),
            Voice::Json(_) => {}
        }
        if let (Some(log), true) = (&self.log, line) {
            log.flush();
        }
    }

    /// One line of status on stderr, whatever the voice (SIGUSR1).
    pub(crate) fn status(&self, progress: &Event) {
        let text = human::status_line(progress);
        match &self.voice {
            Voice::Human(human) => human.say(&text),
            Voice::Json(_) => messages::complain(&text),
        }
    }

    /// Something to tell people while the job runs, on stderr; programs get it as a note.
    pub(crate) fn say(&self, text: &str) {
        match &self.voice {
            Voice::Human(human) => human.say(text),
            Voice::Json(_) => self.event(&Event::Note {
                path: None,
                message: text.to_owned(),
            }),
        }
    }

    /// The end of a job that ran.
    pub(crate) fn finish(&self, outcome: &Outcome, about: &About) {
        match &self.voice {
            Voice::Human(human) => human.finish(outcome, about),
            Voice::Json(lines) => lines.summary(outcome, about),
        }
        if let Some(log) = &self.log {
            log.finish(outcome);
        }
    }

    /// The end of a check.
    pub(crate) fn finish_check(&self, summary: &CheckSummary) {
        match &self.voice {
            Voice::Human(human) => human.finish_check(summary),
            Voice::Json(lines) => lines.check(summary),
        }
        if let Some(log) = &self.log {
            log.flush();
        }
    }
}

fn open_log(path: &Path) -> Result<Log, Failure> {
    Log::open(path).map_err(|error| {
        Failure::usage(format!("cannot write the log {}: {error}", path.display()))
            .hint("give a file in a folder that exists and can be written")
    })
}
