//! What is measured: patterns, modes, and the key of a cell. Pure.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::named::named;
use crate::report::numbers::binary;

named! {
    /// Order and direction of the requests of a pass.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Pattern: "pattern" {
        /// Writes a new file from start to end.
        Write = "write",
        /// Writes over an existing file from start to end.
        Rewrite = "rewrite",
        /// Reads from start to end; by default the page cache has nothing of the file.
        Read = "read",
        /// Reads again what [`Pattern::Read`] has just read.
        Reread = "reread",
        /// Reads each record once, in an order by seed.
        RandomRead = "random-read",
        /// Writes over each record once, in an order by seed.
        RandomWrite = "random-write",
        /// Reads every 17th record, then the records after those, and so on, as iozone does.
        Strided = "strided",
    }
}

named! {
    /// How a pass uses the page cache.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Mode: "mode" {
        /// Through the page cache. Writes end when the cache has them.
        Cached = "cached",
        /// Through the page cache, with an fsync(2) at the end that counts.
        Fsync = "fsync",
        /// Past the page cache (`O_DIRECT`).
        Direct = "direct",
        /// Through the page cache, whose pages are dropped after use (`RWF_DONTCACHE`).
        Uncached = "uncached",
    }
}

impl Pattern {
    /// Whether it writes.
    pub fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Rewrite | Self::RandomWrite)
    }

    /// Whether its requests are in random order.
    pub fn is_random(self) -> bool {
        matches!(self, Self::RandomRead | Self::RandomWrite)
    }

    /// Whether it finds in the page cache what the pass before it has read.
    pub fn is_warm(self) -> bool {
        self == Self::Reread
    }
}

impl Mode {
    /// Whether a pass of this pattern can differ from those of other modes.
    pub fn has(self, pattern: Pattern) -> bool {
        self != Self::Fsync || pattern.writes()
    }
}

/// Key of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// Size of the file in bytes.
    pub size: u64,
    /// Bytes of a request.
    pub record: u64,
    /// Use of the page cache.
    pub mode: Mode,
    /// Number of requests in flight.
    pub depth: u32,
    /// Order and direction.
    pub pattern: Pattern,
}

impl Key {
    /// Number of records in the file.
    pub fn records(&self) -> u64 {
        self.size / self.record.max(1)
    }
}

impl fmt::Display for Key {
    /// Writes `random-read direct, 4 KiB of 1 GiB, 16 in flight`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pattern, mode) = (self.pattern, self.mode);
        let (record, size) = (bytes(self.record), bytes(self.size));
        write!(
            f,
            "{pattern} {mode}, {record} of {size}, {} in flight",
            self.depth
        )
    }
}

/// Formats a size as `64 KiB`.
pub fn bytes(count: u64) -> String {
    binary(count as f64)
}

/// Formats a size as `64K`, for heads of tables.
pub fn short(count: u64) -> String {
    let text = bytes(count).replace(' ', "");
    match text.strip_suffix("iB") {
        Some(rest) => rest.to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_command_line_and_of_json() {
        for pattern in Pattern::ALL {
            let text = serde_json::to_string(&pattern).unwrap();
            assert_eq!(text, format!("\"{}\"", pattern.name()));
            assert_eq!(pattern.name().parse::<Pattern>(), Ok(pattern));
        }
        for mode in Mode::ALL {
            assert_eq!(serde_json::to_string(&mode).unwrap(), format!("\"{mode}\""));
        }
        assert!("fast".parse::<Mode>().unwrap_err().contains("direct"));
    }

    #[test]
    fn only_writes_can_be_flushed() {
        let flushed = Pattern::ALL.map(|pattern| Mode::Fsync.has(pattern));
        assert_eq!(flushed, [true, true, false, false, false, true, false]);
        assert!(Pattern::ALL.iter().all(|pattern| Mode::Direct.has(*pattern)));
    }

    #[test]
    fn sizes_are_short() {
        assert_eq!((short(4096), short(4 << 30)), ("4K".to_owned(), "4G".to_owned()));
        assert_eq!(
            (short(512), bytes(65536)),
            ("512B".to_owned(), "64 KiB".to_owned())
        );
        assert_eq!(short(1536), "1.50K");
    }
}
