//! Classes of predictions that are alike: each has a precision of its own.

/// Where a prediction comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Source {
    /// A sequential or strided stream.
    Stream,
    /// A pair of blocks that followed each other with a lag.
    Pair,
}

impl Source {
    /// All sources.
    pub const ALL: [Self; 2] = [Self::Stream, Self::Pair];

    /// Returns its name, as reports print it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Pair => "pair",
        }
    }
}

/// Classes of pairs: hits and tries.
const PAIRS: u16 = 256;
/// Powers of two that lengths and distances of streams are divided into.
const STEPS: u16 = 6;
/// Forward and backward with a stride of one block, and other strides.
const KINDS: u16 = 3;
/// Number of classes.
pub(super) const CLASSES: usize = (PAIRS + KINDS * STEPS * STEPS) as usize;

/// A class of predictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Class(u16);

impl Class {
    /// Returns the class of a pair's follower.
    pub(super) fn pair(hits: u8, tries: u8) -> Self {
        assert!(hits <= tries && tries <= 15, "counts have four bits");
        Self(u16::from(hits) << 4 | u16::from(tries))
    }

    /// Returns the class of a block so many strides ahead.
    pub(super) fn stream(stride: i8, length: u16, distance: u8) -> Self {
        let kind = match stride {
            1 => 0,
            -1 => 1,
            _ => 2,
        };
        // At most 15, so the cast is exact.
        let step = |value: u16| (value.max(1).ilog2() as u16).min(STEPS - 1);
        Self(PAIRS + (kind * STEPS + step(length)) * STEPS + step(u16::from(distance)))
    }

    /// Returns its place in tables.
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Returns where its predictions come from.
    pub(super) fn source(self) -> Source {
        if self.0 < PAIRS {
            Source::Pair
        } else {
            Source::Stream
        }
    }

    /// Returns the precision that a class is given before anything is known: half for streams; for
    /// pairs, the share of tries that succeeded, and a fifth after a single success.
    pub(super) fn prior(index: usize) -> f32 {
        let (hits, tries) = (index >> 4, index & 15);
        match (index, hits) {
            (256.., _) => 0.5,
            (_, 0..2) => 0.2,
            _ => (hits as f32 / (tries as f32 + 1.0)).min(1.0),
        }
    }

    /// Returns the class at a place in tables.
    pub(super) fn from_index(index: usize) -> Option<Self> {
        (index < CLASSES).then_some(Self(index as u16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_a_place_a_source_and_a_prior() {
        for distance in 1..=255 {
            for length in [0, 1, 2, 31, 32, u16::MAX] {
                for stride in [-128, -1, 1, 2, 127] {
                    let class = Class::stream(stride, length, distance);
                    assert!(class.index() < CLASSES);
                    assert_eq!(class.source(), Source::Stream);
                }
            }
        }
        for tries in 1..=15 {
            for hits in 0..=tries {
                assert_eq!(Class::pair(hits, tries).source(), Source::Pair);
            }
        }
        assert!((0..CLASSES).all(|index| (0.0..=1.0).contains(&Class::prior(index))));
    }
}
