//! The options of a client.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use ropeway_smb_proto::client::{CompressionOffer, Encryption, Signing};
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_tcp::Congestion;

use crate::error::{Error, Result};
use crate::session_record::SessionRecord;

/// The options of a [`Client`](crate::Client). The defaults suit any round trip.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Dialects to offer to the server.
    pub dialects: RangeInclusive<Dialect>,
    /// Whether signing is required or only offered.
    pub signing: Signing,
    /// Whether messages are sealed.
    pub encryption: Encryption,
    /// Which compression is offered.
    pub compression: CompressionOffer,
    /// Maximum number of connections, 1 to 32. More than one needs SMB 3 and a server with
    /// multichannel.
    pub channels_max: u16,
    /// Maximum number of connections on a long line with losses, where this end has no BBR, 1 to 32;
    /// less than [`channels_max`](Self::channels_max) counts as that.
    pub channels_lossy_max: u16,
    /// Number of connections to start with, at most [`channels_max`](Self::channels_max). On a line
    /// of 10 ms or more the client opens the further ones while the first logs in, so that they
    /// cost no time and TCP starts on all of them at once. A server without multichannel gets one.
    pub channels_at_start: ChannelsAtStart,
    /// Options of the sockets.
    pub tcp: TcpOptions,
    /// Maximum time to re-establish a lost connection, and to connect.
    pub timeout: Duration,
    /// Maximum number of READ and WRITE bytes in flight, over all connections.
    pub bytes_in_flight_max: u64,
    /// Whether fewer bytes are in flight at a near server that answers late, so that its other users
    /// wait less.
    pub gives_way: bool,
    /// Size of the largest READ or WRITE in bytes. The server may allow less.
    pub io_max: u32,
    /// Which requests share a frame, where the server supports that.
    pub compounds: Compounds,
    /// Servers to which DFS may take this login.
    pub dfs: DfsHosts,
    /// Whether to request durable handles, which survive a lost connection, where the server
    /// supports them.
    pub durable: bool,
    /// Maximum number of names in a folder; a longer listing is an error. Each name costs 8 to 20
    /// bytes while the folder is being listed.
    pub names_max: usize,
    /// Where the numbers of sessions are kept for a later process; `None`: nowhere.
    pub session_record: Option<Arc<dyn SessionRecord>>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            dialects: Dialect::Smb202..=Dialect::Smb311,
            signing: Signing::Required,
            encryption: Encryption::Off,
            compression: CompressionOffer::Off,
            channels_max: 4,
            // Each of them gets the same small rate; more than 16 streams are rude to others. A guess.
            channels_lossy_max: 16,
            channels_at_start: ChannelsAtStart::Exactly(1),
            tcp: TcpOptions::default(),
            timeout: Duration::from_secs(60),
            // Ten times 622 Mbit/s x 75 ms, and less than a small machine can spare.
            bytes_in_flight_max: 64 << 20,
            gives_way: true,
            io_max: 8 << 20,
            compounds: Compounds::All,
            dfs: DfsHosts::default(),
            durable: true,
            // Twice the size of the largest folders known to be in use; 150 MiB. A guess.
            names_max: 10_000_000,
            session_record: None,
        }
    }
}

/// Which related requests a client sends as a compound ([MS-SMB2] 3.2.4.1.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compounds {
    /// All that belong together: a small file is read or written in one round trip.
    #[default]
    All,
    /// None: every request goes alone.
    None,
    /// CREATE with QUERY_INFO or QUERY_DIRECTORY, and CLOSE; every other request goes alone.
    Queries,
}

/// The servers to which a DFS referral may take a login. A server can name any host in its
/// referrals, and whatever listens on that host receives an NTLM response, from which it can guess
/// the password or which it can relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DfsHosts {
    /// The server itself only.
    Own,
    /// The server itself and others in its DNS domain. For a name of one label: others of one
    /// label.
    #[default]
    Domain,
    /// Any server that a referral names.
    Any,
}

impl DfsHosts {
    /// Returns whether the client follows a referral from `own` to `host`.
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

/// Returns whether two names, in lower case, belong to one DNS domain.
fn is_related(own: &str, host: &str) -> bool {
    let is_address = |name: &str| name.contains(':') || name.parse::<std::net::IpAddr>().is_ok();
    if is_address(own) || is_address(host) {
        return false;
    }
    let is_in =
        |domain: &str| host == domain || host.strip_suffix(domain).is_some_and(|left| left.ends_with('.'));
    match own.split_once('.') {
        None => !host.contains('.'),
        // The name of a domain can itself name a server: a namespace of Active Directory.
        Some((_, parent)) => is_in(own) || (is_domain(parent) && is_in(parent)),
    }
}

/// Returns whether one organisation owns all names below this one, as far as that can be told
/// without a list: not `com`, nor `co.uk`.
fn is_domain(name: &str) -> bool {
    let labels: Vec<&str> = name.split('.').collect();
    match labels.as_slice() {
        [] | [_] => false,
        [second, top] => top.len() != 2 || second.len() > 3,
        _ => true,
    }
}

/// Number of connections that a client starts with on a line of 10 ms or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelsAtStart {
    /// Exactly this many, at least one.
    Exactly(u16),
    /// The number that suits the congestion control of this machine. Choose it when you are about
    /// to move much data.
    ByLine,
}

/// Options of the TCP sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpOptions {
    /// `SO_RCVBUF` and `SO_SNDBUF` in bytes. Leave it unset: the kernel's auto-tuning goes beyond
    /// what an unprivileged process may set, and a fixed size turns it off (tcp(7)).
    pub window: Option<u32>,
    /// `TCP_CONGESTION`: by default BBR on a long line, where the kernel allows it.
    pub congestion: Congestion,
    /// Whether to use ECN. Linux has only a system setting for it (`net.ipv4.tcp_ecn`). If that
    /// differs, connecting fails, so that the wish is not ignored silently.
    pub ecn: Option<bool>,
    /// `SO_KEEPALIVE` with this idle time; `None`: 30 s.
    pub keepalive: Option<Duration>,
    /// `TCP_USER_TIMEOUT`; `None`: the client's time-out.
    pub user_timeout: Option<Duration>,
}

impl ClientOptions {
    /// Checks the options for values that cannot work.
    ///
    /// # Errors
    /// [`Error::Misuse`] with the reason.
    pub fn validate(&self) -> Result<()> {
        let fault = if self.dialects.is_empty() {
            "the range of dialects is empty"
        } else if !(1..=32).contains(&self.channels_max) || !(1..=32).contains(&self.channels_lossy_max) {
            "the number of connections is 1 to 32"
        } else if self.channels_at_start == ChannelsAtStart::Exactly(0) {
            "a client starts with at least one connection"
        } else if self.io_max < 4096 {
            "reads and writes of less than 4 KiB are not supported"
        } else if self.bytes_in_flight_max < 64 << 10 {
            "at least 64 KiB must be allowed in flight"
        } else if self.timeout.is_zero() {
            "the time-out must be longer than 0"
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
