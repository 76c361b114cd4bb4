//! Contents of a work's files: bytes that compress as those of real files do.

use serde::Serialize;

use crate::random::SplitMix64;

/// Size of the blocks whose compression is measured.
const BLOCK_BYTES: usize = 64 << 10;
/// Number of blocks in a sample.
const SAMPLE_BLOCKS: usize = 16;
/// Size of a spreadsheet record: type, row, column, format and a number.
const RECORD_BYTES: usize = 32;

/// A kind of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Content {
    /// Records of numbers: compresses by about a half.
    Spreadsheet,
    /// Packed documents: a directory and long compressed parts.
    Office,
    /// Music: does not compress.
    Music,
    /// Archives and pictures: does not compress.
    Archive,
    /// Words.
    Text,
}

impl Content {
    /// All kinds.
    pub const ALL: [Self; 5] = [
        Self::Spreadsheet,
        Self::Office,
        Self::Music,
        Self::Archive,
        Self::Text,
    ];

    /// Returns the size after LZ4 (blocks of 64 KiB) divided by the size, for one MiB.
    pub fn lz4_ratio(self) -> f64 {
        let mut block = vec![0; BLOCK_BYTES];
        let mut writer = Writer::new(self, 1);
        let packed: usize = (0..SAMPLE_BLOCKS)
            .map(|_| {
                writer.fill(&mut block);
                lz4_flex::block::compress(&block).len()
            })
            .sum();
        packed as f64 / (SAMPLE_BLOCKS * BLOCK_BYTES) as f64
    }
}

/// Generates the bytes of one file.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    content: Content,
    random: SplitMix64,
    record: u32,
}

impl Writer {
    pub(super) fn new(content: Content, seed: u64) -> Self {
        Self {
            content,
            random: SplitMix64::new(seed),
            record: 0,
        }
    }

    /// Fills a buffer with the next bytes. The same bytes come only from calls of the same sizes:
    /// multiples of 64 KiB, except the last.
    pub(super) fn fill(&mut self, buffer: &mut [u8]) {
        match self.content {
            Content::Spreadsheet => self.records(buffer),
            Content::Office => self.packed(buffer),
            Content::Music | Content::Archive => self.random.fill(buffer),
            Content::Text => self.words(buffer),
        }
    }

    fn records(&mut self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(RECORD_BYTES) {
            let mut record = [0; RECORD_BYTES];
            record[..4].copy_from_slice(&[0x03, 0x02, 0x1C, 0x00]);
            record[4..8].copy_from_slice(&self.record.to_le_bytes());
            record[8..10].copy_from_slice(&0x0F_u16.to_le_bytes());
            // A number and a second one, as its text.
            let value = self.random.next();
            record[10..18].copy_from_slice(&value.to_le_bytes());
            record[18..26].copy_from_slice(&self.random.next().to_le_bytes());
            self.record = self.record.wrapping_add(1);
            chunk.copy_from_slice(&record[..chunk.len()]);
        }
    }

    /// A tenth of each block is a directory; the rest is compressed already.
    fn packed(&mut self, buffer: &mut [u8]) {
        for block in buffer.chunks_mut(BLOCK_BYTES) {
            let directory = block.len() / 10;
            let (head, rest) = block.split_at_mut(directory);
            self.records(head);
            self.random.fill(rest);
        }
    }

    fn words(&mut self, buffer: &mut [u8]) {
        const WORDS: [&[u8]; 32] = [
            b"the ",
            b"link ",
            b"carries ",
            b"many ",
            b"cars ",
            b"at ",
            b"once ",
            b"and ",
            b"each ",
            b"block ",
            b"is ",
            b"bought ",
            b"from ",
            b"a ",
            b"bounded ",
            b"pool ",
            b"read ",
            b"straight ",
            b"into ",
            b"it ",
            b"sent ",
            b"out ",
            b"of ",
            b"given ",
            b"back ",
            b"measure ",
            b"again ",
            b"until ",
            b"figures ",
            b"agree, ",
            b"then ",
            b"stop.\n",
        ];
        let mut at = 0;
        while at < buffer.len() {
            // 64 random bits choose twelve words by five bits each.
            let mut bits = self.random.next();
            for _ in 0..12 {
                let word = WORDS[(bits & 31) as usize];
                bits >>= 5;
                let length = word.len().min(buffer.len() - at);
                buffer[at..at + length].copy_from_slice(&word[..length]);
                at += length;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_repeats_by_its_seed() {
        for content in Content::ALL {
            let bytes = |seed| {
                let mut buffer = vec![0; 100_000];
                Writer::new(content, seed).fill(&mut buffer);
                buffer
            };
            assert_eq!(bytes(1), bytes(1), "{content:?}");
            assert_ne!(bytes(1), bytes(2), "{content:?}");
        }
    }

    #[test]
    fn content_compresses_as_it_says() {
        for (content, low, high) in [
            (Content::Spreadsheet, 0.4, 0.8),
            (Content::Office, 0.85, 0.99),
            (Content::Music, 0.99, 1.02),
            (Content::Archive, 0.99, 1.02),
            (Content::Text, 0.2, 0.7),
        ] {
            let ratio = content.lz4_ratio();
            assert!((low..high).contains(&ratio), "{content:?}: {ratio}");
        }
    }
}
