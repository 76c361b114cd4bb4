//! Blocks on their way into the kernel's memory: read from flash or the source, and kept for the
//! moment until they are read through the mount.

use std::sync::Arc;

use ropeway_cache::Key;

use super::order::From;
use crate::fetches::Bytes;
use crate::node::BoostNode;
use crate::ranges::{self, BLOCK};

impl BoostNode {
    /// Reads blocks, in ascending order, so that the next reads of the file find them in memory. No
    /// use is counted. Returns the bytes; `None` if a block cannot be had so.
    pub(crate) fn stage(&self, blocks: &[u64], from: From) -> Option<u64> {
        let (file, version) = self.usable().or_else(|| {
            self.ask(self.file.as_ref()?).ok()?;
            self.usable()
        })?;
        let (first, last) = (*blocks.first()?, *blocks.last()?);
        let boost = self.boost();
        let key = |block: u64| Key {
            file: file.key,
            version,
            block,
        };
        let is_whole = |block: u64, bytes: &[u8]| {
            let expected = ranges::bytes_of(block, version.size);
            let length = expected.end.checked_sub(expected.start);
            !bytes.is_empty() && length == Some(bytes.len() as u64)
        };
        let found: Vec<(u64, Bytes)> = match from {
            From::Flash => {
                let read = |block: &u64| Some((*block, boost.cache.peek(&key(*block))?));
                blocks.iter().map(read).collect::<Option<_>>()?
            }
            From::Source => {
                let (start, end) = (first * BLOCK, ranges::bytes_of(last, version.size).end);
                let mut span = vec![0; usize::try_from(end.checked_sub(start)?).ok()?];
                let count = self.read_source(file, &mut span, start).ok()?;
                if count != span.len() || self.usable()?.1 != version {
                    return None;
                }
                let part = |block: &u64| {
                    let bytes = ranges::bytes_of(*block, version.size);
                    let at = usize::try_from(bytes.start - start).ok()?;
                    let end = usize::try_from(bytes.end - start).ok()?;
                    Some((*block, Arc::from(span.get(at..end)?)))
                };
                blocks.iter().map(part).collect::<Option<_>>()?
            }
        };
        if found.iter().any(|(block, bytes)| !is_whole(*block, bytes)) {
            return None;
        }
        let bytes = found.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        for (block, bytes) in found {
            boost.fetches.keep(key(block), bytes);
        }
        Some(bytes)
    }
}
