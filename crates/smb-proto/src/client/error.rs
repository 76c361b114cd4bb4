//! What can go wrong, and whose fault it is.

use crate::auth::AuthError;
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::{Malformed, MessageId, NtStatus};

/// The server broke the protocol, or somebody between changed its messages: the connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerMisbehaved {
    /// Bytes that are no message.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A frame longer than anything that was asked for.
    #[error("a message of {0} bytes is longer than agreed")]
    FrameTooLong(usize),
    /// A message of another protocol.
    #[error("a message that is no SMB 2 reply")]
    NotAReply,
    /// An answer to nothing, or a second one.
    #[error("an answer to {0:?}, which is not awaited")]
    Unasked(MessageId),
    /// The answer is to something else than what was asked.
    #[error("an answer to {0:?} with another command")]
    WrongCommand(Command),
    /// More data than asked for.
    #[error("a READ reply with more than was asked for")]
    ReadTooLong,
    /// Not signed though it must be.
    #[error("a reply is not signed")]
    Unsigned,
    /// Signed wrongly.
    #[error("a reply's signature is wrong")]
    BadSignature,
    /// In clear though it must be encrypted.
    #[error("a reply is not encrypted")]
    Unencrypted,
    /// Encrypted wrongly, or for another session.
    #[error("an encrypted message does not open")]
    Unopenable,
    /// The answer names another session.
    #[error("a reply for another session")]
    WrongSession,
    /// The negotiation was refused.
    #[error("the server refuses to negotiate: {0}")]
    NegotiationRefused(NtStatus),
    /// What the server chose was not offered, or an indispensable part is missing.
    #[error("the server chose {0} that was not offered")]
    NotOffered(&'static str),
    /// The negotiation was changed on its way.
    #[error("the negotiation was changed on its way: {0}")]
    Downgrade(&'static str),
    /// No credits and no answer owed: nothing can be sent ever again.
    #[error("the server left no credits")]
    NoCredits,
    /// More notifications than anybody could take.
    #[error("the server floods with notifications")]
    Flood,
}

impl PeerMisbehaved {
    /// Whether it breaks what protects a session: somebody between may have changed the messages, and another login would
    /// only give them another try.
    pub fn is_tampering(&self) -> bool {
        matches!(
            self,
            Self::Unsigned | Self::BadSignature | Self::Unencrypted | Self::Unopenable | Self::Downgrade(_)
        )
    }
}

/// The caller asked for what cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// [`super::CHAINS_MAX`] chains wait or are in flight.
    #[error("too many requests at once")]
    TooMany,
    /// A chain without operations, or with more than [`super::OPERATIONS_MAX`].
    #[error("a chain has 1 to 64 operations")]
    ChainLength,
    /// Longer than what the ends agreed on.
    #[error("a request is longer than agreed")]
    TooLong,
    /// The block of a READ is smaller than what it asks for, or belongs to no READ.
    #[error("a block does not fit its request")]
    Block,
    /// The connection does this by itself.
    #[error("the connection sends {0:?} itself")]
    Command(Command),
    /// Encryption was asked for and there is none.
    #[error("the connection cannot encrypt")]
    NoEncryption,
    /// The connection has ended.
    #[error("the connection has ended")]
    Ended,
    /// A login is under way.
    #[error("a login is under way")]
    LoginUnderWay,
    /// The session to bind to speaks another dialect or cipher, or has no keys.
    #[error("a channel must speak as its session does")]
    Binding,
}

/// Why there is no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// The server says so.
    #[error("the server refuses the login: {0}")]
    Refused(NtStatus),
    /// The mechanisms say so.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// The server took us for a guest or nobody, which is not allowed here.
    #[error("the server offers only an unprotected session")]
    Unprotected,
    /// Encryption is required and the server has none.
    #[error("the server cannot encrypt")]
    NoEncryption,
    /// The login cannot be sent: [`Misuse`].
    #[error(transparent)]
    Misuse(#[from] Misuse),
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndReason {
    /// [`super::Connection::closed`].
    #[error("the connection was closed")]
    Closed,
    /// The peer misbehaved.
    #[error(transparent)]
    Misbehaved(#[from] PeerMisbehaved),
    /// The server owes answers and was silent for [`super::Config::silence_max`].
    #[error("the server does not answer")]
    Silent,
    /// The server does not know the session any more.
    #[error("the server ended the session")]
    SessionDeleted,
    /// [`super::Connection::log_off`].
    #[error("logged off")]
    LoggedOff,
    /// The server answered a part of a compound, was asked whether it is there, and said so; the rest does not come.
    #[error("the server answered a part of a compound")]
    AnsweredInPart,
    /// All nonces of the session are used: log in on a new connection.
    #[error("the session's keys are used up")]
    KeysUsedUp,
}
