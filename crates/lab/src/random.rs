//! Seeded random numbers: the same seed gives the same losses and works. Published results, and the
//! seeds that once found a fault, depend on this stream.

/// The generator SplitMix64 (Steele, Lea, Flood 2014): one word of state, passes BigCrush.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Returns the stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits.
    #[allow(clippy::should_implement_trait, reason = "the stream never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    /// Returns a number from 0 to `max`, both included. The bias is below 2^-32 for spans of seconds in
    /// nanoseconds.
    pub fn up_to(&mut self, max: u64) -> u64 {
        ((u128::from(self.next()) * (u128::from(max) + 1)) >> 64) as u64
    }

    /// Returns true with a probability.
    pub fn happens(&mut self, probability: f64) -> bool {
        // An f64 holds 53 bits exactly.
        ((self.next() >> 11) as f64) < probability * (1_u64 << 53) as f64
    }

    /// Returns a number from 0 up to, but not including, 1.
    pub fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a number in `0..bound` (0 for a bound of 0). The bias is below 2^-30 for bounds up
    /// to 2^34.
    pub fn below(&mut self, bound: u64) -> u64 {
        match bound {
            0 => 0,
            _ => self.next() % bound,
        }
    }

    /// Returns a number in `low..=high`; its logarithm is evenly spread.
    pub fn log_uniform(&mut self, low: u64, high: u64) -> u64 {
        let (from, to) = ((low.max(1) as f64).ln(), (high.max(1) as f64).ln());
        ((from + (to - from) * self.fraction()).exp() as u64).clamp(low, high)
    }

    /// Fills a buffer with bytes that do not compress.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            let bytes = self.next().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_the_published_one() {
        // First outputs of the reference implementation for seed 1234567.
        let mut random = SplitMix64::new(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn numbers_stay_in_bounds() {
        let mut random = SplitMix64::new(1);
        for _ in 0..1000 {
            assert!(random.below(7) < 7);
            assert!((0.0..1.0).contains(&random.fraction()));
            assert!((1024..=4096).contains(&random.log_uniform(1024, 4096)));
        }
        assert_eq!(random.below(0), 0);
    }
}
