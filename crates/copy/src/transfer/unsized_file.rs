//! Copies files that the kernel generates as they are read (/proc, /sys). Their size is 0 or a
//! page, whatever they contain.

use ropeway_block::Pool;
use ropeway_vfs::{ContentHasher, EndError, File, HashAlgorithm, Op};

use crate::job::counters::Landing;
use crate::job::outcome::cancelled;
use crate::job::report::Report;
use crate::transfer::stream::Streamed;

/// Copies what can be read, block by block. `hash` is how it is hashed, if it is.
///
/// # Errors
/// The first failure, with the end that failed.
pub(crate) async fn copy_unsized(
    pool: &Pool,
    report: &Report,
    (source, target): (&dyn File, &dyn File),
    landing: &Landing<'_>,
    hash: Option<HashAlgorithm>,
) -> Result<Streamed, EndError> {
    use std::sync::atomic::Ordering::Relaxed;
    let mut hasher = hash.map(HashAlgorithm::hasher);
    let mut size = 0;
    loop {
        if report.stopped() {
            return Err(EndError::on_source(cancelled(Op::Read, source.path())));
        }
        let block = pool.get().await;
        let length = block.capacity();
        let admitted = report.admit(length as u64).await;
        let (block, result) = source.read_at(block, size, length).await;
        let count = block.len();
        admitted.pay(count as u64).await;
        result.map_err(EndError::on_source)?;
        if let Some(hasher) = &mut hasher {
            hasher.update(&block);
        }
        if count > 0 {
            target
                .write_at(block.freeze(), size)
                .await
                .map_err(EndError::on_target)?;
        }
        size += count as u64;
        landing.add(count as u64);
        report.live.bytes_read.fetch_add(count as u64, Relaxed);
        report.live.bytes_sent.fetch_add(count as u64, Relaxed);
        report.live.operations.fetch_add(2, Relaxed);
        if count < length {
            let hash = hasher.map(ContentHasher::finish);
            return Ok(Streamed {
                size,
                end: size,
                hash,
            });
        }
    }
}
