//! The copy engines: Ropeway's own, and historic ones re-created as they were measured.
//!
//! | engine | page cache | largest I/O | shape |
//! |---|---|---|---|
//! | `auto` | as requested | 1 MiB | pipelined; [`crate::tuner`] sets size and depth |
//! | `xp` | both ends | 64 KiB | read, wait, write, wait |
//! | `vista` | none above 256 KiB | 2 MiB | N reads, wait, N writes, wait |
//! | `vista-sp1` | both ends, but a source on another machine | 1 MiB | pipelined, written in order |
//! | `xp-smb1` | as `xp` | 64 KiB, 60 KiB from a server | as `xp` |
//! | `win7-smb1` | as `vista-sp1` | 32 KiB | 15 pipelined |
//! | `win7-smb2` | as `vista-sp1` | 64 KiB | 64 reads and 24 writes pipelined |
//!
//! Figures of the historic engines come from the project's fact sheet, table "Copy engines": XP
//! SP2, Vista RTM and Vista SP1, origin A ("Copy files 86% faster with Vista SP1"), C and E. The
//! state machines are in [`crate::transfer`], what their systems sent to servers in [`crate::era`].

use std::fmt;
use std::str::FromStr;

use ropeway_vfs::CacheMode;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Vista RTM uses the cache for files up to this size and bypasses it for larger ones (fact sheet,
/// Vista RTM: "<= 256 KiB cached, larger non-cached"). Bytes.
pub const VISTA_CACHED_MAX: u64 = 256 * KIB as u64;

/// The algorithm that moves the data of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// Ropeway's own: adapts block size and depth to what it measures.
    #[default]
    Auto,
    /// Windows XP SP2: 64 KiB, one at a time, cached.
    Xp,
    /// Windows Vista RTM: large uncached I/O in strict cycles.
    Vista,
    /// Windows Vista SP1: cached again, pipelined, written in order.
    #[serde(rename = "vista-sp1")]
    VistaSp1,
    /// Windows XP SP2 at a server of SMB 1.
    #[serde(rename = "xp-smb1")]
    XpSmb1,
    /// Windows 7 at a server of SMB 1.
    #[serde(rename = "win7-smb1")]
    Win7Smb1,
    /// Windows 7 at a server of SMB 2.
    #[serde(rename = "win7-smb2")]
    Win7Smb2,
}

/// Where the data of a source is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locality {
    /// On this machine.
    Local,
    /// On another machine: a share, or a network file system that the kernel has mounted.
    Remote,
}

/// How an engine opens both ends of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineCache {
    /// Cache mode of the source.
    pub source: CacheMode,
    /// Cache mode of the target.
    pub target: CacheMode,
}

impl Engine {
    /// All engines, in the order of the documentation.
    pub const ALL: [Self; 7] = [
        Self::Auto,
        Self::Xp,
        Self::Vista,
        Self::VistaSp1,
        Self::XpSmb1,
        Self::Win7Smb1,
        Self::Win7Smb2,
    ];

    /// Engines for ends of any kind, in the same order.
    pub const LOCAL: [Self; 4] = [Self::Auto, Self::Xp, Self::Vista, Self::VistaSp1];

    /// Returns the name on the command line and in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Xp => "xp",
            Self::Vista => "vista",
            Self::VistaSp1 => "vista-sp1",
            Self::XpSmb1 => "xp-smb1",
            Self::Win7Smb1 => "win7-smb1",
            Self::Win7Smb2 => "win7-smb2",
        }
    }

    /// Returns the cache modes for a file of `file_size` bytes. `auto` uses `requested`; the
    /// historic engines use their own.
    pub fn cache(self, file_size: u64, from: Locality, requested: CacheMode) -> EngineCache {
        let both = |mode| EngineCache {
            source: mode,
            target: mode,
        };
        match self {
            Self::Auto => both(requested),
            // Fact sheet, XP SP2: "cached both sides", and twice for a remote source. Vista SP1:
            // "cached again for every size; a remote source is not cached on the client".
            Self::Xp | Self::XpSmb1 => both(CacheMode::Keep),
            Self::VistaSp1 | Self::Win7Smb1 | Self::Win7Smb2 => EngineCache {
                source: match from {
                    Locality::Local => CacheMode::Keep,
                    Locality::Remote => CacheMode::Leave,
                },
                target: CacheMode::Keep,
            },
            Self::Vista if file_size <= VISTA_CACHED_MAX => both(CacheMode::Keep),
            Self::Vista => both(CacheMode::Direct),
        }
    }

    /// Returns the largest single I/O in bytes, which a pooled buffer must hold.
    pub fn block_size_max(self) -> usize {
        match self {
            // Fact sheet, NAS throughput: 1 MiB requests come closest to line speed; larger ones
            // only cost memory.
            Self::Auto => MIB,
            Self::Xp | Self::XpSmb1 | Self::Win7Smb2 => 64 * KIB,
            Self::Vista => 2 * MIB,
            Self::VistaSp1 => MIB,
            Self::Win7Smb1 => 32 * KIB,
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A name that no engine has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no engine is called {0:?}; there are {names}", names = names())]
pub struct EngineError(pub String);

fn names() -> String {
    let [first @ .., last] = Engine::ALL.map(Engine::as_str);
    format!("{} and {last}", first.join(", "))
}

impl FromStr for Engine {
    type Err = EngineError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            // Names of the published comparisons.
            "ropeway" => Ok(Self::Auto),
            "vista-rtm" => Ok(Self::Vista),
            _ => Self::ALL
                .into_iter()
                .find(|engine| engine.as_str() == text)
                .ok_or_else(|| EngineError(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_round_trip() {
        for engine in Engine::ALL {
            assert_eq!(engine.to_string().parse(), Ok(engine));
        }
        assert_eq!("vista-rtm".parse(), Ok(Engine::Vista));
        assert_eq!(
            "win7".parse::<Engine>().unwrap_err().to_string(),
            "no engine is called \"win7\"; there are auto, xp, vista, vista-sp1, xp-smb1, win7-smb1 and win7-smb2"
        );
    }

    #[test]
    fn cache_modes_are_those_of_the_fact_sheet() {
        let keep = EngineCache {
            source: CacheMode::Keep,
            target: CacheMode::Keep,
        };
        let direct = EngineCache {
            source: CacheMode::Direct,
            target: CacheMode::Direct,
        };
        for size in [0, 1 << 10, 1 << 30] {
            let cache = |engine: Engine, from| engine.cache(size, from, CacheMode::Direct);
            assert_eq!(cache(Engine::Xp, Locality::Remote), keep);
            assert_eq!(cache(Engine::VistaSp1, Locality::Local), keep);
            let remote = cache(Engine::VistaSp1, Locality::Remote);
            assert_eq!(
                (remote.source, remote.target),
                (CacheMode::Leave, CacheMode::Keep)
            );
            assert_eq!(cache(Engine::Auto, Locality::Remote), direct);
        }
        let vista = |size| Engine::Vista.cache(size, Locality::Local, CacheMode::Auto);
        assert_eq!(vista(256 << 10), keep);
        assert_eq!(vista((256 << 10) + 1), direct);
    }
}
