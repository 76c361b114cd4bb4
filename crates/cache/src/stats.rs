//! Counters of a cache.

use std::time::Duration;

/// Hours that the hit ratio is kept for.
pub const HOURS: usize = 24;

/// Hits and misses of one hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hour {
    /// Lookups that were answered.
    pub hits: u64,
    /// Lookups that were not.
    pub misses: u64,
}

/// Counters since the cache was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Lookups answered from memory.
    pub memory_hits: u64,
    /// Lookups answered from the device.
    pub device_hits: u64,
    /// Lookups not answered.
    pub misses: u64,
    /// Bytes of blocks given to callers.
    pub bytes_served: u64,
    /// Bytes of blocks taken in, before compression.
    pub bytes_inserted: u64,
    /// Bytes of their records, after compression.
    pub bytes_stored: u64,
    /// Bytes of records moved by cleaning.
    pub bytes_moved: u64,
    /// Bytes written to the device, with all overhead.
    pub bytes_written: u64,
    /// Blocks of sequential streams that were not taken in.
    pub sequential_bypassed: u64,
    /// Blocks not taken in because the writer was behind, or the cache was off.
    pub dropped: u64,
    /// Blocks that were damaged or not the ones looked for.
    pub damaged: u64,
    /// Blocks evicted by the policy.
    pub evicted: u64,
    /// Times that an error or a stall turned the cache off.
    pub turned_off: u64,
    /// Blocks in the cache.
    pub blocks: u64,
    /// Bytes of memory of the index.
    pub index_bytes: u64,
    /// Hits and misses by hour: `hours[h % 24]` is the hour `h` of the caller's clock.
    pub hours: [Hour; HOURS],
    last_hour: u64,
}

impl Stats {
    /// Returns the share of lookups that hit; 0 without lookups.
    pub fn hit_ratio(&self) -> f64 {
        let hits = self.memory_hits + self.device_hits;
        ratio(hits, hits + self.misses)
    }

    /// Returns bytes before compression divided by bytes stored.
    pub fn compression_ratio(&self) -> f64 {
        ratio(self.bytes_inserted, self.bytes_stored)
    }

    /// Returns bytes written to the device divided by bytes of records that callers caused.
    pub fn write_amplification(&self) -> f64 {
        ratio(self.bytes_written, self.bytes_stored)
    }

    /// Counts a lookup that was answered with `len` bytes.
    pub(crate) fn served(&mut self, now: Duration, len: usize) {
        self.bytes_served += len as u64;
        self.count(now, true);
    }

    /// Counts a lookup that was not answered.
    pub(crate) fn missed(&mut self, now: Duration) {
        self.misses += 1;
        self.count(now, false);
    }

    /// Counts a lookup in its hour.
    fn count(&mut self, now: Duration, is_hit: bool) {
        let hour = now.as_secs() / 3600;
        // Hours that passed without lookups are empty, not as they were a day before.
        while self.last_hour < hour {
            self.last_hour = (self.last_hour + 1).max(hour.saturating_sub(HOURS as u64));
            self.hours[(self.last_hour % HOURS as u64) as usize] = Hour::default();
        }
        let counted = &mut self.hours[(hour % HOURS as u64) as usize];
        if is_hit {
            counted.hits += 1;
        } else {
            counted.misses += 1;
        }
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_of_the_day_before_is_forgotten() {
        let mut stats = Stats::default();
        stats.count(Duration::ZERO, true);
        stats.count(Duration::from_secs(2 * 3600), false);
        assert_eq!(stats.hours[0].hits, 1);
        stats.count(Duration::from_secs(24 * 3600), false);
        assert_eq!(stats.hours[0], Hour { hits: 0, misses: 1 });
        stats.count(Duration::from_secs(1_000_000 * 3600), true);
        assert_eq!(
            stats
                .hours
                .iter()
                .map(|hour| hour.hits + hour.misses)
                .sum::<u64>(),
            1
        );
    }
}
