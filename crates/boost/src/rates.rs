//! Whether a stream of a file is worth keeping: how fast the source delivers it. Pure.
//!
//! A source that streams at least as fast as the cache's device gains nothing from the cache, and
//! the stream would drive out blocks that are worth more.

use std::time::Duration;

/// Streams followed in one file. A guess: more than the threads that read one file.
const STREAMS_MAX: usize = 8;
/// Bytes read in sequence from which on a file is streamed. A guess: larger than most documents.
const STREAM_BYTES: u64 = 4 << 20;
/// How far a read may be from the expected place, in bytes: some reads of a kernel.
const SLACK: u64 = 2 << 20;
/// Bytes before a rate counts. A guess: more than the kernel of a NAS has in its cache by chance.
const RATE_BYTES_MIN: u64 = 16 << 20;
/// Bytes after which the past counts half.
const RATE_BYTES_MAX: u64 = 256 << 20;

/// The streams of one file.
#[derive(Debug, Default)]
pub(crate) struct Streams(Vec<Stream>);

#[derive(Debug)]
struct Stream {
    next: u64,
    length: u64,
}

impl Streams {
    /// Takes a read. Returns whether it belongs to a long sequence.
    pub(crate) fn on_read(&mut self, offset: u64, length: u64) -> bool {
        let end = offset.saturating_add(length);
        let near = |stream: &Stream| stream.next.abs_diff(offset) <= SLACK;
        if let Some(at) = self.0.iter().position(near) {
            let mut stream = self.0.remove(at);
            stream.length += end.saturating_sub(stream.next);
            stream.next = stream.next.max(end);
            let is_long = stream.length >= STREAM_BYTES;
            self.0.push(stream);
            return is_long;
        }
        if self.0.len() == STREAMS_MAX {
            // The one used longest ago.
            self.0.remove(0);
        }
        self.0.push(Stream { next: end, length });
        false
    }
}

/// The rate at which the source delivers streams, counted while a reader waits for it.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    waiting: u32,
    since: Duration,
    busy: Duration,
    bytes: u64,
}

impl Meter {
    /// Begins a wait.
    pub(crate) fn begin(&mut self, now: Duration) {
        if self.waiting == 0 {
            self.since = now;
        }
        self.waiting += 1;
    }

    /// Ends a wait that brought `bytes`.
    pub(crate) fn end(&mut self, now: Duration, bytes: u64) {
        self.waiting -= 1;
        self.busy += now.saturating_sub(self.since);
        self.since = now;
        self.bytes += bytes;
        if self.bytes > RATE_BYTES_MAX {
            self.bytes /= 2;
            self.busy /= 2;
        }
    }

    /// Returns bytes per second, once enough was delivered.
    pub(crate) fn rate(&self) -> Option<f64> {
        let is_known = self.bytes >= RATE_BYTES_MIN;
        is_known.then(|| self.bytes as f64 / self.busy.as_secs_f64().max(1e-6))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: u64 = 1024;
    const M: u64 = 1024 * K;

    #[test]
    fn long_sequences_are_streams_and_random_reads_are_not() {
        let mut streams = Streams::default();
        let found: Vec<bool> = (0..40)
            .map(|count| streams.on_read(count * 128 * K, 128 * K))
            .collect();
        assert!(!found[30] && found[31] && found[39]);
        let mut streams = Streams::default();
        for count in 0..1000 {
            assert!(!streams.on_read((count * 7919 % 1000) * 100 * M, 4 * K));
        }
        assert!(streams.0.len() <= STREAMS_MAX);
    }

    #[test]
    fn reading_one_place_again_and_again_is_not_a_stream() {
        let mut streams = Streams::default();
        assert!((0..1000).all(|_| !streams.on_read(0, 128 * K)));
    }

    #[test]
    fn readers_in_parallel_do_not_count_twice() {
        let mut meter = Meter::default();
        let at = Duration::from_millis;
        meter.begin(at(0));
        meter.begin(at(100));
        meter.end(at(500), 8 * M);
        meter.end(at(1000), 8 * M);
        assert_eq!(meter.rate(), Some((16 * M) as f64));
        meter.begin(at(9000));
        meter.end(at(10_000), 16 * M);
        assert_eq!(meter.rate(), Some((16 * M) as f64), "idle time does not count");
    }
}
