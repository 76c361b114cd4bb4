//! Write-back that fails, as Linux reports it (Documentation/core-api/errseq.rst).
//!
//! The kernel drops the pages that it could not write. They stay in the page cache, are clean, and
//! never reach the device. The kernel reports that once to each descriptor that was open at the
//! time. If no descriptor asked, the next one that is opened gets the report.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::MemoryTree;
use super::nodes::Body;
use super::random::Random;
use super::state::State;

/// Counts failures, and records whether the last one was reported.
#[derive(Clone, Debug, Default)]
pub(super) struct Failures {
    count: u64,
    is_reported: bool,
}

impl Failures {
    pub(super) fn add(&mut self) {
        self.count += 1;
        self.is_reported = false;
    }

    /// Returns the count that a new descriptor starts with.
    pub(super) fn sample(&self) -> u64 {
        match self.is_reported {
            true => self.count,
            false => self.count.saturating_sub(1),
        }
    }

    /// Whether there was a failure that the descriptor with this count has not reported.
    pub(super) fn check(&mut self, since: &AtomicU64) -> bool {
        let is_new = since.swap(self.count, Ordering::AcqRel) != self.count;
        self.is_reported |= is_new;
        is_new
    }
}

impl State {
    /// Drops some dirty pages. Returns whether any were lost.
    fn fail_writeback(&mut self, random: &mut Random, journals_metadata: bool) -> bool {
        let mut indices: Vec<u64> = self.nodes.keys().copied().collect();
        indices.sort_unstable();
        let mut failed = false;
        for index in indices {
            let node = self.node_mut(index);
            if let Body::File(content) = &mut node.body
                && content.fail_writeback(random, journals_metadata)
            {
                node.failures.add();
                failed = true;
            }
        }
        if failed {
            self.failures.add();
        }
        failed
    }
}

impl MemoryTree {
    /// Makes the write-back of part of the dirty pages fail; the same seed drops the same pages. The
    /// next `sync` of the tree, and of each file that lost pages, reports
    /// [`ErrorKind::DeviceError`](crate::ErrorKind::DeviceError). Returns whether anything was lost.
    ///
    /// If the tree does not journal metadata, the map of a file's blocks may be lost too. Then even
    /// durable pages are gone after a power cut, until the file is emptied and written again.
    pub fn fail_writeback(&self, seed: u64) -> bool {
        let journals_metadata = self.shared.capabilities.journals_metadata;
        let mut random = Random::new(seed);
        self.shared.lock().fail_writeback(&mut random, journals_metadata)
    }

    /// Opens the same tree again, as another process would.
    #[must_use]
    pub fn reopen(&self) -> Self {
        let since = self.shared.lock().failures.sample();
        Self {
            shared: Arc::clone(&self.shared),
            reported: AtomicU64::new(since).into(),
        }
    }
}
