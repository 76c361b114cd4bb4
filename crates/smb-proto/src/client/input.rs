//! The input buffer of a connection, and the destination of the message being received.

use ropeway_block::BlockMut;
use ropeway_smb_wire::MessageId;
use ropeway_smb_wire::frame::FRAME_LEN_MAX;
use ropeway_smb_wire::read::READ_DATA_OFFSET;

use super::loans::LoanId;
use super::table::CREATE_REPLY_LEN;
use crate::crypto::TRANSFORM_HEADER_LEN;

/// Length of the buffer in bytes: the small replies of a whole round trip. A guess.
pub(super) const BUFFER_LEN: usize = 64 * 1024;

/// Smallest READ that is received into its block, in bytes. Smaller replies arrive many at a time
/// and are copied from the buffer. A guess: the copy costs as much as a system call.
pub(super) const BULK_MIN: usize = 8 * 1024;

/// Longest frame before the negotiation, and the allowance for headers and compounds after it, in
/// bytes.
const SLACK: usize = 64 * 1024;

/// Longest sealed frame that stays in the buffer, in bytes. A guess.
pub(super) const SEALED_READ_MIN: usize = 4096;

/// Maximum number of bytes assumed before the data of a READ in a sealed frame, including the reply
/// to a CREATE without contexts.
pub(super) const SEALED_READ_HEAD_MAX: usize = TRANSFORM_HEADER_LEN + READ_DATA_OFFSET + CREATE_REPLY_LEN;

/// The input side of a connection.
pub(super) struct Input {
    pub(super) buffer: Vec<u8>,
    pub(super) start: usize,
    pub(super) end: usize,
    /// Number of buffered bytes needed before the next step.
    pub(super) wanted: usize,
    /// Number of unhandled bytes of a plain frame, counted from the start of the buffer.
    pub(super) left: usize,
    pub(super) target: Target,
    pub(super) frame_max: usize,
}

/// The destination of the current message.
pub(super) enum Target {
    Buffer,
    Read {
        loan: LoanId,
        id: MessageId,
        block: BlockMut,
        filled: usize,
        /// Length of the data and its padding.
        length: usize,
        data_len: usize,
    },
    Sealed {
        loan: LoanId,
        block: BlockMut,
        /// Number of bytes of the frame that lie in the headroom, before the payload.
        head: usize,
        filled: usize,
        length: usize,
    },
    Whole {
        bytes: Vec<u8>,
        filled: usize,
        /// Whether this is a plain message, not a frame.
        plain: bool,
    },
}

impl Target {
    pub(super) fn rest(&mut self) -> &mut [u8] {
        match self {
            Self::Buffer => &mut [],
            Self::Read {
                block,
                filled,
                length,
                ..
            }
            | Self::Sealed {
                block,
                filled,
                length,
                ..
            } => &mut block.capacity_mut()[*filled..*length],
            Self::Whole { bytes, filled, .. } => &mut bytes[*filled..],
        }
    }

    pub(super) fn advance(&mut self, count: usize) {
        match self {
            Self::Buffer => {}
            Self::Read { filled, .. } | Self::Sealed { filled, .. } | Self::Whole { filled, .. } => {
                *filled += count
            }
        }
    }
}

impl Input {
    pub(super) fn new() -> Self {
        Self {
            buffer: vec![0; BUFFER_LEN],
            start: 0,
            end: 0,
            wanted: 0,
            left: 0,
            target: Target::Buffer,
            frame_max: SLACK,
        }
    }

    /// Sets the frame limit after the negotiation. `longest` is the largest READ or query in bytes.
    pub(super) fn negotiated(&mut self, longest: usize) {
        // Doubled for compounds. The caller limits what one compound asks for in total.
        self.frame_max = longest.saturating_mul(2).saturating_add(SLACK).min(FRAME_LEN_MAX);
    }

    pub(super) fn frame_max(&self) -> usize {
        self.frame_max
    }

    pub(super) fn buffered(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub(super) fn consume(&mut self, count: usize) {
        self.start += count;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Waits until the buffer holds `length` bytes.
    pub(super) fn wait_for(&mut self, length: usize) -> bool {
        self.wanted = length;
        false
    }

    /// Moves the buffered start of a frame or message of `length` bytes into memory of its own,
    /// where the rest is received.
    pub(super) fn begin_whole(&mut self, length: usize, plain: bool) {
        let mut bytes = vec![0; length];
        let filled = self.buffered().len().min(length);
        bytes[..filled].copy_from_slice(&self.buffered()[..filled]);
        self.consume(filled);
        self.target = Target::Whole { bytes, filled, plain };
    }

    /// Returns free space in the buffer: as much as is missing or as `step`, limited to what is
    /// left.
    pub(super) fn room(&mut self, step: usize) -> std::ops::Range<usize> {
        let missing = self.wanted.saturating_sub(self.end - self.start);
        // A message that fits into the buffer must find room there. A longer one leaves the buffer
        // once its header is complete.
        let wanted = missing.max(step).min(self.buffer.len() - (self.end - self.start));
        if self.start > 0 && self.buffer.len() - self.end < wanted {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        self.end..self.buffer.len().min(self.end + wanted)
    }
}

/// Copies the start of a message into a block: `head` bytes into the headroom, the rest to the
/// start of the payload. Returns the length of the rest.
pub(super) fn fill(block: &mut BlockMut, head: usize, bytes: &[u8]) -> usize {
    let (head, data) = bytes.split_at(head);
    let room = block.headroom_mut();
    let at = room.len() - head.len();
    room[at..].copy_from_slice(head);
    block.capacity_mut()[..data.len()].copy_from_slice(data);
    data.len()
}
