//! How a job ends: its status, the reason, and a hint for the user.

use ropeway_vfs::event::Summary;
use ropeway_vfs::{End, Error, ErrorKind, Op, RelPath};

/// How a job ended. Each status has one exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Everything is done.
    Done,
    /// Some items failed; the rest is done.
    SomeFailed,
    /// The source cannot be read at all.
    SourceUnreadable,
    /// The target cannot be written, is full or gone.
    TargetUnwritable,
    /// Authentication or permission.
    Permission,
    /// Network or peer.
    Network,
    /// Verification found a difference.
    Differs,
    /// Refused by a guard.
    Refused,
    /// Interrupted.
    Interrupted,
}

impl Status {
    /// Returns the exit code, as documented for the command line.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::SomeFailed => 2,
            Self::SourceUnreadable => 3,
            Self::TargetUnwritable => 4,
            Self::Permission => 5,
            Self::Network => 6,
            Self::Differs => 7,
            Self::Refused => 8,
            Self::Interrupted => 130,
        }
    }

    /// Returns the status of a job that a fatal error at one end stopped.
    pub(crate) fn of_error(error: &Error, end: End) -> Self {
        match error.kind {
            ErrorKind::Network
            | ErrorKind::Unreachable
            | ErrorKind::Tampered
            | ErrorKind::PeerMisbehaved
            | ErrorKind::InvalidReply
            | ErrorKind::TimedOut => Self::Network,
            ErrorKind::Authentication | ErrorKind::PermissionDenied => Self::Permission,
            ErrorKind::Cancelled => Self::Interrupted,
            _ if end == End::Source => Self::SourceUnreadable,
            _ => Self::TargetUnwritable,
        }
    }
}

/// What a job did, and how it ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Counters, times, losses.
    pub summary: Summary,
    /// How it ended.
    pub status: Status,
    /// Why it stopped before the end, in one line.
    pub fatal: Option<String>,
    /// What the user can do about it.
    pub hint: Option<String>,
}

/// Why a job stops before its end.
#[derive(Clone, Debug)]
pub(crate) struct Fatal {
    pub(crate) status: Status,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Fatal {
    pub(crate) fn new(status: Status, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            hint: None,
        }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn from_error(error: &Error, end: End) -> Self {
        let fatal = Self::new(Status::of_error(error, end), error.to_string());
        match hint_for(error.kind, end) {
            Some(hint) => fatal.hint(hint),
            None => fatal,
        }
    }
}

/// Returns the error of an operation that ended because the job stops.
pub(crate) fn cancelled(op: Op, path: &RelPath) -> Error {
    Error::new(op, path, ErrorKind::Cancelled)
}

/// Returns what the user can do about an error of this kind at this end.
pub fn hint_for(kind: ErrorKind, end: End) -> Option<&'static str> {
    Some(match kind {
        ErrorKind::NoSpace => {
            "make room on the target and run the same command again: it goes on where it stopped"
        }
        ErrorKind::ReadOnly => {
            "the target is read-only; after an I/O error Linux makes a volume so by itself: see dmesg"
        }
        ErrorKind::Gone => "reconnect the volume and run the same command again: it goes on where it stopped",
        ErrorKind::Unreachable => {
            "when the server is back, run the same command again: it goes on where it stopped; --timeout sets how long \
             to wait for it"
        }
        ErrorKind::PermissionDenied if end == End::Source => "run as a user who may read it, or exclude it",
        ErrorKind::PermissionDenied => "run as a user who may write there",
        ErrorKind::NameRefused => {
            "rename or exclude it; --names map helps where only characters or reserved names are in the way"
        }
        ErrorKind::FileTooLarge => "FAT holds files below 4 GiB only; use exFAT, NTFS or ext4 on the target",
        ErrorKind::Exhausted => "raise the limit of open files (ulimit -n) or close other programs",
        ErrorKind::ServerExhausted => {
            "the server is at its limits (open files, memory): close other clients, raise its limits, or run the same \
             command again later"
        }
        ErrorKind::InvalidReply => {
            "look at it on the server itself, and exclude it if the rest is to be complete"
        }
        ErrorKind::DeviceError if end == End::Source => {
            "the source device may be failing: see dmesg; copy the rest first"
        }
        ErrorKind::DeviceError => "the target device may be failing: see dmesg",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Users raised the limit of their own machine when a server had too many files open.
    #[test]
    fn a_servers_limits_are_not_this_machines() {
        let hint = |kind| hint_for(kind, End::Source).unwrap();
        assert!(hint(ErrorKind::Exhausted).contains("ulimit -n"));
        let servers = hint(ErrorKind::ServerExhausted);
        assert!(
            servers.contains("server") && !servers.contains("ulimit"),
            "{servers}"
        );
    }
}
