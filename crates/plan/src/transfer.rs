//! Moves the data of one file, as a state machine without I/O.
//!
//! A [`Transfer`] returns the next step; the driver carries it out and reports back. It holds
//! offsets, never bytes:
//!
//! ```text
//!            poll() -> NextExtent | Read | Write | Wait | Done
//!   Transfer ------------------------------------------------> driver (buffers, files)
//!            <------------------------------------------------
//!            extent() · read_done() · write_done()
//! ```
//!
//! The driver calls [`Transfer::poll`] until it returns `Wait` (report at least one completion,
//! then poll again) or `Done`. Completions may come in any order. A block is planned once, read
//! once, and written once, after its read.
//!
//! Invariants, each under test:
//! * Blocks never overlap, never touch a hole, and are never below the resume offset.
//! * A block is in flight from the start of its read to the end of its write. No more blocks are in
//!   flight than the engine allows.
//! * [`Transfer::contiguous`] never goes back.
//! * A short read means that the file has shrunk: nothing beyond is read, and what was not read is
//!   never written.
//!
//! The engines differ only in three answers (see `Policy`): how long the next block is, whether one
//! more read may start, and which finished read is written next.

mod auto;
mod cursor;
mod flight;
mod list;
#[cfg(test)]
mod tests;
mod vista;
mod vista_sp1;
mod win7;
mod xp;

use ropeway_vfs::Extent;

use crate::engine::{Engine, Locality};
use crate::era;
use cursor::Cursor;
use flight::Flight;
pub use list::{IoKind, PlannedIo, io_list};

/// Smallest block that `auto` uses, in bytes: a page, the unit of direct I/O.
const BLOCK_SIZE_MIN: usize = 4096;

/// Size and number of blocks in flight. Only `auto` uses them; the historic engines have their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferLimits {
    /// Bytes of one block, chosen by the [`crate::tuner::Tuner`]; at least 4096 are used.
    pub block_size: usize,
    /// Blocks in flight, reads and writes together; at least 1 is used.
    pub depth: usize,
}

impl Default for TransferLimits {
    /// 4 blocks of 1 MiB: a guess to start from; the tuner moves on from there.
    fn default() -> Self {
        Self {
            block_size: 1024 * 1024,
            depth: 4,
        }
    }
}

/// The next step of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Find the first run of data at or after `from` and answer with [`Transfer::extent`].
    NextExtent {
        /// Byte offset.
        from: u64,
    },
    /// Start to read a block and answer with [`Transfer::read_done`].
    Read {
        /// Byte offset.
        offset: u64,
        /// Bytes, at least 1.
        length: usize,
    },
    /// Start to write a block that was read (exactly the bytes that the read returned) and answer
    /// with [`Transfer::write_done`].
    Write {
        /// Byte offset, that of the read.
        offset: u64,
        /// Bytes, at least 1: the number that the read returned.
        length: usize,
    },
    /// Start nothing until something in flight has been reported.
    Wait,
    /// Everything is written and nothing is in flight.
    Done {
        /// Bytes that this transfer has written, without holes and bytes below the resume offset.
        /// The length to give the target is [`Transfer::size`].
        length: u64,
    },
}

/// The transfer of one file's data.
#[derive(Debug)]
pub struct Transfer {
    cursor: Cursor,
    flight: Flight,
    policy: Plan,
    written: u64,
}

/// The decisions of an engine.
trait Policy {
    /// Returns the length of the next block, which would start at `offset`; the block ends earlier
    /// if its extent does.
    fn block_length(&self, offset: u64) -> u64;
    /// Whether one more read may start. `exhausted`: nothing is left to read.
    fn may_read(&mut self, flight: &Flight, exhausted: bool) -> bool;
    /// Reports that a read which [`may_read`](Self::may_read) allowed has started.
    fn read_started(&mut self) {}
    /// Takes the block to write next out of `flight`'s ready queue.
    fn next_write(&mut self, flight: &mut Flight, exhausted: bool) -> Option<(u64, usize)>;
}

#[derive(Debug)]
enum Plan {
    Auto(auto::Auto),
    Xp(xp::Xp),
    Vista(vista::Vista),
    VistaSp1(vista_sp1::VistaSp1),
    Win7(win7::Win7),
}

impl Plan {
    fn policy(&mut self) -> &mut dyn Policy {
        match self {
            Self::Auto(policy) => policy,
            Self::Xp(policy) => policy,
            Self::Vista(policy) => policy,
            Self::VistaSp1(policy) => policy,
            Self::Win7(policy) => policy,
        }
    }
}

impl Transfer {
    /// Makes the transfer of a file of `size` bytes by `engine`, from another machine or this one. Bytes
    /// below `start` count as done (resume).
    pub fn new(engine: Engine, from: Locality, size: u64, start: u64, limits: TransferLimits) -> Self {
        let policy = match engine {
            Engine::Auto => Plan::Auto(auto::Auto::new(limits)),
            Engine::Xp | Engine::XpSmb1 => Plan::Xp(xp::Xp::new(from == Locality::Remote)),
            Engine::Vista => Plan::Vista(vista::Vista::new(size)),
            Engine::VistaSp1 => Plan::VistaSp1(vista_sp1::VistaSp1),
            Engine::Win7Smb1 => Plan::Win7(win7::Win7::new(era::WIN7_SMB1)),
            Engine::Win7Smb2 => Plan::Win7(win7::Win7::new(era::WIN7_SMB2)),
        };
        Self {
            cursor: Cursor::new(size, start),
            flight: Flight::default(),
            policy,
            written: 0,
        }
    }

    /// Returns the next step. Call it until [`Step::Wait`] or [`Step::Done`].
    pub fn poll(&mut self) -> Step {
        let exhausted = self.cursor.is_exhausted();
        let policy = self.policy.policy();
        if let Some((offset, length)) = policy.next_write(&mut self.flight, exhausted) {
            return Step::Write { offset, length };
        }
        if exhausted {
            return match self.flight.len() {
                0 => Step::Done { length: self.written },
                _ => Step::Wait,
            };
        }
        if !policy.may_read(&self.flight, exhausted) {
            return Step::Wait;
        }
        match self.cursor.data() {
            cursor::Data::Known { offset, end } => {
                let length = policy.block_length(offset).clamp(1, end - offset);
                policy.read_started();
                self.cursor.advance(length);
                let length = self.flight.read(offset, length);
                Step::Read { offset, length }
            }
            cursor::Data::Ask { from } => Step::NextExtent { from },
            cursor::Data::Asked => Step::Wait,
        }
    }

    /// Answers [`Step::NextExtent`]; `None` means that only a hole remains. Parts before the
    /// question or beyond the size are cut off. An extent that ends before the question makes no
    /// sense and counts as "all data".
    pub fn extent(&mut self, extent: Option<Extent>) {
        self.cursor.answer(extent);
    }

    /// Reports that the read at `offset` returned `length` bytes. Fewer than asked for means that
    /// the file now ends there.
    ///
    /// # Panics
    /// If no read at `offset` is in flight.
    pub fn read_done(&mut self, offset: u64, length: usize) {
        let asked = self.flight.reading_length(offset);
        if length < asked {
            self.cursor.shrink(offset + length as u64);
        }
        self.flight.read_done(offset, length.min(asked));
        self.flight.drop_ready_from(self.cursor.size());
    }

    /// Reports that the write at `offset` has finished.
    ///
    /// # Panics
    /// If no write of `length` bytes at `offset` is in flight.
    pub fn write_done(&mut self, offset: u64, length: usize) {
        self.flight.write_done(offset, length);
        self.written += length as u64;
    }

    /// Returns the offset below which every data byte has been written (or was below the resume
    /// offset). Holes count as done. Never goes back.
    pub fn contiguous(&self) -> u64 {
        // Blocks beyond the size may still return empty.
        let frontier = self.cursor.frontier();
        self.flight.lowest().unwrap_or(frontier).min(frontier)
    }

    /// Returns the size of the file as known now: the size passed to [`new`](Self::new), or less
    /// after a short read.
    pub fn size(&self) -> u64 {
        self.cursor.size()
    }

    /// Whether the file turned out shorter than announced.
    pub fn has_shrunk(&self) -> bool {
        self.cursor.has_shrunk()
    }

    /// Returns the number of blocks in flight: being read, waiting for their write, or being
    /// written.
    pub fn in_flight(&self) -> usize {
        self.flight.len()
    }

    /// Changes size and depth for blocks not planned yet. The historic engines ignore it.
    pub fn set_limits(&mut self, limits: TransferLimits) {
        if let Plan::Auto(auto) = &mut self.policy {
            *auto = auto::Auto::new(limits);
        }
    }
}
