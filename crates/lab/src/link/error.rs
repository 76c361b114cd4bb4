//! Why there is no link.

use std::io;

/// Why a link could not be started or used.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The specification makes no sense.
    #[error("{0}")]
    Spec(String),
    /// The system does not let us make what a link needs.
    #[error("not permitted to {what}: {source}")]
    Forbidden {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A program or a kernel feature is missing.
    #[error("{what} is missing: {hint}")]
    Missing {
        /// What is missing.
        what: String,
        /// Where to get it.
        hint: &'static str,
    },
    /// Anything else.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

impl LinkError {
    /// An error of the system; lack of permission is told apart.
    pub(crate) fn of(what: &'static str, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::Forbidden { what, source },
            _ => Self::Io {
                what: what.to_owned(),
                source,
            },
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> &str {
        match self {
            Self::Spec(_) => "`ropeway lab link --help` explains every value",
            Self::Forbidden { .. } => {
                "run it as root, or allow user namespaces and make /dev/net/tun writable; where neither can be, \
                 --relay NEAR:FAR gives a TCP relay with delay and rate"
            }
            Self::Missing { hint, .. } => hint,
            Self::Io { .. } => "`dmesg` and ROPEWAY_DEBUG=debug may tell more",
        }
    }
}
