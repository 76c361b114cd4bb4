//! What a caller may choose.

use std::ops::RangeInclusive;
use std::time::Duration;

use ropeway_smb_proto::client::{Encryption, Signing};
use ropeway_smb_proto::wire::negotiate::Dialect;

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
    /// Whether opens are made durable where the server can, so that they outlive a lost connection.
    pub durable: bool,
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
            durable: true,
        }
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
    fn defaults_are_valid_and_nonsense_is_not() {
        assert!(ClientOptions::default().validate().is_ok());
        let nonsense = ClientOptions {
            channels_max: 0,
            ..ClientOptions::default()
        };
        assert!(nonsense.validate().is_err());
    }
}
