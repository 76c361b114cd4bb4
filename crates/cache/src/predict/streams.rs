//! Sequential and strided streams: 32 at once, forward and backward.
//!
//! A request continues the stream whose next place it is, or one that is near. The stride is the
//! majority of the last steps (Leap: Maruf and Chowdhury, ATC '20), so a stray step does not end a
//! stream. How far a stream reads ahead, and how early its next batch begins, adapts as in AMP (Gill
//! and Bathen, FAST '07): a block that comes too late raises both, one that was fetched in vain
//! lowers them.

use crate::predict::block::Block;

/// Streams followed at once. The one used longest ago gives way.
pub const STREAMS_MAX: usize = 32;
/// Steps whose majority is the stride.
const STEPS: usize = 8;
/// Blocks between two requests that may begin a stream: 2 MiB in blocks of 64 KiB. A guess.
const REACH: i64 = 32;
/// Blocks to read ahead at most: 2 MiB in blocks of 64 KiB. A guess; 16 was as good on P2.
pub(super) const DEGREE_MAX: u8 = 32;
/// Blocks that a stream reads ahead at most before it adapts.
const DEGREE_FIRST: u8 = 16;

#[derive(Clone, Copy, Debug)]
struct Stream {
    last: Block,
    /// Furthest block that is fetched or there, without a gap behind it.
    ahead: Block,
    steps: [i8; STEPS],
    filled: u8,
    /// 0 as long as no step has a majority.
    stride: i8,
    /// Steps that kept the stride.
    length: u16,
    degree: u8,
    trigger: u8,
}

/// What a stream wants after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ahead {
    /// Blocks from one prediction to the next.
    pub(super) stride: i8,
    /// Steps that kept the stride.
    pub(super) length: u16,
    /// Strides from the request to the first prediction and to the last one.
    pub(super) first: u8,
    pub(super) last: u8,
}

/// The streams; the one used last is at the end.
#[derive(Debug)]
pub(super) struct Streams {
    streams: Vec<Stream>,
}

impl Streams {
    pub(super) fn new() -> Self {
        Self {
            streams: Vec::with_capacity(STREAMS_MAX),
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.streams.capacity() * size_of::<Stream>()
    }

    pub(super) fn forget(&mut self, is_forgotten: impl Fn(Block) -> bool) {
        self.streams.retain(|stream| !is_forgotten(stream.last));
    }

    /// Takes a request; returns what its stream wants.
    pub(super) fn request(&mut self, block: Block) -> Option<Ahead> {
        let Some(found) = self.find(block) else {
            if self.streams.len() == STREAMS_MAX {
                self.streams.remove(0);
            }
            self.streams.push(Stream::new(block));
            return None;
        };
        let mut stream = self.streams.remove(found);
        let wanted = stream.step(block);
        self.streams.push(stream);
        let (first, last) = wanted?;
        Some(Ahead {
            stride: stream.stride,
            length: stream.length,
            first,
            last,
        })
    }

    /// Returns the stream that a request continues: exactly, else nearly, else the nearest young one.
    fn find(&self, block: Block) -> Option<usize> {
        let mut best: Option<(u64, usize)> = None;
        for (place, stream) in self.streams.iter().enumerate().rev() {
            let Some(step) = stream.distance(block) else {
                continue;
            };
            let stride = i64::from(stream.stride);
            if step == 0 || (stride != 0 && step == stride) {
                return Some(place);
            }
            let is_near = if stride == 0 {
                step.abs() <= REACH
            } else {
                step.signum() == stride.signum() && step.abs() <= stride.abs() * 2
            };
            // A stream that has a stride comes first.
            let cost = step.unsigned_abs() + if stride == 0 { 1 << 32 } else { 0 };
            if is_near && best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, place));
            }
        }
        best.map(|(_, place)| place)
    }

    /// Notes that a block ahead of the stream used last is being fetched, or is there.
    pub(super) fn covered(&mut self, block: Block) {
        if let Some(stream) = self.streams.last_mut() {
            stream.ahead = block;
        }
    }

    /// A block was requested while its fetch was under way: read ahead further and earlier.
    pub(super) fn late(&mut self, block: Block) {
        if let Some(stream) = self.of(block) {
            stream.degree = (stream.degree + 2).min(DEGREE_MAX);
            stream.trigger = (stream.trigger + 1).min(stream.degree - 1);
        }
    }

    /// A block was fetched in vain: read ahead less.
    pub(super) fn wasted(&mut self, block: Block) {
        if let Some(stream) = self.of(block) {
            stream.degree = (stream.degree - 1).max(2);
            stream.trigger = stream.trigger.min(stream.degree - 1);
        }
    }

    fn of(&mut self, block: Block) -> Option<&mut Stream> {
        let is_of = |stream: &&mut Stream| {
            let reach = i64::from(DEGREE_MAX) * i64::from(stream.stride).abs();
            stream
                .distance(block)
                .is_some_and(|distance| distance.abs() <= reach)
        };
        self.streams.iter_mut().rev().find(is_of)
    }
}

impl Stream {
    fn new(block: Block) -> Self {
        Self {
            last: block,
            ahead: block,
            steps: [0; STEPS],
            filled: 0,
            stride: 0,
            length: 0,
            degree: DEGREE_FIRST,
            trigger: DEGREE_FIRST / 2,
        }
    }

    /// Returns the blocks from the last request to another block of the file.
    fn distance(&self, block: Block) -> Option<i64> {
        let is_same = block.file() == self.last.file();
        // Numbers have 48 bits.
        is_same.then(|| block.number() as i64 - self.last.number() as i64)
    }

    /// Takes the next place; returns the strides from it to the first and the last block to fetch.
    fn step(&mut self, block: Block) -> Option<(u8, u8)> {
        let step = self.distance(block).filter(|step| *step != 0)?;
        self.last = block;
        self.steps.rotate_right(1);
        // Twice a stride may not fit; such a step votes for nothing.
        self.steps[0] = i8::try_from(step).unwrap_or(0);
        self.filled = (self.filled + 1).min(STEPS as u8);
        let stride = majority(&self.steps[..usize::from(self.filled)]);
        if stride != self.stride {
            self.stride = stride;
            self.length = 0;
            self.ahead = block;
        }
        if stride == 0 {
            return None;
        }
        if step == i64::from(stride) {
            self.length = self.length.saturating_add(1);
        } else {
            self.length /= 2;
        }
        let upto = (u32::from(self.length) * 2).clamp(1, u32::from(self.degree)) as u8;
        let ahead = self.ahead.number() as i64 - block.number() as i64;
        // Negative if the reader has passed it: a new start.
        let covered = u8::try_from(ahead / i64::from(stride)).unwrap_or(0);
        (covered < upto && covered <= self.trigger).then_some((covered + 1, upto))
    }
}

/// Returns the step that is more than half of all, or 0 (the vote of Boyer and Moore).
fn majority(steps: &[i8]) -> i8 {
    let (mut candidate, mut votes) = (0, 0);
    for step in steps {
        if votes == 0 {
            candidate = *step;
        }
        votes += if *step == candidate { 1 } else { -1 };
    }
    let with = steps.iter().filter(|step| **step == candidate).count();
    if with * 2 > steps.len() { candidate } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(index: u64) -> Block {
        Block::new(1, index).expect("within bounds")
    }

    /// Plays places; returns what the last one asked for, in blocks.
    fn play(streams: &mut Streams, places: impl IntoIterator<Item = u64>) -> Option<(i64, i64)> {
        let mut wanted = None;
        for place in places {
            wanted = streams.request(block(place)).map(|ahead| {
                let of = |strides: u8| i64::from(ahead.stride) * i64::from(strides);
                (of(ahead.first), of(ahead.last))
            });
        }
        wanted
    }

    #[test]
    fn forward_backward_and_strided_streams_are_found() {
        assert_eq!(play(&mut Streams::new(), [10, 11, 12, 13]), Some((1, 6)));
        assert_eq!(play(&mut Streams::new(), [90, 89, 88, 87]), Some((-1, -6)));
        assert_eq!(play(&mut Streams::new(), [0, 5, 10, 15]), Some((5, 30)));
        assert_eq!(play(&mut Streams::new(), [100, 93, 86, 79]), Some((-7, -42)));
        assert_eq!(play(&mut Streams::new(), [100, 5000, 90_000]), None);
    }

    #[test]
    fn a_stray_step_does_not_end_a_stream() {
        let wanted = play(&mut Streams::new(), [0, 1, 2, 3, 4, 6, 7]);
        assert_eq!(wanted.map(|(first, _)| first), Some(1));
    }

    #[test]
    fn thirty_two_streams_are_followed_at_once_and_a_thirty_third_takes_the_oldest() {
        let mut streams = Streams::new();
        let places = |step: u64, count: u64| (0..count).map(move |stream| stream * 10_000 + step);
        for step in 0..3 {
            play(&mut streams, places(step, 32));
        }
        for place in places(3, 32) {
            assert!(play(&mut streams, [place]).is_some(), "{place}");
        }
        play(&mut streams, [5_000_000]);
        assert_eq!(play(&mut streams, [4]), None, "the oldest is gone");
        assert!(play(&mut streams, [20_004]).is_some());
    }

    #[test]
    fn a_stream_waits_until_its_trigger_and_adapts_to_late_and_wasted_blocks() {
        let mut streams = Streams::new();
        play(&mut streams, 0..20);
        streams.covered(block(19 + 16));
        assert_eq!(play(&mut streams, [20]), None, "15 are ahead, the trigger is 8");
        assert_eq!(play(&mut streams, 21..28), Some((9, 16)));
        for _ in 0..4 {
            streams.late(block(30));
        }
        assert_eq!(play(&mut streams, [28]), Some((8, 24)));
        for _ in 0..40 {
            streams.wasted(block(40));
        }
        streams.covered(block(28));
        assert_eq!(play(&mut streams, [29]), Some((1, 2)));
    }

    #[test]
    fn a_stream_that_is_read_past_what_it_fetched_starts_again_where_the_reader_is() {
        let mut streams = Streams::new();
        play(&mut streams, 0..10);
        streams.covered(block(11));
        assert_eq!(play(&mut streams, [10, 11, 12, 13]), Some((1, 16)));
    }
}
