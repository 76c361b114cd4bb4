//! JSON Lines output: every event, and one summary as the last line.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Stdout, Write};
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_copy::{Outcome, Tally};
use ropeway_dirty::judge::Verdict;
use ropeway_vfs::Loss;
use ropeway_vfs::event::{Event, Limit, Line};
use serde::Serialize;

use super::RunInfo;
use super::places::Places;
use crate::line::LineReport;

/// The program's version.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Writes JSON Lines to standard output.
pub(super) struct JsonLines {
    out: Mutex<BufWriter<Stdout>>,
    begun: OnceLock<Begin>,
}

/// What runs; the first line.
#[derive(Clone, Debug)]
pub(crate) struct Begin {
    /// `copy`, `mirror`, `check` or `device`.
    pub(crate) command: &'static str,
    /// Id of the job, by which `ropeway jobs` knows it; `None` if it cannot be resumed.
    pub(crate) job: Option<String>,
    /// Its ends.
    pub(crate) places: Places,
}

#[derive(Serialize)]
struct Start<'a> {
    r#type: &'static str,
    version: &'static str,
    command: &'static str,
    job: Option<&'a str>,
    sources: Vec<&'a str>,
    targets: Vec<&'a str>,
}

/// An item's error with the places of the item.
#[derive(Serialize)]
struct Placed<'a> {
    #[serde(flatten)]
    event: &'a Event,
    source: Option<String>,
    target: Option<String>,
}

/// The last line of a copy or mirror. Scripts rely on its names.
#[derive(Serialize)]
struct Summary<'a> {
    r#type: &'static str,
    version: &'static str,
    /// Null if it cannot be resumed.
    job: Option<&'a str>,
    files: u64,
    bytes: u64,
    bytes_sent: u64,
    bytes_durable: u64,
    seconds_perceived: f64,
    /// Null if durability was not requested.
    seconds_durable: Option<f64>,
    errors: u64,
    torn: u64,
    bytes_read: u64,
    skipped: u64,
    bytes_skipped: u64,
    failed: u64,
    directories: u64,
    deleted: u64,
    retries: u64,
    losses: &'a BTreeMap<Loss, u64>,
    limit: Option<Limit>,
    resumed: bool,
    bytes_resumed: u64,
    bytes_reused: u64,
    verified: bool,
    seconds_verified: Option<f64>,
    differences: u64,
    repaired: u64,
    dry_run: bool,
    engine: &'static str,
    io: &'static str,
    /// Null unless everything is durable.
    verdict: Option<Verdict>,
    /// What `--eject` did.
    ejected: Option<&'a str>,
    exit_code: u8,
    /// The line to the server, if there is one.
    line: Option<Line>,
    /// Reason for stopping early.
    message: Option<&'a str>,
    hint: Option<&'a str>,
}

impl<'a> Summary<'a> {
    fn new(outcome: &'a Outcome, info: &'a RunInfo, job: Option<&'a str>) -> Self {
        let summary = &outcome.summary;
        let counters = &summary.counters;
        Self {
            r#type: "summary",
            version: VERSION,
            job,
            files: counters.files_done,
            bytes: counters.bytes_done,
            bytes_sent: counters.bytes_sent,
            bytes_durable: counters.bytes_durable,
            seconds_perceived: seconds(summary.perceived),
            seconds_durable: summary.durable.map(seconds),
            errors: summary.errors,
            torn: summary.torn,
            bytes_read: counters.bytes_read,
            skipped: counters.files_skipped,
            bytes_skipped: counters.bytes_skipped,
            failed: counters.files_failed,
            directories: counters.directories,
            deleted: counters.deleted,
            retries: counters.retries,
            losses: &summary.losses,
            limit: summary.limit,
            line: info.line.as_ref().map(LineReport::summary),
            resumed: summary.resumed,
            bytes_resumed: summary.bytes_resumed,
            bytes_reused: summary.bytes_reused,
            verified: summary.verified.is_some(),
            seconds_verified: summary.verified.map(seconds),
            differences: summary.differences,
            repaired: summary.repaired,
            dry_run: info.dry_run,
            engine: info.engine,
            io: info.io,
            verdict: info.verdict,
            ejected: info.ejected.as_deref(),
            exit_code: outcome.status.exit_code(),
            message: outcome.fatal.as_deref(),
            hint: outcome.hint.as_deref(),
        }
    }
}

/// The last line of a check.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CheckSummary {
    /// Always `summary`.
    pub(crate) r#type: &'static str,
    /// The program's version.
    pub(crate) version: &'static str,
    /// Files compared.
    pub(crate) files: u64,
    /// Folders compared.
    pub(crate) directories: u64,
    /// Logical bytes of these files.
    pub(crate) bytes: u64,
    /// Nodes that differ, are missing, or exist on one side only.
    pub(crate) differences: u64,
    /// Differences by reason.
    #[serde(rename = "reasons")]
    pub(crate) tally: Tally,
    /// Nodes that could not be compared.
    pub(crate) errors: u64,
    /// Duration in seconds.
    pub(crate) seconds: f64,
    /// Whether contents were compared.
    pub(crate) checksum: bool,
    /// Exit code.
    pub(crate) exit_code: u8,
}

impl JsonLines {
    pub(super) fn new() -> Self {
        Self {
            out: Mutex::new(BufWriter::new(io::stdout())),
            begun: OnceLock::new(),
        }
    }

    /// Writes the first line.
    pub(super) fn begin(&self, begin: Begin) {
        let begin = self.begun.get_or_init(|| begin);
        let roots = &begin.places.0;
        let start = Start {
            r#type: "start",
            version: VERSION,
            command: begin.command,
            job: begin.job.as_deref(),
            sources: roots.iter().map(|root| root.source.as_str()).collect(),
            targets: roots.iter().filter_map(|root| root.target.as_deref()).collect(),
        };
        self.line(&start, true);
    }

    /// Writes an event. Items and notes may stay in the buffer until the next line of another kind.
    pub(super) fn event(&self, event: &Event) {
        if let (Event::ItemError { path, on_source, .. }, Some(begun)) = (event, self.begun.get()) {
            let both = begun.places.both(path, *on_source);
            let placed = Placed {
                event,
                source: both.source,
                target: both.target,
            };
            return self.line(&placed, true);
        }
        self.line(event, !matches!(event, Event::Item { .. } | Event::Note { .. }));
    }

    /// Writes something else.
    pub(super) fn object(&self, object: &serde_json::Value) {
        self.line(object, true);
    }

    /// Writes the summary of a job.
    pub(super) fn summary(&self, outcome: &Outcome, info: &RunInfo) {
        let job = self.begun.get().and_then(|begun| begun.job.as_deref());
        self.line(&Summary::new(outcome, info, job), true);
    }

    /// Writes the summary of a check.
    pub(super) fn check(&self, summary: &CheckSummary) {
        self.line(summary, true);
    }

    fn line(&self, value: &impl Serialize, flush: bool) {
        // Plain structs with text keys always serialize. A closed standard output must not end the
        // job.
        let Ok(mut text) = serde_json::to_string(value) else {
            return;
        };
        text.push('\n');
        let mut out = self.out.lock();
        _ = out.write_all(text.as_bytes());
        if flush {
            _ = out.flush();
        }
    }
}

/// Converts to seconds, rounded to the microsecond.
fn seconds(span: Duration) -> f64 {
    (span.as_secs_f64() * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_copy::{Durability, Status};
    use ropeway_vfs::event::{Counters, Summary as Done};

    #[test]
    fn the_summary_has_its_documented_names() {
        let counters = Counters {
            files_done: 3,
            bytes_done: 1 << 60,
            bytes_sent: 5,
            bytes_durable: 6,
            ..Counters::default()
        };
        let summary = Done {
            counters,
            perceived: Duration::from_millis(1500),
            durable: Some(Duration::from_secs(2)),
            errors: 1,
            losses: [(Loss::HardLink, 2)].into(),
            ..Done::default()
        };
        let outcome = Outcome {
            summary,
            status: Status::SomeFailed,
            fatal: None,
            hint: None,
        };
        let info = RunInfo {
            durability: Durability::End,
            dry_run: false,
            engine: "auto",
            io: "psync",
            verdict: None,
            kept: None,
            line: None,
            ejected: None,
            told: Default::default(),
        };
        let line = serde_json::to_value(Summary::new(&outcome, &info, Some("79ee"))).unwrap();
        assert_eq!(line["type"], "summary");
        assert_eq!(
            (&line["job"], &line["version"]),
            (&"79ee".into(), &VERSION.into())
        );
        assert_eq!(line["files"], 3);
        assert_eq!(line["bytes"].as_u64(), Some(1 << 60));
        assert_eq!(line["bytes_sent"], 5);
        assert_eq!(line["bytes_durable"], 6);
        assert_eq!(line["seconds_perceived"], 1.5);
        assert_eq!(line["seconds_durable"], 2.0);
        assert_eq!(line["errors"], 1);
        assert_eq!(line["losses"]["hard_link"], 2);
        assert_eq!(line["exit_code"], 2);
        assert_eq!(line["verified"], false);
    }

    #[test]
    fn progress_lines_have_flat_counters() {
        let event = Event::Progress {
            seconds: 1.0,
            counters: Counters {
                bytes_sent: 7,
                ..Counters::default()
            },
            rate: 2.0,
            files_rate: 3.0,
            percent: None,
            eta: None,
            limit: Some(Limit::SmallFiles),
            paused: false,
            connection_lost: None,
        };
        let line = serde_json::to_value(&event).unwrap();
        assert_eq!(
            (&line["type"], &line["bytes_sent"]),
            (&"progress".into(), &7.into())
        );
        assert_eq!(
            (&line["limit"], &line["eta"]),
            (&"small_files".into(), &serde_json::Value::Null)
        );
    }
}
