//! Names and numbers of a scenario, parsed and checked.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ropeway_plan::{Engine, Era};

use crate::named::named;
use crate::work::Work;

/// Accepted scales: below, no work is left; above, no machine holds it.
const SCALE: std::ops::RangeInclusive<f64> = 1e-6..=10.0;
/// Accepted numbers of runs (a guess).
const RUNS: std::ops::RangeInclusive<u32> = 1..=100;
/// Longest budget.
const BUDGET_MAX: Duration = Duration::from_secs(7 * 86_400);

named! {
    /// A client that copies.
    pub enum Client: "client" {
        /// This program.
        Ropeway = "ropeway",
        /// Samba's smbclient, `mget` and `mput` with recursion.
        Smbclient = "smbclient",
        /// rclone's SMB backend with its default of 4 transfers.
        Rclone = "rclone",
        /// rclone's SMB backend with 32 transfers.
        Rclone32 = "rclone-32",
        /// `rsync -a` with a daemon.
        Rsync = "rsync",
        /// `cp -r` on a mounted share.
        Cp = "cp",
        /// `cp -r` on a share that `ropeway mount` shows.
        Mount = "mount",
        /// The same, with writes that end after `close`.
        MountLater = "mount-later",
        /// As `mount`, with an empty cache (`--boost`) on a disk.
        MountBoost = "mount-boost",
        /// The second reading through one such mount.
        MountBoostAgain = "mount-boost-again",
        /// The first reading of a second such mount, with the cache of the first.
        MountBoostRestart = "mount-boost-restart",
        /// `cp -r` on a share that rclone mounts with a full cache.
        RcloneMount = "rclone-mount",
        /// The second reading through one such mount.
        RcloneMountAgain = "rclone-mount-again",
        /// This program as Windows XP at a server of SMB 1.
        XpSmb1 = "xp-smb1",
        /// This program as Windows 7 at a server of SMB 1.
        Win7Smb1 = "win7-smb1",
        /// This program as Windows 7 at a server of SMB 2.
        Win7Smb2 = "win7-smb2",
    }
}

impl Client {
    /// Whether the client is programs on a mounted share.
    pub fn is_mount(self) -> bool {
        match self {
            Self::Mount | Self::MountLater | Self::RcloneMount | Self::RcloneMountAgain => true,
            Self::MountBoost | Self::MountBoostAgain | Self::MountBoostRestart => true,
            Self::Ropeway | Self::Smbclient | Self::Rclone | Self::Rclone32 | Self::Rsync | Self::Cp => false,
            Self::XpSmb1 | Self::Win7Smb1 | Self::Win7Smb2 => false,
        }
    }

    /// Returns the engine of `ropeway copy` that behaves as a system of the past did.
    pub fn era(self) -> Option<Engine> {
        match self {
            Self::XpSmb1 => Some(Engine::XpSmb1),
            Self::Win7Smb1 => Some(Engine::Win7Smb1),
            Self::Win7Smb2 => Some(Engine::Win7Smb2),
            _ => None,
        }
    }

    /// Returns how the client speaks to servers, if it is one of the past.
    pub(crate) fn habits(self) -> Option<Era> {
        let engine = self.era()?;
        engine.era(engine.protocol()?)
    }

    /// Whether the client reads what a cache in front of the share has already.
    pub fn is_second_reading(self) -> bool {
        let second = [
            Self::MountBoostAgain,
            Self::MountBoostRestart,
            Self::RcloneMountAgain,
        ];
        second.contains(&self)
    }

    /// Whether a mount is measured at a work in a direction: some differ from others only there.
    pub fn does(self, work: Work, direction: Direction) -> bool {
        match self {
            Self::MountLater => direction == Direction::Write,
            Self::MountBoost => !work.is_listing(),
            _ if self.is_second_reading() => direction == Direction::Read && !work.is_listing(),
            _ => true,
        }
    }
}

named! {
    /// A server.
    pub enum Server: "server" {
        /// `ropeway serve`.
        Ropeway = "ropeway",
        /// Samba's smbd, a private instance.
        Smbd = "smbd",
        /// The same, which also speaks SMB 1.
        SmbdSmb1 = "smbd-smb1",
        /// An rsync daemon.
        Rsyncd = "rsyncd",
        /// The crate smb-server, behind the arguments of `ropeway serve`.
        SmbServer = "smb-server",
    }
}

named! {
    /// Protection that a server demands of its clients.
    pub enum Protection: "protection" {
        /// Signatures, and no encryption.
        Signed = "signed",
        /// Encryption.
        Sealed = "sealed",
    }
}

named! {
    /// Direction of the bytes.
    pub enum Direction: "direction" {
        /// From the server.
        Read = "read",
        /// To the server.
        Write = "write",
    }
}

/// A client with its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pair {
    /// The client.
    pub client: Client,
    /// The server.
    pub server: Server,
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.client, self.server)
    }
}

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((client, server)) = text.split_once(':') else {
            return Err(format!(
                "{text:?} is not a client and a server such as rclone:smbd"
            ));
        };
        let pair = Self {
            client: client.parse()?,
            server: server.parse()?,
        };
        let speaks_rsync = pair.client == Client::Rsync;
        if speaks_rsync != (pair.server == Server::Rsyncd) {
            return Err(format!("{text:?}: rsync and rsyncd speak only with each other"));
        }
        Ok(pair)
    }
}

/// Returns a value that is fit, or else the message.
fn checked<T>(value: T, is_fit: bool, message: impl FnOnce() -> String) -> Result<T, String> {
    if is_fit { Ok(value) } else { Err(message()) }
}

/// Checks a scale.
pub(super) fn scale(scale: f64) -> Result<f64, String> {
    let message = || format!("a scale of {scale} is not between 0.000001 and 10");
    checked(scale, SCALE.contains(&scale), message)
}

/// Checks a number of runs.
pub(super) fn runs(runs: u32) -> Result<u32, String> {
    checked(runs, RUNS.contains(&runs), || {
        format!("{runs} runs are not between 1 and 100")
    })
}

/// Checks a budget.
pub(super) fn budget(budget: Duration) -> Result<Duration, String> {
    let message = || "a budget of more than a week is surely a mistake".to_owned();
    checked(budget, budget <= BUDGET_MAX, message)
}

/// Checks a name, which must be fit for a file name.
pub(super) fn name(text: &str) -> Result<String, String> {
    let fit = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_' || c == '.';
    if (1..=64).contains(&text.len()) && text.chars().all(fit) && !text.starts_with(['.', '-']) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "{text:?} is no name: 1 to 64 letters, digits, dots, dashes and underscores, no dot or dash first"
        ))
    }
}
