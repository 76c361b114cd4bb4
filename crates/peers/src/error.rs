//! Reasons for a peer that is not available.

use std::fs;
use std::path::Path;

/// A peer could not be started.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The machine lacks something that the peer needs. Tests are skipped.
    #[error("{what} ({hint})")]
    Missing {
        /// What is missing.
        what: String,
        /// How to get it.
        hint: String,
    },
    /// The peer is installed and does not work. Tests fail.
    #[error("{0}")]
    Failed(String),
}

impl PeerError {
    pub(crate) fn not_installed(program: &str, package: &str) -> Self {
        Self::Missing {
            what: format!("{program} is not installed"),
            hint: format!("apt-get install {package}"),
        }
    }

    pub(crate) fn needs_root(what: &str) -> Self {
        Self::Missing {
            what: format!("not root: {what}"),
            hint: "run as root".to_owned(),
        }
    }

    pub(crate) fn failed(doing: impl std::fmt::Display, error: impl std::fmt::Display) -> Self {
        Self::Failed(format!("{doing}: {error}"))
    }
}

/// Writes a file; the error names it.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), PeerError> {
    fs::write(path, text)
        .map_err(|error| PeerError::failed(format_args!("cannot write {}", path.display()), error))
}
