//! One error for the client, with a verdict.

use std::io;

use ropeway_smb_proto::auth::AuthError;
use ropeway_smb_proto::client::PeerMisbehaved;
use ropeway_smb_wire::{Malformed, NtStatus};
use ropeway_vfs::Verdict;

use crate::KerberosFault;

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Something did not work.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server broke the protocol; what it did.
    #[error("the server broke the protocol: {0}")]
    PeerMisbehaved(String),
    /// The answer to one question makes no sense, in a message that is whole; what is wrong with it. Others may be fine.
    #[error("the server's answer makes no sense: {0}")]
    Senseless(String),
    /// Messages were changed on their way, or the server does not protect them as agreed; what was violated. There is no
    /// further login: whoever changes messages would only get another try.
    #[error("the connection was tampered with: {0}; not connecting again")]
    Tampered(PeerMisbehaved),
    /// DFS leads to a server to which the login is not taken ([`ClientOptions::dfs`](crate::ClientOptions::dfs)).
    #[error("DFS leads to the server {host:?}, and the login is not taken there")]
    LedAway {
        /// The server, as the referral names it.
        host: String,
        /// Not even a server of the same domain would do.
        is_kept: bool,
    },
    /// The server said no. Its status has a [`sentence`](NtStatus::sentence) and perhaps a [`hint`](NtStatus::hint).
    #[error("{op}: {} ({status})", status.sentence())]
    PeerRefused {
        /// What was asked for.
        op: &'static str,
        /// Why not.
        status: NtStatus,
    },
    /// This machine failed.
    #[error("{op}: {source}")]
    Local {
        /// What was attempted.
        op: &'static str,
        /// Why it failed.
        source: std::sync::Arc<io::Error>,
    },
    /// The connection was lost, and did not come back in time. What was under way may or may not have been done.
    #[error("the connection was lost: {0}")]
    Lost(LostReason),
    /// Wrong use by the caller.
    #[error("{0}")]
    Misuse(&'static str),
    /// The login did not come about.
    #[error("login: {0}")]
    Login(#[from] AuthError),
    /// There is no login by Kerberos.
    #[error(transparent)]
    Kerberos(#[from] KerberosFault),
    /// The server offers less protection than this side insists on.
    #[error("{0}")]
    Unprotected(Unprotected),
}

/// What a server lacks that this side insists on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unprotected {
    /// It took the user for a guest or nobody: such a session has no keys.
    #[error("the server offers only a guest's session, which is neither signed nor sealed")]
    Guest,
    /// It cannot encrypt.
    #[error("the server cannot encrypt, and encryption is required")]
    NoEncryption,
}

impl Unprotected {
    fn hint(self) -> &'static str {
        match self {
            Self::Guest => {
                "check the user: the server does not know it; a guest is asked for by the name guest"
            }
            Self::NoEncryption => "let the server encrypt, or do not require it",
        }
    }
}

/// Why a connection is gone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LostReason {
    /// The server closed it.
    #[error("the server closed it")]
    Closed,
    /// The network failed.
    #[error("{0}")]
    Network(io::ErrorKind),
    /// No answer in time.
    #[error("no answer in time")]
    TimedOut,
    /// Connecting again was tried for the whole of [`ClientOptions::timeout`](crate::ClientOptions::timeout).
    #[error("the server did not come back in time")]
    NotBack,
    /// The server ended the session.
    #[error("the server ended the session")]
    SessionEnded,
    /// The file that was open is another one now, or cannot be opened again.
    #[error("the open file could not be taken up again")]
    HandleGone,
    /// The server broke the protocol, or somebody between changed its messages.
    #[error("{0}")]
    Misbehaved(PeerMisbehaved),
    /// A part of a compound was answered and the rest was not.
    #[error("the server answered a part of what was asked in one piece")]
    AnsweredInPart,
    /// It was lost after the request had been sent: nobody knows whether it was done.
    #[error("the request may or may not have been done")]
    OutcomeUnknown,
    /// The server came back, perhaps without what was written before and not flushed.
    #[error("the server came back, and may have lost what was not flushed")]
    WritesInDoubt,
    /// This client was closed.
    #[error("the client was closed")]
    ClientClosed,
}

impl LostReason {
    /// Whether the server ended it, rather than the line or this end.
    pub(crate) fn is_of_the_server(&self) -> bool {
        match self {
            Self::Closed | Self::AnsweredInPart => true,
            Self::Network(kind) => *kind == io::ErrorKind::ConnectionReset,
            _ => false,
        }
    }
}

impl Error {
    /// What to do about it.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Lost(LostReason::ClientClosed | LostReason::NotBack) => Verdict::Abort,
            Self::Lost(_) => Verdict::Retry,
            Self::PeerRefused { status, .. } => status_verdict(*status),
            Self::Login(_)
            | Self::Kerberos(_)
            | Self::Unprotected(_)
            | Self::Tampered(_)
            | Self::Local { .. } => Verdict::Abort,
            Self::PeerMisbehaved(_) | Self::Senseless(_) | Self::LedAway { .. } | Self::Misuse(_) => {
                Verdict::Skip
            }
        }
    }

    /// The server's status, if it gave one.
    pub fn status(&self) -> Option<NtStatus> {
        match self {
            Self::PeerRefused { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// What would help, if something is known to.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::PeerRefused { status, .. } => status.hint(),
            Self::Kerberos(fault) => Some(fault.hint()),
            Self::Login(_) => Some("check the user, the domain and the password"),
            Self::Unprotected(what) => Some(what.hint()),
            Self::LedAway { is_kept: true, .. } => {
                Some("a password of the keyring stays with its host: name that server in the URL")
            }
            Self::LedAway { .. } => Some("`--dfs any` takes the login to any server that a referral names"),
            Self::Tampered(_) => {
                Some("look at what stands between here and the server: a proxy, a scanner, an attacker")
            }
            Self::Lost(LostReason::TimedOut | LostReason::NotBack) => {
                Some("a longer time-out gives the server more time to come back")
            }
            _ => None,
        }
    }

    /// Of what the server did wrong.
    pub(crate) fn misbehaved(fault: PeerMisbehaved) -> Self {
        match fault.is_tampering() {
            true => Self::Tampered(fault),
            false => Self::PeerMisbehaved(fault.to_string()),
        }
    }

    /// The server has another number of bytes than it was given.
    pub(crate) fn kept(bytes: u64, written: u64) -> Self {
        Self::Senseless(format!("of {written} bytes written it keeps {bytes}"))
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

impl From<Malformed> for Error {
    fn from(malformed: Malformed) -> Self {
        Self::Senseless(malformed.to_string())
    }
}

/// What a status means for a copy that goes on with other files.
fn status_verdict(status: NtStatus) -> Verdict {
    match status {
        // What another client or the server's load does passes.
        NtStatus::SHARING_VIOLATION
        | NtStatus::FILE_LOCK_CONFLICT
        | NtStatus::INSUFFICIENT_RESOURCES
        | NtStatus::INSUFF_SERVER_RESOURCES
        | NtStatus::IO_TIMEOUT
        | NtStatus::DELETE_PENDING
        | NtStatus::SERVER_UNAVAILABLE
        | NtStatus::FILE_NOT_AVAILABLE
        | NtStatus::NETWORK_SESSION_EXPIRED
        | NtStatus::RETRY => Verdict::Retry,
        // Nothing else on this share or login can work either.
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
        // It was tried again for as long as it may be.
        assert_eq!(Error::Lost(LostReason::NotBack).verdict(), Verdict::Abort);
    }
}
