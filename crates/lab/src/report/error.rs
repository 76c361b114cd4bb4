//! Errors of writing a report.

use std::io;
use std::path::PathBuf;

/// A report cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A system call failed.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A plot cannot be rendered as a picture.
    #[error("cannot draw {name}: {reason}")]
    Picture {
        /// The plot.
        name: String,
        /// The reason.
        reason: String,
    },
}
