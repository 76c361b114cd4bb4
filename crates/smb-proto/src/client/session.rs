//! The session of a client connection: its keys and what they protect.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use ropeway_block::Block;
use ropeway_smb_wire::SessionId;
use ropeway_smb_wire::frame::FRAME_HEADER_LEN;
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_smb_wire::session_setup::SessionFlags;

use crate::crypto::{
    Cipher, KeyContext, SealError, Opener, SealTicket, Sealer, Sender, Signer, SigningAlgorithm,
    TRANSFORM_HEADER_LEN, UnsealError,
};
use crate::secret::{Key, SessionKey};

/// The part of a session that further channels need ([MS-SMB2] 3.2.4.2.1, "session binding").
/// Clones share it.
#[derive(Clone, Debug)]
pub struct SessionSecret(pub(super) Arc<Secret>);

/// The keys of a session, the same on all its channels.
#[derive(Debug)]
pub(super) struct Secret {
    pub(super) id: SessionId,
    pub(super) dialect: Dialect,
    pub(super) cipher: Option<Cipher>,
    /// `Session.SigningKey` ([MS-SMB2] 3.2.1.3). It also signs the requests that bind a channel.
    pub(super) signing: Key,
    /// The cipher keys, client to server first; `None` below 3.0.
    pub(super) sealing: Option<(Key, Key)>,
    /// `Session.ApplicationKey`, or the session key below 3.0.
    pub(super) application: Key,
    /// Number of channels created. Each channel's number makes its nonces unique.
    pub(super) channels: AtomicU16,
    pub(super) flags: SessionFlags,
}

impl SessionSecret {
    /// Returns the session id.
    pub fn id(&self) -> SessionId {
        self.0.id
    }

    /// Returns the key for upper layers, such as password encryption in RPC ([MS-SMB2] 3.2.4.25).
    pub fn application_key(&self) -> &Key {
        &self.0.application
    }
}

/// The session as used by this connection, one of its channels.
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) flags: SessionFlags,
    pub(super) sign_all: bool,
    pub(super) seal_all: bool,
    /// The negotiation was validated, or needs no validation.
    pub(super) validated: bool,
    keys: Option<Keys>,
}

struct Keys {
    secret: SessionSecret,
    signer: Arc<Signer>,
    sealing: Option<(Sealer, Opener)>,
}

impl Session {
    /// Creates a guest or anonymous session, which has no keys.
    pub(super) fn unprotected(id: SessionId, flags: SessionFlags) -> Self {
        Self {
            id,
            flags,
            sign_all: false,
            seal_all: false,
            validated: true,
            keys: None,
        }
    }

    /// Creates a channel of the session of `secret`, signing with the key `signing`. Returns `None`
    /// after 65,535 channels.
    pub(super) fn protected(
        secret: &SessionSecret,
        algorithm: SigningAlgorithm,
        signing: &Key,
        (sign_all, seal_all): (bool, bool),
        validated: bool,
    ) -> Option<Self> {
        let inner = &secret.0;
        let channel = inner
            .channels
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |channel| {
                channel.checked_add(1)
            })
            .ok()?;
        let sealing = match (inner.cipher, &inner.sealing) {
            (Some(cipher), Some((ours, theirs))) => {
                Some((Sealer::new(cipher, ours, channel), Opener::new(cipher, theirs)))
            }
            _ => None,
        };
        Some(Self {
            id: inner.id,
            flags: inner.flags,
            sign_all,
            seal_all: seal_all && sealing.is_some(),
            validated,
            keys: Some(Keys {
                secret: secret.clone(),
                signer: Arc::new(Signer::new(algorithm, signing)),
                sealing,
            }),
        })
    }

    pub(super) fn secret(&self) -> Option<SessionSecret> {
        self.keys.as_ref().map(|keys| keys.secret.clone())
    }

    pub(super) fn signs(&self) -> bool {
        self.keys.is_some()
    }

    pub(super) fn signer(&self) -> Option<&Arc<Signer>> {
        self.keys.as_ref().map(|keys| &keys.signer)
    }

    pub(super) fn seals(&self) -> bool {
        self.keys.as_ref().is_some_and(|keys| keys.sealing.is_some())
    }

    /// Returns a nonce and the key to seal one message.
    pub(super) fn ticket(&mut self) -> Result<SealTicket, SealError> {
        self.keys
            .as_mut()
            .and_then(|keys| keys.sealing.as_mut())
            .ok_or(SealError)?
            .0
            .ticket()
    }

    /// Returns the key to open messages, for a job.
    pub(super) fn opener(&self) -> Option<Opener> {
        let sealing = self.keys.as_ref()?.sealing.as_ref();
        sealing.map(|(_, opener)| opener.clone())
    }

    pub(super) fn cipher(&self) -> Option<Cipher> {
        self.keys.as_ref()?.secret.0.cipher
    }

    /// Opens a message in place.
    pub(super) fn open(
        &self,
        header: &[u8; TRANSFORM_HEADER_LEN],
        message: &mut [u8],
    ) -> Result<(), UnsealError> {
        let sealing = self.keys.as_ref().and_then(|keys| keys.sealing.as_ref());
        sealing.ok_or(UnsealError)?.1.open(header, message)
    }

    /// Returns whether the signature of a contiguous message is correct.
    pub(super) fn verify(&self, message: &mut [u8]) -> bool {
        self.signer()
            .is_none_or(|signer| signer.verify_contiguous(Sender::Server, message).is_ok())
    }

    /// Restores a payload that was sealed in its block with `before` and `after` bytes around it.
    /// Returns `None` if another handle to the block exists.
    pub(super) fn unseal(&self, payload: Block, before: usize, after: usize) -> Option<Block> {
        let keys = self.keys.as_ref()?;
        let opener = match (keys.secret.0.cipher, &keys.secret.0.sealing) {
            (Some(cipher), Some((ours, _))) => Opener::new(cipher, ours),
            _ => return None,
        };
        let mut block = payload.try_into_mut().ok()?;
        let length = block.len();
        block.set_len(length + after);
        let bytes = block.framed_mut(before);
        let (header, message) = bytes[FRAME_HEADER_LEN..].split_first_chunk_mut()?;
        opener.open(header, message).ok()?;
        block.set_len(length);
        Some(block.freeze())
    }
}

impl Secret {
    /// Derives all keys of a new session ([MS-SMB2] 3.2.5.3.1).
    pub(super) fn derive(
        (id, flags): (SessionId, SessionFlags),
        (dialect, cipher): (Dialect, Option<Cipher>),
        key: &SessionKey,
        hash: &[u8; 64],
    ) -> Self {
        let channels = AtomicU16::new(0);
        let Some(context) = key_context(dialect, hash) else {
            return Self {
                id,
                dialect,
                cipher: None,
                signing: key.truncated(),
                sealing: None,
                application: key.truncated(),
                channels,
                flags,
            };
        };
        let keys = crate::crypto::SessionKeys::derive(key, context, cipher);
        Self {
            id,
            dialect,
            cipher,
            signing: keys.signing,
            sealing: Some((keys.client_to_server, keys.server_to_client)),
            application: keys.application,
            channels,
            flags,
        }
    }
}

/// Returns the context for key derivation; `None` for 2.x, where no keys are derived.
pub(super) fn key_context(dialect: Dialect, hash: &[u8; 64]) -> Option<KeyContext<'_>> {
    match dialect {
        Dialect::Smb202 | Dialect::Smb210 => None,
        Dialect::Smb300 | Dialect::Smb302 => Some(KeyContext::Smb30),
        Dialect::Smb311 => Some(KeyContext::Smb311(hash)),
    }
}
