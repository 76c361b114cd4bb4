//! What one connection has of a session: its keys ([MS-SMB2] 3.3.1.14).

use std::sync::Arc;

use crate::crypto::{Cipher, Opener, SealTicket, Sealer, Signer, SigningAlgorithm};
use crate::secret::Key;

/// Keys of a session on one connection.
pub(super) struct Channel {
    signer: Option<Arc<Signer>>,
    /// Unsigned requests are refused.
    pub(super) signing_required: bool,
    /// Everything has to be sealed.
    pub(super) sealing_required: bool,
    opener: Option<Opener>,
    sealer: Option<Sealer>,
}

impl Channel {
    /// Of nobody or a guest: nothing is signed, nothing sealed.
    pub(super) fn unprotected() -> Self {
        Self {
            signer: None,
            signing_required: false,
            sealing_required: false,
            opener: None,
            sealer: None,
        }
    }

    /// Of a user; `cipher` with its keys from client to server and back; `number` tells the session's channels apart.
    pub(super) fn new(
        signing: (SigningAlgorithm, &Key),
        cipher: Option<(Cipher, &Key, &Key)>,
        number: u16,
        signing_required: bool,
        sealing_required: bool,
    ) -> Self {
        Self {
            signer: Some(Arc::new(Signer::new(signing.0, signing.1))),
            signing_required,
            sealing_required,
            opener: cipher.map(|(cipher, to_server, _)| Opener::new(cipher, to_server)),
            sealer: cipher.map(|(cipher, _, to_client)| Sealer::new(cipher, to_client, number)),
        }
    }

    pub(super) fn signer(&self) -> Option<&Arc<Signer>> {
        self.signer.as_ref()
    }

    pub(super) fn opener(&self) -> Option<&Opener> {
        self.opener.as_ref()
    }

    /// The right to seal one message; none without a key, or when its nonces are used up.
    pub(super) fn seal_ticket(&mut self) -> Option<SealTicket> {
        self.sealer.as_mut()?.ticket().ok()
    }

    /// There is a key to seal with.
    pub(super) fn can_seal(&self) -> bool {
        self.sealer.is_some()
    }
}
