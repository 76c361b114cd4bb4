//! `ropeway fleet status` and `top`.

use std::io::{IsTerminal as _, stdout};
use std::time::Duration;

use ropeway_fleet::status::{Progress, Reader, Status, WorkerStatus};
use ropeway_fleet::workers::Activity;
use serde_json::{Value, json};

use super::place::Target;
use super::{failure, no_job};
use crate::args::{FleetStatusArgs, FleetTopArgs};
use crate::commands::nodes::{self, Printer};
use crate::failure::Failure;
use crate::job::{Signals, until_stopped};
use crate::servers::Servers;
use crate::ui::format;
use crate::ui::messages;

/// Time between two updates.
const INTERVAL: Duration = Duration::from_secs(2);
/// Its bounds.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3_600));

/// Clears a terminal (ECMA-48: CUP, ED).
const CLEAR: &str = "\x1b[H\x1b[J";

/// Shows a job once.
///
/// # Errors
/// There is no job, or its catalog cannot be read.
pub(super) fn status(args: &FleetStatusArgs) -> Result<u8, Failure> {
    let servers = Servers::new(&args.share)?;
    nodes::run(&servers, async {
        let target = Target::find(&args.target)?;
        let (_, store) = target.job(&servers).await?;
        let mut reader = Reader::default();
        let what = format!("cannot read the job of {}", target.shown);
        let status = reader
            .status(&store)
            .await
            .map_err(|error| failure(&what, &error))?;
        let status = status.ok_or_else(|| no_job(&target.shown))?;
        let mut printer = Printer::new(args.json);
        lines(&status, None).iter().for_each(|line| printer.line(line));
        if let Ok(Value::Object(fields)) = serde_json::to_value(&status) {
            printer.object("fleet_status", fields);
        }
        if args.failures {
            let failures = reader.failures(&store).await;
            for (path, reason) in failures.map_err(|error| failure(&what, &error))? {
                printer.line(&format!("  {path}: {reason}"));
                if let Value::Object(fields) = json!({"path": path, "message": reason}) {
                    printer.object("fleet_failure", fields);
                }
            }
        }
        printer.done();
        Ok(printer.finish())
    })
}

/// Shows a job until it is complete.
///
/// # Errors
/// There is no job, or its catalog cannot be read.
pub(super) fn top(args: &FleetTopArgs) -> Result<u8, Failure> {
    let interval = args.interval.unwrap_or(INTERVAL);
    if interval < INTERVALS.0 || interval > INTERVALS.1 {
        return Err(Failure::usage("--interval takes 100ms to 1h").hint("for example --interval 5s"));
    }
    let servers = Servers::new(&args.share)?;
    nodes::run(&servers, async {
        let mut signals = Signals::catch()?;
        let target = Target::find(&args.target)?;
        let (_, store) = target.job(&servers).await?;
        let what = format!("cannot read the job of {}", target.shown);
        let mut reader = Reader::default();
        let mut before: Option<Status> = None;
        let clear = if stdout().is_terminal() { CLEAR } else { "" };
        loop {
            let status = reader
                .status(&store)
                .await
                .map_err(|error| failure(&what, &error))?;
            let status = status.ok_or_else(|| no_job(&target.shown))?;
            let since = before.as_ref().map(|before| (before, interval));
            messages::print_line(&format!("{clear}{}", lines(&status, since).join("\n")));
            if status.state == Progress::Complete {
                return Ok(crate::failure::code::DONE);
            }
            before = Some(status);
            if until_stopped(&mut signals, tokio::time::sleep(interval))
                .await
                .is_none()
            {
                return Ok(crate::failure::code::INTERRUPTED);
            }
        }
    })
}

/// Returns the lines of a status. `since`: an earlier one, and the time between.
fn lines(status: &Status, since: Option<(&Status, Duration)>) -> Vec<String> {
    let state = match status.state {
        Progress::Open => "open",
        Progress::Complete => "complete",
    };
    let sums = &status.sums;
    let mut lines = vec![
        format!("{} -> {}: {state}", status.source, status.target),
        format!(
            "tasks    {} done, {} open ({} claimed)",
            format::count(status.tasks_done),
            format::count(status.tasks_open),
            format::count(status.tasks_claimed)
        ),
        format!(
            "done     {} files, {} in {} folders; copied {} files, {}",
            format::count(sums.files),
            format::bytes(sums.bytes),
            format::count(sums.folders),
            format::count(sums.copied),
            format::bytes(sums.copied_bytes)
        ),
        format!("failed   {}", format::count(status.failed)),
    ];
    if sums.skipped > 0 {
        lines.push(format!(
            "skipped  {} devices, sockets or the like",
            format::count(sums.skipped)
        ));
    }
    if sums.extra > 0 {
        lines.push(format!("deleted  {}", format::count(sums.deleted)));
    }
    let workers = status.workers.iter();
    lines.extend(workers.map(|worker| line_of(worker, since)));
    lines
}

fn line_of(worker: &WorkerStatus, since: Option<(&Status, Duration)>) -> String {
    let beat = &worker.beat;
    let what = match (beat.activity, &beat.reason, &beat.task) {
        (Activity::Left, Some(reason), _) => format!("left: {reason}"),
        (Activity::Left, None, _) => "left".to_owned(),
        (Activity::Working, _, Some(task)) => task.clone(),
        (Activity::Working | Activity::Idle, ..) => "idle".to_owned(),
    };
    let before = since.and_then(|(before, span)| {
        let found = before.workers.iter().find(|other| other.id == worker.id)?;
        Some((&found.beat, span.as_secs_f64()))
    });
    let rates = before.map_or_else(String::new, |(before, seconds)| {
        let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 / seconds) as u64;
        format!(
            "  {} files/s, {}/s",
            format::count(rate(beat.files, before.files)),
            format::bytes(rate(beat.bytes, before.bytes))
        )
    });
    format!(
        "worker   {} {}  {} files, {}{rates}  {what}",
        beat.host,
        beat.process,
        format::count(beat.files),
        format::bytes(beat.bytes)
    )
}
