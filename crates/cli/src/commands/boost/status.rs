//! `ropeway boost status`.

use ropeway_boost::{Status, folder};
use ropeway_write_back::{Journal, Left, Status as Backlog};
use serde_json::{Value, json};

use super::{failure, predict};
use crate::args::BoostStatusArgs;
use crate::commands::serve::write_back;
use crate::failure::{Failure, code};
use crate::ui::{format, messages};

/// Runs the command and returns its exit code.
///
/// # Errors
/// The folder has no cache.
pub(super) fn run(args: &BoostStatusArgs) -> Result<u8, Failure> {
    let size = folder::size(&args.folder).map_err(|error| failure(&error))?;
    let user = folder::in_use_by(&args.folder);
    let status = Status::read(&args.folder);
    let journals = Journal::all(&args.folder).map_err(|error| write_back::failure(&error))?;
    if args.json {
        let mut value = as_json(size, user.as_deref(), status.as_ref());
        if let Value::Object(all) = &mut value {
            all.insert(
                "write_back".to_owned(),
                journals.iter().map(journal_json).collect(),
            );
        }
        messages::print_line(&value.to_string());
        return Ok(code::DONE);
    }
    messages::print(&as_text(size, user.as_deref(), status.as_ref()));
    if args.predict {
        let predict = status.as_ref().map(|status| &status.predict);
        messages::print(&predict.map_or_else(String::new, predict::as_text));
    }
    for journal in &journals {
        messages::print(&journal_text(journal));
    }
    Ok(code::DONE)
}

fn as_json(size: u64, user: Option<&str>, status: Option<&Status>) -> Value {
    let mut value = json!({ "event": "boost", "size_bytes": size, "in_use": user.is_some() });
    let figures = status.and_then(|status| serde_json::to_value(status).ok());
    if let (Value::Object(all), Some(Value::Object(figures))) = (&mut value, figures) {
        for (name, figure) in figures {
            all.entry(name).or_insert(figure);
        }
        if user.is_none() {
            // The rates are those of the last second of the session.
            all.insert("is_on".to_owned(), Value::Bool(false));
            all.insert("off_because".to_owned(), Value::from("not in use"));
        }
    }
    value
}

fn as_text(size: u64, user: Option<&str>, status: Option<&Status>) -> String {
    let mut rows = vec![("size", format::bytes(size))];
    let state = match (user, status) {
        (None, None) => "not used yet".to_owned(),
        (None, Some(_)) => "not in use; the figures are those of the last session".to_owned(),
        (Some(user), Some(status)) if status.is_on => format!("on, used by {user}"),
        (Some(user), Some(status)) => format!("off ({}), used by {user}", status.off_because),
        (Some(user), None) => format!("used by {user}"),
    };
    rows.push(("state", state));
    if let Some(status) = status {
        figures(&mut rows, status);
    }
    let lines = rows.iter().map(|(name, value)| format!("{name:<20}{value}\n"));
    lines.collect()
}

fn figures(rows: &mut Vec<(&'static str, String)>, status: &Status) {
    let percent = |ratio: f64| format!("{:.1} %", ratio * 100.0);
    rows.push(("used for", status.used_by.clone()));
    rows.push(("blocks", format::count(status.blocks)));
    rows.push((
        "hits",
        format!(
            "{} ({} from memory)",
            format::count(status.hits()),
            format::count(status.memory_hits)
        ),
    ));
    rows.push(("misses", format::count(status.misses)));
    rows.push(("hit ratio", percent(status.hit_ratio)));
    rows.push((
        "hit reads",
        format!(
            "{}, now {}",
            format::bytes(status.hit_read_bytes),
            format::rate(status.hit_read_bytes_per_s)
        ),
    ));
    rows.push((
        "sequential bailed",
        format!(
            "{}, now {:.1}/s",
            format::count(status.sequential_ios_bailed),
            status.sequential_ios_bailed_per_s
        ),
    ));
    rows.push(("written to flash", format::bytes(status.bytes_written)));
    rows.push((
        "write amplification",
        format!("{:.2}", status.write_amplification),
    ));
    rows.push(("compression", format!("{:.2}", status.compression_ratio)));
    let rate = |rate: Option<f64>| rate.map_or_else(|| "not known".to_owned(), format::rate);
    rows.push(("source, sequential", rate(status.source_bytes_per_s)));
    rows.push(("device, sequential", rate(status.device_bytes_per_s)));
    outages(rows, status);
    if status.turned_off > 0 {
        rows.push(("failures", format::count(status.turned_off)));
    }
    let pinned = &status.pinned;
    if pinned.files + pinned.metadata > 0 {
        rows.push((
            "pinned",
            format!(
                "{} of {} ({} of {}); {} left out, {} failed; {} attributes",
                format::count(pinned.files_done),
                format::counted(pinned.files, "file", "files"),
                format::bytes(pinned.bytes_done),
                format::bytes(pinned.bytes),
                format::count(pinned.files_left_out),
                format::count(pinned.files_failed),
                format::count(pinned.metadata),
            ),
        ));
    }
    for hour in &status.hours {
        let ratio = hour.hits as f64 / (hour.hits + hour.misses).max(1) as f64;
        let of_day = hour.start / 3600 % 24;
        let lookups = format::count(hour.hits + hour.misses);
        rows.push((
            "hit ratio by hour",
            format!("{of_day:02}:00 UTC {} of {lookups}", percent(ratio)),
        ));
    }
}

/// Adds what was answered while the source did not.
fn outages(rows: &mut Vec<(&'static str, String)>, status: &Status) {
    if status.is_offline {
        let seconds = format!("does not answer for {:.0} s", status.offline_seconds);
        rows.push(("source", seconds));
    }
    if status.outages > 0 {
        rows.push((
            "offline",
            format!(
                "{}; {} and {} answered meanwhile",
                format::counted(status.outages, "outage", "outages"),
                format::counted(status.offline_reads, "read", "reads"),
                format::counted(status.offline_answers, "other question", "other questions"),
            ),
        ));
    }
}

/// Returns the figures of a write-back journal: what lies there, and what its process says of it.
fn journal_json(journal: &Left) -> Value {
    let status = Backlog::read(&journal.path).unwrap_or_default();
    let mut value = serde_json::to_value(&status).unwrap_or_default();
    if let Value::Object(all) = &mut value {
        all.insert("far".to_owned(), Value::from(journal.share.clone()));
        all.insert(
            "folder".to_owned(),
            Value::from(journal.path.display().to_string()),
        );
        all.insert("files_in_journal".to_owned(), Value::from(journal.files));
        all.insert("bytes_in_journal".to_owned(), Value::from(journal.bytes));
    }
    value
}

fn journal_text(journal: &Left) -> String {
    let status = Backlog::read(&journal.path).unwrap_or_default();
    let mut rows = vec![("write-back", journal.share.clone())];
    let backlog = match journal.files {
        0 => "none".to_owned(),
        files => format!(
            "{} in {} (journal {}), the oldest {} s old",
            format::bytes(status.bytes),
            format::counted(files, "file", "files"),
            format::bytes(journal.bytes),
            status.oldest_s
        ),
    };
    rows.push(("  backlog", backlog));
    rows.push(("  written back", format::bytes(status.drained_bytes)));
    if status.conflicts > 0 {
        let (count, last) = (format::count(status.conflicts), &status.last_conflict);
        rows.push(("  conflicts", format!("{count}, the last saved as {last}")));
    }
    if status.damaged > 0 {
        rows.push(("  damaged", format::counted(status.damaged, "file", "files")));
    }
    if !status.last_error.is_empty() && journal.files > 0 {
        rows.push(("  waits", status.last_error));
    }
    if !status.failing_because.is_empty() {
        rows.push(("  past the journal", status.failing_because));
    }
    let lines = rows.iter().map(|(name, value)| format!("{name:<20}{value}\n"));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_cache_is_off_in_json() {
        let status = Status {
            is_on: true,
            misses: 3,
            ..Status::default()
        };
        let value = as_json(7, None, Some(&status));
        assert_eq!(
            (value["is_on"].clone(), value["misses"].clone()),
            (json!(false), json!(3))
        );
        assert_eq!(value["size_bytes"], json!(7));
        assert_eq!(as_json(7, Some("process 1"), Some(&status))["is_on"], json!(true));
    }

    #[test]
    fn the_text_names_who_uses_it() {
        let status = Status {
            is_on: true,
            ..Status::default()
        };
        assert!(as_text(1, Some("process 7"), Some(&status)).contains("on, used by process 7"));
        assert!(as_text(1, None, None).contains("not used yet"));
    }
}
