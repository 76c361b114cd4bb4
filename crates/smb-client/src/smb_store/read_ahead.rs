//! Decides what to read ahead of a reader. Pure.
//!
//! A file has a few *streams*, each a run of reads in which every read begins where the last one
//! ended. The first read of a stream may be a random one, so nothing is read ahead for it, unless it
//! is a long one at the beginning of the file: programs that read on do that. The
//! second one shows a sequence: from then on the stream has a window, the distance between the
//! reader and the last byte requested. The window doubles with every read until it reaches the
//! maximum that the caller gives (what the line holds).
//!
//! Reads of one stream may arrive slightly out of order, as those of a kernel with several threads
//! do.

use std::ops::Range;

/// Streams followed in one file. A guess: more than the players or threads that read one file.
const STREAMS_MAX: usize = 8;
/// Window after the second read of a stream, in bytes. A guess: it costs a line of 1 Gbit/s 2 ms if
/// the reader stops.
const WINDOW_MIN: u64 = 256 << 10;
/// A first read of this length at the beginning of a file shows a sequence, in bytes. A guess: a
/// kernel asks for less when a program looks at the beginning, and for 512 KiB when `cp` reads.
const WHOLE_FROM: u64 = 256 << 10;
/// Shortest range worth a request while the window grows, in bytes: a full block. A guess.
const STEP_MAX: u64 = 1 << 20;
/// How far a read may be from the expected place and still belong to a stream, in bytes: some reads
/// of a kernel (128 KiB to 1 MiB each). A guess.
const SLACK_MAX: u64 = 2 << 20;

/// The streams of one file.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    streams: Vec<Stream>,
    uses: u64,
}

#[derive(Debug)]
struct Stream {
    /// Where the next read is expected.
    next: u64,
    /// End of what has been requested ahead.
    ahead: u64,
    /// 0 until the second read.
    window: u64,
    used: u64,
}

/// What to read ahead after a read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Advance {
    /// The bytes to request.
    pub(super) range: Range<u64>,
    stream: usize,
}

impl ReadAhead {
    /// Takes a read of `length` bytes at `offset` of a file of `size` bytes. Returns what to read
    /// ahead, so that at most `window_max` bytes lie between the reader and the last byte
    /// requested.
    pub(super) fn on_read(
        &mut self,
        offset: u64,
        length: u64,
        size: u64,
        window_max: u64,
    ) -> Option<Advance> {
        self.uses += 1;
        let end = offset.saturating_add(length);
        let at = match self.stream_of(offset) {
            Some(at) => at,
            None if offset == 0 && length >= WHOLE_FROM => self.begin(0),
            None => {
                self.begin(end);
                return None;
            }
        };
        let stream = &mut self.streams[at];
        stream.used = self.uses;
        stream.next = stream.next.max(end);
        stream.window = match stream.window {
            0 => WINDOW_MIN.max(length.saturating_mul(4)),
            window => window.saturating_mul(2),
        }
        .min(window_max);
        let from = stream.ahead.max(stream.next);
        let upto = stream.next.saturating_add(stream.window).min(size);
        let step = STEP_MAX.min(stream.window / 4).max(1);
        let is_worth_it = upto > from && (upto - from >= step || upto == size);
        is_worth_it.then_some(Advance {
            range: from..upto,
            stream: at,
        })
    }

    /// Returns how much of the window of the stream that was read last lies behind the end of the
    /// file, all of which has been requested: the next file may use it.
    pub(super) fn beyond_end(&self, size: u64) -> u64 {
        let stream = self.streams.iter().find(|stream| stream.used == self.uses);
        let stream = stream.filter(|stream| stream.window > 0 && stream.ahead >= size);
        stream.map_or(0, |stream| (stream.next + stream.window).saturating_sub(size))
    }

    /// Notes that the beginning of the file was requested up to `upto` before its first read.
    pub(super) fn begun(&mut self, upto: u64) {
        if self.streams.is_empty() {
            self.begin(0);
        }
        if let [stream] = &mut self.streams[..]
            && stream.next == 0
        {
            (stream.ahead, stream.window) = (upto, upto.max(WINDOW_MIN));
        }
    }

    /// Notes that an advance was requested up to `upto`, which may be less than its range.
    pub(super) fn requested(&mut self, advance: &Advance, upto: u64) {
        if let Some(stream) = self.streams.get_mut(advance.stream) {
            stream.ahead = stream.ahead.max(upto);
        }
    }

    /// Notes that what was read ahead has been discarded.
    pub(super) fn discarded(&mut self) {
        for stream in &mut self.streams {
            stream.ahead = 0;
        }
    }

    /// Returns the stream that a read at `offset` continues.
    fn stream_of(&self, offset: u64) -> Option<usize> {
        let exact = self.streams.iter().position(|stream| stream.next == offset);
        exact.or_else(|| {
            self.streams.iter().position(|stream| {
                let slack = stream.window.min(SLACK_MAX);
                stream.window > 0 && stream.next.abs_diff(offset) < slack
            })
        })
    }

    /// Begins a stream that continues at `next`, in place of the one used longest ago. Returns its
    /// index.
    fn begin(&mut self, next: u64) -> usize {
        let stream = Stream {
            next,
            ahead: 0,
            window: 0,
            used: self.uses,
        };
        if self.streams.len() < STREAMS_MAX {
            self.streams.push(stream);
            return self.streams.len() - 1;
        }
        let all = self.streams.iter().enumerate();
        let oldest = all.min_by_key(|(_, stream)| stream.used).map_or(0, |(at, _)| at);
        self.streams[oldest] = stream;
        oldest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const K: u64 = 1024;
    const M: u64 = 1024 * K;
    const SIZE: u64 = 1 << 40;

    /// Reads like a driver: requests whatever is returned. Returns the bytes requested.
    fn read(ahead: &mut ReadAhead, offset: u64, length: u64, max: u64) -> u64 {
        ahead.on_read(offset, length, SIZE, max).map_or(0, |advance| {
            ahead.requested(&advance, advance.range.end);
            advance.range.end - advance.range.start
        })
    }

    #[test]
    fn random_reads_cause_no_read_ahead() {
        let mut ahead = ReadAhead::default();
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..10_000 {
            let offset = random.u64(0..1 << 30) * 8192;
            assert_eq!(read(&mut ahead, offset, 4096, 16 * M), 0);
        }
        assert!(ahead.streams.len() <= STREAMS_MAX);
    }

    /// 622 Mbit/s and 75 ms hold 5.8 MB; with the queues before the line, 12 MB keep it filled.
    #[test]
    fn a_sequence_fills_a_long_line_within_a_few_reads() {
        let mut ahead = ReadAhead::default();
        let mut requested = 0;
        for count in 0..8 {
            requested += read(&mut ahead, count * 128 * K, 128 * K, 16 * M);
        }
        assert!(requested >= 12 * M, "{requested}");
        for count in 8..2000 {
            requested += read(&mut ahead, count * 128 * K, 128 * K, 16 * M);
            let distance = 128 * K + requested - (count + 1) * 128 * K;
            assert!((12 * M..=16 * M).contains(&distance), "{count}: {distance}");
        }
    }

    /// Before, the first read of a large file was alone on the line while TCP started: 0.35 s.
    #[test]
    fn a_long_first_read_at_the_beginning_shows_a_sequence() {
        let mut ahead = ReadAhead::default();
        assert_eq!(read(&mut ahead, 0, 512 * K, 16 * M), 2 * M);
        assert_eq!(read(&mut ahead, 512 * K, 512 * K, 16 * M), 2 * M + 512 * K);
        for (offset, length) in [(0, 128 * K), (512 * K, 512 * K)] {
            let mut ahead = ReadAhead::default();
            assert_eq!(read(&mut ahead, offset, length, 16 * M), 0, "{offset}");
        }
        let mut ahead = ReadAhead::default();
        assert_eq!(ahead.on_read(0, 512 * K, 512 * K, 16 * M), None, "the whole file");
    }

    #[test]
    fn the_window_runs_on_behind_the_end_once_all_was_requested() {
        let (mut ahead, size) = (ReadAhead::default(), 20 * M);
        let mut beyond = Vec::new();
        for at in 0..20 {
            let advance = ahead.on_read(at * M, M, size, 8 * M);
            if let Some(advance) = advance {
                ahead.requested(&advance, advance.range.end);
            }
            beyond.push(ahead.beyond_end(size) / M);
        }
        assert_eq!(beyond[..12], [0; 12]);
        assert_eq!(beyond[12..], [1, 2, 3, 4, 5, 6, 7, 8]);
        // A random read says nothing about the next file.
        ahead.on_read(3 * M, M, size, 8 * M);
        assert_eq!(ahead.beyond_end(size), 0);
    }

    #[test]
    fn the_window_stays_in_the_file_while_memory_lacks_for_its_end() {
        let mut ahead = ReadAhead::default();
        for at in 0..4 {
            let advance = ahead.on_read(at * M, M, 6 * M, 8 * M);
            if let Some(advance) = advance {
                ahead.requested(&advance, advance.range.start);
            }
            assert_eq!(ahead.beyond_end(6 * M), 0);
        }
    }

    #[test]
    fn several_streams_in_one_file_do_not_disturb_each_other() {
        let mut ahead = ReadAhead::default();
        let mut requested = [0; 4];
        for count in 0..100 {
            for (stream, sum) in requested.iter_mut().enumerate() {
                let from = stream as u64 * 1000 * M;
                *sum += read(&mut ahead, from + count * 64 * K, 64 * K, 8 * M);
            }
            // Random reads in between take the places of other random reads.
            read(&mut ahead, (7000 + count * 17) * M, 4096, 8 * M);
        }
        assert!(requested.iter().all(|sum| *sum >= 8 * M), "{requested:?}");
    }

    #[test]
    fn reads_in_a_slightly_wrong_order_remain_one_stream() {
        let mut ahead = ReadAhead::default();
        let mut requested = 0;
        for pair in 0..100 {
            let first = if pair < 2 { [0, 1] } else { [1, 0] };
            for which in first {
                requested += read(&mut ahead, (2 * pair + which) * 128 * K, 128 * K, 8 * M);
            }
        }
        assert_eq!(ahead.streams.len(), 1);
        assert!(requested >= 200 * 128 * K);
    }

    proptest! {
        #[test]
        fn nothing_is_requested_twice_or_beyond_the_window(
            reads in prop::collection::vec((0_u64..40, 1_u64..8), 1..200),
            max in 1_u64..64,
        ) {
            let (max, size) = (max * 128 * K, 30 * M);
            let mut ahead = ReadAhead::default();
            let mut position = 0;
            for (jump, length) in reads {
                let length = length * 64 * K;
                if jump == 0 {
                    position = 17 * M;
                }
                let advance = ahead.on_read(position, length, size, max);
                position += length;
                if let Some(advance) = advance {
                    prop_assert!(advance.range.start < advance.range.end);
                    prop_assert!(advance.range.end <= size);
                    let next = ahead.streams[advance.stream].next;
                    prop_assert!(advance.range.start >= next);
                    prop_assert!(advance.range.end <= next + max);
                    ahead.requested(&advance, advance.range.end);
                }
            }
        }
    }
}
