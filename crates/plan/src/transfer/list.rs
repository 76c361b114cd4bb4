//! Lists the planned I/Os of a file without performing them.

use std::collections::VecDeque;

use ropeway_vfs::Extent;

use super::{Step, Transfer, TransferLimits};
use crate::engine::{Engine, Locality};

/// Whether an I/O reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IoKind {
    /// From the source.
    Read,
    /// To the target.
    Write,
}

/// One planned I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct PlannedIo {
    /// Whether it reads or writes.
    pub kind: IoKind,
    /// Byte offset.
    pub offset: u64,
    /// Bytes.
    pub length: usize,
    /// I/Os with the same number start together, without waiting between them.
    pub wave: usize,
}

/// Lists the I/Os by which `engine` moves a file of `size` bytes without holes, in the order in
/// which they start. Every I/O is assumed to take equally long, so the first to start is the first
/// to finish. `auto` uses [`TransferLimits::default`]. The list has one entry for each I/O, so it
/// is long for a file of 1 TB. The source is on this machine.
pub fn io_list(engine: Engine, size: u64) -> Vec<PlannedIo> {
    let mut transfer = Transfer::new(engine, Locality::Local, size, 0, TransferLimits::default());
    let mut list = Vec::new();
    let mut in_flight = VecDeque::new();
    let mut wave = 0;
    let mut waited = false;
    loop {
        let (kind, offset, length) = match transfer.poll() {
            Step::Read { offset, length } => (IoKind::Read, offset, length),
            Step::Write { offset, length } => (IoKind::Write, offset, length),
            Step::NextExtent { .. } => {
                let length = size;
                transfer.extent(Some(Extent { offset: 0, length }));
                continue;
            }
            Step::Wait => {
                match in_flight.pop_front() {
                    Some((IoKind::Read, offset, length)) => transfer.read_done(offset, length),
                    Some((IoKind::Write, offset, length)) => transfer.write_done(offset, length),
                    None => unreachable!("a transfer waits only while something is in flight"),
                }
                waited = true;
                continue;
            }
            Step::Done { .. } => return list,
        };
        if std::mem::take(&mut waited) {
            wave += 1;
        }
        in_flight.push_back((kind, offset, length));
        list.push(PlannedIo {
            kind,
            offset,
            length,
            wave,
        });
    }
}
