//! What a server offers, and whom it admits.

use std::sync::Arc;

use ropeway_smb_wire::Guid;
use ropeway_smb_wire::Text;
use ropeway_smb_wire::negotiate::Dialect;

use crate::auth::Mechanism;
use crate::auth::ntlm::ServerNames;
use crate::compression::Algorithms;
use crate::secret::NtHash;

/// Fills a buffer with random bytes.
pub type Random = Arc<dyn Fn(&mut [u8]) + Send + Sync>;

/// Looks up the NT hash of a user and a domain, both as the client wrote them.
pub type Accounts = Arc<dyn Fn(&Text, &Text) -> Option<NtHash> + Send + Sync>;

/// Creates the login mechanisms for one login that are preferred to NTLM. They must not wait for
/// the network.
pub type Mechanisms = Arc<dyn Fn() -> Vec<Box<dyn Mechanism>> + Send + Sync>;

/// When traffic is encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sealing {
    /// Never; encryption is not offered.
    Off,
    /// When the client or a share demands it.
    #[default]
    Offered,
    /// Always; sessions that cannot encrypt are refused.
    Required,
}

/// The settings shared by all connections of a server.
#[derive(Clone)]
pub struct Config {
    /// The server's GUID, constant while it runs.
    pub server_guid: Guid,
    /// The server's names in NTLM.
    pub names: ServerNames,
    /// The oldest dialect supported.
    pub dialect_min: Dialect,
    /// The newest dialect supported.
    pub dialect_max: Dialect,
    /// Whether unsigned requests of users are refused.
    pub signing_required: bool,
    /// When traffic is encrypted.
    pub sealing: Sealing,
    /// Whether anonymous sessions are admitted.
    pub anonymous: bool,
    /// Whether the user `guest` is admitted without a password. Such a session has no keys, like an
    /// anonymous one.
    pub guest: bool,
    /// Whether several connections may share a session.
    pub multichannel: bool,
    /// Whether opens of some share may be persistent.
    pub persistent_handles: bool,
    /// Whether leases are granted.
    pub leasing: bool,
    /// The compression algorithms supported (3.1.1 only).
    pub compression: Algorithms,
    /// Maximum length of a READ, a WRITE and a query in bytes, at most 8 MiB ([MS-SMB2] 3.3.5.4).
    pub io_max: u32,
    /// Maximum number of credits that one connection holds.
    pub credits_max: u16,
    /// Maximum number of sessions on one connection.
    pub sessions_per_connection_max: usize,
    /// Looks up the accounts.
    pub accounts: Accounts,
    /// Further login mechanisms.
    pub mechanisms: Option<Mechanisms>,
    /// The source of randomness.
    pub random: Random,
}

impl Config {
    /// The largest I/O announced to clients, in bytes: the value of Windows, and the
    /// specification's bound for multi-credit requests.
    pub const IO_MAX: u32 = 8 << 20;
    /// The maximum number of credits that Windows and Samba grant.
    pub const CREDITS_MAX: u16 = 8192;

    /// Returns the supported dialects, newest first.
    pub fn dialects(&self) -> impl Iterator<Item = Dialect> {
        let (min, max) = (self.dialect_min, self.dialect_max);
        Dialect::ALL
            .into_iter()
            .rev()
            .filter(move |dialect| (min..=max).contains(dialect))
    }

    /// Returns `N` random bytes.
    pub(super) fn random<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        (self.random)(&mut bytes);
        bytes
    }
}
