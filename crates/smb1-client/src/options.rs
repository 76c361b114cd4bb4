//! The options of a client.

use std::time::Duration;

use ropeway_smb_client::{Error, Result, Signing, TcpOptions};
use ropeway_smb1::auth::WeakAuth;
use ropeway_smb1::code_page::CodePage;

/// Options of a [`Smb1Client`](crate::Smb1Client). All are data of the connection, so that a
/// program can behave as an old client did.
#[derive(Clone, Debug)]
pub struct Smb1Options {
    /// Whether signing is required or left to the server.
    pub signing: Signing,
    /// Proofs of the password that are allowed besides NTLMv2.
    pub weak_auth: WeakAuth,
    /// Whether extended security (SPNEGO) is offered.
    pub extended_security: bool,
    /// Whether UTF-16 is offered.
    pub unicode: bool,
    /// Code page of a server without UTF-16.
    pub code_page: CodePage,
    /// Bytes of one read, at most; a server without large reads gets less.
    pub read_size: u32,
    /// Bytes of one write, at most; a server without large writes gets less.
    pub write_size: u32,
    /// Requests in flight at most, 1 or more; the server's `MaxMpxCount` limits them, too.
    pub in_flight_max: u16,
    /// Whether several reads of one file are in flight.
    pub pipelined_reads: bool,
    /// Whether several writes of one file are in flight.
    pub pipelined_writes: bool,
    /// Options of the socket. [`TcpOptions::window`] is the fixed receive window of old clients.
    pub tcp: TcpOptions,
    /// Time without any message of the server after which the connection counts as lost; also the
    /// time to re-establish it.
    pub timeout: Duration,
    /// Pauses that spare a failing machine.
    pub pace: Pace,
    /// Maximum number of names in a folder; a longer listing is an error.
    pub names_max: usize,
}

/// Pauses between requests, and between attempts to reconnect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Pause after each request.
    pub between_requests: Duration,
    /// First pause before a new attempt to connect; each further one is twice as long.
    pub reconnect_first: Duration,
    /// Longest pause before a new attempt to connect.
    pub reconnect_last: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            between_requests: Duration::ZERO,
            // As in the client of SMB 2.
            reconnect_first: Duration::from_millis(50),
            reconnect_last: Duration::from_secs(3),
        }
    }
}

impl Pace {
    /// Pauses for a machine that crashes: it needs a minute or two to start, and no help while it
    /// does. Guesses.
    pub const GENTLE: Self = Self {
        between_requests: Duration::from_millis(20),
        reconnect_first: Duration::from_secs(2),
        reconnect_last: Duration::from_secs(30),
    };
}

/// Bytes of one read or write that all servers with large ones serve. Windows up to Server 2003
/// reads 61,440 bytes at once, and writes as much.
const IO_SIZE: u32 = 61_440;

/// The most that 17 bits of length leave for data.
const IO_SIZE_MAX: u32 = 127 << 10;

impl Default for Smb1Options {
    fn default() -> Self {
        Self {
            signing: Signing::Required,
            weak_auth: WeakAuth::default(),
            extended_security: true,
            unicode: true,
            code_page: CodePage::default(),
            read_size: IO_SIZE,
            write_size: IO_SIZE,
            // What servers allow: 50 is the default of Windows and Samba.
            in_flight_max: 50,
            pipelined_reads: true,
            pipelined_writes: true,
            tcp: TcpOptions::default(),
            timeout: Duration::from_secs(60),
            pace: Pace::default(),
            names_max: 10_000_000,
        }
    }
}

impl Smb1Options {
    /// Returns the options for a machine that may crash: one request at a time, small ones, with
    /// pauses, and much patience.
    #[must_use]
    pub fn gentle(self) -> Self {
        Self {
            // A sector that cannot be read costs no more than this. A guess.
            read_size: self.read_size.min(16 << 10),
            write_size: self.write_size.min(16 << 10),
            in_flight_max: 1,
            pipelined_reads: false,
            pipelined_writes: false,
            // A disk that retries a bad sector takes half a minute for it; a machine that starts
            // takes some. Guesses.
            timeout: self.timeout.max(Duration::from_secs(600)),
            pace: Pace::GENTLE,
            ..self
        }
    }

    /// Checks the options for values that cannot work.
    ///
    /// # Errors
    /// [`Error::Misuse`] with the reason.
    pub fn validate(&self) -> Result<()> {
        let sizes = 512..=IO_SIZE_MAX;
        let fault = if !sizes.contains(&self.read_size) || !sizes.contains(&self.write_size) {
            "reads and writes of SMB 1 have 512 to 130,048 bytes"
        } else if self.in_flight_max == 0 {
            "at least one request must be allowed in flight"
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
    fn defaults_are_valid_and_nonsense_is_not() {
        let defaults = Smb1Options::default();
        assert!(defaults.validate().is_ok() && defaults.clone().gentle().validate().is_ok());
        assert_eq!(defaults.signing, Signing::Required);
        assert_eq!(defaults.weak_auth, WeakAuth::default());
        for nonsense in [
            Smb1Options {
                read_size: 100,
                ..defaults.clone()
            },
            Smb1Options {
                in_flight_max: 0,
                ..defaults.clone()
            },
        ] {
            assert!(nonsense.validate().is_err());
        }
    }
}
