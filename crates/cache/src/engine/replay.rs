//! Reading the segments that are newer than the checkpoint.
//!
//! Any segment that the checkpoint does not list may have been written since. In a large cache that
//! is not full these are thousands of small reads, so they are done by some threads.

use crate::engine::health::Guarded;
use crate::error::Error;
use crate::log::PAGE;
use crate::log::record::RecordHeader;
use crate::log::segment::{self, Entry, FOOTER_BYTES, SEGMENT_HEADER_BYTES};
use crate::log::superblock::Superblock;
use ropeway_block::Pool;

/// Threads that read headers. A guess: flash devices reach their rate at this depth.
const THREADS: usize = 16;

/// Fewer headers are read by one thread: 64 of them take some milliseconds.
const FEW: usize = 64;

/// A segment that is newer than the checkpoint.
pub(super) struct Newer {
    pub(super) at: usize,
    pub(super) seq: u64,
    pub(super) entries: Vec<Entry>,
}

/// Returns those of the segments that are newer than `covered_seq`, oldest first.
pub(super) fn newer(
    device: &Guarded,
    superblock: &Superblock,
    unlisted: &[usize],
    covered_seq: u64,
    buffer: &mut [u8],
) -> Result<Vec<Newer>, Error> {
    let mut begun = numbers(device, superblock, unlisted)?;
    begun.retain(|(_, seq)| *seq > covered_seq);
    begun.sort_by_key(|(_, seq)| *seq);
    let read = |(at, seq)| {
        let entries = entries(device, superblock, at, seq, buffer)?;
        Ok(Newer { at, seq, entries })
    };
    begun.into_iter().map(read).collect()
}

/// Returns position and number of the segments that were begun.
fn numbers(
    device: &Guarded,
    superblock: &Superblock,
    segments: &[usize],
) -> Result<Vec<(usize, u64)>, Error> {
    let threads = if segments.len() < FEW { 1 } else { THREADS };
    let pool = Pool::new(PAGE, threads);
    let read = |part: &[usize]| {
        let mut page = pool.try_get().expect("a slot for each thread");
        let page = page.capacity_mut();
        let number = |at: &usize| match number(device, superblock, *at, page) {
            Ok(seq) => seq.map(|seq| Ok((*at, seq))),
            Err(error) => Some(Err(error)),
        };
        part.iter().filter_map(number).collect::<Result<Vec<_>, Error>>()
    };
    if threads == 1 {
        return read(segments);
    }
    std::thread::scope(|scope| {
        let parts = segments.chunks(segments.len().div_ceil(threads));
        let running: Vec<_> = parts.map(|part| scope.spawn(|| read(part))).collect();
        let mut all = Vec::new();
        for thread in running {
            all.extend(thread.join().expect("reading does not panic")?);
        }
        Ok(all)
    })
}

/// Returns the number of a segment; `None` if it was never begun in this cache.
fn number(
    device: &Guarded,
    superblock: &Superblock,
    at: usize,
    page: &mut [u8],
) -> Result<Option<u64>, Error> {
    device.read_at(start(superblock, at), page)?;
    let salt = &superblock.salt;
    // A damaged header is made up for by the first record.
    Ok(segment::parse_header(page, salt).or_else(|| {
        let first = RecordHeader::parse(&page[SEGMENT_HEADER_BYTES..], salt);
        first.map(|record| record.segment_seq)
    }))
}

/// Returns the records of a segment.
fn entries(
    device: &Guarded,
    superblock: &Superblock,
    at: usize,
    seq: u64,
    buffer: &mut [u8],
) -> Result<Vec<Entry>, Error> {
    let (bytes, salt) = (superblock.segment_bytes as usize, &superblock.salt);
    let start = start(superblock, at);
    let footer = &mut buffer[..FOOTER_BYTES];
    device.read_at(start + (bytes - FOOTER_BYTES) as u64, footer)?;
    if let Some(entries) = segment::parse_footer(footer, seq, salt) {
        return Ok(entries);
    }
    let whole = &mut buffer[..bytes];
    device.read_at(start, whole)?;
    Ok(segment::scan(whole, seq, salt))
}

fn start(superblock: &Superblock, at: usize) -> u64 {
    superblock.data_start() + at as u64 * u64::from(superblock.segment_bytes)
}
