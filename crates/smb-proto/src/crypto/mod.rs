//! Keys, signatures and encryption of SMB sessions.
//!
//! ```text
//! authentication -> SessionKey --+-> kdf -> signing key --> Signer
//!                                |     \-> cipher keys --> Sealer, Opener
//! every message until then ------+ Preauth (SMB 3.1.1 only)
//! ```
//!
//! Payloads are never copied: a signature streams over a message's parts, and encryption works in
//! place. Secrets are compared in constant time.

mod kdf;
mod preauth;
mod sealing;
mod signing;

pub use kdf::{KeyContext, SessionKeys, application_key, cipher_keys, signing_key};
pub use preauth::Preauth;
pub use sealing::{Cipher, NoncesExhausted, Opener, SealTicket, Sealer, TRANSFORM_HEADER_LEN, Unopenable};
pub use signing::{BadSignature, Sender, Signer, SigningAlgorithm};
