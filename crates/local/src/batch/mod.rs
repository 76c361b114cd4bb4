//! Small files of one folder, copied on this machine in one job: as few system calls a file as can be.
//!
//! For a file with content, no attributes beyond the ordinary and an unchanged source these are 10 (counted with
//! strace): openat, pread, fstat, flistxattr on the source; openat, pwrite, utimensat, close on the target; close of
//! the source; renameat where a temporary name is used. Once for each batch come: opening both folders, one
//! look for a default ACL on the target folder, one fstat of the first file made (which owner and mode does creation
//! give here?) and one read that does not wait (is the source cached?).
//!
//! What costs more calls, only where it is needed: another owner (fchown, fchmod), set-id bits or bits lost to
//! a umask (fchmod), extended attributes (one call each), holes (pwrite for each run, ftruncate), `sync_each`.
//!
//! When the source is not cached, sources are opened ahead and read ahead, so that the device always has
//! many reads to order.

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

/// Buffer of each worker thread, in bytes: small files are read whole. The job sends files up to 1 MiB here; longer
/// ones pass through in pieces.
const BUFFER_BYTES: usize = 1 << 20;

thread_local! {
    /// One buffer for each worker, paged in as far as it is used.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn with_buffer<T>(work: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.is_empty() {
            // One byte more than a file may have tells a file of exactly the buffer's size from a longer one.
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
                // The volume is full or gone: the others would only fail the same way, slowly.
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

/// What failed, and on which side.
type Failure = (Error, bool);

/// An operation's word for its kind, as in traces.
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
