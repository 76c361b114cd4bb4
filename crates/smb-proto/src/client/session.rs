//! Sessions: what is protected, and with which keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use ropeway_block::Block;

use crate::crypto::{
    Cipher, NoncesExhausted, Opener, SealTicket, Sealer, Sender, Signer, SigningAlgorithm,
    TRANSFORM_HEADER_LEN, Unopenable,
};
use crate::secret::{Key, SessionKey};
use ropeway_smb_wire::SessionId;
use ropeway_smb_wire::frame::FRAME_HEADER_LEN;
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_smb_wire::session_setup::SessionFlags;

pub(super) use super::login::Login;

/// What further channels need of a session ([MS-SMB2] 3.2.4.2.1, "session binding"). Shared, not copied.
#[derive(Clone, Debug)]
pub struct SessionSecret(pub(super) Arc<Secret>);

/// Keys of a session, the same on all its channels.
#[derive(Debug)]
pub(super) struct Secret {
    pub(super) id: SessionId,
    pub(super) dialect: Dialect,
    pub(super) cipher: Option<Cipher>,
    /// [MS-SMB2] 3.2.1.3, `Session.SigningKey`; a further channel's requests to be bound are signed with it.
    pub(super) signing: Key,
    /// Of the ciphers, client to server first; none below 3.0.
    pub(super) sealing: Option<(Key, Key)>,
    /// `Session.ApplicationKey`, or the session key below 3.0.
    pub(super) application: Key,
    /// Channels that have sealed with these keys: the number makes their nonces differ.
    pub(super) channels: AtomicU16,
    pub(super) flags: SessionFlags,
}

impl SessionSecret {
    /// The session's name.
    pub fn id(&self) -> SessionId {
        self.0.id
    }

    /// The key for upper layers, such as encrypted passwords in RPC ([MS-SMB2] 3.2.4.25).
    pub fn application_key(&self) -> &Key {
        &self.0.application
    }
}

/// The session as this connection, one of its channels, uses it.
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) flags: SessionFlags,
    pub(super) sign_all: bool,
    pub(super) seal_all: bool,
    /// The negotiation was found untampered, or cannot have been.
    pub(super) validated: bool,
    keys: Option<Keys>,
}

struct Keys {
    secret: SessionSecret,
    signer: Arc<Signer>,
    sealing: Option<(Sealer, Opener)>,
}

impl Session {
    /// A session of a guest or nobody.
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

    /// A channel of `secret`'s session that signs with `signing`. `None` if there were 65,535 channels.
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

    /// For one message.
    pub(super) fn ticket(&mut self) -> Result<SealTicket, NoncesExhausted> {
        self.keys
            .as_mut()
            .and_then(|keys| keys.sealing.as_mut())
            .ok_or(NoncesExhausted)?
            .0
            .ticket()
    }

    /// What opens a message, for a worker.
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
    ) -> Result<(), Unopenable> {
        let sealing = self.keys.as_ref().and_then(|keys| keys.sealing.as_ref());
        sealing.ok_or(Unopenable)?.1.open(header, message)
    }

    /// Whether a message of one piece is signed rightly.
    pub(super) fn verify(&self, message: &mut [u8]) -> bool {
        self.signer()
            .is_none_or(|signer| signer.verify_contiguous(Sender::Server, message).is_ok())
    }

    /// What was sealed in its block with so many bytes around it, as it was before; `None` if somebody else still holds
    /// the block.
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
    /// [MS-SMB2] 3.2.5.3.1: all keys of a new session.
    pub(super) fn derive(
        (id, flags): (SessionId, SessionFlags),
        (dialect, cipher): (Dialect, Option<Cipher>),
        key: &SessionKey,
        hash: &[u8; 64],
    ) -> Self {
        let channels = AtomicU16::new(0);
        let Some(context) = super::login::key_context(dialect, hash) else {
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
