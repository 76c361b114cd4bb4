//! The delay line of one direction, as a state machine: time is an argument, packets are any `T`.
//!
//! ```text
//!   offer ─▶ cut? ─▶ queue (tail drop) ─▶ line (rate) ─▶ loss ─▶ delay ± jitter ─▶ pop
//! ```
//!
//! A packet may stand for several segments (segmentation offload). Each segment is charged, dropped and
//! lost on its own. The rest of a packet is one or more runs of neighbouring segments; a run is due when
//! its last segment is through.
//!
//! Invariants:
//! * the line sends back to back: `busy_until` advances by exactly the wire time, in picoseconds, never faster;
//! * packets come out in the order of their arrival, never before they are due;
//! * segments in = delivered + on the way + dropped + lost + cut.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use serde::Serialize;

use crate::random::SplitMix64;

/// Picoseconds in a nanosecond.
const PS: u64 = 1000;

/// Settings of one direction.
#[derive(Clone, Debug)]
pub struct LineConfig {
    /// Bits a second; `None` for no limit.
    pub rate_bits: Option<u64>,
    /// Delay from the end of the line to the far end.
    pub delay: Duration,
    /// Largest deviation of the delay.
    pub jitter: Duration,
    /// Probability that a segment is lost.
    pub loss: f64,
    /// Wire bytes that may wait for the line; without a rate, that may be in flight.
    pub queue_bytes: u64,
    /// Seed of losses and jitter.
    pub seed: u64,
}

/// Size of a packet on the wire, framing included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Number of segments, at least one.
    pub segments: u32,
    /// Bytes of each segment except the last.
    pub full: u32,
    /// Bytes of the last segment.
    pub last: u32,
}

impl Load {
    /// Returns the size of a packet of one segment.
    pub fn one(bytes: u32) -> Self {
        Self {
            segments: 1,
            full: bytes,
            last: bytes,
        }
    }

    /// Returns the bytes of the first segments.
    fn bytes(&self, segments: u32) -> u64 {
        if segments == self.segments {
            u64::from(self.full) * u64::from(segments - 1) + u64::from(self.last)
        } else {
            u64::from(self.full) * u64::from(segments)
        }
    }

    /// Returns the number of first segments that fit into a room.
    fn fitting(&self, room: u64) -> u32 {
        if self.bytes(self.segments) <= room {
            return self.segments;
        }
        let full = room / u64::from(self.full.max(1));
        u32::try_from(full).unwrap_or(u32::MAX).min(self.segments - 1)
    }
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Packets offered, as segmentation offload made them.
    pub packets: u64,
    /// Segments offered.
    pub segments: u64,
    /// Segments that came out.
    pub delivered: u64,
    /// Bytes of them on the wire, framing included.
    pub wire_bytes: u64,
    /// Segments that found the queue full.
    pub dropped: u64,
    /// Segments lost on the way.
    pub lost: u64,
    /// Segments lost by a cut.
    pub cut: u64,
    /// Peak of the bytes that waited for the line.
    pub queue_max_bytes: u64,
    /// Packets that the far device refused; 0 in a working link.
    pub refused: u64,
}

/// Neighbouring segments of one packet that stay together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Range of segments of the packet.
    pub segments: Range<u32>,
    /// Bytes of them on the wire.
    pub wire_bytes: u64,
    /// Due time in nanoseconds.
    pub due: u64,
}

/// A run in flight.
#[derive(Debug)]
struct Flying<T> {
    run: Run,
    item: T,
}

/// The delay line of one direction. Times are nanoseconds since any moment, and never decrease.
#[derive(Debug)]
pub struct Line<T> {
    config: LineConfig,
    random: SplitMix64,
    /// Time at which the line is free, in picoseconds.
    busy_until: u64,
    /// Due time of the last packet, which no packet may overtake.
    last_due: u64,
    flying: VecDeque<Flying<T>>,
    flying_bytes: u64,
    cut: bool,
    counters: Counters,
}

impl<T> Line<T> {
    /// Returns an empty line.
    pub fn new(config: LineConfig) -> Self {
        Self {
            random: SplitMix64::new(config.seed),
            config,
            busy_until: 0,
            last_due: 0,
            flying: VecDeque::new(),
            flying_bytes: 0,
            cut: false,
            counters: Counters::default(),
        }
    }

    /// Counters since the start.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Bytes that wait for the line or are on it.
    pub fn backlog_bytes(&self, now: u64) -> u64 {
        match self.config.rate_bits {
            Some(rate) => {
                let ahead = u128::from(self.busy_until.saturating_sub(now.saturating_mul(PS)));
                u64::try_from(ahead * u128::from(rate) / 8_000_000_000_000).unwrap_or(u64::MAX)
            }
            None => self.flying_bytes,
        }
    }

    /// Accepts a packet. Calls `keep` for each run of segments that will come out; its result represents
    /// the run.
    pub fn offer(&mut self, now: u64, load: Load, mut keep: impl FnMut(&Run) -> T) {
        self.counters.packets += 1;
        self.counters.segments += u64::from(load.segments);
        if self.cut {
            self.counters.cut += u64::from(load.segments);
            return;
        }
        let backlog = self.backlog_bytes(now);
        let fitting = load.fitting(self.config.queue_bytes.saturating_sub(backlog));
        self.counters.dropped += u64::from(load.segments - fitting);
        if fitting == 0 {
            return;
        }
        let start = self.busy_until.max(now.saturating_mul(PS));
        let bytes = load.bytes(fitting);
        self.counters.queue_max_bytes = self.counters.queue_max_bytes.max(backlog + bytes);
        let mut first = 0;
        for segment in 0..fitting {
            if self.config.loss > 0.0 && self.random.happens(self.config.loss) {
                self.counters.lost += 1;
                self.send(start, load, first..segment, &mut keep);
                first = segment + 1;
            }
        }
        self.send(start, load, first..fitting, &mut keep);
        self.busy_until = start + self.wire_time(bytes);
    }

    /// Due time of the next packet.
    pub fn next_due(&self) -> Option<u64> {
        self.flying.front().map(|flying| flying.run.due)
    }

    /// Returns the next due packet.
    pub fn pop(&mut self, now: u64) -> Option<T> {
        let flying = self.flying.pop_front_if(|flying| flying.run.due <= now)?;
        self.flying_bytes -= flying.run.wire_bytes;
        self.counters.delivered += u64::from(flying.run.segments.end - flying.run.segments.start);
        self.counters.wire_bytes += flying.run.wire_bytes;
        Some(flying.item)
    }

    /// Whether the line is cut.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Cuts or restores the line. A cut loses the packets in flight (passed to `gone`) and all packets
    /// offered until the line is restored; then the line is free at once.
    pub fn set_cut(&mut self, cut: bool, mut gone: impl FnMut(T)) {
        self.cut = cut;
        if !cut {
            return;
        }
        for flying in self.flying.drain(..) {
            self.counters.cut += u64::from(flying.run.segments.end - flying.run.segments.start);
            gone(flying.item);
        }
        self.flying_bytes = 0;
        self.busy_until = 0;
        self.last_due = 0;
    }

    /// Counts a packet that the far device refused.
    pub fn refused(&mut self) {
        self.counters.refused += 1;
    }

    /// Puts a run in flight, unless it is empty.
    fn send(&mut self, start: u64, load: Load, segments: Range<u32>, keep: &mut impl FnMut(&Run) -> T) {
        if segments.is_empty() {
            return;
        }
        let through = load.bytes(segments.end);
        let sent = (start + self.wire_time(through)).div_ceil(PS);
        let due = sent.saturating_add(self.delay_ns()).max(self.last_due);
        let run = Run {
            wire_bytes: through - load.bytes(segments.start),
            segments,
            due,
        };
        self.last_due = due;
        self.flying_bytes += run.wire_bytes;
        let item = keep(&run);
        self.flying.push_back(Flying { run, item });
    }

    /// Draws the delay of a packet.
    fn delay_ns(&mut self) -> u64 {
        let delay = nanoseconds(self.config.delay);
        let jitter = nanoseconds(self.config.jitter);
        if jitter == 0 {
            return delay;
        }
        (delay + self.random.up_to(2 * jitter)).saturating_sub(jitter)
    }

    /// Returns picoseconds, rounded up so that the line never exceeds its rate (error below 1e-6 for any
    /// packet).
    fn wire_time(&self, bytes: u64) -> u64 {
        let Some(rate) = self.config.rate_bits else {
            return 0;
        };
        let bits = u128::from(bytes) * 8 * 1_000_000_000_000;
        u64::try_from(bits.div_ceil(u128::from(rate))).unwrap_or(u64::MAX)
    }
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX / 4)
}

#[cfg(test)]
#[path = "line/tests.rs"]
mod tests;
