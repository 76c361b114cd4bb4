//! The copy engines: ours, and three historic ones that are re-created as they were measured.
//!
//! | engine | page cache | largest I/O | shape |
//! |---|---|---|---|
//! | `auto` | as asked for | 1 MiB | pipelined, size and depth follow what is measured ([`crate::tuner`]) |
//! | `xp` | both ends | 64 KiB | read, wait, write, wait |
//! | `vista` | none above 256 KiB | 2 MiB | N reads, wait, N writes, wait |
//! | `vista-sp1` | target; a remote source not | 1 MiB | pipelined, written in order |
//!
//! Figures of the historic engines come from the project's fact sheet, table "Copy engines": XP SP2, Vista RTM and
//! Vista SP1, origin A ("Copy files 86% faster with Vista SP1"), C and E. The state machines themselves are in
//! [`crate::transfer`].

use std::fmt;
use std::str::FromStr;

use ropeway_vfs::CacheMode;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Vista RTM reads and writes files up to this size through the cache, larger ones beside it (fact sheet, Vista RTM:
/// "<= 256 KiB cached, larger non-cached"). Bytes.
pub const VISTA_CACHED_MAX: u64 = 256 * KIB as u64;

/// Which algorithm moves the data of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// Ours: adapts block size and depth to what it measures.
    #[default]
    Auto,
    /// Windows XP SP2: 64 KiB, one at a time, cached.
    Xp,
    /// Windows Vista RTM: large uncached I/O in strict cycles.
    Vista,
    /// Windows Vista SP1: cached again, pipelined, written in order.
    #[serde(rename = "vista-sp1")]
    VistaSp1,
}

/// How an engine opens both ends of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineCache {
    /// Cache manners of the source.
    pub source: CacheMode,
    /// Cache manners of the target.
    pub target: CacheMode,
}

impl Engine {
    /// Every engine, in the order of the documentation.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Xp, Self::Vista, Self::VistaSp1];

    /// The spelling on the command line and in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Xp => "xp",
            Self::Vista => "vista",
            Self::VistaSp1 => "vista-sp1",
        }
    }

    /// The cache manners for a file of `file_size` bytes. `auto` does as `requested`; the historic engines do as they
    /// did.
    pub fn cache(self, file_size: u64, requested: CacheMode, source_is_remote: bool) -> EngineCache {
        let both = |mode| EngineCache {
            source: mode,
            target: mode,
        };
        match self {
            Self::Auto => both(requested),
            // Fact sheet, XP SP2: "cached both sides", and twice for a remote source.
            Self::Xp => both(CacheMode::Keep),
            Self::Vista if file_size <= VISTA_CACHED_MAX => both(CacheMode::Keep),
            Self::Vista => both(CacheMode::Direct),
            // Fact sheet, Vista SP1: "cached again for every size; a remote source is not cached on the client".
            Self::VistaSp1 => EngineCache {
                source: if source_is_remote {
                    CacheMode::Direct
                } else {
                    CacheMode::Keep
                },
                target: CacheMode::Keep,
            },
        }
    }

    /// The largest single I/O in bytes: what a pooled buffer must hold.
    pub fn block_size_max(self) -> usize {
        match self {
            // Fact sheet, NAS throughput: 1 MiB requests come nearest to the line; larger ones only cost memory.
            Self::Auto => MIB,
            Self::Xp => 64 * KIB,
            Self::Vista => 2 * MIB,
            Self::VistaSp1 => MIB,
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// No engine has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no engine is called {0:?}; there are auto, xp, vista and vista-sp1")]
pub struct UnknownEngine(pub String);

impl FromStr for Engine {
    type Err = UnknownEngine;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|engine| engine.as_str() == text)
            .ok_or_else(|| UnknownEngine(text.to_owned()))
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
        assert!(
            "win7"
                .parse::<Engine>()
                .unwrap_err()
                .to_string()
                .contains("vista-sp1")
        );
    }

    #[test]
    fn cache_manners_are_those_of_the_fact_sheet() {
        let keep = EngineCache {
            source: CacheMode::Keep,
            target: CacheMode::Keep,
        };
        let direct = EngineCache {
            source: CacheMode::Direct,
            target: CacheMode::Direct,
        };
        for size in [0, 1 << 10, 1 << 30] {
            assert_eq!(Engine::Xp.cache(size, CacheMode::Direct, true), keep);
            assert_eq!(Engine::VistaSp1.cache(size, CacheMode::Direct, false), keep);
            assert_eq!(Engine::Auto.cache(size, CacheMode::Direct, true), direct);
        }
        assert_eq!(Engine::Vista.cache(256 << 10, CacheMode::Auto, false), keep);
        assert_eq!(
            Engine::Vista.cache((256 << 10) + 1, CacheMode::Auto, false),
            direct
        );
        let remote = Engine::VistaSp1.cache(1, CacheMode::Auto, true);
        assert_eq!(
            (remote.source, remote.target),
            (CacheMode::Direct, CacheMode::Keep)
        );
    }
}
