//! What can go wrong where a report is written.

use std::io;
use std::path::PathBuf;

/// Why a report could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The system refused.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A plot could not be made into a picture.
    #[error("cannot draw {name}: {reason}")]
    Picture {
        /// The plot.
        name: String,
        /// Why.
        reason: String,
    },
}
