//! Why there is no peer.

/// Why there is no peer.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// Something that it needs is not here; tests are skipped.
    #[error("{what} ({hint})")]
    Missing {
        /// What is missing.
        what: String,
        /// How to get it.
        hint: String,
    },
    /// It is installed and does not do what it should; tests fail.
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
