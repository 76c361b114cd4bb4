//! Hashes of files, and the comparison of two files.

use ropeway_block::Pool;
use ropeway_vfs::decorate::limit::RateLimit;
use ropeway_vfs::{CacheMode, ContentHash, EndError, Error, File, HashAlgorithm, OpenOptions, RelPath, Tree};

/// Returns the hash of a whole file. Waits while the job is paused.
pub(crate) async fn hash_file(
    algorithm: HashAlgorithm,
    (pool, limit): (&Pool, &RateLimit),
    file: &dyn File,
) -> Result<ContentHash, Error> {
    let mut hasher = algorithm.hasher();
    let mut offset = 0;
    loop {
        let block = pool.get().await;
        let length = block.capacity();
        limit.pass().await;
        let (block, result) = file.read_at(block, offset, length).await;
        result?;
        hasher.update(&block);
        offset += block.len() as u64;
        if block.len() < length {
            return Ok(hasher.finish());
        }
    }
}

/// Whether two files have the same content. Waits while the job is paused.
pub(crate) async fn equal_content(
    (pool, limit): (&Pool, &RateLimit),
    source: (&dyn Tree, &RelPath),
    target: (&dyn Tree, &RelPath),
) -> Result<bool, EndError> {
    let left = source
        .0
        .open(source.1, OpenOptions::read(CacheMode::Leave))
        .await
        .map_err(EndError::on_source)?;
    let right = target
        .0
        .open(target.1, OpenOptions::read(CacheMode::Leave))
        .await
        .map_err(EndError::on_target)?;
    let mut offset = 0;
    loop {
        // Two blocks are taken one after the other. The pool has more than two for each caller.
        let one = pool.get().await;
        let two = pool.get().await;
        let length = one.capacity();
        limit.pass().await;
        let ((one, read), (two, read_too)) = futures_util::future::join(
            left.read_at(one, offset, length),
            right.read_at(two, offset, length),
        )
        .await;
        read.map_err(EndError::on_source)?;
        read_too.map_err(EndError::on_target)?;
        if one[..] != two[..] {
            return Ok(false);
        }
        if one.len() < length {
            return Ok(true);
        }
        offset += length as u64;
    }
}
