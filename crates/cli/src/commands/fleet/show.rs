//! `ropeway fleet status` and `top`.

use std::io::{IsTerminal as _, stdout};
use std::time::Duration;

use ropeway_fleet::catalog::Losses;
use ropeway_fleet::status::{Progress, Reader, Status};
use ropeway_live::model::{Fleet, FleetWorker};
use ropeway_vfs::Loss;
use serde_json::{Value, json};

use super::place::Target;
use super::{failure, figures, no_job, shown};
use crate::args::{FleetStatusArgs, FleetTopArgs};
use crate::commands::ls::printable;
use crate::commands::nodes::{self, Printer};
use crate::failure::{Failure, code};
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
        let store = target.job(&servers).await?;
        let mut reader = Reader::default();
        let what = format!("cannot read the job of {}", target.shown);
        let status = reader.overview(&store, figures::now()).await;
        let status = status.map_err(|error| failure(&what, &error))?;
        let status = status.ok_or_else(|| no_job(&target.shown))?;
        let mut printer = Printer::new(args.json);
        print(&mut printer, &status, args.failures);
        if args.failures {
            let failures = reader.failures(&store).await;
            for (path, reason) in failures.map_err(|error| failure(&what, &error))? {
                printer.line(&printable(&format!("  {path}: {reason}")));
                if let Value::Object(fields) = json!({"path": path, "message": reason}) {
                    printer.object("fleet_failure", fields);
                }
            }
        }
        printer.done();
        tell_failures(&mut printer, &status);
        Ok(printer.finish())
    })
}

/// Says that something failed in a job that is complete; that is exit code 2.
pub(super) fn tell_failures(printer: &mut Printer, status: &Status) {
    if status.state == Progress::Complete && status.failed > 0 {
        let message = format!("{} files or folders failed", status.failed);
        let hint = format!(
            "`ropeway fleet status {0} --failures` lists them, `ropeway fleet resume {0}` tries them again",
            status.target
        );
        printer.fail(&shown(Failure::new(code::SOME_FAILED, message).hint(hint)));
    }
}

/// Returns a line for each kind of attribute that the target could not keep.
pub(super) fn notes(losses: &Losses) -> Vec<String> {
    let note =
        |(loss, count): (&Loss, &u64)| format!("note     {} {}", format::count(*count), loss.describe());
    losses.0.iter().map(note).collect()
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
        let store = target.job(&servers).await?;
        let what = format!("cannot read the job of {}", target.shown);
        let mut reader = Reader::default();
        loop {
            let status = reader.overview(&store, figures::now()).await;
            let status = status.map_err(|error| failure(&what, &error))?;
            let status = status.ok_or_else(|| no_job(&target.shown))?;
            if stdout().is_terminal() && !args.json {
                messages::print(CLEAR);
            }
            let mut printer = Printer::new(args.json);
            print(&mut printer, &status, false);
            printer.done();
            tell_failures(&mut printer, &status);
            let ended = printer.finish();
            if status.state == Progress::Complete {
                return Ok(ended);
            }
            let waiting = until_stopped(&mut signals, tokio::time::sleep(interval));
            if waiting.await.is_none() {
                return Ok(code::INTERRUPTED);
            }
        }
    })
}

/// Prints a status. `lists_failures`: all failures follow.
fn print(printer: &mut Printer, status: &Status, lists_failures: bool) {
    let lines = lines(&figures::of(status), lists_failures);
    lines.iter().for_each(|line| printer.line(line));
    notes(&status.losses).iter().for_each(|line| printer.line(line));
    if let Ok(Value::Object(fields)) = serde_json::to_value(status) {
        printer.object("fleet_status", fields);
    }
}

/// Returns the lines of a status. Other users may have written what they show: reasons, names of machines, paths.
fn lines(fleet: &Fleet, lists_failures: bool) -> Vec<String> {
    let is_complete = fleet.phase == "complete";
    let mut lines = vec![
        format!("{}: {}", fleet.ends(), fleet.phase),
        format!(
            "tasks    {} done, {} open ({} claimed)",
            format::count(fleet.tasks_done),
            format::count(fleet.tasks_open),
            format::count(fleet.tasks_claimed)
        ),
        done(fleet),
    ];
    if !is_complete {
        let workers = format::counted(fleet.workers_present, "worker", "workers");
        // Each worker tells its rates from its second sign of life on.
        let is_known = fleet.workers.iter().any(|worker| worker.rates.is_some());
        let speed = match is_known || fleet.workers_present == 0 {
            true => fleet.speed(),
            false => "not known yet".to_owned(),
        };
        lines.push(format!("rate     {speed} · {workers}"));
        lines.push(format!("left     {}", fleet.left()));
    }
    lines.push(format!("failed   {}", format::count(fleet.failed)));
    if !lists_failures {
        let failures = fleet.failures.iter();
        lines.extend(failures.map(|failure| format!("         {}: {}", failure.path, failure.message)));
        let more = fleet.failed.saturating_sub(fleet.failures.len() as u64);
        lines.extend(
            (more > 0).then(|| format!("         {} more: --failures lists all", format::count(more))),
        );
    }
    if fleet.skipped > 0 {
        let skipped = format::count(fleet.skipped);
        lines.push(format!(
            "skipped  {skipped} devices, sockets, temporary names of Ropeway or the like"
        ));
    }
    if fleet.extra > 0 {
        lines.push(format!("deleted  {}", format::count(fleet.deleted)));
    }
    if !is_complete {
        let stragglers = fleet.workers.iter().filter(|worker| worker.is_straggler());
        lines.extend(stragglers.map(straggler));
    }
    lines.extend(fleet.workers.iter().map(line_of));
    let more = fleet.workers_total.saturating_sub(fleet.workers.len() as u64);
    lines.extend((more > 0).then(|| format!("         and {} more workers", format::count(more))));
    lines.iter().map(|line| printable(line)).collect()
}

fn done(fleet: &Fleet) -> String {
    let expected = fleet
        .files_expected
        .filter(|_| fleet.phase != "complete")
        .map_or_else(String::new, |files| format!(" of about {}", format::count(files)));
    format!(
        "done     {}{expected} files, {} in {} folders; copied {} files, {}",
        format::count(fleet.files),
        format::bytes(fleet.bytes),
        format::count(fleet.folders),
        format::count(fleet.copied),
        format::bytes(fleet.copied_bytes)
    )
}

fn straggler(worker: &FleetWorker) -> String {
    let after = match worker.state.as_str() {
        "silent" => "others take its task",
        _ => "if it makes no progress for ten leases, and nothing else is left, others take its task",
    };
    format!("slow     {}: {}; {after}", worker.name(), worker.condition())
}

fn line_of(worker: &FleetWorker) -> String {
    let rates = worker.rates.as_ref().map_or_else(String::new, |rates| {
        format!(
            ", {} files/s, read {}, written {}",
            format::count(rates.files.max(0.0) as u64),
            format::rate(rates.read),
            format::rate(rates.written)
        )
    });
    let what = match (worker.state.as_str(), &worker.task) {
        ("well", Some(task)) => task.clone(),
        _ => worker.condition(),
    };
    format!(
        "worker   {}: {} files, {}{rates}; {what}",
        worker.name(),
        format::count(worker.files),
        format::bytes(worker.bytes)
    )
}

#[cfg(test)]
mod tests {
    use ropeway_live::model::{FleetFailure, FleetRates};
    use ropeway_vfs::event::Eta;

    use super::*;

    #[test]
    fn a_status_shows_rates_the_time_left_stragglers_and_the_first_failures() {
        let worker = |state: &str| FleetWorker {
            host: "nas".into(),
            process: 7,
            state: state.into(),
            silent_seconds: Some(90.0),
            stalled_seconds: 61.0,
            task: Some("folder a".into()),
            rates: (state == "well").then(FleetRates::default),
            ..FleetWorker::default()
        };
        let fleet = Fleet {
            source: "/a".into(),
            target: "/b".into(),
            phase: "copying".into(),
            files: 1_000,
            files_expected: Some(2_000),
            eta: Some(Eta {
                seconds: 40.0,
                low: 38.0,
                high: 44.0,
            }),
            failed: 7,
            failures: vec![FleetFailure {
                path: "x/y".into(),
                message: "no permission".into(),
            }],
            workers_total: 4,
            workers: vec![
                worker("silent"),
                worker("stalled"),
                worker("well"),
                worker("gone"),
            ],
            ..Fleet::default()
        };
        let all = lines(&fleet, false);
        for expected in [
            "/a → /b: copying",
            "left     40s (38-44s)",
            "         x/y: no permission",
            "         6 more: --failures lists all",
            "slow     nas 7: no sign of life for 1m30s; others take its task",
            "slow     nas 7: no progress for 1m01s; if it makes no progress for ten leases, and nothing else is left, others take its task",
            "worker   nas 7: 0 files, 0 B; gone: no sign of life for 1m30s, and no task",
            "worker   nas 7: 0 files, 0 B, 0 files/s, read 0 B/s, written 0 B/s; folder a",
        ] {
            assert!(all.iter().any(|line| line == expected), "{expected}: {all:#?}");
        }
        assert!(all[2].contains("1,000 of about 2,000 files"), "{all:#?}");
        assert!(all[3].contains("files/s"), "{all:#?}");
        let young = Fleet {
            workers: vec![worker("silent")],
            workers_present: 1,
            ..fleet.clone()
        };
        assert_eq!(lines(&young, false)[3], "rate     not known yet · 1 worker");
        let complete = Fleet {
            phase: "complete".into(),
            ..fleet
        };
        let all = lines(&complete, true);
        let hidden = ["left ", "rate ", "slow ", "x/y"];
        assert!(
            !all.iter()
                .any(|line| hidden.iter().any(|word| line.contains(word))),
            "{all:#?}"
        );
    }

    /// Whoever may write to the folder of the job could control the terminals of others.
    #[test]
    fn what_others_wrote_cannot_control_the_terminal() {
        let evil = || "a\x1b]0;owned\x07\r\nb\u{202e}".to_owned();
        let worker = FleetWorker {
            host: evil(),
            state: "left".into(),
            reason: Some(evil()),
            ..FleetWorker::default()
        };
        let silent = FleetWorker {
            state: "silent".into(),
            ..worker.clone()
        };
        let well = FleetWorker {
            state: "well".into(),
            task: Some(evil()),
            ..worker.clone()
        };
        let fleet = Fleet {
            source: evil(),
            target: evil(),
            phase: "copying".into(),
            failures: vec![FleetFailure {
                path: evil(),
                message: evil(),
            }],
            workers: vec![silent, well, worker],
            ..Fleet::default()
        };
        let all = lines(&fleet, false);
        let is_plain = |line: &String| !line.contains(|c: char| c.is_control() || c == '\u{202e}');
        assert!(all.iter().all(is_plain), "{all:#?}");
        let failure = super::super::shown(Failure::usage(evil()).hint(evil()));
        assert!(is_plain(&failure.message) && failure.hint.iter().all(is_plain));
    }
}
