//! A memory tree as a far end that tells about contents without sending them, truly or not.

use std::ops::Range;

use super::file::MemoryFile;
use crate::chunks::{Chunk, Cutter, chunk_hash};
use crate::{ContentHash, FarContent, HashAlgorithm, Pending, Result};

/// What a far end says about the chunks of its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FarChunks {
    /// The truth.
    True,
    /// The hash of one chunk for another one of the same file.
    Swapped,
    /// Chunks of one byte each.
    Tiny,
    /// Nothing.
    None,
}

impl FarContent for MemoryFile {
    fn chunks(&self, range: Range<u64>, cutter: Cutter) -> Pending<'_, Result<Vec<Chunk>>> {
        Box::pin(async move {
            let content = self.range(range)?;
            let mut chunks = Vec::new();
            cutter.cut(&content, true, |chunk| {
                chunks.push(Chunk {
                    // The longest chunk has 1 MiB.
                    length: chunk.len() as u32,
                    hash: chunk_hash(chunk),
                });
            });
            match self.far_chunks() {
                Some(FarChunks::True) => {}
                Some(FarChunks::Swapped) => {
                    let hashes: Vec<_> = chunks.iter().map(|chunk| chunk.hash).rev().collect();
                    for (chunk, hash) in chunks.iter_mut().zip(hashes) {
                        chunk.hash = hash;
                    }
                }
                Some(FarChunks::Tiny) => chunks.iter_mut().for_each(|chunk| chunk.length = 1),
                Some(FarChunks::None) | None => chunks.clear(),
            }
            Ok(chunks)
        })
    }

    fn hash(&self, range: Range<u64>) -> Pending<'_, Result<(u64, ContentHash)>> {
        Box::pin(async move {
            let content = self.range(range)?;
            Ok((content.len() as u64, HashAlgorithm::Blake3.hash(&content)))
        })
    }
}
