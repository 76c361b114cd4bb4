//! Whether the losses of a line limit a job, and what would help.
//!
//! Loss-based congestion control (cubic, reno) keeps only some dozens of segments on a line that loses
//! 0.1 % or more of them, however long and wide it is. So losses are the limit if they are there, this
//! end has no BBR, and each connection has no more than that on the line. They are not if data waited
//! in a queue of the line: then the line is full, and the queue ran over.

use std::time::Duration;

use ropeway_smb_client::{LONG_ROUND_TRIP, LOSSY, LineInfo, how_to_allow_bbr};
use ropeway_vfs::event::{Compressed, Limit, Line};

/// Share of segments received out of order from which on a line counts as lossy. Other than
/// [`LOSSY`], since a loss puts those behind it out of order; with few on the line, a dozen.
const DISORDERED: f64 = 10.0 * LOSSY;
/// Segments of each connection on the line, up to which losses can be the limit. A guess: cubic keeps
/// 60 at 0.1 % of loss and 100 ms ([RFC 8312] 5.2), and 4 times that where losses come together.
const ON_THE_LINE_MAX: f64 = 256.0;
/// Payload of a segment on a line of 1500 bytes.
const SEGMENT: f64 = 1448.0;

/// Share of the bytes left from which on compression is not worth a word: the report has two digits.
const COMPRESSED_MAX: f64 = 0.995;

/// The line to the server that most was moved to or from.
#[derive(Clone, Debug, Default)]
pub(crate) struct LineReport {
    /// What TCP counted.
    pub(crate) info: LineInfo,
    /// Number of connections.
    pub(crate) channels: usize,
    /// Shortest round trip.
    pub(crate) round_trip: Duration,
    /// Whether only a slow line is compressed for.
    pub(crate) compresses_by_line: bool,
}

impl LineReport {
    /// Returns the limit: losses, if one end of the job seems slow because of them.
    pub(crate) fn bottleneck(&self, found: Option<Limit>, bytes_a_second: f64) -> Option<Limit> {
        // Only the end that is on the line can be slow because of it.
        let far_end = match self.sends() {
            true => Limit::Destination,
            false => Limit::Source,
        };
        match found == Some(far_end) && self.is_loss_bound(bytes_a_second) {
            true => Some(Limit::Loss),
            false => found,
        }
    }

    fn is_loss_bound(&self, bytes_a_second: f64) -> bool {
        let on_the_line = bytes_a_second * self.round_trip.as_secs_f64() / SEGMENT;
        let each = on_the_line / self.channels.max(1) as f64;
        self.round_trip >= LONG_ROUND_TRIP && self.loses() && !self.is_full() && each <= ON_THE_LINE_MAX
    }

    /// Whether the line was full most of the time: then its queue ran over, and that is where segments were
    /// lost.
    fn is_full(&self) -> bool {
        self.info.queued_bytes > self.info.info.moved_bytes / 2
    }

    /// Whether the line loses segments of a sender without BBR. Of a sender at the other end that is
    /// not known.
    fn loses(&self) -> bool {
        let info = &self.info.info;
        match self.sends() {
            true => !self.is_bbr() && info.loss().is_some_and(|share| share >= LOSSY),
            false => info.disorder().is_some_and(|share| share >= DISORDERED),
        }
    }

    /// Whether more was sent than received.
    fn sends(&self) -> bool {
        self.info.info.sent >= self.info.info.received
    }

    fn is_bbr(&self) -> bool {
        let name = self.info.congestion.as_deref();
        name.is_some_and(|name| name.starts_with("bbr"))
    }

    /// Returns the words after `limit: loss`.
    pub(crate) fn explanation(&self) -> String {
        let info = &self.info.info;
        if !self.sends() {
            let share = info.disorder().unwrap_or(0.0) * 100.0;
            return format!(
                " ({share:.1} % received out of order); BBR at the server would help, if it is not in use"
            );
        }
        let share = info.loss().unwrap_or(0.0) * 100.0;
        let own = self.info.congestion.as_deref().unwrap_or("TCP");
        let help = how_to_allow_bbr().map(|how| format!("; BBR would help: {how}"));
        format!(" ({share:.1} % sent again), {own}{}", help.unwrap_or_default())
    }

    /// Returns what was left of the bytes on the line, and the algorithm that did most of it; `None` if
    /// next to nothing was saved.
    fn compressed(&self) -> Option<(f64, &'static str)> {
        let saved = self.info.saved;
        let moved = self.info.info.moved_bytes;
        let left = moved as f64 / (moved + saved.bytes).max(1) as f64;
        let algorithm = match saved.by_zstd >= saved.bytes / 2 {
            true => "zstd",
            false => "lz4",
        };
        (saved.bytes > 0 && left < COMPRESSED_MAX).then_some((left, algorithm))
    }

    /// Returns how much was compressed, for the report.
    pub(crate) fn compression(&self) -> Option<String> {
        let (left, algorithm) = self.compressed()?;
        let why = if self.compresses_by_line {
            ", the line was slower"
        } else {
            ""
        };
        Some(format!("compressed: {left:.2} ({algorithm}{why})"))
    }

    /// Returns what the JSON summary has of it.
    pub(crate) fn summary(&self) -> Line {
        let info = &self.info.info;
        Line {
            congestion: self.info.congestion.clone(),
            connections: self.channels as u64,
            round_trip_seconds: self.round_trip.as_secs_f64(),
            segments_sent: info.sent,
            segments_sent_again: info.sent_again,
            segments_received: info.received,
            segments_out_of_order: info.out_of_order,
            compressed: self.compressed().map(|(left, algorithm)| Compressed {
                algorithm,
                ratio: (left * 1e3).round() / 1e3,
                saved_bytes: self.info.saved.bytes,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_smb_client::Saved;

    fn line(congestion: &str, sent: u64, again: u64, received: u64, disordered: u64) -> LineReport {
        let mut report = LineReport {
            channels: 2,
            round_trip: Duration::from_millis(100),
            ..LineReport::default()
        };
        report.info.congestion = Some(congestion.to_owned());
        report.info.info.sent = sent;
        report.info.info.sent_again = again;
        report.info.info.received = received;
        report.info.info.out_of_order = disordered;
        report
    }

    const SLOW: f64 = 900_000.0;
    const FAST: f64 = 80_000_000.0;

    #[test]
    fn losses_are_the_limit_of_a_sender_without_bbr() {
        let cubic = line("cubic", 100_000, 1000, 500, 0);
        assert_eq!(
            cubic.bottleneck(Some(Limit::Destination), SLOW),
            Some(Limit::Loss)
        );
        assert_eq!(
            cubic.bottleneck(Some(Limit::Destination), FAST),
            Some(Limit::Destination)
        );
        assert_eq!(
            cubic.bottleneck(Some(Limit::Bandwidth), SLOW),
            Some(Limit::Bandwidth)
        );
        assert_eq!(cubic.bottleneck(None, SLOW), None);
        let words = cubic.explanation();
        assert!(words.starts_with(" (1.0 % sent again), cubic"), "{words}");
    }

    #[test]
    fn bbr_a_whole_line_and_a_short_one_are_not() {
        for other in [
            line("bbr", 100_000, 1000, 500, 0),
            line("cubic", 100_000, 10, 500, 0),
            // Too few to tell.
            line("cubic", 1000, 100, 500, 0),
        ] {
            let found = other.bottleneck(Some(Limit::Destination), SLOW);
            assert_eq!(found, Some(Limit::Destination));
        }
        let mut near = line("cubic", 100_000, 1000, 500, 0);
        near.round_trip = Duration::from_millis(1);
        assert_eq!(near.bottleneck(Some(Limit::Source), SLOW), Some(Limit::Source));
    }

    #[test]
    fn a_receiver_sees_them_out_of_order() {
        let read = line("bbr", 500, 0, 100_000, 12_000);
        assert_eq!(read.bottleneck(Some(Limit::Source), SLOW), Some(Limit::Loss));
        assert_eq!(
            read.explanation(),
            " (12.0 % received out of order); BBR at the server would help, if it is not in use"
        );
        assert_eq!(read.summary().segments_out_of_order, 12_000);
    }

    #[test]
    fn a_full_line_loses_what_its_queue_cannot_hold() {
        for mut full in [
            line("bbr", 500, 0, 100_000, 56_000),
            line("cubic", 100_000, 1000, 500, 0),
        ] {
            let (far, near) = match full.sends() {
                true => (Limit::Destination, Limit::Source),
                false => (Limit::Source, Limit::Destination),
            };
            full.info.info.moved_bytes = 100_000_000;
            full.info.queued_bytes = 40_000_000;
            assert_eq!(full.bottleneck(Some(far), SLOW), Some(Limit::Loss));
            full.info.queued_bytes = 60_000_000;
            assert_eq!(full.bottleneck(Some(far), SLOW), Some(far));
            assert_eq!(full.bottleneck(Some(near), SLOW), Some(near));
        }
    }

    #[test]
    fn what_was_saved_is_reported() {
        let mut report = line("bbr", 500, 0, 100_000, 0);
        assert_eq!((report.compression(), report.summary().compressed), (None, None));
        report.info.info.moved_bytes = 680;
        report.info.saved = Saved {
            bytes: 320,
            by_zstd: 300,
        };
        assert_eq!(report.compression().unwrap(), "compressed: 0.68 (zstd)");
        report.compresses_by_line = true;
        let words = report.compression().unwrap();
        assert_eq!(words, "compressed: 0.68 (zstd, the line was slower)");
        report.info.saved.by_zstd = 100;
        let summary = report.summary().compressed.unwrap();
        assert_eq!(
            (summary.algorithm, summary.ratio, summary.saved_bytes),
            ("lz4", 0.68, 320)
        );
        report.info.saved.bytes = 2;
        assert_eq!(report.compression(), None);
    }
}
