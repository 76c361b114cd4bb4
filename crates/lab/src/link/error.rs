//! Errors of links.

use std::io;

/// A link cannot be started or used.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The specification is invalid.
    #[error("{0}")]
    Spec(String),
    /// The system forbids what a link needs.
    #[error("not permitted to {what}: {source}")]
    Forbidden {
        /// The attempted action.
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// A program or a kernel feature is missing.
    #[error("{what} is missing: {hint}")]
    Missing {
        /// What is missing.
        what: String,
        /// How to get it.
        hint: &'static str,
    },
    /// Another system call failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// The attempted action.
        what: String,
        /// The cause.
        source: io::Error,
    },
}

impl LinkError {
    /// Returns the error of a system call; missing permission is `Forbidden`.
    pub(crate) fn of(what: &'static str, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::Forbidden { what, source },
            _ => Self::Io {
                what: what.to_owned(),
                source,
            },
        }
    }

    /// Advice for the user.
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
