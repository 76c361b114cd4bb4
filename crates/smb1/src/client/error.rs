//! Errors of a client connection, by cause: the peer, the caller, the login.

use ropeway_smb_proto::auth::AuthError;
use ropeway_smb_wire::{DecodeError, NtStatus};

use crate::header::Command;

/// The server violated the protocol, or a third party changed its messages. The connection has
/// ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerMisbehaved {
    /// The bytes are not a valid message.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// The message is not an SMB 1 response.
    #[error("a message is not an SMB 1 response")]
    NotAReply,
    /// The response matches no request.
    #[error("a response to request {0} matches none")]
    Unasked(u16),
    /// The response's command differs from the request's.
    #[error("a response has the command {0:?}, its request has another")]
    WrongCommand(Command),
    /// The signature is wrong or missing.
    #[error("a response's signature is wrong")]
    BadSignature,
    /// The server sends more than was asked for.
    #[error("a response is longer than requested")]
    TooLong,
    /// The server sends more notifications than the owner collects.
    #[error("the server sends too many notifications")]
    Flood,
    /// The server chose a dialect that was not offered.
    #[error("the server chose a dialect that was not offered")]
    NotOffered,
}

impl PeerMisbehaved {
    /// Returns whether the error concerns the protection of the session, so that a third party may
    /// have changed the messages. Do not log in again then.
    pub fn is_tampering(&self) -> bool {
        matches!(self, Self::BadSignature)
    }
}

/// The caller asked for something impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// As many requests are in flight as may be.
    #[error("too many requests are in flight")]
    TooMany,
    /// The request is longer than the server receives.
    #[error("a request is longer than the server receives")]
    TooLong,
    /// The connection is not ready, or has ended.
    #[error("the connection is not ready or has ended")]
    NotReady,
}

/// Why a login failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// The server speaks no dialect that was offered: SMB 1 is switched off there, or it is older
    /// than NT LM 0.12.
    #[error("the server does not speak SMB 1 (NT LM 0.12)")]
    NoDialect,
    /// The server refused the negotiation.
    #[error("the server refuses to negotiate: {0}")]
    NegotiationRefused(NtStatus),
    /// The server refused the login.
    #[error("the server refuses the login: {0}")]
    Refused(NtStatus),
    /// The authentication mechanism failed.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// Signing is required and the server cannot sign.
    #[error("the server does not sign, and signing is required")]
    NoSigning,
    /// The server admitted the user as a guest.
    #[error("the server offers only a guest session, which is not signed")]
    Guest,
    /// The server asks for the password in clear text, which is not allowed.
    #[error("the server asks for the password in clear text")]
    ClearText,
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndReason {
    /// The owner closed it.
    #[error("the connection was closed")]
    Closed,
    /// The peer misbehaved.
    #[error(transparent)]
    Misbehaved(#[from] PeerMisbehaved),
    /// The login failed.
    #[error(transparent)]
    Login(#[from] LoginError),
    /// The server no longer knows the session.
    #[error("the server ended the session")]
    SessionEnded,
}
