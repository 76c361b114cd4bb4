//! `ropeway boost status --predict`: what would be fetched next, and how well that was known.

use std::fmt::Write as _;

use ropeway_boost::PredictStatus;

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
        let what = match next.block {
            Some(block) => format!("block {block} of {}", next.path),
            None => format!("the beginning of {}", next.path),
        };
        let value = format!("{what} (likelihood {:.2}, {})", next.likelihood, next.because);
        line(&mut text, "predicted", &value);
    }
    text
}

fn line(text: &mut String, name: &str, value: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{name:<20}{value}");
}
