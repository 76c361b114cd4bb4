//! What clients of the eras sent to servers, as data.
//!
//! | engine | SMB 1 | SMB 2 |
//! |---|---|---|
//! | `xp`, `xp-smb1` | 60 KiB read, 64 KiB written, 1 in flight, window of 65,535 bytes | – |
//! | `vista`, `vista-sp1` | 32 KiB, up to 15 in flight | 2.0.2, 64 KiB, compounds of queries |
//! | `win7-smb1` | 32 KiB, up to 15 in flight | – |
//! | `win7-smb2` | – | 2.0.2, 64 KiB, up to 64 read and 24 written in flight, compounds of queries |
//!
//! Everything else (which requests open, close, name and flush a file) is as in Ropeway's own client.

use std::fmt;

use crate::engine::Engine;

const KIB: u32 = 1024;

/// Requests of SMB 1 in flight. Fact sheet, Windows 7, SMB 1: "up to 15 outstanding commands
/// (secondary: server default MaxCmds)". It was the default of all NT clients before.
const MAX_COMMANDS: u16 = 15;

/// XP. Fact sheet, XP SP2: "60 KiB (61,440 B) reads over SMB 1"; XP over WAN: "64 KiB", 1 in flight,
/// "fixed small TCP receive window". That of XP on lines of 100 Mbit/s and above is 65,535 bytes
/// (Microsoft, "TCP/IP and NBT configuration parameters for Windows XP").
pub(crate) const XP: Era = Era {
    read_size: 60 * KIB,
    write_size: 64 * KIB,
    reads: 1,
    writes: 1,
    window: Some(65_535),
    compounds: Compounds::None,
};

/// Windows Vista and 7 at a server of SMB 1. Fact sheet, Vista RTM: "32 KiB over SMB 1"; Vista SP1: "SMB 1
/// requests cut from 60 KiB to 32 KiB"; Windows 7, SMB 1: "32 KiB".
pub(crate) const WIN7_SMB1: Era = Era {
    read_size: 32 * KIB,
    write_size: 32 * KIB,
    reads: MAX_COMMANDS,
    writes: MAX_COMMANDS,
    window: None,
    compounds: Compounds::None,
};

/// Windows Vista and 7 at a server of SMB 2. [MS-SMB2] 3.3.5.4: dialect 2.0.2 has requests of at most
/// 64 KiB.
pub(crate) const WIN7_SMB2: Era = Era {
    read_size: 64 * KIB,
    write_size: 64 * KIB,
    reads: SMB2_READS,
    writes: SMB2_WRITES,
    window: None,
    compounds: Compounds::Queries,
};

/// Reads in flight over SMB 2. Fact sheet, copy engines, Vista SP1: 4 requests of 1 MiB, which are 64
/// of 64 KiB. The published tables need about as many: 100 MB in 2 s over 75 ms (table 5) are 60.
const SMB2_READS: u16 = 64;

/// Writes in flight over SMB 2, computed from the published tables: 100 MB in 5 s over 75 ms (table 6)
/// are 24 of 64 KiB, and 2 s over 32 ms (table 2) are 25.
const SMB2_WRITES: u16 = 24;

/// Which requests share a frame ([MS-SMB2] 3.2.4.1.4; SMB 1 chains requests by AndX instead).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compounds {
    /// No requests.
    None,
    /// CREATE with QUERY_INFO or QUERY_DIRECTORY, and CLOSE: what captures of Windows Vista and 7
    /// show when a folder is browsed. Reads, writes and changes go alone. No description of the
    /// client was found that says so; where a source is missing, this is an assumption.
    Queries,
}

/// A protocol for files on a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// SMB 1, dialect NT LM 0.12.
    Smb1,
    /// SMB 2 and 3.
    Smb2,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Smb1 => "SMB 1",
            Self::Smb2 => "SMB 2",
        })
    }
}

/// How a client of an era spoke to servers. Over SMB 2 its dialect is 2.0.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Era {
    /// Bytes of the largest read.
    pub read_size: u32,
    /// Bytes of the largest write.
    pub write_size: u32,
    /// Reads in flight; 1 means one request at a time.
    pub reads: u16,
    /// Writes in flight.
    pub writes: u16,
    /// Fixed TCP receive window in bytes; `None`: the kernel tunes it, as Windows did since Vista.
    pub window: Option<u32>,
    /// Which requests share a frame.
    pub compounds: Compounds,
}

impl Engine {
    /// Returns the protocol that the engine's name demands.
    pub fn protocol(self) -> Option<Protocol> {
        match self {
            Self::XpSmb1 | Self::Win7Smb1 => Some(Protocol::Smb1),
            Self::Win7Smb2 => Some(Protocol::Smb2),
            Self::Auto | Self::Xp | Self::Vista | Self::VistaSp1 => None,
        }
    }

    /// Returns how the engine's system spoke this protocol; `None` where Ropeway's own client speaks
    /// it as it does for `auto`.
    pub fn era(self, protocol: Protocol) -> Option<Era> {
        match (self, protocol) {
            (Self::Xp | Self::XpSmb1, Protocol::Smb1) => Some(XP),
            (Self::Vista | Self::VistaSp1 | Self::Win7Smb1, Protocol::Smb1) => Some(WIN7_SMB1),
            (Self::Vista | Self::VistaSp1 | Self::Win7Smb2, Protocol::Smb2) => Some(WIN7_SMB2),
            (Self::Auto, _)
            | (Self::Xp | Self::XpSmb1 | Self::Win7Smb1, Protocol::Smb2)
            | (Self::Win7Smb2, Protocol::Smb1) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_has_an_era_in_the_protocol_it_demands() {
        for engine in Engine::ALL {
            let Some(protocol) = engine.protocol() else {
                continue;
            };
            let other = match protocol {
                Protocol::Smb1 => Protocol::Smb2,
                Protocol::Smb2 => Protocol::Smb1,
            };
            assert!(
                engine.era(protocol).is_some() && engine.era(other).is_none(),
                "{engine}"
            );
        }
        assert_eq!(Engine::Auto.era(Protocol::Smb1), None);
    }

    /// Table 1 of the report: 100 MB over 32 ms and 1 Gbit/s took Windows 7 with SMB 1 7 s.
    #[test]
    fn fifteen_requests_of_32_kib_take_the_published_time() {
        let era = Engine::Win7Smb1.era(Protocol::Smb1).unwrap();
        let in_flight = f64::from(era.read_size) * f64::from(era.reads);
        let seconds = 100e6 / in_flight * 0.032;
        assert!((6.0..7.5).contains(&seconds), "{seconds}");
    }
}
