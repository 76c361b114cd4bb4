//! The figures of a cache, for people and programs.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use ropeway_cache::{HOURS, Stats};
use serde::{Deserialize, Serialize};

use crate::ahead::PredictStatus;
use crate::folder::STATUS;
use crate::pins::PinProgress;

/// Figures of a session; all counters begin with it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// What uses the cache, as it calls itself.
    pub used_by: String,
    /// Its process.
    pub pid: u32,
    /// When the session began and when these figures were taken, in seconds since 1970.
    pub started: u64,
    /// See [`started`](Self::started).
    pub updated: u64,
    /// Whether the cache is in use, or why not.
    pub is_on: bool,
    /// Why it is off; empty if it is on.
    pub off_because: String,
    /// Bytes of the cache's file.
    pub size_bytes: u64,
    /// Blocks of 64 KiB in it.
    pub blocks: u64,
    /// Lookups answered from memory.
    pub memory_hits: u64,
    /// Lookups answered by the device.
    pub device_hits: u64,
    /// Lookups not answered.
    pub misses: u64,
    /// Share of the lookups that were answered.
    pub hit_ratio: f64,
    /// Bytes of blocks given to readers, and their rate in the last second.
    pub hit_read_bytes: u64,
    /// See [`hit_read_bytes`](Self::hit_read_bytes).
    pub hit_read_bytes_per_s: f64,
    /// Reads in sequence that passed the cache by, and their rate in the last second.
    pub sequential_ios_bailed: u64,
    /// See [`sequential_ios_bailed`](Self::sequential_ios_bailed).
    pub sequential_ios_bailed_per_s: f64,
    /// Bytes of blocks taken in, before compression.
    pub bytes_inserted: u64,
    /// Bytes written to flash, with all overhead.
    pub bytes_written: u64,
    /// Bytes written to flash for each byte taken in after compression.
    pub write_amplification: f64,
    /// Bytes taken in for each byte after compression.
    pub compression_ratio: f64,
    /// Blocks not taken in because the device was behind or off.
    pub dropped: u64,
    /// Blocks that were damaged.
    pub damaged: u64,
    /// Blocks evicted.
    pub evicted: u64,
    /// Times that an error or a stall turned the cache off.
    pub turned_off: u64,
    /// Whether a source does not answer now, and for how many seconds.
    pub is_offline: bool,
    /// See [`is_offline`](Self::is_offline).
    pub offline_seconds: f64,
    /// Times that a source did not answer.
    pub outages: u64,
    /// Reads answered from the cache while the source did not answer.
    pub offline_reads: u64,
    /// Other questions (names, attributes, opens, listings) answered meanwhile.
    pub offline_answers: u64,
    /// Bytes per second that the source delivers in sequence, if known.
    pub source_bytes_per_s: Option<f64>,
    /// Bytes per second that the device reads in sequence, if known.
    pub device_bytes_per_s: Option<f64>,
    /// The last hours with lookups, oldest first.
    pub hours: Vec<HourStatus>,
    /// Files that are fetched ahead of need.
    pub pinned: PinProgress,
    /// What is expected next, and how well that was known.
    pub predict: PredictStatus,
}

/// Lookups of one hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HourStatus {
    /// Its beginning in seconds since 1970.
    pub start: u64,
    /// Lookups that were answered.
    pub hits: u64,
    /// Lookups that were not.
    pub misses: u64,
}

impl Status {
    /// Returns the lookups that the cache answered.
    pub fn hits(&self) -> u64 {
        self.memory_hits.saturating_add(self.device_hits)
    }

    /// Takes the counters of the cache; `before` gives the rates.
    pub(crate) fn fill(&mut self, stats: &Stats, bailed: u64, before: &Self, seconds: f64) {
        self.blocks = stats.blocks;
        self.memory_hits = stats.memory_hits;
        self.device_hits = stats.device_hits;
        self.misses = stats.misses;
        self.hit_ratio = stats.hit_ratio();
        self.hit_read_bytes = stats.bytes_served;
        self.sequential_ios_bailed = bailed;
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds.max(1e-3);
        self.hit_read_bytes_per_s = rate(self.hit_read_bytes, before.hit_read_bytes);
        self.sequential_ios_bailed_per_s = rate(bailed, before.sequential_ios_bailed);
        self.bytes_inserted = stats.bytes_inserted;
        self.bytes_written = stats.bytes_written;
        self.write_amplification = stats.write_amplification();
        self.compression_ratio = stats.compression_ratio();
        self.dropped = stats.dropped;
        self.damaged = stats.damaged;
        self.evicted = stats.evicted;
        self.turned_off = stats.turned_off;
        self.updated = unix_time();
        self.hours = hours(stats, self.updated / 3600);
    }

    /// Returns the figures last written to a cache's folder.
    pub fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(folder.join(STATUS)).ok()?).ok()
    }
}

/// Returns the hours with lookups; `hour` is the present one.
fn hours(stats: &Stats, hour: u64) -> Vec<HourStatus> {
    let last = (0..HOURS as u64).rev().filter_map(|ago| hour.checked_sub(ago));
    let counted = last.map(|hour| {
        let counted = stats.hours[(hour % HOURS as u64) as usize];
        HourStatus {
            start: hour * 3600,
            hits: counted.hits,
            misses: counted.misses,
        }
    });
    counted.filter(|hour| hour.hits + hour.misses > 0).collect()
}

/// Returns the seconds since 1970.
pub(crate) fn unix_time() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_since_the_last_figures() {
        let mut stats = Stats::default();
        stats.bytes_served = 1000;
        let mut first = Status::default();
        first.fill(&stats, 10, &Status::default(), 1.0);
        stats.bytes_served = 5000;
        let mut second = first.clone();
        second.fill(&stats, 30, &first, 2.0);
        assert_eq!(second.hit_read_bytes_per_s, 2000.0);
        assert_eq!(second.sequential_ios_bailed_per_s, 10.0);
    }

    #[test]
    fn figures_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Status::read(folder.path()), None);
        let status = Status {
            used_by: "a test".into(),
            ..Status::default()
        };
        let text = serde_json::to_vec(&status).unwrap();
        crate::folder::replace(&folder.path().join(STATUS), &text).unwrap();
        assert_eq!(Status::read(folder.path()), Some(status));
        fs::write(folder.path().join(STATUS), b"{").unwrap();
        assert_eq!(Status::read(folder.path()), None, "half a file");
    }
}
