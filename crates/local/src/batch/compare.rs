//! Compares small files of two folders on this thread; they are opened ahead and read whole, as the
//! sources of a copy are.

use std::os::fd::OwnedFd;

use ropeway_vfs::{
    BatchItem, CompareBatch, CompareResult, Create, End, EndError, Error, Metadata, Name, Op, RelPath,
};

use super::source::Sources;
use super::with_buffer;
use crate::beneath::{fault, open_fault};
use crate::names::again;
use crate::tree::Inner;

/// Returns one result for each pair, in order. Both sides are opened ahead, so that neither waits for the
/// other's device.
pub(crate) fn compare(one: &Inner, other: &Inner, batch: &CompareBatch) -> Vec<CompareResult> {
    let items = |name: fn(&(Name, Name, Metadata)) -> &Name| -> Vec<BatchItem> {
        let item = |pair: &(Name, Name, Metadata)| BatchItem {
            name: name(pair).clone(),
            target: name(pair).clone(),
            rename_to: None,
            create: Create::No,
            metadata: pair.2.clone(),
        };
        batch.pairs.iter().map(item).collect()
    };
    let (ones, others) = (items(|pair| &pair.0), items(|pair| &pair.1));
    let all_failed = |end, error: Error| {
        batch
            .pairs
            .iter()
            .map(|_| {
                let error = again(&error, error.path.clone());
                Err(EndError { end, error })
            })
            .collect()
    };
    let left = match one.root.place(Op::Open, &batch.dir) {
        Ok(folder) => Side::new(Sources::new(folder, &ones), &batch.dir),
        Err(error) => return all_failed(End::Source, error),
    };
    let right = match other.root.place(Op::Open, &batch.other_dir) {
        Ok(folder) => Side::new(Sources::new(folder, &others), &batch.other_dir),
        Err(error) => return all_failed(End::Target, error),
    };
    let (mut left, mut right) = (left, right);
    with_buffer(|buffer| {
        let half = buffer.len() / 2;
        let (one, two) = buffer[..2 * half].split_at_mut(half);
        let pairs = ones.iter().zip(&others);
        let equal = |(a, b)| equal(&mut left, &mut right, (a, b), (one, two));
        pairs.map(equal).collect()
    })
}

/// One side of a comparison. Both buffers are of one size.
struct Side<'a> {
    sources: Sources<'a>,
    dir: &'a RelPath,
}

impl<'a> Side<'a> {
    fn new(sources: Sources<'a>, dir: &'a RelPath) -> Self {
        Self { sources, dir }
    }

    fn take(&mut self, item: &BatchItem) -> ropeway_vfs::Result<OwnedFd> {
        let opened = self.sources.take();
        opened.map_err(|error| open_fault(Op::Open, &self.dir.join(&item.name), error))
    }

    fn read(&mut self, file: &OwnedFd, item: &BatchItem, buffer: &mut [u8]) -> ropeway_vfs::Result<usize> {
        let read = self.sources.read_plain(file, item.metadata.size, buffer);
        read.map_err(|error| fault(Op::Read, &self.dir.join(&item.name), error))
    }
}

fn equal(
    left: &mut Side<'_>,
    right: &mut Side<'_>,
    (a, b): (&BatchItem, &BatchItem),
    (one, two): (&mut [u8], &mut [u8]),
) -> CompareResult {
    // Both are taken even if one fails: sources come in the order of the items.
    let (file, other) = (left.take(a), right.take(b));
    let (file, other) = (
        file.map_err(EndError::on_source)?,
        other.map_err(EndError::on_target)?,
    );
    let length = left.read(&file, a, one).map_err(EndError::on_source)?;
    let other_length = right.read(&other, b, two).map_err(EndError::on_target)?;
    if one[..length] != two[..other_length] {
        return Ok(false);
    }
    if length < one.len() {
        return Ok(true);
    }
    let rest = (length as u64, (one, two));
    equal_from(&file, &other, rest).map_err(|(end, error)| {
        let (dir, item) = match end {
            End::Source => (left.dir, a),
            End::Target => (right.dir, b),
        };
        let error = fault(Op::Read, &dir.join(&item.name), error);
        EndError { end, error }
    })
}

/// Compares the content beyond the buffers.
fn equal_from(
    file: &OwnedFd,
    other: &OwnedFd,
    (mut offset, (one, two)): (u64, (&mut [u8], &mut [u8])),
) -> Result<bool, (End, rustix::io::Errno)> {
    loop {
        let length = read_full(file, one, offset).map_err(|error| (End::Source, error))?;
        let other_length = read_full(other, &mut two[..one.len().min(length.max(1))], offset);
        let other_length = other_length.map_err(|error| (End::Target, error))?;
        if one[..length] != two[..other_length] {
            return Ok(false);
        }
        if length == 0 {
            return Ok(true);
        }
        offset += length as u64;
    }
}

/// Reads until the buffer is full or the file ends.
fn read_full(file: &OwnedFd, buffer: &mut [u8], offset: u64) -> rustix::io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        let count = rustix::io::retry_on_intr(|| {
            rustix::io::pread(file, &mut buffer[length..], offset + length as u64)
        })?;
        if count == 0 {
            break;
        }
        length += count;
    }
    Ok(length)
}
