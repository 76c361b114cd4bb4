//! Whether the line is so slow that comparing is faster than sending.

use std::time::Duration;

use futures_util::stream::StreamExt as _;
use ropeway_vfs::Tree;
use tokio::time::Instant;

use super::build::cut;
use super::{Delta, Direction, Unusable};
use crate::job::options::DeltaMode;

/// Bytes a second of a line beside which comparing is worth it: half of what two processors
/// compare, cut and hash, when one end has each of them (0.6 to 0.8 GB/s).
const SLOW_MAX: u64 = 300_000_000;

/// Bytes of the file that are sent to measure the line: a thirtieth of a second at 1 Gbit/s.
const SAMPLE: u64 = 4 << 20;

/// Writes in flight while it is measured.
const SENDS_AT_ONCE: usize = 8;

impl Delta<'_> {
    /// Returns whether the user or the line wants it. The line of a job is measured once: by the
    /// first bytes of the first file, unless the far end is known to be far away.
    pub(super) async fn is_wanted(&mut self, direction: Direction) -> Result<bool, Unusable> {
        if self.context.config.options.delta == DeltaMode::On {
            return Ok(true);
        }
        let source = &self.task.folder.root().root.source;
        let far: &dyn Tree = match direction {
            Direction::Up => &*self.context.config.target,
            Direction::Down => &**source,
        };
        if far.capabilities().far {
            return Ok(true);
        }
        if direction == Direction::Down && self.context.hash_algorithm().is_some() {
            // The sample would not be compared, as the hash needs it.
            return Ok(false);
        }
        let mut sampled = 0;
        let line = &self.context.resources.line;
        let rate = line.get_or_try_init(|| self.measure(&mut sampled)).await?;
        let is_slow = *rate < SLOW_MAX;
        self.start += sampled;
        self.landing.add(sampled);
        Ok(is_slow)
    }

    /// Sends the first bytes of what is left, and returns their rate in bytes a second.
    async fn measure(&self, sampled: &mut u64) -> Result<u64, Unusable> {
        let end = self.size.min(self.start + SAMPLE);
        let start = Instant::now();
        futures_util::stream::iter(cut(self.start..end))
            .map(|range| self.send(range))
            .buffer_unordered(SENDS_AT_ONCE)
            .fold(Ok(()), |all: Result<(), Unusable>, one| {
                std::future::ready(all.and(one))
            })
            .await?;
        let span = start.elapsed().max(Duration::from_micros(1));
        *sampled = end - self.start;
        // At most 4 MiB in at least a microsecond.
        Ok((*sampled as f64 / span.as_secs_f64()) as u64)
    }
}
