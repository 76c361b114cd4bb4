//! The errors of a client connection, by cause: the peer, the caller, the login.

use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::{DecodeError, MessageId, NtStatus};

use crate::auth::AuthError;

/// The server violated the protocol, or a third party changed its messages. The connection has
/// ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerMisbehaved {
    /// The bytes are not a valid message.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// The frame is longer than any reply may be.
    #[error("a message of {0} bytes is longer than negotiated")]
    FrameTooLong(usize),
    /// The message is not an SMB 2 reply.
    #[error("a message is not an SMB 2 reply")]
    NotAReply,
    /// The reply matches no request, or answers one a second time.
    #[error("a reply to {0:?} matches no request")]
    Unasked(MessageId),
    /// The reply's command differs from the request's.
    #[error("a reply has the command {0:?}, its request has another")]
    WrongCommand(Command),
    /// A READ reply carries more data than asked for.
    #[error("a READ reply has more data than requested")]
    ReadTooLong,
    /// The reply is not signed although it must be.
    #[error("a reply is not signed")]
    Unsigned,
    /// The signature is wrong.
    #[error("a reply's signature is wrong")]
    BadSignature,
    /// The reply is in clear text although it must be encrypted.
    #[error("a reply is not encrypted")]
    Unencrypted,
    /// The message does not decrypt, or is encrypted for another session.
    #[error("an encrypted message does not decrypt")]
    Unopenable,
    /// The reply names another session.
    #[error("a reply names another session")]
    WrongSession,
    /// The server refused the negotiation.
    #[error("the server refuses to negotiate: {0}")]
    NegotiationRefused(NtStatus),
    /// The server chose a value that was not offered, or omitted a mandatory one.
    #[error("the server chose {0} that was not offered")]
    NotOffered(&'static str),
    /// The negotiation was tampered with.
    #[error("the negotiation was tampered with: {0}")]
    Downgrade(&'static str),
    /// No credit is left and no reply is outstanding: nothing can ever be sent again.
    #[error("the server granted no credits")]
    NoCredits,
    /// The server sends more notifications than the owner collects.
    #[error("the server sends too many notifications")]
    Flood,
}

impl PeerMisbehaved {
    /// Returns whether the error concerns the protection of the session. A third party may have
    /// changed the messages, so do not log in again: that would give it another chance.
    pub fn is_tampering(&self) -> bool {
        matches!(
            self,
            Self::Unsigned | Self::BadSignature | Self::Unencrypted | Self::Unopenable | Self::Downgrade(_)
        )
    }
}

/// The caller asked for something impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// [`super::COMPOUNDS_MAX`] compounds are queued or in flight.
    #[error("too many requests are queued or in flight")]
    TooMany,
    /// The compound has no operation, or more than [`super::OPERATIONS_MAX`].
    #[error("a compound must have 1 to 64 operations")]
    CompoundLength,
    /// The request is longer than the negotiated maximum.
    #[error("a request is longer than negotiated")]
    TooLong,
    /// The block is smaller than the length its READ asks for, or belongs to another command.
    #[error("a block does not fit its request")]
    Block,
    /// The connection sends this command itself.
    #[error("the connection sends {0:?} itself")]
    Command(Command),
    /// The compound asks for encryption and the session cannot encrypt.
    #[error("the connection cannot encrypt")]
    NoEncryption,
    /// The connection has ended.
    #[error("the connection has ended")]
    Ended,
    /// A login is in progress.
    #[error("a login is in progress")]
    LoginUnderWay,
    /// The session to bind to uses another dialect or cipher, or has no keys.
    #[error("the channel's dialect or cipher differs from its session's")]
    Binding,
}

/// Why a login failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// The server refused it.
    #[error("the server refuses the login: {0}")]
    Refused(NtStatus),
    /// The authentication mechanism failed.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// The server offers only a guest or anonymous session, and the configuration does not allow
    /// one.
    #[error("the server offers only an unprotected session")]
    Unprotected,
    /// The configuration requires encryption and the server has none.
    #[error("the server cannot encrypt")]
    NoEncryption,
    /// The login cannot be sent.
    #[error(transparent)]
    Misuse(#[from] Misuse),
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndReason {
    /// The owner called [`super::Connection::closed`].
    #[error("the connection was closed")]
    Closed,
    /// The peer misbehaved.
    #[error(transparent)]
    Misbehaved(#[from] PeerMisbehaved),
    /// The server owed a reply and was silent for [`super::Config::silence_max`].
    #[error("the server does not answer")]
    Silent,
    /// The server no longer knows the session.
    #[error("the server ended the session")]
    SessionDeleted,
    /// [`super::Connection::log_off`] completed.
    #[error("logged off")]
    LoggedOff,
    /// The server answered part of a compound and, when probed, was alive, but the rest of the
    /// replies did not come.
    #[error("the server left part of a compound unanswered")]
    AnsweredInPart,
    /// Every nonce of the session is used. Log in on a new connection.
    #[error("the session's keys are used up")]
    KeysUsedUp,
}
