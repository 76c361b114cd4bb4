//! The delay line of one direction, as a state machine: time is an argument, packets are any `T`.
//!
//! ```text
//!   offer ─▶ cut? ─▶ queue (tail drop) ─▶ line (rate) ─▶ loss ─▶ delay ± jitter ─▶ pop
//! ```
//!
//! A packet may stand for several segments (segmentation offload). Each is charged, dropped and lost for itself; what
//! is left of a packet is one or more runs of neighbouring segments, each due when its last segment is through.
//!
//! Invariants:
//! * the line sends back to back: `busy_until` advances by exactly the wire time, in picoseconds, never faster;
//! * what comes out comes in the order of what went in, never before it is due;
//! * segments in = delivered + on the way + dropped + lost + cut.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use serde::Serialize;

use super::random::Random;

/// Picoseconds in a nanosecond.
const PS: u64 = 1000;

/// What one direction is like.
#[derive(Clone, Debug)]
pub struct LineConfig {
    /// Bits a second; `None`: no limit.
    pub rate_bits: Option<u64>,
    /// From the end of the line to the far end.
    pub delay: Duration,
    /// Most that the delay is shorter or longer.
    pub jitter: Duration,
    /// Probability that a segment is lost.
    pub loss: f64,
    /// Bytes on the wire that may wait for the line; without a rate, that may be on the way.
    pub queue_bytes: u64,
    /// Of losses and jitter.
    pub seed: u64,
}

/// Size of a packet on the wire, framing included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// How many segments, at least one.
    pub segments: u32,
    /// Bytes of each segment but the last.
    pub full: u32,
    /// Bytes of the last segment.
    pub last: u32,
}

impl Load {
    /// A packet of one segment.
    pub fn one(bytes: u32) -> Self {
        Self {
            segments: 1,
            full: bytes,
            last: bytes,
        }
    }

    /// Bytes of the first segments.
    fn bytes(&self, segments: u32) -> u64 {
        if segments == self.segments {
            u64::from(self.full) * u64::from(segments - 1) + u64::from(self.last)
        } else {
            u64::from(self.full) * u64::from(segments)
        }
    }

    /// How many of the first segments fit into a room.
    fn fitting(&self, room: u64) -> u32 {
        if self.bytes(self.segments) <= room {
            return self.segments;
        }
        let full = room / u64::from(self.full.max(1));
        u32::try_from(full).unwrap_or(u32::MAX).min(self.segments - 1)
    }
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Packets offered, as big as segmentation offload made them.
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
    /// Segments that a cut took.
    pub cut: u64,
    /// Most bytes that waited for the line.
    pub queue_max_bytes: u64,
    /// Packets that the far device refused; not the line's doing, and 0 if all is well.
    pub refused: u64,
}

/// Neighbouring segments of one packet that stay together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Which segments of the packet.
    pub segments: Range<u32>,
    /// Bytes of them on the wire.
    pub wire_bytes: u64,
    /// When they come out, nanoseconds.
    pub due: u64,
}

/// What is on the way.
#[derive(Debug)]
struct Flying<T> {
    run: Run,
    item: T,
}

/// The delay line of one direction. Times are nanoseconds since any moment, and never go back.
#[derive(Debug)]
pub struct Line<T> {
    config: LineConfig,
    random: Random,
    /// When the line is free again, picoseconds.
    busy_until: u64,
    /// When the last packet is due: none may overtake it.
    last_due: u64,
    flying: VecDeque<Flying<T>>,
    flying_bytes: u64,
    cut: bool,
    counters: Counters,
}

impl<T> Line<T> {
    /// An empty line.
    pub fn new(config: LineConfig) -> Self {
        Self {
            random: Random::new(config.seed),
            config,
            busy_until: 0,
            last_due: 0,
            flying: VecDeque::new(),
            flying_bytes: 0,
            cut: false,
            counters: Counters::default(),
        }
    }

    /// What happened so far.
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

    /// Takes a packet in. `keep` is called for each run of segments that will come out and gives what stands for it.
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

    /// When the next packet comes out.
    pub fn next_due(&self) -> Option<u64> {
        self.flying.front().map(|flying| flying.run.due)
    }

    /// The next packet that is due.
    pub fn pop(&mut self, now: u64) -> Option<T> {
        let flying = self.flying.pop_front_if(|flying| flying.run.due <= now)?;
        self.flying_bytes -= flying.run.wire_bytes;
        self.counters.delivered += u64::from(flying.run.segments.end - flying.run.segments.start);
        self.counters.wire_bytes += flying.run.wire_bytes;
        Some(flying.item)
    }

    /// Whether it is cut.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Cuts or restores it. A cut takes what is on the way (given to `gone`) and everything that is offered until it is
    /// restored; then the line is free at once.
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

    /// Counts a packet that could not be handed on.
    pub fn refused(&mut self) {
        self.counters.refused += 1;
    }

    /// Puts a run on the way; an empty one is none.
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

    /// This packet's delay.
    fn delay_ns(&mut self) -> u64 {
        let delay = nanoseconds(self.config.delay);
        let jitter = nanoseconds(self.config.jitter);
        if jitter == 0 {
            return delay;
        }
        (delay + self.random.up_to(2 * jitter)).saturating_sub(jitter)
    }

    /// Picoseconds, rounded up so that the line is never faster than its rate (by less than 1e-6 for any packet).
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
