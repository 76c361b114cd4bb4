//! Copies small files of one folder on this machine in one job, with few system calls for each file.
//!
//! A file with content, ordinary attributes and an unchanged source takes 10 calls (counted with strace):
//! openat, pread, fstat, flistxattr on the source; openat, pwrite, utimensat, close on the target; close
//! of the source; renameat if a temporary name is used. Each batch adds: opening both folders, one look
//! for a default ACL on the target folder, one fstat of the first new file (which owner and mode does
//! creation give?) and one read that does not wait (is the source cached?).
//!
//! More calls are made only if needed: another owner (fchown, fchmod), set-id bits or bits removed by a
//! umask (fchmod), extended attributes (one call each), holes (pwrite for each run, ftruncate),
//! `sync_each`.
//!
//! If the source is not cached, files are opened and read ahead, so that the device always has many reads
//! to order.

mod compare;
mod item;
mod source;
mod target;

use std::cell::RefCell;

use ropeway_vfs::{Batch, BatchResult, Error, Op, Verdict};

use crate::names::again;
use crate::tree::Inner;
pub(crate) use compare::compare;
use item::Copier;

/// Bytes of the buffer of each worker thread: small files are read whole. Jobs put files of up to 1 MiB
/// into batches; longer ones are copied in pieces.
const BUFFER_BYTES: usize = 1 << 20;

thread_local! {
    /// One buffer for each worker, paged in as far as it is used.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn with_buffer<T>(work: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.is_empty() {
            // One byte more, to tell a file of exactly this size from a longer one.
            *buffer = vec![0; BUFFER_BYTES + 1];
        }
        work(buffer)
    })
}

/// Copies a batch on this thread; one result for each item, in order.
pub(crate) fn copy(source: &Inner, target: &Inner, batch: &Batch) -> Vec<BatchResult> {
    with_buffer(|buffer| {
        let mut copier = match Copier::new(source, target, batch, buffer) {
            Ok(copier) => copier,
            Err((error, on_source)) => return all_failed(batch, &error, on_source),
        };
        let mut results: Vec<BatchResult> = Vec::with_capacity(batch.items.len());
        let mut stop: Option<(Error, bool)> = None;
        for (index, item) in batch.items.iter().enumerate() {
            if let Some((error, on_source)) = &stop {
                // The volume is full or gone: the other files would fail the same way, slowly.
                let dir = if *on_source {
                    &batch.source_dir
                } else {
                    &batch.target_dir
                };
                results.push(Err((again(error, dir.join(&item.name)), *on_source)));
                continue;
            }
            let result = copier.copy(index, item);
            if let Err((error, on_source)) = &result
                && error.verdict() == Verdict::Abort
            {
                stop = Some((again(error, error.path.clone()), *on_source));
            }
            results.push(result);
        }
        results
    })
}

fn all_failed(batch: &Batch, error: &Error, on_source: bool) -> Vec<BatchResult> {
    let failed = |item: &ropeway_vfs::BatchItem| {
        let dir = if on_source {
            &batch.source_dir
        } else {
            &batch.target_dir
        };
        let name = if on_source { &item.name } else { &item.target };
        Err((again(error, dir.join(name)), on_source))
    };
    batch.items.iter().map(failed).collect()
}

/// An error, and whether the source failed.
type Failure = (Error, bool);

/// Returns the word for an operation in traces.
fn word(op: Op) -> &'static str {
    match op {
        Op::Open => "open",
        Op::Create => "create",
        Op::Read => "read",
        Op::Write => "write",
        Op::Rename => "rename",
        Op::Sync => "sync",
        _ => "set_attributes",
    }
}
