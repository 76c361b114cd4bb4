//! What a caller may choose.

use std::ops::RangeInclusive;
use std::time::Duration;

use ropeway_smb_proto::client::{Encryption, Signing};
use ropeway_smb_wire::negotiate::Dialect;

use crate::{Error, Result};

/// How a [`Client`](crate::Client) behaves. The defaults suit a line of any length.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Dialects to offer.
    pub dialects: RangeInclusive<Dialect>,
    /// Whether signing is required or only offered.
    pub signing: Signing,
    /// Whether messages are sealed.
    pub encryption: Encryption,
    /// Whether compression is offered.
    pub compression: bool,
    /// Connections at most, 1 to 32. More than one needs SMB 3 and a server with multichannel.
    pub channels_max: u16,
    /// Connections to begin with, at most [`channels_max`](Self::channels_max): on a line of 10 ms or more the further
    /// ones are opened while the first logs in, so that they cost no time and TCP starts on all of them at once. Servers
    /// without multichannel get one.
    pub channels_at_start: ChannelsAtStart,
    /// The sockets.
    pub tcp: TcpOptions,
    /// How long a lost connection may take to come back, and how long a connect may take.
    pub timeout: Duration,
    /// Bytes of READ and WRITE under way at most, over all connections.
    pub bytes_in_flight_max: u64,
    /// The largest READ or WRITE; the server may allow less.
    pub io_max: u32,
    /// Where DFS may lead with this login.
    pub dfs: DfsHosts,
    /// Whether opens are made durable where the server can, so that they outlive a lost connection.
    pub durable: bool,
    /// Names that a folder may hold: a listing that goes on is an error. Each costs 8 to 20 bytes while it is listed.
    pub names_max: usize,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            dialects: Dialect::Smb202..=Dialect::Smb311,
            signing: Signing::Required,
            encryption: Encryption::Off,
            compression: false,
            channels_max: 4,
            channels_at_start: ChannelsAtStart::Exactly(1),
            tcp: TcpOptions::default(),
            timeout: Duration::from_secs(60),
            // Ten times 622 Mbit/s x 75 ms, and below what a small machine has to spare.
            bytes_in_flight_max: 64 << 20,
            io_max: 8 << 20,
            dfs: DfsHosts::default(),
            durable: true,
            // Twice the largest folders that people are known to have; 150 MiB. A guess.
            names_max: 10_000_000,
        }
    }
}

/// To which servers a login may be taken where DFS leads. A server can name any host in its referrals, and whoever listens
/// there gets an NTLM response to guess the password from, or to pass on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DfsHosts {
    /// Only the server itself.
    Own,
    /// The server itself, and others of its DNS domain; from a name of one label, others of one label.
    #[default]
    Domain,
    /// Whatever server a referral names.
    Any,
}

impl DfsHosts {
    /// Whether a referral of `own` to `host` is followed.
    pub fn allows(self, own: &str, host: &str) -> bool {
        let tidy = |name: &str| name.trim_end_matches('.').to_ascii_lowercase();
        let (own, host) = (tidy(own), tidy(host));
        match self {
            _ if own == host => true,
            Self::Own => false,
            Self::Any => true,
            Self::Domain => is_related(&own, &host),
        }
    }
}

/// Whether two names, in lower case, belong to one DNS domain.
fn is_related(own: &str, host: &str) -> bool {
    let is_address = |name: &str| name.contains(':') || name.parse::<std::net::IpAddr>().is_ok();
    if is_address(own) || is_address(host) {
        return false;
    }
    let is_in =
        |domain: &str| host == domain || host.strip_suffix(domain).is_some_and(|left| left.ends_with('.'));
    match own.split_once('.') {
        None => !host.contains('.'),
        // The name of a domain itself is a server's, too: a namespace of Active Directory.
        Some((_, parent)) => is_in(own) || (is_domain(parent) && is_in(parent)),
    }
}

/// Whether one organisation has all names below this one, as far as that can be told without a list: not `com`, nor `co.uk`.
fn is_domain(name: &str) -> bool {
    let labels: Vec<&str> = name.split('.').collect();
    match labels.as_slice() {
        [] | [_] => false,
        [second, top] => top.len() != 2 || second.len() > 3,
        _ => true,
    }
}

/// Connections that a client begins with on a line of 10 ms or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelsAtStart {
    /// So many, at least one.
    Exactly(u16),
    /// As the congestion control of this end makes best: for whoever is about to move much.
    ByLine,
}

/// How sockets behave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpOptions {
    /// `SO_RCVBUF` and `SO_SNDBUF` in bytes. Best left alone: the kernel's own tuning goes beyond what an unprivileged
    /// process may set, and a size that is set ends it (tcp(7)).
    pub window: Option<u32>,
    /// `TCP_CONGESTION`, such as `bbr`.
    pub congestion: Option<String>,
    /// Whether ECN is wanted. Linux has it as a system setting only (`net.ipv4.tcp_ecn`); a difference is an error at
    /// connect rather than a wish unheard.
    pub ecn: Option<bool>,
    /// `SO_KEEPALIVE` with this idle time; `None`: 30 s.
    pub keepalive: Option<Duration>,
    /// `TCP_USER_TIMEOUT`; `None`: the client's time-out.
    pub user_timeout: Option<Duration>,
}

impl ClientOptions {
    /// Checks what cannot be right.
    ///
    /// # Errors
    /// [`Error::Misuse`] with what is wrong.
    pub fn validate(&self) -> Result<()> {
        let fault = if self.dialects.is_empty() {
            "no dialect is allowed"
        } else if !(1..=32).contains(&self.channels_max) {
            "connections are 1 to 32"
        } else if self.channels_at_start == ChannelsAtStart::Exactly(0) {
            "a client begins with one connection at least"
        } else if self.io_max < 4096 {
            "reads and writes of less than 4 KiB are not supported"
        } else if self.bytes_in_flight_max < 64 << 10 {
            "at least 64 KiB must be allowed in flight"
        } else if self.timeout.is_zero() {
            "a time-out of 0 allows nothing"
        } else {
            return Ok(());
        };
        Err(Error::Misuse(fault))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_stays_in_its_domain() {
        let allows = |own, host| DfsHosts::Domain.allows(own, host);
        for (own, host) in [
            ("fs1.corp.example.com", "FS2.corp.example.com."),
            ("corp.example.com", "fs1.corp.example.com"),
            ("fs1.corp.example.com", "corp.example.com"),
            ("example.com", "fs1.example.com"),
            ("fs1", "fs2"),
            ("10.0.0.1", "10.0.0.1"),
        ] {
            assert!(allows(own, host), "{own} {host}");
            assert!(DfsHosts::Any.allows(own, host));
        }
        for (own, host) in [
            ("fs1.corp.example.com", "fs1.corp.example.org"),
            ("fs1.corp.example.com", "evilcorp.example.com.attacker.net"),
            ("fs1.corp.example.com", "fs2"),
            ("fs1", "fs1.attacker.net"),
            ("example.com", "attacker.com"),
            ("example.co.uk", "attacker.co.uk"),
            ("10.0.0.1", "10.0.0.2"),
            ("fs1.example.com", "10.0.0.2"),
            ("fs1", "::1"),
        ] {
            assert!(!allows(own, host), "{own} {host}");
            assert!(!DfsHosts::Own.allows(own, host) && DfsHosts::Any.allows(own, host));
        }
    }

    #[test]
    fn defaults_are_valid_and_nonsense_is_not() {
        assert!(ClientOptions::default().validate().is_ok());
        let nonsense = ClientOptions {
            channels_max: 0,
            ..ClientOptions::default()
        };
        assert!(nonsense.validate().is_err());
    }
}
