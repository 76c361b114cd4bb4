//! The random numbers of a seed. The generator is the laboratory's SplitMix64, so that the seeds that
//! once found a fault keep their meaning.

use ropeway_lab::random::SplitMix64;

/// A stream of numbers that is the same for the same seed.
#[derive(Clone, Debug)]
pub(crate) struct Rng(SplitMix64);

impl Rng {
    /// Returns the stream of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// Returns a number in `0..bound` (0 for a bound of 0). Its bias is below 2^-30 for the bounds
    /// used here.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        match bound {
            0 => 0,
            _ => self.0.next() % bound,
        }
    }

    /// Returns a number in `0.0..1.0`.
    pub(crate) fn fraction(&mut self) -> f64 {
        self.0.fraction()
    }

    /// Returns a number in `low..=high`; its logarithm is evenly spread.
    pub(crate) fn log_uniform(&mut self, low: u64, high: u64) -> u64 {
        let (from, to) = ((low.max(1) as f64).ln(), (high.max(1) as f64).ln());
        ((from + (to - from) * self.fraction()).exp() as u64).clamp(low, high)
    }

    /// Fills a buffer with bytes that do not compress.
    pub(crate) fn fill(&mut self, buffer: &mut [u8]) {
        self.0.fill(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_in_bounds() {
        let mut rng = Rng::new(1);
        for _ in 0..1000 {
            assert!(rng.below(7) < 7);
            assert!((0.0..1.0).contains(&rng.fraction()));
            assert!((1024..=4096).contains(&rng.log_uniform(1024, 4096)));
        }
        assert_eq!(rng.below(0), 0);
    }
}
