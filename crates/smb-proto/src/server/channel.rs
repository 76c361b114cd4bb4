//! A channel: the keys of a session on one connection ([MS-SMB2] 3.3.1.14).

use std::sync::Arc;

use ropeway_smb_wire::header::Header;

use crate::crypto::{Cipher, Opener, SealTicket, Sealer, Sender, Signer, SigningAlgorithm};
use crate::secret::Key;

/// The keys of a session on one connection.
pub(super) struct Channel {
    signer: Option<Arc<Signer>>,
    /// Whether unsigned requests are refused.
    pub(super) signing_required: bool,
    /// Whether every message must be sealed.
    pub(super) sealing_required: bool,
    /// Whether it is that of an anonymous session or a guest. Its keys are no secret, so they prove
    /// nothing.
    pub(super) is_anonymous: bool,
    opener: Option<Opener>,
    sealer: Option<Sealer>,
}

impl Channel {
    /// Creates the channel of a guest's session, which neither signs nor seals.
    pub(super) fn unprotected() -> Self {
        Self {
            signer: None,
            signing_required: false,
            sealing_required: false,
            is_anonymous: true,
            opener: None,
            sealer: None,
        }
    }

    /// Creates the channel of an anonymous session. A client may sign and seal although it need not
    /// ([MS-SMB2] 3.3.5.2.1.1, note 259; smb2.session.anon-signing1, anon-encryption2).
    pub(super) fn anonymous(signing: (SigningAlgorithm, &Key), cipher: Option<(Cipher, &Key, &Key)>) -> Self {
        Self {
            is_anonymous: true,
            ..Self::new(signing, cipher, 0, false, false)
        }
    }

    /// Creates the channel of a user's session. `cipher` comes with its keys from client to server
    /// and back. `number` is unique among the session's channels.
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
            is_anonymous: false,
            opener: cipher.map(|(cipher, to_server, _)| Opener::new(cipher, to_server)),
            sealer: cipher.map(|(cipher, _, to_client)| Sealer::new(cipher, to_client, number)),
        }
    }

    pub(super) fn signer(&self) -> Option<&Arc<Signer>> {
        self.signer.as_ref()
    }

    /// Returns whether a request has the signature that its decoded header names. The field in the
    /// message may hold anything.
    pub(super) fn verifies(&self, header: &Header, message: &[u8]) -> bool {
        let signer = self.signer.as_ref();
        signer.is_some_and(|signer| {
            signer
                .verify_detached(Sender::Client, message, &header.signature)
                .is_ok()
        })
    }

    pub(super) fn opener(&self) -> Option<&Opener> {
        self.opener.as_ref()
    }

    /// Returns the nonce and key to seal one message. `None` without a key, or when its nonces are
    /// used up.
    pub(super) fn seal_ticket(&mut self) -> Option<SealTicket> {
        self.sealer.as_mut()?.ticket().ok()
    }

    /// Returns whether there is a secret key to seal with.
    pub(super) fn can_seal(&self) -> bool {
        self.sealer.is_some() && !self.is_anonymous
    }
}
