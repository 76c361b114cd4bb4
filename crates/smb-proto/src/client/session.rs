//! Sessions: the rounds of a login, and the keys that come of it.

use std::sync::Arc;
use std::sync::atomic::AtomicU16;

use crate::crypto::Cipher;
use crate::secret::{Key, SessionKey};
use crate::wire::SessionId;
use crate::wire::negotiate::Dialect;

/// What further channels need of a session ([MS-SMB2] 3.2.4.2.1, "session binding"). Shared, not copied.
#[derive(Clone, Debug)]
pub struct SessionSecret(pub(super) Arc<Secret>);

#[derive(Debug)]
pub(super) struct Secret {
    pub(super) id: SessionId,
    pub(super) dialect: Dialect,
    pub(super) cipher: Option<Cipher>,
    pub(super) key: SessionKey,
    pub(super) signing: Key,
    pub(super) client_to_server: Key,
    pub(super) server_to_client: Key,
    /// Channels that have sealed with these keys: the number makes their nonces differ.
    pub(super) channels: AtomicU16,
}

impl SessionSecret {
    /// The session's name.
    pub fn id(&self) -> SessionId {
        self.0.id
    }
}
