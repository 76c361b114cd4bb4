//! Encryption and decryption of messages, in place.
//!
//! ```text
//! | ProtocolId | Signature | Nonce | OriginalMessageSize | Reserved | Flags | SessionId | message, encrypted |
//! 0            4          20 <---------------- additional data ------------------>     52
//! ```
//!
//! The transform header's signature is the AEAD tag over the rest of the header and the message
//! ([MS-SMB2] 2.2.41, 3.1.4.3).
//!
//! Invariant: no nonce is used twice with one key. [`Sealer`] owns the counter. Each [`SealTicket`]
//! carries one nonce; sealing consumes it, it cannot be cloned, and it may be sent to a worker
//! thread. All channels of a session encrypt with the same key, so each channel has its own
//! `Sealer` with its own channel number in the nonce. Channels share no counter.

use std::sync::Arc;

use aes::cipher::KeyInit;
use aws_lc_rs::aead;
use ccm::aead::AeadInOut;
use ccm::consts::{U11, U16};

use crate::secret::Key;
use ropeway_smb_wire::negotiate_context;
use ropeway_smb_wire::transform::TransformHeader;
use ropeway_smb_wire::{Reader, SessionId, Writer};

/// Ciphers of SMB 3 ([MS-SMB2] 2.2.3.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cipher {
    /// AES-128-CCM: always in SMB 3.0 and 3.0.2, in 3.1.1 if negotiated.
    Aes128Ccm,
    /// AES-128-GCM (SMB 3.1.1).
    Aes128Gcm,
    /// AES-256-CCM (SMB 3.1.1).
    Aes256Ccm,
    /// AES-256-GCM (SMB 3.1.1).
    Aes256Gcm,
}

impl Cipher {
    /// Returns the negotiated cipher, or `None` for no cipher and for unknown ones.
    pub fn from_wire(cipher: negotiate_context::Cipher) -> Option<Self> {
        match cipher {
            negotiate_context::Cipher::AES_128_CCM => Some(Self::Aes128Ccm),
            negotiate_context::Cipher::AES_128_GCM => Some(Self::Aes128Gcm),
            negotiate_context::Cipher::AES_256_CCM => Some(Self::Aes256Ccm),
            negotiate_context::Cipher::AES_256_GCM => Some(Self::Aes256Gcm),
            _ => None,
        }
    }

    /// Returns the length of the cipher's keys in bytes.
    pub fn key_len(self) -> usize {
        match self {
            Self::Aes128Ccm | Self::Aes128Gcm => 16,
            Self::Aes256Ccm | Self::Aes256Gcm => 32,
        }
    }

    /// Returns whether one core encrypts slower than a fast link carries. CCM encrypts and
    /// authenticates one block after the other; GCM reaches 14 GB/s (measured).
    pub fn is_slow(self) -> bool {
        match self {
            Self::Aes128Ccm | Self::Aes256Ccm => true,
            Self::Aes128Gcm | Self::Aes256Gcm => false,
        }
    }
}

/// Length in bytes of the header in front of an encrypted message.
pub const TRANSFORM_HEADER_LEN: usize = TransformHeader::LEN;
const SIGNATURE: std::ops::Range<usize> =
    TransformHeader::SIGNATURE_OFFSET..TransformHeader::SIGNATURE_OFFSET + 16;
const AUTHENTICATED: std::ops::RangeFrom<usize> = TransformHeader::AUTHENTICATED_OFFSET..;

/// Error: every nonce of the key has been used. The session needs new keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("all nonces of this encryption key are used up")]
pub struct NoncesExhausted;

/// Error: the message was not encrypted with this key, or was changed on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the encrypted message does not open")]
pub struct Unopenable;

/// Encrypts the messages that one channel sends.
#[derive(Debug)]
pub struct Sealer {
    key: Arc<AeadKey>,
    channel: u16,
    /// Counter value of the next nonce; `None` when none is left.
    counter: Option<u64>,
}

impl Sealer {
    /// Creates a sealer. `key` has [`Cipher::key_len`] bytes. Two sealers of one key must have
    /// different `channel` numbers.
    pub fn new(cipher: Cipher, key: &Key, channel: u16) -> Self {
        Self {
            key: Arc::new(AeadKey::new(cipher, key)),
            channel,
            counter: Some(0),
        }
    }

    /// Reserves a nonce for sealing one message.
    ///
    /// # Errors
    /// The counter has reached its end.
    pub fn ticket(&mut self) -> Result<SealTicket, NoncesExhausted> {
        let counter = self.counter.ok_or(NoncesExhausted)?;
        self.counter = counter.checked_add(1);
        // The cipher uses 11 bytes (CCM) or 12 (GCM); the rest is zero ([MS-SMB2] 2.2.41).
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&counter.to_le_bytes());
        nonce[8..10].copy_from_slice(&self.channel.to_le_bytes());
        Ok(SealTicket {
            key: Arc::clone(&self.key),
            nonce,
        })
    }
}

/// One nonce and the key, for sealing one message on any thread.
#[derive(Debug)]
pub struct SealTicket {
    key: Arc<AeadKey>,
    nonce: [u8; 16],
}

impl SealTicket {
    /// Encrypts `message` in place and returns the transform header that goes before it. `message`
    /// starts at its SMB2 header and includes padding and the other messages of a compound.
    pub fn seal(self, session_id: SessionId, message: &mut [u8]) -> [u8; TRANSFORM_HEADER_LEN] {
        let mut header = TransformHeader {
            signature: [0; 16],
            nonce: self.nonce,
            original_message_size: u32::try_from(message.len()).expect("messages are shorter than 16 MiB"),
            session_id,
        };
        let mut bytes = Vec::with_capacity(TRANSFORM_HEADER_LEN);
        header.encode(&mut Writer::new(&mut bytes));
        header.signature = self.key.seal(&self.nonce, &bytes[AUTHENTICATED], message);
        bytes[SIGNATURE].copy_from_slice(&header.signature);
        bytes.try_into().expect("a transform header has 52 bytes")
    }
}

/// Decrypts messages of the peer. Threads and channels can share it.
#[derive(Clone, Debug)]
pub struct Opener(Arc<AeadKey>);

impl Opener {
    /// Creates an opener. `key` has [`Cipher::key_len`] bytes.
    pub fn new(cipher: Cipher, key: &Key) -> Self {
        Self(Arc::new(AeadKey::new(cipher, key)))
    }

    /// Decrypts `message` in place. `header` is the transform header in front of it.
    ///
    /// The caller looks the key up by the header's session id. It must keep using that session, not
    /// the one in the decrypted message, until it has found the two ids equal
    /// ([MS-SMB2] 3.2.5.1.1).
    ///
    /// # Errors
    /// The tag does not match. `message` then holds nothing of use.
    pub fn open(&self, header: &[u8; TRANSFORM_HEADER_LEN], message: &mut [u8]) -> Result<(), Unopenable> {
        let mut reader = Reader::new(header, "SMB2 TRANSFORM_HEADER");
        let decoded = TransformHeader::decode(&mut reader).map_err(|_| Unopenable)?;
        if usize::try_from(decoded.original_message_size) != Ok(message.len()) {
            return Err(Unopenable);
        }
        self.0.open(
            &decoded.nonce,
            &header[AUTHENTICATED],
            &decoded.signature,
            message,
        )
    }
}

/// CCM with SMB's 11-byte nonce and 16-byte tag.
type Ccm<C> = ccm::Ccm<C, U16, U11>;

enum AeadKey {
    Gcm(aead::LessSafeKey),
    Ccm128(Box<Ccm<aes::Aes128>>),
    Ccm256(Box<Ccm<aes::Aes256>>),
}

impl AeadKey {
    fn new(cipher: Cipher, key: &Key) -> Self {
        let key = key.expose();
        assert_eq!(key.len(), cipher.key_len(), "a key fits its cipher");
        let gcm = |algorithm| {
            let unbound = aead::UnboundKey::new(algorithm, key).expect("a key fits its cipher");
            Self::Gcm(aead::LessSafeKey::new(unbound))
        };
        match cipher {
            Cipher::Aes128Gcm => gcm(&aead::AES_128_GCM),
            Cipher::Aes256Gcm => gcm(&aead::AES_256_GCM),
            Cipher::Aes128Ccm => {
                Self::Ccm128(Box::new(Ccm::new_from_slice(key).expect("a key fits its cipher")))
            }
            Cipher::Aes256Ccm => {
                Self::Ccm256(Box::new(Ccm::new_from_slice(key).expect("a key fits its cipher")))
            }
        }
    }

    fn seal(&self, nonce: &[u8; 16], aad: &[u8], message: &mut [u8]) -> [u8; 16] {
        const SHORT: &str = "messages are far shorter than the cipher's limit";
        let mut tag = [0; 16];
        match self {
            Self::Gcm(key) => {
                let sealed = key
                    .seal_in_place_separate_tag(gcm_nonce(nonce), aead::Aad::from(aad), message)
                    .expect(SHORT);
                tag.copy_from_slice(sealed.as_ref());
            }
            Self::Ccm128(key) => {
                let sealed = key
                    .encrypt_inout_detached(&ccm_nonce(nonce), aad, message.into())
                    .expect(SHORT);
                tag.copy_from_slice(&sealed);
            }
            Self::Ccm256(key) => {
                let sealed = key
                    .encrypt_inout_detached(&ccm_nonce(nonce), aad, message.into())
                    .expect(SHORT);
                tag.copy_from_slice(&sealed);
            }
        }
        tag
    }

    fn open(&self, nonce: &[u8; 16], aad: &[u8], tag: &[u8], message: &mut [u8]) -> Result<(), Unopenable> {
        let ccm_tag = || ccm::Tag::<U16>::try_from(tag).map_err(|_| Unopenable);
        match self {
            Self::Gcm(key) => key
                .open_in_place_separate_tag(gcm_nonce(nonce), aead::Aad::from(aad), tag, message)
                .map(|_| ())
                .map_err(|_| Unopenable),
            Self::Ccm128(key) => key
                .decrypt_inout_detached(&ccm_nonce(nonce), aad, message.into(), &ccm_tag()?)
                .map_err(|_| Unopenable),
            Self::Ccm256(key) => key
                .decrypt_inout_detached(&ccm_nonce(nonce), aad, message.into(), &ccm_tag()?)
                .map_err(|_| Unopenable),
        }
    }
}

impl std::fmt::Debug for AeadKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// Returns the first 12 bytes of the header's nonce field.
fn gcm_nonce(nonce: &[u8; 16]) -> aead::Nonce {
    let mut first = [0; 12];
    first.copy_from_slice(&nonce[..12]);
    aead::Nonce::assume_unique_for_key(first)
}

/// Returns the first 11 bytes of the header's nonce field.
fn ccm_nonce(nonce: &[u8; 16]) -> ccm::Nonce<U11> {
    let mut first = [0; 11];
    first.copy_from_slice(&nonce[..11]);
    first.into()
}

#[cfg(test)]
mod tests;
