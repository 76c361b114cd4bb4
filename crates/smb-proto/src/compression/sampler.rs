//! Decides by a sample whether a payload is worth compressing.
//!
//! ```text
//! payload   |##      ##      ##      ##      ##      ##      ##      ##|   8 stretches of 2 KiB
//! fruitless 0 1 2 ... 8 - - - 8 - - - 0 1 ...                              `-`: not sampled
//! ```
//!
//! A sample costs as much as compressing 16 KiB. Each payload is judged by itself, because one
//! block of noise says little about the next. Many in a row do, so then fewer payloads are sampled.

use std::sync::atomic::{AtomicU8, Ordering};

use super::{Algorithms, RUN_MIN, run};

/// Shortest payload to compress. A guess: the time that a page takes does not matter on any link.
const WORTH_MIN: usize = 4096;
/// Number of stretches in a sample. Their distance is no power of two, so that they do not all fall
/// into the same half of alternating data.
const STRETCHES: usize = 8;
/// Length of a stretch in bytes.
const STRETCH_LEN: usize = 2048;
/// Number of fruitless samples in a row after which fewer are taken. A guess.
const FRUITLESS_MAX: u8 = 8;
/// Number of payloads then skipped between two samples. A guess: the end of the noise is noticed
/// within four payloads.
const PAUSE: u8 = 3;

/// Returns whether compression saves enough for the work it gives the other end: a sixteenth. With
/// Zstandard, which slow lines get, half of that. Guesses.
pub(super) fn saves(algorithms: Algorithms, compressed_len: usize, length: usize) -> bool {
    let part = if algorithms.zstd { 32 } else { 16 };
    compressed_len <= length - length / part
}

/// Sampling history of one file's or one connection's payloads.
#[derive(Debug, Default)]
pub struct CompressionSampler {
    /// Number of fruitless samples in a row; above [`FRUITLESS_MAX`], payloads skipped since.
    fruitless: AtomicU8,
}

impl CompressionSampler {
    /// Samples a payload and returns whether it is worth compressing. Calls from several threads at
    /// once may count twice.
    pub fn is_worthwhile(&self, algorithms: Algorithms, payload: &[u8]) -> bool {
        if payload.len() < WORTH_MIN || algorithms.is_empty() {
            return false;
        }
        let fruitless = self.fruitless.load(Ordering::Relaxed);
        if (FRUITLESS_MAX..FRUITLESS_MAX + PAUSE).contains(&fruitless) {
            self.fruitless.store(fruitless + 1, Ordering::Relaxed);
            return false;
        }
        let is_worthwhile = sample(algorithms, payload);
        let fruitless = match is_worthwhile {
            true => 0,
            false => (fruitless + 1).min(FRUITLESS_MAX),
        };
        self.fruitless.store(fruitless, Ordering::Relaxed);
        is_worthwhile
    }
}

fn sample(algorithms: Algorithms, payload: &[u8]) -> bool {
    if algorithms.pattern_v1 {
        let runs = run(payload.iter()).max(run(payload.iter().rev()));
        if runs >= RUN_MIN && saves(algorithms, payload.len() - runs, payload.len()) {
            return true;
        }
    }
    let length = STRETCHES * STRETCH_LEN;
    if payload.len() <= length {
        return is_shorter(algorithms, payload);
    }
    let mut stretches = Vec::with_capacity(length);
    for stretch in 0..STRETCHES {
        let at = (payload.len() - STRETCH_LEN) * stretch / (STRETCHES - 1);
        stretches.extend_from_slice(&payload[at..at + STRETCH_LEN]);
    }
    is_shorter(algorithms, &stretches)
}

fn is_shorter(algorithms: Algorithms, data: &[u8]) -> bool {
    algorithms
        .compress(data)
        .is_some_and(|(_, compressed)| saves(algorithms, compressed.len(), data.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Algorithms = Algorithms {
        lz4: true,
        lznt1: false,
        pattern_v1: true,
        zstd: false,
    };

    fn noise(length: usize) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(1);
        (0..length).map(|_| random.u8(..)).collect()
    }

    #[test]
    fn text_is_worthwhile_and_noise_is_not() {
        let sampler = CompressionSampler::default();
        let text = b"cars on one line, all moving at once; ".repeat(30_000);
        assert!(sampler.is_worthwhile(ALL, &text));
        assert!(sampler.is_worthwhile(ALL, &text[..5000]));
        assert!(!sampler.is_worthwhile(ALL, &text[..1000]), "too short to matter");
        assert!(
            !sampler.is_worthwhile(Algorithms::default(), &text),
            "nothing was agreed on"
        );
        assert!(!sampler.is_worthwhile(ALL, &noise(1 << 20)));
        assert!(!sampler.is_worthwhile(ALL, &noise(5000)));
    }

    #[test]
    fn half_a_compressible_payload_is_worthwhile() {
        let text = b"cars on one line, all moving at once; ".repeat(30_000);
        for piece in [4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10] {
            let mut payload = noise(1 << 20);
            for (at, stretch) in payload.chunks_mut(piece).enumerate() {
                if at % 2 == 1 {
                    stretch.copy_from_slice(&text[..piece]);
                }
            }
            assert!(
                CompressionSampler::default().is_worthwhile(ALL, &payload),
                "pieces of {piece}"
            );
        }
    }

    #[test]
    fn runs_alone_are_worthwhile() {
        let only = Algorithms {
            pattern_v1: true,
            ..Algorithms::default()
        };
        let mut payload = noise(100_000);
        assert!(!CompressionSampler::default().is_worthwhile(only, &payload));
        payload[80_000..].fill(0);
        assert!(CompressionSampler::default().is_worthwhile(only, &payload));
    }

    #[test]
    fn noise_is_sampled_less_often_and_text_after_it_is_found() {
        let sampler = CompressionSampler::default();
        let (text, noise) = (vec![b'a'; 8192], noise(8192));
        for _ in 0..100 {
            assert!(!sampler.is_worthwhile(ALL, &noise));
        }
        let passed_over = (0..10).take_while(|_| !sampler.is_worthwhile(ALL, &text)).count();
        assert!(passed_over <= usize::from(PAUSE), "{passed_over}");
        assert!(sampler.is_worthwhile(ALL, &text));
        assert!(!sampler.is_worthwhile(ALL, &noise));
        assert!(
            sampler.is_worthwhile(ALL, &text),
            "one noisy payload is no reason"
        );
    }
}
