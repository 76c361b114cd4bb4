//! Keys, signatures and encryption of SMB sessions.
//!
//! ```text
//! authentication -> SessionKey --+-> kdf -> signing key --> Signer
//!                                |     \-> cipher keys --> Sealer, Opener
//! every message until then ------+ Preauth (SMB 3.1.1 only)
//! ```
//!
//! Payloads are never copied: signatures stream over a message's parts, encryption works in place. Comparisons of
//! secrets take the same time whatever they hold.

mod kdf;
mod preauth;
mod sealing;
mod signing;

pub use kdf::{KeyContext, SessionKeys, application_key, cipher_keys, signing_key};
pub use preauth::Preauth;
pub use sealing::{Cipher, NoncesExhausted, Opener, SealTicket, Sealer, TRANSFORM_HEADER_LEN, Unopenable};
pub use signing::{BadSignature, Sender, Signer, SigningAlgorithm};
