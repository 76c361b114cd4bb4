//! `ropeway boost learn`.

use std::fs::File;
use std::io::BufReader;

use ropeway_boost::{LearnError, LearnedFigures};
use ropeway_cache::recording::RecordingError;

use crate::args::BoostLearnArgs;
use crate::failure::{Failure, code};
use crate::ui::{format, messages};

/// Bytes read at a time.
const BUFFER_BYTES: usize = 256 << 10;

/// Runs the command and returns its exit code.
///
/// # Errors
/// The recording cannot be read, or the cache cannot be used.
pub(super) fn run(args: &BoostLearnArgs) -> Result<u8, Failure> {
    let shown = args.recording.display();
    let unreadable = |error: std::io::Error| {
        let message = format!("cannot read {shown}: {error}");
        Failure::of_end(message, &error, code::SOURCE).hint("check the spelling")
    };
    let file = File::open(&args.recording).map_err(unreadable)?;
    let file = BufReader::with_capacity(BUFFER_BYTES, file);
    let learned = ropeway_boost::learn(&args.folder, file).map_err(|error| match error {
        LearnError::Folder(error) => super::failure(&error),
        LearnError::Recording(RecordingError::Io(error)) => unreadable(error),
        LearnError::Recording(error) => Failure::new(code::SOURCE, format!("{shown}: {error}"))
            .hint("make a recording with `ropeway mount … --record FILE`"),
        error => Failure::new(code::SOURCE, format!("{shown}: {error}"))
            .hint("record while programs use the mount"),
    })?;
    messages::print_line(&format!("{}: {}", args.folder.display(), as_text(&learned)));
    Ok(code::DONE)
}

/// Returns what was learned, on one line.
fn as_text(learned: &LearnedFigures) -> String {
    let lost = match learned.lost {
        0 => String::new(),
        lost => format!(" ({} more are missing in it)", format::count(lost)),
    };
    format!(
        "learned from {} and {}{lost} of {} by {} in {}; knows {} and {} now",
        format::counted(learned.opens, "open", "opens"),
        format::counted(learned.reads, "read", "reads"),
        format::counted(learned.files, "file", "files"),
        format::counted(learned.programs, "program", "programs"),
        learned.sources.join(", "),
        format::counted(learned.pairs, "pair of blocks", "pairs of blocks"),
        format::counted(learned.next_files, "next file", "next files"),
    )
}
