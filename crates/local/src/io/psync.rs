//! The engine without io_uring: preadv2 and pwritev2 on worker threads.

use std::io::{self, IoSlice, IoSliceMut};

use super::{Request, Work};
use crate::executor::{self, Lane};

/// Performs a request on a worker thread.
pub(super) async fn perform(request: Request) -> (Work, io::Result<usize>) {
    let lane = match request.work {
        Work::Read { .. } | Work::Write { .. } => Lane::Data,
        Work::Sync { .. } => Lane::Slow,
    };
    executor::run(lane, move || perform_here(request)).await
}

/// Performs a request on this thread.
pub(super) fn perform_here(mut request: Request) -> (Work, io::Result<usize>) {
    loop {
        let result = once(&mut request);
        if let Some(outcome) = request.advance(result) {
            return (request.work, outcome);
        }
    }
}

fn once(request: &mut Request) -> io::Result<usize> {
    let offset = request.offset + request.done as u64;
    let flags = request.flags;
    match &mut request.work {
        Work::Read { block, start } => {
            let part = &mut block.capacity_mut()[*start + request.done..*start + request.length];
            Ok(rustix::io::preadv2(
                &request.fd,
                &mut [IoSliceMut::new(part)],
                offset,
                flags,
            )?)
        }
        Work::Write { block } => {
            let part = &block[request.done..request.length];
            Ok(rustix::io::pwritev2(
                &request.fd,
                &[IoSlice::new(part)],
                offset,
                flags,
            )?)
        }
        Work::Sync { data_only: true } => Ok(rustix::fs::fdatasync(&request.fd).map(|()| 0)?),
        Work::Sync { data_only: false } => Ok(rustix::fs::fsync(&request.fd).map(|()| 0)?),
    }
}
