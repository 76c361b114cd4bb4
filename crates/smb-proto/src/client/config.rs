//! What a client asks for, and what the negotiation settled.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use ropeway_smb_wire::negotiate::{Capabilities, Dialect, SecurityMode};
use ropeway_smb_wire::{FileTime, Guid, SessionId, Text};

use crate::compression::Compression;
use crate::crypto::{Cipher, SigningAlgorithm};

/// When requests are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signing {
    /// Always; unsigned replies are refused.
    Required,
    /// Only when the server requires it.
    Offered,
}

/// When requests are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// Only on the server's demand for the session, or for a compound with
    /// [`super::Compound::encrypt`].
    Off,
    /// Always, if the server supports encryption.
    Desired,
    /// Always; without encryption the login fails.
    Required,
}

/// Which frames become jobs. Only frames whose READ or WRITE data lies in its block qualify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jobs {
    /// Minimum length of the message, in bytes.
    pub from: usize,
    /// Whether algorithms that are as fast as the hand-over to a thread become jobs too. For tests.
    pub fast_too: bool,
}

/// Which compression is offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompressionOffer {
    /// None.
    #[default]
    Off,
    /// That between own ends, by the line ([`Compression::by_line`]). Other servers have nothing of it.
    OwnEnds,
    /// All.
    On,
}

/// The settings of one connection. They are not validated here; the server rejects what it cannot
/// serve.
#[derive(Clone, Debug)]
pub struct Config {
    /// Dialects offered, oldest to newest.
    pub dialects: RangeInclusive<Dialect>,
    /// When requests are signed.
    pub signing: Signing,
    /// When requests are encrypted.
    pub encryption: Encryption,
    /// Ciphers offered for 3.1.1, preferred first. Dialects 3.0 and 3.0.2 fix their cipher. If
    /// empty, encryption is not offered.
    pub ciphers: Vec<Cipher>,
    /// Signing algorithms offered for 3.1.1, preferred first.
    pub signing_algorithms: Vec<SigningAlgorithm>,
    /// Whether compression is offered, and to whom (3.1.1 only).
    pub compression: CompressionOffer,
    /// The client's GUID, the same on all its connections.
    pub client_guid: Guid,
    /// The server's name as the user wrote it.
    pub host: Text,
    /// Upper bound of one READ, WRITE or query, in bytes, regardless of the server's limit.
    pub io_max: u32,
    /// Number of credits to aim for.
    pub credits_target: u16,
    /// How long the server may stay silent while it owes a reply. Requests with an interim reply
    /// owe none.
    pub silence_max: Duration,
    /// Length of silence after which an ECHO probes the server, while any request is in flight. The
    /// reply ends the silence. If this is not shorter than [`Self::silence_max`], no ECHO is sent.
    pub echo_after: Duration,
    /// The same while the server owes a reply: soon, so that the caller learns whether a server that
    /// takes long is still there.
    pub echo_after_owed: Duration,
    /// The client's channel sequence, shared by all its connections.
    pub sequence: ChannelSequence,
    /// Whether a session without keys (guest or anonymous) is accepted. Nothing on such a session
    /// is signed or sealed.
    pub unprotected_allowed: bool,
    /// Which frames are protected by jobs ([`super::Connection::poll_job`]). `None`: all are
    /// protected within the calls.
    pub jobs: Option<Jobs>,
    /// A session of this client that was lost with its connection and that the server should end; 0
    /// for none.
    pub previous_session: SessionId,
}

impl Config {
    /// Returns the client's security mode for NEGOTIATE and SESSION_SETUP.
    pub(super) fn security_mode(&self) -> SecurityMode {
        match self.signing {
            Signing::Required => SecurityMode::SIGNING_ENABLED | SecurityMode::SIGNING_REQUIRED,
            Signing::Offered => SecurityMode::SIGNING_ENABLED,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            dialects: Dialect::Smb202..=Dialect::Smb311,
            signing: Signing::Required,
            encryption: Encryption::Off,
            // Ordered by measured speed, fastest first.
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
            compression: CompressionOffer::Off,
            client_guid: Guid::default(),
            host: Text::default(),
            io_max: 8 << 20,
            credits_target: 8192,
            silence_max: Duration::from_secs(60),
            // A guess: longer than a busy server takes for a reply, yet frequent enough to keep
            // middleboxes from forgetting an idle connection.
            echo_after: Duration::from_secs(20),
            echo_after_owed: Duration::from_secs(20),
            sequence: ChannelSequence::default(),
            unprotected_allowed: false,
            jobs: None,
            previous_session: SessionId(0),
        }
    }
}

/// `Session.ChannelSequence` ([MS-SMB2] 3.2.1.3): the number of connections lost with requests in
/// flight. By it a server tells a request sent before the loss from one sent after it (3.3.5.2.10).
/// Clones share one counter.
///
/// The counter continues across sessions. An open reclaimed in a new session keeps the number of
/// the old one, and a smaller number would mark a new request as outdated.
#[derive(Clone, Debug, Default)]
pub struct ChannelSequence(Arc<AtomicU16>);

impl ChannelSequence {
    /// Returns the number for the next request.
    pub fn current(&self) -> u16 {
        self.0.load(Ordering::Acquire)
    }

    /// Counts a lost connection ([MS-SMB2] 3.2.7.1). The 16-bit counter wraps.
    pub(super) fn advance(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// The result of NEGOTIATE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// The dialect.
    pub dialect: Dialect,
    /// The server's signing mode.
    pub security_mode: SecurityMode,
    /// The server's capabilities.
    pub capabilities: Capabilities,
    /// The server's GUID.
    pub server_guid: Guid,
    /// Maximum length of a READ in bytes: the smaller of the server's limit and ours; 64 KiB
    /// without [`Self::multi_credit`].
    pub max_read: u32,
    /// Maximum length of a WRITE in bytes, bounded likewise.
    pub max_write: u32,
    /// Maximum length of a query, set or control buffer in bytes, bounded likewise.
    pub max_transact: u32,
    /// Whether a request may cost several credits (dialect 2.1 and later).
    pub multi_credit: bool,
    /// The server's time when it answered; 0 if it does not tell.
    pub system_time: FileTime,
    /// The cipher, if messages can be sealed.
    pub cipher: Option<Cipher>,
    /// The signing algorithm.
    pub signing: SigningAlgorithm,
    /// The compression algorithms common to both ends.
    pub compression: Compression,
    /// The first security token, sent by the server.
    pub(super) hint: Vec<u8>,
}

impl Negotiated {
    /// Returns whether requests carry a channel sequence and may be replayed ([MS-SMB2] 2.2.1.2).
    /// Servers evaluate it under the conditions of 3.2.5.12.
    pub fn has_channel_sequence(&self) -> bool {
        let looked_at = Capabilities::MULTI_CHANNEL | Capabilities::PERSISTENT_HANDLES;
        self.dialect >= Dialect::Smb300 && self.capabilities.intersects(looked_at)
    }

    /// Returns how this negotiation differs from that of the session's first connection, if it
    /// does. Compared are everything that the server repeats when a negotiation is validated
    /// ([MS-SMB2] 2.2.32.6), the protection of messages, and whether this connection rejects
    /// requests that the first one accepts.
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

/// The state of the credit account ([`super::Connection::credits`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreditState {
    /// Credits that can be spent now.
    pub available: u32,
    /// Credits spent on requests without a final reply.
    pub in_use: u32,
    /// Credits asked for by requests without a reply.
    pub asked: u32,
    /// Credits that queued compounds need.
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
            system_time: FileTime(0),
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
