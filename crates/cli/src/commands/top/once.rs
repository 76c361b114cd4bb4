//! `top --once`: a table, or JSON.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_live::client::{Address, ClientError, scan};
use ropeway_live::model::{Job, Snapshot, VERSION};
use ropeway_live::protocol::Request;
use serde_json::{Value, json};

use super::view::words;
use crate::failure::{Failure, code};
use crate::tui::text;
use crate::ui::format;
use crate::ui::messages::{print, print_line, print_stderr};

/// Time that a process has for its answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Most lines for the parts of one process, and as many for its jobs. A guess: no process has more.
const PARTS_MAX: usize = 32;
/// Processes asked at once.
const AT_ONCE: usize = 16;

type Asked = (Address, Result<Snapshot, ClientError>);

/// Prints all processes once.
///
/// # Errors
/// None: a process that does not answer is part of the result.
pub(super) fn run(json: bool, user: Option<u32>) -> Result<u8, Failure> {
    let scan = scan();
    for refused in &scan.refused {
        print_stderr(&format!("! left out: {refused}"));
    }
    let wanted: Vec<Address> = scan
        .found
        .into_iter()
        .filter(|address| user.is_none_or(|user| user == address.uid))
        .collect();
    let mut asked = ask_all(wanted);
    // What ended meanwhile is not running.
    asked.retain(|(_, told)| *told != Err(ClientError::Ended));
    if json {
        let all: Vec<Value> = asked.iter().map(as_json).collect();
        print_line(&Value::from(all).to_string());
    } else {
        print(&table(&asked));
    }
    Ok(code::DONE)
}

/// Asks all of them, some at once, so that one that hangs delays nobody for long.
fn ask_all(addresses: Vec<Address>) -> Vec<Asked> {
    let (next, told) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let request = Request::Status { history: true };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(addresses.len()) {
            scope.spawn(|| {
                while let Some(address) = addresses.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let answer = address.ask(&request, PATIENCE);
                    let snapshot = answer.and_then(|snapshot| {
                        snapshot.ok_or_else(|| ClientError::Strange("no snapshot".to_owned()))
                    });
                    told.lock().push((address.clone(), snapshot));
                }
            });
        }
    });
    let mut told = told.into_inner();
    told.sort_by(|(a, _), (b, _)| (a.pid, &a.name, &a.folder).cmp(&(b.pid, &b.name, &b.folder)));
    told
}

fn as_json((address, told): &Asked) -> Value {
    match told {
        // Plain structs always serialize.
        Ok(snapshot) => serde_json::to_value(snapshot).unwrap_or_default(),
        Err(error) => json!({
            "version": VERSION,
            "process": {"pid": address.pid, "uid": address.uid},
            "error": error.to_string(),
        }),
    }
}

fn table(asked: &[Asked]) -> String {
    if asked.is_empty() {
        return "no ropeway is running\n".to_owned();
    }
    let mut out = String::from("    PID USER      COMMAND         RATE      OPS/S  WHAT\n");
    for (address, told) in asked {
        match told {
            Err(error) => {
                _ = writeln!(
                    out,
                    "{:>7} {:<9} ?                                  {error}",
                    address.pid, ""
                )
            }
            Ok(snapshot) => rows(&mut out, snapshot),
        }
    }
    out
}

/// Adds a line for the process, and one for each of its parts.
fn rows(out: &mut String, snapshot: &Snapshot) {
    let (process, rates) = (&snapshot.process, snapshot.rates());
    let mut what = words::parts(snapshot);
    let first = match what.is_empty() {
        true => "starting".to_owned(),
        false => what.remove(0),
    };
    let user = match process.user.is_empty() {
        true => process.uid.to_string(),
        false => process.user.clone(),
    };
    _ = writeln!(
        out,
        "{:>7} {} {} {} {}  {first}",
        process.pid,
        text::padded(&user, 9),
        text::padded(&process.command, 8),
        text::right(&format::rate(words::throughput(&rates)), 12),
        text::right(&text::per_second(rates.operations), 10),
    );
    let indent = " ".repeat(52);
    for more in what.into_iter().take(PARTS_MAX) {
        _ = writeln!(out, "{indent}{more}");
    }
    for job in snapshot.jobs.iter().take(PARTS_MAX) {
        _ = writeln!(out, "{indent}{}", state(job));
    }
}

/// Returns the counters of a job in one line.
fn state(job: &Job) -> String {
    let counters = &job.counters;
    let mut parts = vec![job.state().to_owned()];
    if job.kind == "check" {
        parts.push(format::counted(
            counters.files_done,
            "node compared",
            "nodes compared",
        ));
        parts.push(format::counted(job.differences, "difference", "differences"));
    } else {
        parts.push(format!(
            "read {} sent {} durable {} of {}{}",
            format::bytes(counters.bytes_read),
            format::bytes(counters.bytes_sent),
            format::bytes(counters.bytes_durable),
            format::bytes(counters.bytes_total),
            if counters.totals_final { "" } else { "+" },
        ));
        parts.push(format!(
            "{}/{} files",
            format::count(counters.files_done),
            format::count(counters.files_total)
        ));
    }
    parts.extend((job.errors > 0).then(|| format::counted(job.errors, "error", "errors")));
    parts.join(" · ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(pid: u32) -> Address {
        Address {
            folder: "/run/user/0/ropeway".into(),
            name: format!("{pid}.sock"),
            pid,
            uid: 0,
        }
    }

    #[test]
    fn each_process_has_a_line() {
        let mut snapshot = Snapshot::default();
        snapshot.process.pid = 7;
        snapshot.process.command = "copy".into();
        snapshot.jobs.push(Job {
            kind: "copy".into(),
            sources: vec!["/a".into()],
            target: "/b".into(),
            paused: true,
            errors: 2,
            ..Job::default()
        });
        let asked = [(address(7), Ok(snapshot)), (address(8), Err(ClientError::Silent))];
        let text = table(&asked);
        for part in ["      7 ", "/a → /b", "PAUSED", "2 errors", "it does not answer"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(table(&[]).contains("no ropeway is running"));
        let json = as_json(&asked[1]);
        assert_eq!(
            (&json["process"]["pid"], &json["error"]),
            (&json!(8), &json!("it does not answer"))
        );
        assert_eq!(as_json(&asked[0])["jobs"][0]["paused"], json!(true));
    }
}
