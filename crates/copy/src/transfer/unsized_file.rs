//! Copies files that the kernel generates as they are read (/proc, /sys). Their size is 0 or a
//! page, whatever they contain.

use ropeway_vfs::{EndError, File, Op};

use crate::job::context::{Context, cancelled};
use crate::job::counters::Landing;
use crate::transfer::stream::Streamed;

/// Copies what can be read, block by block.
///
/// # Errors
/// The first failure, with the end that failed.
pub(crate) async fn copy_unsized(
    context: &Context,
    source: &dyn File,
    target: &dyn File,
    landing: &Landing<'_>,
) -> Result<Streamed, EndError> {
    use std::sync::atomic::Ordering::Relaxed;
    let mut hasher = context.hashes.is_some().then(blake3::Hasher::new);
    let mut size = 0;
    loop {
        if context.stopped() {
            return Err(EndError::on_source(cancelled(Op::Read, source.path())));
        }
        let block = context.resources.pool.get().await;
        let length = block.capacity();
        let (block, result) = source.read_at(block, size, length).await;
        result.map_err(EndError::on_source)?;
        let count = block.len();
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
        context.report.live.bytes_read.fetch_add(count as u64, Relaxed);
        context.report.live.bytes_sent.fetch_add(count as u64, Relaxed);
        if count < length {
            let hash = hasher.map(|hasher| *hasher.finalize().as_bytes());
            return Ok(Streamed {
                size,
                end: size,
                hash,
            });
        }
    }
}
