//! `ropeway lab report` and `ropeway lab compare`: prints earlier reports and compares them.

use std::path::{Path, PathBuf};

use ropeway_lab::report::{self, Document, FileError, ReportError, TableOptions};
use serde_json::json;

use crate::args::{LabCompareArgs, LabReportArgs};
use crate::failure::{Failure, code};
use crate::ui::messages::{print, print_line, print_stderr};

/// Writes the reports for a document again and prints its table.
///
/// # Errors
/// The document cannot be read or is not a report, or the reports cannot be written.
pub(super) fn report(args: &LabReportArgs) -> Result<u8, Failure> {
    let (path, document) = load(&args.file)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let out = args.out.as_deref().unwrap_or(folder);
    let written = report::write_all(&document, out).map_err(|error| match &error {
        ReportError::Write { source, .. } => {
            Failure::of_end(error.to_string(), source, code::TARGET).hint("choose another folder with --out")
        }
        ReportError::Picture { .. } => Failure::new(code::SOURCE, error.to_string())
            .hint("the report's plots have sizes that cannot be drawn"),
    })?;
    if args.json {
        let line = json!({
            "type": "lab_report",
            "files": written.files,
            "bytes": written.bytes,
        });
        print_line(&line.to_string());
    } else {
        print(&report::table(
            &document,
            TableOptions {
                width: width(),
                ..TableOptions::default()
            },
        ));
        print_stderr(&format!("{} files in {}", written.files.len(), out.display()));
    }
    Ok(code::DONE)
}

/// Prints what changed; returns exit code 7 if a cell is slower beyond the noise, or no longer has
/// a run that counts.
///
/// # Errors
/// One document cannot be read or is not a report.
pub(super) fn compare(args: &LabCompareArgs) -> Result<u8, Failure> {
    let (_, before) = load(&args.before)?;
    let (_, after) = load(&args.after)?;
    let comparison = report::compare(&before, &after);
    if args.json {
        let line = json!({
            "type": "lab_comparison",
            "version": 1,
            "worse": comparison.is_worse(),
            "comparison": comparison,
        });
        print_line(&line.to_string());
    } else {
        print(&comparison.table());
    }
    Ok(if comparison.is_worse() {
        code::DIFFERS
    } else {
        code::DONE
    })
}

/// Returns the width of the terminal in columns; `None` if standard output is not a terminal.
pub(super) fn width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0).then(|| size.ws_col.into())
}

/// Reads a document, given its file or its folder.
fn load(path: &Path) -> Result<(PathBuf, Document), Failure> {
    let path = if path.is_dir() {
        path.join(report::FILE)
    } else {
        path.to_owned()
    };
    match report::load(&path) {
        Ok(document) => Ok((path, document)),
        Err(error) => Err(match &error {
            FileError::Io { source, .. } => Failure::of_end(error.to_string(), source, code::SOURCE)
                .hint("give the report.json of a lab, or its folder"),
            FileError::Strange { .. } => Failure::new(code::SOURCE, error.to_string())
                .hint("give a report.json from this version of `ropeway lab`"),
        }),
    }
}
