//! The error type of the client. Each error has a verdict and, where one is known, a hint.

use std::io;

use ropeway_smb_gss::KerberosError;
use ropeway_smb_proto::auth::AuthError;
use ropeway_smb_proto::client::PeerMisbehaved;
use ropeway_smb_wire::{DecodeError, NtStatus};
use ropeway_vfs::Verdict;

/// What was attempted when the server's name could not be resolved.
pub(crate) const LOOK_UP: &str = "look up the server";

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the client.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server broke the protocol. Holds what it did.
    #[error("the server broke the protocol: {0}")]
    PeerMisbehaved(String),
    /// A reply makes no sense although its message is intact. Holds what is wrong with it. Other
    /// replies may be fine.
    #[error("the server's reply makes no sense: {0}")]
    InvalidReply(String),
    /// Messages were changed in transit, or the server does not protect them as negotiated. Holds
    /// the violated rule. The client does not log in again: an attacker would only get another try.
    #[error("the connection was tampered with: {0}; not connecting again")]
    Tampered(PeerMisbehaved),
    /// DFS refers to a server to which the client does not take its login
    /// ([`ClientOptions::dfs`](crate::ClientOptions::dfs)).
    #[error("DFS refers to the server {host:?}, and the client does not log in there")]
    ReferralRefused {
        /// The server, as the referral names it.
        host: String,
        /// Whether the login is limited to its own server, so that not even a server of the same
        /// domain is allowed.
        is_own_only: bool,
    },
    /// The server refused a request. Its status has a [`sentence`](NtStatus::sentence) and perhaps
    /// a [`hint`](NtStatus::hint).
    #[error("{op}: {} ({status})", status.sentence())]
    PeerRefused {
        /// The operation that was requested.
        op: &'static str,
        /// The server's status.
        status: NtStatus,
    },
    /// A local operation failed.
    #[error("{op}: {source}")]
    Local {
        /// The operation that was attempted.
        op: &'static str,
        /// The cause.
        source: std::sync::Arc<io::Error>,
    },
    /// The connection was lost and could not be re-established in time. Requests in flight may or
    /// may not have been carried out.
    #[error("the connection was lost: {0}")]
    Lost(LostReason),
    /// The caller used the crate wrongly.
    #[error("{0}")]
    Misuse(&'static str),
    /// The login failed.
    #[error("login: {0}")]
    Login(#[from] AuthError),
    /// The login by Kerberos failed.
    #[error(transparent)]
    Kerberos(#[from] KerberosError),
    /// The server offers less protection than the options require.
    #[error("{0}")]
    Unprotected(Unprotected),
    /// SMB 1 was asked for, and the server does not speak it (NT LM 0.12).
    #[error("the server does not speak SMB 1")]
    NoSmb1,
}

/// The protection that the options require and the server does not offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unprotected {
    /// The server opened a guest or anonymous session, which has no keys.
    #[error("the server offers only a guest session, which is neither signed nor encrypted")]
    Guest,
    /// The server cannot encrypt.
    #[error("the server cannot encrypt, and encryption is required")]
    NoEncryption,
    /// The server cannot sign (SMB 1).
    #[error("the server does not sign, and signing is required")]
    NoSigning,
    /// The server asks for the password itself (SMB 1).
    #[error("the server asks for the password in clear text")]
    ClearText,
}

impl Unprotected {
    fn hint(self) -> &'static str {
        match self {
            Self::Guest => {
                "check the user name: the server does not know it; to log in as a guest, use the name guest"
            }
            Self::NoEncryption => "enable encryption on the server, or do not require it",
            Self::NoSigning => {
                "`--sign offered` accepts that; anyone between the machines can then change what is copied"
            }
            Self::ClearText => "`--smb1-auth clear` sends it; anyone between the machines can read it then",
        }
    }
}

/// Reasons for the loss of a connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LostReason {
    /// The server closed the connection.
    #[error("the server closed it")]
    Closed,
    /// The network failed.
    #[error("{0}")]
    Network(io::ErrorKind),
    /// A request was not answered in time.
    #[error("no answer in time")]
    TimedOut,
    /// Reconnecting failed for the whole of
    /// [`ClientOptions::timeout`](crate::ClientOptions::timeout).
    #[error("the server did not come back in time")]
    NotBack,
    /// The server ended the session.
    #[error("the server ended the session")]
    SessionEnded,
    /// The open file is another one now, or cannot be opened again.
    #[error("the open file could not be opened again")]
    HandleGone,
    /// The server broke the protocol, or its messages were changed in transit.
    #[error("{0}")]
    Misbehaved(PeerMisbehaved),
    /// The server answered only a part of a compound.
    #[error("the server answered only a part of a compound")]
    AnsweredInPart,
    /// The connection was lost after the request had been sent. Whether the server carried it out
    /// is unknown.
    #[error("the request may or may not have been done")]
    OutcomeUnknown,
    /// The server came back, and may have lost writes that were not flushed.
    #[error("the server came back, and may have lost what was not flushed")]
    WritesInDoubt,
    /// This client was closed.
    #[error("the client was closed")]
    ClientClosed,
}

impl LostReason {
    /// Returns whether the server ended the connection, rather than the line or this end.
    pub(crate) fn is_by_server(&self) -> bool {
        match self {
            Self::Closed | Self::AnsweredInPart => true,
            Self::Network(kind) => *kind == io::ErrorKind::ConnectionReset,
            _ => false,
        }
    }
}

impl Error {
    /// Returns what the caller should do about the error.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Lost(LostReason::ClientClosed | LostReason::NotBack) => Verdict::Abort,
            Self::Lost(_) => Verdict::Retry,
            Self::PeerRefused { status, .. } => status_verdict(*status),
            Self::Login(_)
            | Self::Kerberos(_)
            | Self::Unprotected(_)
            | Self::Tampered(_)
            | Self::NoSmb1
            | Self::Local { .. } => Verdict::Abort,
            Self::PeerMisbehaved(_)
            | Self::InvalidReply(_)
            | Self::ReferralRefused { .. }
            | Self::Misuse(_) => Verdict::Skip,
        }
    }

    /// Returns whether the server's name could not be resolved to an address.
    pub fn is_lookup(&self) -> bool {
        matches!(self, Self::Local { op, .. } if *op == LOOK_UP)
    }

    /// Returns the server's status, if the error has one.
    pub fn status(&self) -> Option<NtStatus> {
        match self {
            Self::PeerRefused { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Returns a hint that helps the user, if one is known.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::PeerRefused { status, .. } => status.hint(),
            Self::Kerberos(fault) => Some(fault.hint()),
            Self::Login(_) => Some("check the user, the domain and the password"),
            Self::Unprotected(what) => Some(what.hint()),
            Self::NoSmb1 => Some("`smb://` speaks all newer versions"),
            Self::ReferralRefused {
                is_own_only: true, ..
            } => {
                Some("a password from the keyring is used for its own host only: name that server in the URL")
            }
            Self::ReferralRefused { .. } => {
                Some("`--dfs any` takes the login to any server that a referral names")
            }
            Self::Tampered(_) => {
                Some("check what is between this machine and the server: a proxy, a scanner, an attacker")
            }
            Self::Lost(LostReason::TimedOut | LostReason::NotBack) => {
                Some("a longer time-out gives the server more time to come back")
            }
            _ => None,
        }
    }

    /// Returns the error for a protocol violation by the server.
    pub(crate) fn misbehaved(fault: PeerMisbehaved) -> Self {
        match fault.is_tampering() {
            true => Self::Tampered(fault),
            false => Self::PeerMisbehaved(fault.to_string()),
        }
    }

    /// Returns the error for a file that holds another number of bytes on the server than were
    /// written.
    pub(crate) fn size_mismatch(bytes: u64, written: u64) -> Self {
        Self::InvalidReply(format!(
            "{written} bytes were written, and the server holds {bytes}"
        ))
    }

    pub(crate) fn refused(op: &'static str, status: NtStatus) -> Self {
        Self::PeerRefused { op, status }
    }

    pub(crate) fn local(op: &'static str, source: io::Error) -> Self {
        Self::Local {
            op,
            source: std::sync::Arc::new(source),
        }
    }
}

impl From<DecodeError> for Error {
    fn from(malformed: DecodeError) -> Self {
        Self::InvalidReply(malformed.to_string())
    }
}

/// Returns the verdict on a status, for a copy that can go on with other files.
fn status_verdict(status: NtStatus) -> Verdict {
    match status {
        // Caused by another client or by the server's load: passes.
        NtStatus::SHARING_VIOLATION
        | NtStatus::FILE_LOCK_CONFLICT
        | NtStatus::INSUFFICIENT_RESOURCES
        | NtStatus::INSUFF_SERVER_RESOURCES
        | NtStatus::NO_MEMORY
        | NtStatus::IO_TIMEOUT
        | NtStatus::DELETE_PENDING
        | NtStatus::SERVER_UNAVAILABLE
        | NtStatus::FILE_NOT_AVAILABLE
        | NtStatus::NETWORK_SESSION_EXPIRED
        | NtStatus::RETRY => Verdict::Retry,
        // Nothing else on this share or with this login can succeed.
        NtStatus::DISK_FULL
        | NtStatus::BAD_NETWORK_NAME
        | NtStatus::NETWORK_NAME_DELETED
        | NtStatus::MEDIA_WRITE_PROTECTED
        | NtStatus::USER_SESSION_DELETED => Verdict::Abort,
        status if status.refuses_login() => Verdict::Abort,
        _ => Verdict::Skip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_is_a_sentence() {
        let error = Error::refused("open", NtStatus::ACCESS_DENIED);
        let text = error.to_string();
        assert!(
            text.starts_with("open: ") && text.ends_with("(STATUS_ACCESS_DENIED)"),
            "{text}"
        );
        assert_eq!(error.verdict(), Verdict::Skip);
        let unknown = Error::refused("open", NtStatus(0xC123_4567)).to_string();
        assert!(unknown.contains("0xC1234567"), "{unknown}");
    }

    #[test]
    fn verdicts() {
        let verdict = |status| Error::refused("write", status).verdict();
        assert_eq!(verdict(NtStatus::SHARING_VIOLATION), Verdict::Retry);
        assert_eq!(verdict(NtStatus::DISK_FULL), Verdict::Abort);
        for status in [
            NtStatus::ACCOUNT_LOCKED_OUT,
            NtStatus::ACCOUNT_EXPIRED,
            NtStatus::PASSWORD_MUST_CHANGE,
            NtStatus::INVALID_LOGON_HOURS,
        ] {
            assert_eq!(verdict(status), Verdict::Abort, "{status}: each attempt counts");
            assert!(Error::refused("log in", status).hint().is_some());
        }
        assert_eq!(verdict(NtStatus::OBJECT_NAME_NOT_FOUND), Verdict::Skip);
        assert_eq!(Error::Lost(LostReason::TimedOut).verdict(), Verdict::Retry);
        // Retried for the whole of the time-out already.
        assert_eq!(Error::Lost(LostReason::NotBack).verdict(), Verdict::Abort);
    }
}
