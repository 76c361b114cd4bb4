//! Many requests in flight through one io_uring, submitted and reaped by the thread that measures.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ropeway_block::BlockMut;
use ropeway_local::{Finished, IoQueue};

use super::data::Buffers;
use super::tally::Tally;
use super::workers::Requests;
use super::{PassError, PassResult};

/// Requests in flight: when each began, and where.
struct Flight {
    places: Vec<(Duration, u64)>,
    free: Vec<u64>,
}

/// Makes all requests with `depth` of them in flight.
///
/// # Errors
/// A request or the ring fails.
pub(super) fn run(
    requests: &Requests<'_>,
    buffers: &Buffers,
    mut queue: IoQueue,
    depth: u32,
) -> PassResult<Tally> {
    let mut blocks = buffers.share(1);
    let mut flight = Flight {
        places: vec![(Duration::ZERO, 0); depth as usize],
        free: (0..u64::from(depth)).rev().collect(),
    };
    let begun = Instant::now();
    let (mut tally, mut next, mut now) = (Tally::default(), 0, Duration::ZERO);
    let mut failed = None;
    loop {
        while failed.is_none() && next < requests.order.len() {
            if requests.is_over(now, tally.bytes) {
                tally.cut = true;
                break;
            }
            let (Some(block), Some(slot)) = (blocks.pop_front(), flight.free.pop()) else {
                break;
            };
            let offset = requests.offset(next);
            flight.places[slot as usize] = (begun.elapsed(), offset);
            push(requests, &mut queue, block, offset, slot);
            next += 1;
        }
        if queue.is_idle() {
            return failed.map_or(Ok(tally), Err);
        }
        queue.wait().map_err(PassError::at("use io_uring"))?;
        while let Some(done) = queue.finished() {
            now = begun.elapsed();
            match finish(requests, done, &mut blocks, &mut flight) {
                Ok((start, offset)) => {
                    tally.add(now, now - start, requests.record as u64);
                    if let Some(traces) = requests.trace {
                        let length = requests.record as u64;
                        traces.record(requests.verb(), offset, length, now - start, length as i64);
                    }
                }
                // What is in flight ends first.
                Err(error) => failed = failed.or(Some(error)),
            }
        }
    }
}

fn push(requests: &Requests<'_>, queue: &mut IoQueue, mut block: BlockMut, offset: u64, slot: u64) {
    if requests.writes {
        requests
            .marks
            .write(&mut block.capacity_mut()[..requests.record], offset);
        block.set_len(requests.record);
        queue.write(requests.fd, offset, block.freeze(), slot);
    } else {
        queue.read(requests.fd, offset, requests.record, block, slot);
    }
}

/// Takes back the block of a finished request, and returns when and where it began.
fn finish(
    requests: &Requests<'_>,
    done: Finished,
    blocks: &mut VecDeque<BlockMut>,
    flight: &mut Flight,
) -> PassResult<(Duration, u64)> {
    let (slot, result, block) = match done {
        Finished::Read(slot, block, result) => (slot, result, Some(block)),
        Finished::Write(slot, block, result) => (slot, result, block.try_into_mut().ok()),
    };
    flight.free.push(slot);
    let (start, offset) = flight.places[slot as usize];
    let mut block = block.expect("the queue gave back the only handle of the block");
    let count = result.map_err(|error| requests.failed(error))?;
    if count != requests.record {
        return Err(PassError::Wrong(format!(
            "a {} at {offset} moved {count} of {} bytes",
            requests.verb(),
            requests.record
        )));
    }
    if requests.writes {
        // The longest unused comes next.
        blocks.push_back(block);
    } else {
        requests.check(&block.capacity_mut()[..requests.record], offset)?;
        blocks.push_front(block);
    }
    Ok((start, offset))
}
