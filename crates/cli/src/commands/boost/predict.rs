//! `ropeway boost status --predict`: what would be fetched next, and how well that was known.

use std::fmt::Write as _;

use ropeway_boost::{BringStatus, NextStatus, PredictStatus};

use crate::ui::format;

/// Returns the lines.
pub(super) fn as_text(status: &PredictStatus) -> String {
    if !status.is_on {
        return "prefetching is off\n".to_owned();
    }
    let mut text = String::new();
    let fetched = format!(
        "{} ({}) for {}; {} not fetched in time or for want of room on the line",
        format::counted(status.blocks_fetched, "block", "blocks"),
        format::bytes(status.bytes_fetched),
        format::counted(status.requests, "request", "requests"),
        format::count(status.dropped),
    );
    line(&mut text, "prefetched", &fetched);
    let files = format!(
        "{} expected, {} prefetched",
        format::counted(status.files_predicted, "file", "files"),
        format::count(status.files_fetched),
    );
    line(&mut text, "next files", &files);
    line(
        &mut text,
        "lag",
        &format!(
            "{} while a fetch takes place",
            format::counted(status.lag.into(), "request", "requests")
        ),
    );
    for of in &status.sources {
        let covered = of.used as f64 / (status.requests.max(1)) as f64;
        let value = format!(
            "{} predicted, {} used, {} late; precision {:.2}, coverage {:.2}, budget {:.0} %",
            format::count(of.predicted),
            format::count(of.used),
            format::count(of.late),
            of.precision,
            covered,
            of.budget * 100.0,
        );
        line(&mut text, &format!("source {}", of.source), &value);
    }
    for next in &status.next {
        line(&mut text, "predicted", &expected(next));
    }
    if status.bringing.is_on {
        bringing(&mut text, &status.bringing);
    }
    text
}

/// Adds what was brought back into the kernel's memory.
fn bringing(text: &mut String, of: &BringStatus) {
    let stalled = of.stalled.map_or_else(
        || "not told".to_owned(),
        |share| format!("{:.0} % of the time", share * 100.0),
    );
    let state = format!(
        "{}; memory was short {}; tasks wait for memory: {stalled}; room for {}",
        of.state,
        format::counted(of.episodes, "time", "times"),
        format::bytes(of.room_bytes),
    );
    line(text, "after the hogs", &state);
    let precision = of.bytes_used as f64 / of.bytes.max(1) as f64;
    let brought = format!(
        "{} ({}, {} of them from the disk) in {:.1} s; {} were still there, {} gone again; precision {precision:.2}",
        format::counted(of.blocks, "block", "blocks"),
        format::bytes(of.bytes),
        format::bytes(of.bytes_from_source),
        of.seconds,
        format::bytes(of.bytes_kept),
        format::bytes(of.bytes_lost),
    );
    line(text, "brought back", &brought);
    if !of.ended.is_empty() {
        line(text, "last time", &of.ended);
    }
    for next in &of.next {
        line(text, "to bring back", &expected(next));
    }
}

fn expected(next: &NextStatus) -> String {
    let what = match next.block {
        Some(block) => format!("block {block} of {}", next.path),
        None => format!("the beginning of {}", next.path),
    };
    format!("{what} (likelihood {:.2}, {})", next.likelihood, next.because)
}

fn line(text: &mut String, name: &str, value: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{name:<20}{value}");
}
