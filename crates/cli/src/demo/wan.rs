//! The demo over a WAN: the built-in scenario `demo` in both directions, with ropeway and every
//! other client that is installed.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use ropeway_lab::report::{Cell, Document, Outcome};
use ropeway_lab::run::{Event, LabError, Observer, Options, run};
use ropeway_lab::scenario::Scenario;

use crate::ui::format;
use crate::ui::messages::print_line;

/// Name of the scenario.
const SCENARIO: &str = "demo";
/// Width of a column of seconds.
const COLUMN: usize = 11;

/// Copies in both directions over the emulated link; `relay`: namespaces are forbidden. The lab
/// compares everything that arrives.
///
/// # Errors
/// The lab cannot be set up, or was interrupted.
pub(crate) fn measure(out: &Path, relay: bool, stop: &AtomicBool) -> Result<Document, LabError> {
    let Some(Ok(scenario)) = Scenario::shipped(SCENARIO) else {
        unreachable!("a test parses every built-in scenario");
    };
    let options = Options {
        program: std::env::current_exe().map_err(|source| LabError::Io {
            what: "find this program",
            source,
        })?,
        out: out.to_path_buf(),
        relay,
        ..Options::default()
    };
    run(&scenario, &options, stop, &Silent)
}

/// Prints no progress, because the table shows all results.
struct Silent;

impl Observer for Silent {
    fn observe(&self, _: &Event<'_>) {}
}

/// Returns what is wrong with ropeway's own transfers; `None` if all data arrived.
pub(crate) fn fault(document: &Document) -> Option<String> {
    let own = |cell: &&Cell| cell.key.client == "ropeway";
    let cells: Vec<&Cell> = document.cells.iter().filter(own).collect();
    if cells.is_empty() {
        return Some("nothing was copied over the link".to_owned());
    }
    cells
        .iter()
        .flat_map(|cell| cell.runs.iter().map(move |run| (&cell.key, run)))
        .find_map(|(key, run)| match &run.outcome {
            Outcome::Done => None,
            Outcome::Failed(why) | Outcome::TimedOut(why) => {
                Some(format!("{} over the link: {why}", key.direction))
            }
        })
}

/// Prints the line time and every client's seconds.
pub(crate) fn print_table(document: &Document) {
    let mut columns: Vec<(&str, &str)> = Vec::new();
    for cell in &document.cells {
        let pair = (cell.key.client.as_str(), cell.key.server.as_str());
        if !columns.contains(&pair) {
            columns.push(pair);
        }
    }
    let names = columns
        .iter()
        .map(|(client, server)| match *client {
            "ropeway" => format!("{:>COLUMN$}", "ropeway"),
            client if *server == "rsyncd" => format!("{:>COLUMN$}", format!("{client} (1)")),
            client => format!("{client:>COLUMN$}"),
        })
        .collect::<String>();
    print_line(&format!(
        "   {:<28}{:>COLUMN$}{names}",
        "seconds, whole command", "line time"
    ));
    for work in &document.works {
        for direction in ["write", "read"] {
            let cells: Vec<&Cell> = document
                .cells
                .iter()
                .filter(|cell| cell.key.work == work.name && cell.key.direction == direction)
                .collect();
            let Some(line) = cells.iter().find_map(|cell| cell.line_seconds) else {
                continue;
            };
            let seconds = columns
                .iter()
                .map(|(client, server)| {
                    let cell = cells
                        .iter()
                        .find(|cell| cell.key.client == *client && cell.key.server == *server);
                    format!("{:>COLUMN$}", cell.map_or("-".to_owned(), |cell| shown(cell)))
                })
                .collect::<String>();
            let what = format!(
                "{direction} {}, {}",
                format::counted(work.files, "file", "files"),
                format::bytes(work.bytes)
            );
            print_line(&format!("   {what:<28}{line:>COLUMN$.2}{seconds}"));
        }
    }
    if columns.iter().any(|(_, server)| *server == "rsyncd") {
        print_line("   (1) with its own daemon; all others with `ropeway serve` on the far side");
    }
    let skipped: Vec<String> = document
        .skipped
        .iter()
        .map(|(what, why)| format!("{what} ({why})"))
        .collect();
    if !skipped.is_empty() {
        print_line(&format!("   skipped: {}", skipped.join(", ")));
    }
}

fn shown(cell: &Cell) -> String {
    match cell.runs.last().map(|run| (&run.outcome, run.whole_seconds)) {
        Some((Outcome::Done, seconds)) => format!("{seconds:.2}"),
        Some((Outcome::Failed(_), _)) => "failed".to_owned(),
        Some((Outcome::TimedOut(_), seconds)) => format!("> {seconds:.0}"),
        None => "-".to_owned(),
    }
}
