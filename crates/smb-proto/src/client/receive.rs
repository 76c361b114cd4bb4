//! Bytes from the server: into a small buffer until it is clear whose they are, then straight to where they belong.
//!
//! ```text
//! buffer    | frame | frame | beginning of a frame |      heads and small messages
//! read      head copied into the block's headroom, data received into the block
//! landing   a sealed frame in the block of some READ: landing.rs
//! whole     any other message longer than the buffer, in memory of its own
//! ```
//!
//! A frame of plain messages is taken message by message as they come, so that the data of a READ within a compound
//! lands in its block as that of a lone one does.
//!
//! No length is believed: a frame is no longer than what the ends agreed on, a READ's data no longer than was asked for.

use std::time::Duration;

use ropeway_block::BlockMut;

use super::connection::Connection;
use super::landing::{LANDING_HEAD_MAX, LANDING_MIN};
use super::loans::LoanId;
use super::{EndReason, PeerMisbehaved, Receive};
use ropeway_smb_wire::frame::{FRAME_HEADER_LEN, FRAME_LEN_MAX, Protocol, frame_len};
use ropeway_smb_wire::header::{self, CHAIN_ALIGNMENT, Command, Header};
use ropeway_smb_wire::read::{READ_DATA_OFFSET, ReadResponse};
use ropeway_smb_wire::{Malformed, MessageId, NtStatus, Reader};

/// Length of the buffer: small replies of a whole round trip. A guess.
const BUFFER_LEN: usize = 64 * 1024;
/// Bytes asked for at once while READs of [`BULK_MIN`] or more are awaited, so that little of their data has to be copied
/// out of the buffer.
const STEP: usize = 1024;
/// READs from here on are received into their blocks; those below come many at a time and are copied out of the buffer,
/// as far as they are in it. A guess: the copy costs what a system call does.
pub(super) const BULK_MIN: usize = 8 * 1024;
/// The longest frame before anything is agreed on, and what is allowed for heads and compounds afterwards.
const SLACK: usize = 64 * 1024;

/// What is being received.
pub(super) struct Input {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes that the buffer has to hold before more can be done with them.
    wanted: usize,
    /// Bytes of a frame of plain messages that are not dealt with, from the buffer's start on.
    left: usize,
    pub(super) target: Target,
    frame_max: usize,
}

/// Where the present frame goes.
pub(super) enum Target {
    Buffer,
    Read {
        loan: LoanId,
        id: MessageId,
        block: BlockMut,
        filled: usize,
        /// Of data and what pads it.
        length: usize,
        data_len: usize,
    },
    Landing {
        loan: LoanId,
        block: BlockMut,
        /// Bytes of the frame that lie before the payload, in the headroom.
        head: usize,
        filled: usize,
        length: usize,
    },
    Whole {
        bytes: Vec<u8>,
        filled: usize,
        /// A plain message; otherwise a frame.
        plain: bool,
    },
}

impl Target {
    fn rest(&mut self) -> &mut [u8] {
        match self {
            Self::Buffer => &mut [],
            Self::Read {
                block,
                filled,
                length,
                ..
            }
            | Self::Landing {
                block,
                filled,
                length,
                ..
            } => &mut block.capacity_mut()[*filled..*length],
            Self::Whole { bytes, filled, .. } => &mut bytes[*filled..],
        }
    }

    fn advance(&mut self, count: usize) {
        match self {
            Self::Buffer => {}
            Self::Read { filled, .. } | Self::Landing { filled, .. } | Self::Whole { filled, .. } => {
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

    /// `longest`: the largest READ or query.
    pub(super) fn negotiated(&mut self, longest: usize) {
        // Twice, for compounds; the sum of what a chain asks for is bounded by its caller.
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

    /// Nothing can be done before the buffer holds `length` bytes.
    fn wait_for(&mut self, length: usize) -> bool {
        self.wanted = length;
        false
    }

    /// What is in the buffer of a frame or message of `length` bytes whose rest is to be received elsewhere.
    fn begin_whole(&mut self, length: usize, plain: bool) {
        let mut bytes = vec![0; length];
        let filled = self.buffered().len().min(length);
        bytes[..filled].copy_from_slice(&self.buffered()[..filled]);
        self.consume(filled);
        self.target = Target::Whole { bytes, filled, plain };
    }

    /// Room in the buffer: enough for what is awaited, or a step, or all there is.
    fn room(&mut self, step: usize) -> std::ops::Range<usize> {
        let missing = self.wanted.saturating_sub(self.end - self.start);
        // What fits the buffer must have room in it; longer frames have left it once their heads are there.
        let wanted = missing.max(step).min(self.buffer.len() - (self.end - self.start));
        if self.start > 0 && self.buffer.len() - self.end < wanted {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        self.end..self.buffer.len().min(self.end + wanted)
    }
}

/// Puts the beginning of what is received into a block: `head` bytes into the headroom, the rest to the start of
/// the payload; how many those are.
pub(super) fn fill(block: &mut BlockMut, head: usize, bytes: &[u8]) -> usize {
    let (head, data) = bytes.split_at(head);
    let room = block.headroom_mut();
    let at = room.len() - head.len();
    room[at..].copy_from_slice(head);
    block.capacity_mut()[..data.len()].copy_from_slice(data);
    data.len()
}

impl Connection {
    /// Where to receive. Both are empty only when the connection has ended.
    pub fn receive(&mut self) -> Receive<'_> {
        if self.ended.is_some() {
            return Receive {
                first: &mut [],
                second: &mut [],
            };
        }
        let step = if self.table.awaits_bulk() {
            STEP
        } else {
            BUFFER_LEN
        };
        let room = self.input.room(step);
        let Input { buffer, target, .. } = &mut self.input;
        Receive {
            first: target.rest(),
            second: &mut buffer[room],
        }
    }

    /// The first `count` bytes of what [`receive`](Self::receive) gave are filled.
    ///
    /// # Errors
    /// [`PeerMisbehaved`]: the connection has ended, events say the rest.
    ///
    /// # Panics
    /// If `count` is more than there was room for.
    pub fn received(&mut self, now: Duration, count: usize) -> Result<(), PeerMisbehaved> {
        if self.ended.is_some() {
            return Ok(());
        }
        self.now = self.now.max(now);
        let first = self.input.target.rest().len().min(count);
        self.input.target.advance(first);
        self.input.end += count - first;
        assert!(
            self.input.end <= self.input.buffer.len(),
            "no more was received than there was room for"
        );
        match self.take_frames() {
            Ok(()) => {
                self.heard();
                Ok(())
            }
            Err(misbehaved) => {
                self.end(EndReason::Misbehaved(misbehaved));
                Err(misbehaved)
            }
        }
    }

    /// Gives a block under way back to its READ.
    pub(super) fn give_target_back(&mut self) {
        match std::mem::replace(&mut self.input.target, Target::Buffer) {
            Target::Read { loan, block, .. } | Target::Landing { loan, block, .. } => {
                // The connection has ended: what is wrong with an answer that waited for the block is of no matter.
                let _ = self.bring_back(loan, block);
            }
            Target::Buffer | Target::Whole { .. } => {}
        }
    }

    fn take_frames(&mut self) -> Result<(), PeerMisbehaved> {
        loop {
            if self.ended.is_some() {
                return Ok(());
            }
            if !matches!(self.input.target, Target::Buffer) {
                if !self.input.target.rest().is_empty() {
                    return Ok(());
                }
                self.finish_target()?;
                continue;
            }
            if !self.take_buffered()? {
                return Ok(());
            }
        }
    }

    /// Deals with what is at the buffer's start; whether there was enough of it.
    fn take_buffered(&mut self) -> Result<bool, PeerMisbehaved> {
        self.input.wanted = 0;
        match self.input.left {
            0 => self.take_frame(),
            left => self.take_plain(left),
        }
    }

    /// Deals with the frame at the buffer's start; of one of plain messages only with its header.
    fn take_frame(&mut self) -> Result<bool, PeerMisbehaved> {
        let buffered = self.input.buffered();
        let Some(frame_header) = buffered.first_chunk::<FRAME_HEADER_LEN>() else {
            return Ok(self.input.wait_for(FRAME_HEADER_LEN));
        };
        let length = frame_len(*frame_header)?;
        if length > self.input.frame_max {
            return Err(PeerMisbehaved::FrameTooLong(length));
        }
        let there = &buffered[FRAME_HEADER_LEN..];
        let there = &there[..there.len().min(length)];
        let there_len = there.len();
        if there_len < length.min(LANDING_HEAD_MAX) {
            return Ok(self
                .input
                .wait_for(FRAME_HEADER_LEN + length.min(LANDING_HEAD_MAX)));
        }
        match Protocol::of(there)? {
            Protocol::Smb2 => {
                self.input.consume(FRAME_HEADER_LEN);
                self.input.left = length;
                return Ok(true);
            }
            Protocol::Transform if length > LANDING_MIN && self.begin_landing(length, there_len) => {
                return Ok(true);
            }
            _ => {}
        }
        if there_len == length {
            self.input.consume(FRAME_HEADER_LEN);
            return self.take_in_buffer(length, false).map(|()| true);
        }
        if FRAME_HEADER_LEN + length > self.input.buffer.len() {
            self.input.consume(FRAME_HEADER_LEN);
            self.input.begin_whole(length, false);
            return Ok(true);
        }
        Ok(self.input.wait_for(FRAME_HEADER_LEN + length))
    }

    /// Deals with the message at the buffer's start, of a frame of plain messages with `left` bytes to go.
    fn take_plain(&mut self, left: usize) -> Result<bool, PeerMisbehaved> {
        let there = self.input.buffered();
        let there = &there[..there.len().min(left)];
        let head_len = left.min(READ_DATA_OFFSET);
        if there.len() < head_len {
            return Ok(self.input.wait_for(head_len));
        }
        let next = header::next_message(there, left).map_err(|fault| Malformed {
            structure: "SMB2 compound",
            fault,
            at: 0,
        })?;
        let length = next.unwrap_or(left);
        let there_len = there.len().min(length);
        if let Some(head) = there[..there_len].first_chunk::<READ_DATA_OFFSET>() {
            let head = *head;
            if let Some((id, data_len)) = self.read_reply(&head, length, false)? {
                self.input.left -= length;
                self.begin_read(id, data_len, length, there_len);
                return Ok(true);
            }
        }
        if there_len == length {
            self.input.left -= length;
            return self.take_in_buffer(length, true).map(|()| true);
        }
        if length > self.input.buffer.len() {
            self.input.left -= length;
            self.input.begin_whole(length, true);
            return Ok(true);
        }
        Ok(self.input.wait_for(length))
    }

    /// A frame, or a plain message of one, that is all in the buffer, taken in place.
    fn take_in_buffer(&mut self, length: usize, plain: bool) -> Result<(), PeerMisbehaved> {
        let at = self.input.start;
        let mut buffer = std::mem::take(&mut self.input.buffer);
        let bytes = &mut buffer[at..at + length];
        let outcome = match plain {
            true => self.take_chain(bytes, None),
            false => self.take_message(bytes, None),
        };
        self.input.buffer = buffer;
        self.input.consume(length);
        outcome
    }

    /// Whether a message of `length` bytes with this head is the answer to a READ that has a block, its data where it is
    /// expected: which, and how much data. `landed`: the message is in a block already, which may be another READ's.
    pub(super) fn read_reply(
        &mut self,
        head: &[u8],
        length: usize,
        landed: bool,
    ) -> Result<Option<(MessageId, usize)>, PeerMisbehaved> {
        let mut reader = Reader::new(head, "SMB2 READ Response");
        let header = Header::decode(&mut reader)?;
        let full = matches!(header.status, NtStatus::SUCCESS | NtStatus::BUFFER_OVERFLOW);
        if header.command != Command::Read || !full || !header.is_response() {
            return Ok(None);
        }
        let Some((slot, _, asked)) = self.table.read_slot(header.message_id) else {
            return Ok(None);
        };
        let has_room = match &slot.operation.receive {
            Some(block) => block.capacity() >= length - READ_DATA_OFFSET,
            None => landed && slot.loan.is_some(),
        };
        if !has_room {
            return Ok(None);
        }
        let (_, payload) = ReadResponse::decode_head(&mut reader)?;
        let data_len = payload.length as usize;
        if data_len > asked {
            return Err(PeerMisbehaved::ReadTooLong);
        }
        // Before the next message there is padding.
        let padding = (length - READ_DATA_OFFSET).checked_sub(data_len);
        let direct =
            payload.offset == READ_DATA_OFFSET && padding.is_some_and(|padding| padding < CHAIN_ALIGNMENT);
        Ok(direct.then_some((header.message_id, data_len)))
    }

    /// A READ's answer of `length` bytes, of which `there` are in the buffer.
    fn begin_read(&mut self, id: MessageId, data_len: usize, length: usize, there: usize) {
        let Some((loan, mut block)) = self.table.lend(id) else {
            return;
        };
        let filled = fill(&mut block, READ_DATA_OFFSET, &self.input.buffered()[..there]);
        self.copied += filled.min(data_len) as u64;
        self.input.consume(there);
        self.input.target = Target::Read {
            loan,
            id,
            block,
            filled,
            length: length - READ_DATA_OFFSET,
            data_len,
        };
    }

    /// The target is full.
    fn finish_target(&mut self) -> Result<(), PeerMisbehaved> {
        match std::mem::replace(&mut self.input.target, Target::Buffer) {
            Target::Buffer => Ok(()),
            Target::Whole {
                mut bytes,
                plain: true,
                ..
            } => self.take_chain(&mut bytes, None),
            Target::Whole { mut bytes, .. } => self.take_message(&mut bytes, None),
            Target::Read {
                loan,
                id,
                mut block,
                length,
                data_len,
                ..
            } => {
                block.set_len(length);
                self.take_read(loan, id, block, data_len, None)
            }
            Target::Landing {
                loan,
                mut block,
                head,
                length,
                ..
            } => {
                block.set_len(length);
                self.land(loan, block, head)
            }
        }
    }
}
