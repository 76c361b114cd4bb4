//! Failures that end a command: one line, a hint, an exit code.

use std::io;

use ropeway_vfs::{End, Error, ErrorKind};

use crate::servers;

/// Exit codes that commands return themselves; those of jobs come from `ropeway_copy::Status`.
pub(crate) mod code {
    /// Everything is done.
    pub(crate) const DONE: u8 = 0;
    /// Wrong usage: flags, configuration, or ends that do not fit together.
    pub(crate) const USAGE: u8 = 1;
    /// Some items failed.
    pub(crate) const SOME_FAILED: u8 = 2;
    /// The source is missing or unreadable.
    pub(crate) const SOURCE: u8 = 3;
    /// The target cannot be written.
    pub(crate) const TARGET: u8 = 4;
    /// Permission or authentication.
    pub(crate) const PERMISSION: u8 = 5;
    /// The network or the server failed.
    pub(crate) const NETWORK: u8 = 6;
    /// Verification found differences.
    pub(crate) const DIFFERS: u8 = 7;
    /// Refused as a precaution.
    pub(crate) const REFUSED: u8 = 8;
    /// Interrupted by a signal (128 + SIGINT, as in shells).
    pub(crate) const INTERRUPTED: u8 = 130;
}

/// A command that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Exit code.
    pub(crate) code: u8,
    /// What is wrong, in one line.
    pub(crate) message: String,
    /// What the user can do.
    pub(crate) hint: Option<String>,
}

impl Failure {
    /// Makes a failure with an exit code of [`code`].
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
        }
    }

    /// Makes a failure for wrong usage.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(code::USAGE, message)
    }

    /// Adds what the user can do.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Makes a failure for a source or target: exit code PERMISSION if access was denied, else
    /// `otherwise`.
    pub(crate) fn of_end(message: impl Into<String>, error: &io::Error, otherwise: u8) -> Self {
        let denied = ErrorKind::of(error) == ErrorKind::PermissionDenied;
        Self::new(if denied { code::PERMISSION } else { otherwise }, message)
    }

    /// Makes a failure to open a tree.
    pub(crate) fn of_tree(place: &str, error: &Error, end: End) -> Self {
        Self::of_node(&format!("cannot open {place}"), error, end)
    }

    /// Makes a failure of a tree operation; `what` says what could not be done.
    pub(crate) fn of_node(what: &str, error: &Error, end: End) -> Self {
        let code = match error.kind {
            ErrorKind::PermissionDenied | ErrorKind::Authentication => code::PERMISSION,
            ErrorKind::Network
            | ErrorKind::Unreachable
            | ErrorKind::Tampered
            | ErrorKind::PeerMisbehaved
            | ErrorKind::InvalidReply
            | ErrorKind::TimedOut => code::NETWORK,
            ErrorKind::Cancelled => code::INTERRUPTED,
            _ if end == End::Source => code::SOURCE,
            _ => code::TARGET,
        };
        let (cause, server_hint) = match &error.source {
            Some(source) => servers::inside(source).unwrap_or_else(|| (crate::ends::cause(source), None)),
            None => (error.kind.describe().to_owned(), None),
        };
        let failure = Self::new(code, format!("{what}: {cause}"));
        match server_hint.or(ropeway_copy::hint_for(error.kind, end)) {
            Some(hint) => failure.hint(hint),
            None if code == code::NETWORK => {
                failure.hint("check the server and the network, then run it again")
            }
            None if error.kind.is_absence() => failure.hint("check the spelling"),
            None => failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denied_access_has_its_own_code() {
        let denied = io::Error::from_raw_os_error(13);
        let missing = io::Error::from_raw_os_error(2);
        assert_eq!(Failure::of_end("m", &denied, code::SOURCE).code, code::PERMISSION);
        assert_eq!(Failure::of_end("m", &missing, code::SOURCE).code, code::SOURCE);
        assert_eq!(Failure::of_end("m", &missing, code::TARGET).code, code::TARGET);
    }

    #[test]
    fn exit_codes_equal_those_of_jobs() {
        use ropeway_copy::Status;
        let pairs = [
            (Status::Done, code::DONE),
            (Status::SomeFailed, code::SOME_FAILED),
            (Status::SourceUnreadable, code::SOURCE),
            (Status::TargetUnwritable, code::TARGET),
            (Status::Permission, code::PERMISSION),
            (Status::Network, code::NETWORK),
            (Status::Refused, code::REFUSED),
            (Status::Interrupted, code::INTERRUPTED),
        ];
        for (status, code) in pairs {
            assert_eq!(status.exit_code(), code, "{status:?}");
        }
        assert_eq!(Status::Network.exit_code(), code::NETWORK);
        assert_eq!(Status::Differs.exit_code(), code::DIFFERS);
    }
}
