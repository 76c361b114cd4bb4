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

use ropeway_vfs::{Batch, BatchResult, End, EndError, Error, Op, RelPath, Verdict};

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
            Err(EndError { end, error }) => return all_failed(batch, end, &error),
        };
        let mut results: Vec<BatchResult> = Vec::with_capacity(batch.items.len());
        let mut stop: Option<EndError> = None;
        for (index, item) in batch.items.iter().enumerate() {
            if let Some(EndError { end, error }) = &stop {
                // The volume is full or gone: the other files would fail the same way, slowly.
                let error = again(error, dir_of(batch, *end).join(&item.name));
                results.push(Err(EndError { end: *end, error }));
                continue;
            }
            let result = copier.copy(index, item);
            if let Err(EndError { end, error }) = &result
                && error.verdict() == Verdict::Abort
            {
                let error = again(error, error.path.clone());
                stop = Some(EndError { end: *end, error });
            }
            results.push(result);
        }
        results
    })
}

fn dir_of(batch: &Batch, end: End) -> &RelPath {
    match end {
        End::Source => &batch.source_dir,
        End::Target => &batch.target_dir,
    }
}

fn all_failed(batch: &Batch, end: End, error: &Error) -> Vec<BatchResult> {
    let failed = |item: &ropeway_vfs::BatchItem| {
        let name = match end {
            End::Source => &item.name,
            End::Target => &item.target,
        };
        let error = again(error, dir_of(batch, end).join(name));
        Err(EndError { end, error })
    };
    batch.items.iter().map(failed).collect()
}

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
