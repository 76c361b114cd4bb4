//! Who is at the other end: NTLMv2, and SPNEGO to agree on it or on something else.
//!
//! ```text
//! SESSION_SETUP security buffers <-> spnego (client or server) <-> Mechanism (NTLM here, Kerberos elsewhere)
//!                                                                     \-> SessionKey, Identity
//! ```
//!
//! A [`Mechanism`] is one end of one authentication. It knows the time and has its random numbers from its constructor.

pub mod ntlm;
pub mod spnego;

use crate::secret::SessionKey;
use ropeway_smb_wire::{Malformed, Text};

/// Why an authentication does not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The peer's token is not what it should be.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The peer does not do what we require, or asks for what we do not do.
    #[error("the peer's authentication lacks {0}")]
    Unsupported(&'static str),
    /// None of the peer's mechanisms is one of ours.
    #[error("no authentication mechanism in common")]
    NoCommonMechanism,
    /// A token came where none, or another, was expected.
    #[error("unexpected authentication token: {0}")]
    OutOfOrder(&'static str),
    /// A token was changed on its way, or the peer does not have the key.
    #[error("an authentication token was tampered with")]
    BadMic,
    /// The peer said no.
    #[error("the peer refused the authentication")]
    PeerRefused,
    /// We, the server, say no. All reasons print alike: a log may tell them apart, the peer must not.
    #[error("logon failure")]
    Refused(Refusal),
    /// The mechanism's library failed.
    #[error("the authentication mechanism failed: {0}")]
    Mechanism(&'static str),
}

/// Why a server refuses; never told to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nobody of that name.
    UnknownUser,
    /// The proof does not fit the user's hash.
    WrongPassword,
    /// Anonymous, and that is not allowed.
    Anonymous,
}

/// Outcome of authentication steps.
pub type Result<T> = std::result::Result<T, AuthError>;

/// Who the client is, as the server knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A null session.
    Anonymous,
    /// Somebody who proved it.
    User {
        /// As the client wrote it.
        domain: Text,
        /// As the client wrote it.
        user: Text,
        /// What the client calls itself; unproven.
        workstation: Text,
    },
}

/// What a finished authentication gives.
#[derive(Clone, Debug)]
pub struct Established {
    /// A last token for the peer.
    pub token: Option<Vec<u8>>,
    /// The key both ends have now.
    pub session_key: SessionKey,
    /// At the server: who the client is.
    pub identity: Option<Identity>,
}

/// What to do after a token.
#[derive(Clone, Debug)]
pub enum Step {
    /// Send this and wait for an answer.
    Continue(Vec<u8>),
    /// Send the token, if there is one; this end is satisfied.
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

/// One end of one authentication with one mechanism of GSS-API.
pub trait Mechanism: Send {
    /// Names it goes by, the one to offer first; at least one.
    fn oids(&self) -> &[Oid];

    /// The next step; the client's first is without a token.
    ///
    /// # Errors
    /// Any [`AuthError`]; the mechanism is of no use afterwards.
    fn step(&mut self, token: Option<&[u8]>) -> Result<Step>;

    /// Whether it can protect SPNEGO's list of mechanisms once it is done.
    fn has_mic(&self) -> bool;

    /// An integrity check over `message`, when it is done.
    ///
    /// # Errors
    /// [`AuthError::OutOfOrder`] if it is not done.
    fn mic(&mut self, message: &[u8]) -> Result<Vec<u8>>;

    /// Checks what the peer's [`mic`](Self::mic) made.
    ///
    /// # Errors
    /// [`AuthError::BadMic`]; [`AuthError::OutOfOrder`] if it is not done.
    fn verify_mic(&mut self, message: &[u8], mic: &[u8]) -> Result<()>;
}
