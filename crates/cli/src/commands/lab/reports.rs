//! `ropeway lab report` and `ropeway lab compare`: what labs wrote, shown again and side by side.

use std::path::{Path, PathBuf};

use ropeway_lab::report::{self, Document, FileError, ReportError, TableOptions};
use serde_json::json;

use crate::args::{LabCompareArgs, LabReportArgs};
use crate::failure::{Failure, code};
use crate::ui::messages::{complain, print, print_line};

/// Writes the reports of a document again, and shows its table.
///
/// # Errors
/// It cannot be read or is no report, or the reports cannot be written.
pub(super) fn report(args: &LabReportArgs) -> Result<u8, Failure> {
    let (path, document) = load(&args.file)?;
    let beside = path.parent().unwrap_or(Path::new("."));
    let out = args.out.as_deref().unwrap_or(beside);
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
        complain(&format!("{} files in {}", written.files.len(), out.display()));
    }
    Ok(code::DONE)
}

/// Shows what changed; exit code 7 if a cell is slower beyond the noise, or has no run that counts any more.
///
/// # Errors
/// One of them cannot be read or is no report.
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

/// Columns of the terminal; `None` where it is none.
pub(super) fn width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0).then(|| size.ws_col.into())
}

/// Reads a document, given its file or the folder it is in.
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
                .hint("give the report.json of a lab, or the folder it is in"),
            FileError::Strange { .. } => Failure::new(code::SOURCE, error.to_string())
                .hint("give the report.json that `ropeway lab` of this version wrote"),
        }),
    }
}
