//! Copies the data of a file inside the kernel or a server, where both can.

use std::sync::atomic::Ordering;

use ropeway_vfs::{EndError, Op};
use tokio::time::Instant;

use super::{Stream, Streamed};
use crate::job::counters::add_wait;
use crate::job::outcome::cancelled;

/// Bytes of one copy inside the kernel.
const RANGE_CHUNK: u64 = 16 << 20;

impl Stream<'_> {
    /// Copies everything inside the kernel or the server. `None` if that is impossible.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub(crate) async fn run_in_kernel(&self) -> Result<Option<Streamed>, EndError> {
        let mut at = self.start;
        while at < self.size {
            let Some(extent) = self.next_extent(at).await? else {
                break;
            };
            let end = (extent.offset + extent.length).min(self.size);
            self.land(extent.offset.max(at) - at);
            at = extent.offset.max(at);
            while at < end {
                if self.context.stopped() {
                    return Err(EndError::on_target(cancelled(Op::Write, self.target.path())));
                }
                let limit = &self.context.report.limit;
                let length = RANGE_CHUNK.min(end - at).min(limit.piece_max());
                let admitted = limit.admit(length).await;
                let start = Instant::now();
                self.wait_for_flush().await;
                let copied = self.target.copy_range_from(&*self.source, at, length).await;
                admitted.pay(length).await;
                add_wait(&self.context.report.live.waits.target, start.elapsed());
                let Some(copied) = copied.map_err(EndError::on_target)? else {
                    self.landing.reset();
                    self.landing.add(self.start);
                    return Ok(None);
                };
                if copied == 0 {
                    return Ok(Some(Streamed {
                        size: at,
                        end: 0,
                        hash: None,
                    }));
                }
                at += copied;
                self.account_range(at, copied);
            }
        }
        self.land(self.size.saturating_sub(at));
        Ok(Some(Streamed {
            size: self.size,
            end: 0,
            hash: None,
        }))
    }

    fn account_range(&self, at: u64, copied: u64) {
        let live = &self.context.report.live;
        live.operations.fetch_add(2, Ordering::Relaxed);
        // Nothing is sent to a server that copies by itself.
        if !self.context.resources.needs_many_calls() {
            live.bytes_read.fetch_add(copied, Ordering::Relaxed);
            live.bytes_sent.fetch_add(copied, Ordering::Relaxed);
        }
        self.land(copied);
        self.context.durability.written(self.attempt, at);
        if let Some(journal) = &self.context.journal {
            let written = journal.written(self.token, at);
            self.context.report.journal_result(Some(written));
        }
    }
}
