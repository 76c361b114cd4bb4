//! Names and numbers of a scenario: each is parsed and within its bounds.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

/// Accepted scales: below, no work is left; above, no machine holds it.
const SCALE: std::ops::RangeInclusive<f64> = 1e-6..=10.0;
/// Accepted numbers of runs (a guess).
const RUNS: std::ops::RangeInclusive<u32> = 1..=100;
/// Longest budget.
const BUDGET_MAX: Duration = Duration::from_secs(7 * 86_400);

/// A client that copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Client {
    /// This program.
    Ropeway,
    /// Samba's smbclient, `mget` and `mput` with recursion.
    Smbclient,
    /// rclone's SMB backend with its default of 4 transfers.
    Rclone,
    /// rclone's SMB backend with 32 transfers.
    Rclone32,
    /// `rsync -a` with a daemon.
    Rsync,
    /// `cp -r` on a mounted share.
    Cp,
}

/// A server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Server {
    /// `ropeway serve`.
    Ropeway,
    /// Samba's smbd, a private instance.
    Smbd,
    /// An rsync daemon.
    Rsyncd,
    /// The crate smb-server, behind the arguments of `ropeway serve`.
    SmbServer,
}

/// What a server demands of its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protection {
    /// Signatures, and no encryption.
    Signed,
    /// Encryption.
    Sealed,
}

/// Direction of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the server.
    Read,
    /// To the server.
    Write,
}

/// A client with its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Pair {
    /// The client.
    pub client: Client,
    /// The server.
    pub server: Server,
}

impl Client {
    /// All values.
    pub const ALL: [Self; 6] = [
        Self::Ropeway,
        Self::Smbclient,
        Self::Rclone,
        Self::Rclone32,
        Self::Rsync,
        Self::Cp,
    ];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ropeway => "ropeway",
            Self::Smbclient => "smbclient",
            Self::Rclone => "rclone",
            Self::Rclone32 => "rclone-32",
            Self::Rsync => "rsync",
            Self::Cp => "cp",
        }
    }
}

impl Server {
    /// All values.
    pub const ALL: [Self; 4] = [Self::Ropeway, Self::Smbd, Self::Rsyncd, Self::SmbServer];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ropeway => "ropeway",
            Self::Smbd => "smbd",
            Self::Rsyncd => "rsyncd",
            Self::SmbServer => "smb-server",
        }
    }
}

impl Protection {
    /// Both values.
    pub const ALL: [Self; 2] = [Self::Signed, Self::Sealed];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Signed => "signed",
            Self::Sealed => "sealed",
        }
    }
}

impl Direction {
    /// Both values.
    pub const ALL: [Self; 2] = [Self::Read, Self::Write];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.client.name(), self.server.name())
    }
}

/// Returns the value of a name, or an error that lists all names.
fn named<T: Copy>(text: &str, what: &str, all: &[T], name: impl Fn(T) -> &'static str) -> Result<T, String> {
    let found = all.iter().copied().find(|one| name(*one) == text);
    found.ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|one| name(*one)).collect();
        format!("{text:?} is no {what}; there are {}", names.join(", "))
    })
}

impl FromStr for Client {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        named(text, "client", &Self::ALL, Self::name)
    }
}

impl FromStr for Server {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        named(text, "server", &Self::ALL, Self::name)
    }
}

impl FromStr for Protection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        named(text, "protection", &Self::ALL, Self::name)
    }
}

impl FromStr for Direction {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        named(text, "direction", &Self::ALL, Self::name)
    }
}

impl FromStr for crate::work::Work {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        named(text, "work", &Self::ALL, Self::name)
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

/// Checks a scale.
pub(super) fn scale(scale: f64) -> Result<f64, String> {
    if SCALE.contains(&scale) {
        Ok(scale)
    } else {
        Err(format!("a scale of {scale} is not between 0.000001 and 10"))
    }
}

/// Checks a number of runs.
pub(super) fn runs(runs: u32) -> Result<u32, String> {
    if RUNS.contains(&runs) {
        Ok(runs)
    } else {
        Err(format!("{runs} runs are not between 1 and 100"))
    }
}

/// Checks a budget.
pub(super) fn budget(budget: Duration) -> Result<Duration, String> {
    if budget <= BUDGET_MAX {
        Ok(budget)
    } else {
        Err("a budget of more than a week is surely a mistake".to_owned())
    }
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
