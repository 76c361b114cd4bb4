//! What a client asks for, and what the two ends agreed on.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use crate::compression::Algorithms;
use crate::crypto::{Cipher, SigningAlgorithm};
use ropeway_smb_wire::negotiate::{Capabilities, Dialect, SecurityMode};
use ropeway_smb_wire::{Guid, SessionId, Text};

/// Whether requests are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signing {
    /// Always, and unsigned replies are refused.
    Required,
    /// When the server requires it.
    Offered,
}

/// Whether requests are sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// Only what the server demands: the session's flag, or a chain's own ([`super::Chain::encrypt`]).
    Off,
    /// Everything, when the server can.
    Desired,
    /// Everything, or there is no session.
    Required,
}

/// Which frames are left to jobs: those of READs and WRITEs whose data lies in its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jobs {
    /// From so many bytes on.
    pub from: usize,
    /// Also where the algorithm is no slower than handing a frame over, for tests.
    pub fast_too: bool,
}

/// What one connection asks for; checked by nobody but the peer.
#[derive(Clone, Debug)]
pub struct Config {
    /// Dialects offered, oldest to newest.
    pub dialects: RangeInclusive<Dialect>,
    /// Signing.
    pub signing: Signing,
    /// Encryption.
    pub encryption: Encryption,
    /// Ciphers for 3.1.1, the preferred first; 3.0 and 3.0.2 have one of their own. None: encryption is not offered.
    pub ciphers: Vec<Cipher>,
    /// Signing algorithms for 3.1.1, the preferred first.
    pub signing_algorithms: Vec<SigningAlgorithm>,
    /// Whether compression is offered (3.1.1).
    pub compression: bool,
    /// The client; the same on all its connections.
    pub client_guid: Guid,
    /// The server's name as the user wrote it.
    pub host: Text,
    /// The most bytes of one READ, WRITE or query, whatever the server allows.
    pub io_max: u32,
    /// The most credits to ask for.
    pub credits_target: u16,
    /// How long the server may be silent while it owes an answer; long operations do not count once it said so.
    pub silence_max: Duration,
    /// After so much silence, while anything is in flight, an ECHO asks whether the server is there; its answer ends the
    /// silence. Not before [`Self::silence_max`]: nothing is asked.
    pub echo_after: Duration,
    /// Where this client's channels have got to; the same on all its connections.
    pub sequence: ChannelSequence,
    /// Whether a session without keys (guest, anonymous) is taken: nothing on it is signed or sealed.
    pub unprotected_allowed: bool,
    /// What is signed, verified, sealed and opened by jobs ([`super::Connection::poll_job`]); none: everything at once.
    pub jobs: Option<Jobs>,
    /// A session of this client, lost with its connection, that the server is to end; 0 for none.
    pub previous_session: SessionId,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            dialects: Dialect::Smb202..=Dialect::Smb311,
            signing: Signing::Required,
            encryption: Encryption::Off,
            // By speed, measured: issue of the client, "Crypto".
            ciphers: vec![
                Cipher::Aes128Gcm,
                Cipher::Aes256Gcm,
                Cipher::Aes128Ccm,
                Cipher::Aes256Ccm,
            ],
            signing_algorithms: vec![
                SigningAlgorithm::AesGmac,
                SigningAlgorithm::AesCmac,
                SigningAlgorithm::HmacSha256,
            ],
            compression: false,
            client_guid: Guid::default(),
            host: Text::default(),
            io_max: 8 << 20,
            credits_target: 8192,
            silence_max: Duration::from_secs(60),
            // A guess: what an answer takes that a busy server owes, and often enough for any box between that forgets
            // silent connections.
            echo_after: Duration::from_secs(20),
            sequence: ChannelSequence::default(),
            unprotected_allowed: false,
            jobs: None,
            previous_session: SessionId(0),
        }
    }
}

/// `Session.ChannelSequence` ([MS-SMB2] 3.2.1.3): counts the connections that were lost with requests under way, so that a
/// server can tell a request sent before from one sent after (3.3.5.2.10). Clones count as one.
///
/// Kept over sessions, not begun anew with each: an open that is reclaimed in a new session has the number of its old
/// one, and a smaller number would be taken for an old request.
#[derive(Clone, Debug, Default)]
pub struct ChannelSequence(Arc<AtomicU16>);

impl ChannelSequence {
    /// For the next request.
    pub fn current(&self) -> u16 {
        self.0.load(Ordering::Acquire)
    }

    /// [MS-SMB2] 3.2.7.1: a connection is lost; 16 bits, which wrap.
    pub(super) fn advance(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// What NEGOTIATE came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// The dialect.
    pub dialect: Dialect,
    /// How the server signs.
    pub security_mode: SecurityMode,
    /// What the server can do.
    pub capabilities: Capabilities,
    /// The server.
    pub server_guid: Guid,
    /// The most bytes of a READ: the server's and ours, and 64 KiB without [`Self::multi_credit`].
    pub max_read: u32,
    /// The same of a WRITE.
    pub max_write: u32,
    /// The same of a query, a change, or a control.
    pub max_transact: u32,
    /// Requests may cost several credits (2.1 on).
    pub multi_credit: bool,
    /// How messages are sealed, if they can be.
    pub cipher: Option<Cipher>,
    /// How messages are signed.
    pub signing: SigningAlgorithm,
    /// Compression in common.
    pub compression: Compression,
    /// The server's first token.
    pub(super) hint: Vec<u8>,
}

/// Compression that both ends have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compression {
    /// Algorithms.
    pub algorithms: Algorithms,
    /// Whether payloads may be chained.
    pub chained: bool,
}

impl Negotiated {
    /// Whether requests carry a channel sequence and may be replays ([MS-SMB2] 2.2.1.2; 3.2.5.12 for what makes servers
    /// look at it).
    pub fn has_channel_sequence(&self) -> bool {
        let looked_at = Capabilities::MULTI_CHANNEL | Capabilities::PERSISTENT_HANDLES;
        self.dialect >= Dialect::Smb300 && self.capabilities.intersects(looked_at)
    }

    /// What makes this negotiation another than that of the session's first connection: all that a server tells again when
    /// a negotiation is validated ([MS-SMB2] 2.2.32.6), how messages are protected, and requests that the first would take
    /// and this one would not.
    pub fn differs_from(&self, first: &Self) -> Option<&'static str> {
        let parts = [
            (self.dialect == first.dialect, "the dialect"),
            (self.server_guid == first.server_guid, "the server"),
            (self.capabilities == first.capabilities, "the capabilities"),
            (self.security_mode == first.security_mode, "the security mode"),
            (self.cipher == first.cipher, "the cipher"),
            (self.signing == first.signing, "the signing algorithm"),
            (
                self.max_read >= first.max_read
                    && self.max_write >= first.max_write
                    && self.max_transact >= first.max_transact,
                "smaller requests",
            ),
        ];
        parts.into_iter().find(|(same, _)| !same).map(|(_, what)| what)
    }
}

impl Compression {
    /// Whether anything can be compressed.
    pub fn is_some(self) -> bool {
        self.algorithms != Algorithms::default()
    }
}

/// The account's standing and the numbers behind [`super::Connection::credits`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreditState {
    /// Credits that can be spent now.
    pub available: u32,
    /// Credits spent on requests without an answer.
    pub in_use: u32,
    /// Credits asked for by requests without an answer.
    pub asked: u32,
    /// Credits that waiting chains need.
    pub wanted: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negotiation_that_was_changed_is_another() {
        let first = Negotiated {
            dialect: Dialect::Smb302,
            security_mode: SecurityMode::SIGNING_ENABLED | SecurityMode::SIGNING_REQUIRED,
            capabilities: Capabilities::MULTI_CHANNEL | Capabilities::ENCRYPTION,
            server_guid: Guid([7; 16]),
            max_read: 1 << 20,
            max_write: 1 << 20,
            max_transact: 1 << 20,
            multi_credit: true,
            cipher: Some(Cipher::Aes128Ccm),
            signing: SigningAlgorithm::AesCmac,
            compression: Compression::default(),
            hint: Vec::new(),
        };
        let changed = |change: fn(&mut Negotiated)| {
            let mut further = first.clone();
            change(&mut further);
            further.differs_from(&first)
        };
        assert_eq!(changed(|it| it.max_read = 8 << 20), None);
        assert_eq!(changed(|it| it.max_write = 1 << 16), Some("smaller requests"));
        assert_eq!(changed(|it| it.dialect = Dialect::Smb300), Some("the dialect"));
        assert_eq!(changed(|it| it.server_guid = Guid([8; 16])), Some("the server"));
        assert_eq!(
            changed(|it| it.capabilities = Capabilities::MULTI_CHANNEL),
            Some("the capabilities")
        );
        assert_eq!(
            changed(|it| it.security_mode = SecurityMode::SIGNING_ENABLED),
            Some("the security mode")
        );
        assert_eq!(changed(|it| it.cipher = None), Some("the cipher"));
        assert_eq!(
            changed(|it| it.signing = SigningAlgorithm::HmacSha256),
            Some("the signing algorithm")
        );
    }
}
