//! Authentication: NTLMv2, and SPNEGO to negotiate it or another mechanism.
//!
//! ```text
//! SESSION_SETUP security buffers <-> spnego (client or server) <-> Mechanism (NTLM, or Kerberos)
//!                                                                      \-> SessionKey, Identity
//! ```
//!
//! A [`Mechanism`] is one end of one authentication. Its constructor takes the time and the random
//! numbers.

pub mod ntlm;
pub mod spnego;

use ropeway_smb_wire::{DecodeError, Text};

use crate::secret::SessionKey;

/// Why an authentication failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The peer's token is malformed.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// The peer lacks a feature that we require, or requires one that we lack.
    #[error("the peer's authentication lacks {0}")]
    Unsupported(&'static str),
    /// The peer supports none of our mechanisms.
    #[error("no authentication mechanism in common")]
    NoCommonMechanism,
    /// A token arrived at a time when none, or another, was expected.
    #[error("unexpected authentication token: {0}")]
    OutOfOrder(&'static str),
    /// A token was tampered with, or the peer does not have the key.
    #[error("an authentication token was tampered with")]
    BadMic,
    /// The peer refused.
    #[error("the peer refused the authentication")]
    PeerRefused,
    /// We, the server, refuse. All reasons have the same text: a log may distinguish them, the peer
    /// must not.
    #[error("logon failure")]
    Refused(Refusal),
    /// The mechanism's library failed.
    #[error("the authentication mechanism failed: {0}")]
    Mechanism(&'static str),
}

/// Why a server refuses. Never revealed to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such user.
    UnknownUser,
    /// The proof does not match the user's hash.
    WrongPassword,
    /// The client is anonymous, which is not allowed.
    Anonymous,
}

/// The result of an authentication step.
pub type Result<T> = std::result::Result<T, AuthError>;

/// The client's identity as the server knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A null session.
    Anonymous,
    /// An authenticated user.
    User {
        /// The domain, as the client wrote it.
        domain: Text,
        /// The user, as the client wrote it.
        user: Text,
        /// The client's name for its machine. Unproven.
        workstation: Text,
    },
}

/// The result of a completed authentication.
#[derive(Clone, Debug)]
pub struct Established {
    /// The last token for the peer, if any.
    pub token: Option<Vec<u8>>,
    /// The session key that both ends share.
    pub session_key: SessionKey,
    /// The client's identity, on the server.
    pub identity: Option<Identity>,
}

/// The outcome of processing a token.
#[derive(Clone, Debug)]
pub enum Step {
    /// Send this token and wait for the next one.
    Continue(Vec<u8>),
    /// Send the token, if there is one. This end is done.
    Done(Established),
}

/// An object identifier, as the contents of its DER encoding (without tag and length).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oid(pub &'static [u8]);

impl Oid {
    /// NTLM, 1.3.6.1.4.1.311.2.2.10 ([MS-NLMP] 1.9).
    pub const NTLMSSP: Self = Self(&[0x2B, 6, 1, 4, 1, 0x82, 0x37, 2, 2, 0x0A]);
    /// Kerberos 5, 1.2.840.113554.1.2.2 (RFC 4121 4.1).
    pub const KERBEROS: Self = Self(&[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x12, 1, 2, 2]);
    /// Kerberos 5 as Windows 2000 misspelled it, 1.2.840.48018.1.2.2 ([MS-SPNG] 3.1.5.1).
    pub const MS_KERBEROS: Self = Self(&[0x2A, 0x86, 0x48, 0x82, 0xF7, 0x12, 1, 2, 2]);
    /// SPNEGO itself, 1.3.6.1.5.5.2 (RFC 4178 3.2).
    pub const SPNEGO: Self = Self(&[0x2B, 6, 1, 5, 5, 2]);
}

/// One end of one authentication with one GSS-API mechanism.
pub trait Mechanism: Send {
    /// Returns the mechanism's object identifiers, preferred first. At least one.
    fn oids(&self) -> &[Oid];

    /// Processes a token and returns the next step. The client's first call has no token.
    ///
    /// # Errors
    /// Any [`AuthError`]. The mechanism cannot be used afterwards.
    fn step(&mut self, token: Option<&[u8]>) -> Result<Step>;

    /// Returns whether the mechanism can protect SPNEGO's list of mechanisms once it is done.
    fn has_mic(&self) -> bool;

    /// Returns a message integrity code over `message`. Call it when the mechanism is done.
    ///
    /// # Errors
    /// [`AuthError::OutOfOrder`] if it is not done.
    fn mic(&mut self, message: &[u8]) -> Result<Vec<u8>>;

    /// Verifies the peer's [`mic`](Self::mic).
    ///
    /// # Errors
    /// [`AuthError::BadMic`]; [`AuthError::OutOfOrder`] if the mechanism is not done.
    fn verify_mic(&mut self, message: &[u8], mic: &[u8]) -> Result<()>;
}
