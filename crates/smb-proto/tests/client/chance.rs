//! File content and random numbers, by seed.

/// The content of every file, repeated: bytes that reveal their offset.
fn pattern() -> &'static [u8] {
    use std::sync::OnceLock;
    static PATTERN: OnceLock<Vec<u8>> = OnceLock::new();
    PATTERN.get_or_init(|| {
        let mut random = Random(0x9E37_79B9);
        (0..PATTERN_LEN).map(|_| random.next() as u8).collect()
    })
}

const PATTERN_LEN: usize = 1 << 20;

/// Returns the content of a file at `offset`.
pub(crate) fn content(offset: u64, length: usize) -> &'static [u8] {
    let at = (offset as usize) % (PATTERN_LEN / 2);
    &pattern()[at..at + length]
}

/// xorshift64* (Vigna 2014).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        random.next();
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(crate) fn percent(&mut self, share: usize) -> bool {
        self.below(100) < share
    }
}
