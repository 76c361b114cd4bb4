//! What a server offers and whom it lets in.

use std::sync::Arc;

use crate::auth::Mechanism;
use crate::auth::ntlm::ServerNames;
use crate::compression::Algorithms;
use crate::secret::NtHash;
use ropeway_smb_wire::Guid;
use ropeway_smb_wire::Text;
use ropeway_smb_wire::negotiate::Dialect;

/// Fills a buffer with random bytes.
pub type Random = Arc<dyn Fn(&mut [u8]) + Send + Sync>;

/// Who may log in: the NT hash of a user of a domain, both as the client wrote them.
pub type Accounts = Arc<dyn Fn(&Text, &Text) -> Option<NtHash> + Send + Sync>;

/// How clients may log in beside NTLM, and rather: new mechanisms for each login. They must not wait for the network.
pub type Mechanisms = Arc<dyn Fn() -> Vec<Box<dyn Mechanism>> + Send + Sync>;

/// Whether traffic is encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sealing {
    /// Not even offered.
    Off,
    /// Where the client, or a share, wants it.
    #[default]
    Offered,
    /// Sessions that cannot are refused.
    Required,
}

/// What all connections of a server have in common.
#[derive(Clone)]
pub struct Config {
    /// The server, for as long as it runs.
    pub server_guid: Guid,
    /// What it calls itself in NTLM.
    pub names: ServerNames,
    /// The oldest dialect spoken.
    pub dialect_min: Dialect,
    /// The newest dialect spoken.
    pub dialect_max: Dialect,
    /// Unsigned requests of users are refused.
    pub signing_required: bool,
    /// Encryption.
    pub sealing: Sealing,
    /// Sessions without a user are let in.
    pub anonymous: bool,
    /// The user `guest` is let in without a password; such a session has no keys, as one without a user.
    pub guest: bool,
    /// Several connections may share a session.
    pub multichannel: bool,
    /// Leases are granted.
    pub leasing: bool,
    /// Compression, 3.1.1.
    pub compression: Algorithms,
    /// The most bytes of a READ, a WRITE and a query, at most 8 MiB ([MS-SMB2] 3.3.5.4).
    pub io_max: u32,
    /// The most credits one connection holds.
    pub credits_max: u16,
    /// The most sessions of one connection.
    pub sessions_per_connection_max: usize,
    /// Who may log in.
    pub accounts: Accounts,
    /// How else.
    pub mechanisms: Option<Mechanisms>,
    /// Randomness.
    pub random: Random,
}

impl Config {
    /// The largest I/O that clients are told of: Windows', and the specification's bound for multi-credit requests.
    pub const IO_MAX: u32 = 8 << 20;
    /// As many credits as Windows and Samba grant at most.
    pub const CREDITS_MAX: u16 = 8192;

    /// The dialects spoken, newest first.
    pub fn dialects(&self) -> impl Iterator<Item = Dialect> {
        let (min, max) = (self.dialect_min, self.dialect_max);
        Dialect::ALL
            .into_iter()
            .rev()
            .filter(move |dialect| (min..=max).contains(dialect))
    }

    /// `N` random bytes.
    pub(super) fn random<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        (self.random)(&mut bytes);
        bytes
    }
}
