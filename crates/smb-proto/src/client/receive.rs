//! Received bytes: into a small buffer until their request is known, then straight to their
//! destination.
//!
//! ```text
//! buffer    | frame | frame | start of a frame |          headers and small messages
//! read      header copied into the block's headroom, data received into the block
//! sealed    a sealed frame in the block of some READ: sealed_read.rs
//! whole     any other message longer than the buffer, in memory of its own
//! ```
//!
//! The messages of a plain frame are handled one by one as they arrive, so that the data of a READ
//! within a compound is received into its block like that of a single READ.
//!
//! No length is trusted: a frame is at most as long as negotiated, and a READ's data at most as
//! long as asked for.

use std::time::Duration;

use ropeway_smb_wire::frame::{FRAME_HEADER_LEN, Protocol, frame_len};
use ropeway_smb_wire::header::{self, COMPOUND_ALIGNMENT, Command, Header};
use ropeway_smb_wire::read::{READ_DATA_OFFSET, ReadResponse};
use ropeway_smb_wire::{DecodeError, MessageId, NtStatus, Reader};

use super::connection::Connection;
use super::input::{BUFFER_LEN, Input, SEALED_READ_HEAD_MAX, SEALED_READ_MIN, Target, fill};
use super::{EndReason, PeerMisbehaved, Receive};

/// Number of bytes received at once while READs of [`BULK_MIN`](super::input::BULK_MIN) or more are
/// outstanding. Little of their data is then copied out of the buffer.
const STEP: usize = 1024;
impl Connection {
    /// Returns where to receive. Both slices are empty only after the connection has ended.
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

    /// Returns how many bytes the message lacks that is being received to its destination.
    pub fn missing(&mut self) -> usize {
        self.input.target.rest().len()
    }

    /// Tells the connection that the first `count` bytes of [`receive`](Self::receive) were filled.
    ///
    /// # Errors
    /// [`PeerMisbehaved`]: the connection has ended; poll its events.
    ///
    /// # Panics
    /// If `count` exceeds the space returned.
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
                self.note_activity();
                Ok(())
            }
            Err(misbehaved) => {
                self.end(EndReason::Misbehaved(misbehaved));
                Err(misbehaved)
            }
        }
    }

    /// Returns the block of an unfinished target to its READ.
    pub(super) fn return_target(&mut self) {
        match std::mem::replace(&mut self.input.target, Target::Buffer) {
            Target::Read { loan, block, .. } | Target::Sealed { loan, block, .. } => {
                // The connection has ended: an error in the reply that waited for the block no
                // longer matters.
                let _ = self.return_block(loan, block);
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

    /// Handles the bytes at the start of the buffer. Returns `false` if more are needed.
    fn take_buffered(&mut self) -> Result<bool, PeerMisbehaved> {
        self.input.wanted = 0;
        match self.input.left {
            0 => self.take_frame(),
            left => self.take_plain(left),
        }
    }

    /// Handles the frame at the start of the buffer; of a plain frame, only its frame header.
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
        if there_len < length.min(SEALED_READ_HEAD_MAX) {
            return Ok(self
                .input
                .wait_for(FRAME_HEADER_LEN + length.min(SEALED_READ_HEAD_MAX)));
        }
        match Protocol::of(there)? {
            Protocol::Smb2 => {
                self.input.consume(FRAME_HEADER_LEN);
                self.input.left = length;
                return Ok(true);
            }
            Protocol::Transform if length > SEALED_READ_MIN && self.begin_sealed_read(length, there_len) => {
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

    /// Handles the message at the start of the buffer. It belongs to a plain frame of which `left`
    /// bytes remain.
    fn take_plain(&mut self, left: usize) -> Result<bool, PeerMisbehaved> {
        let there = self.input.buffered();
        let there = &there[..there.len().min(left)];
        let head_len = left.min(READ_DATA_OFFSET);
        if there.len() < head_len {
            return Ok(self.input.wait_for(head_len));
        }
        let next = header::next_message(there, left).map_err(|kind| DecodeError {
            structure: "SMB2 compound",
            kind,
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

    /// Handles a frame or plain message that is completely in the buffer, in place.
    fn take_in_buffer(&mut self, length: usize, plain: bool) -> Result<(), PeerMisbehaved> {
        let at = self.input.start;
        let mut buffer = std::mem::take(&mut self.input.buffer);
        let bytes = &mut buffer[at..at + length];
        let outcome = match plain {
            true => self.take_compound(bytes, None),
            false => self.take_message(bytes, None),
        };
        self.input.buffer = buffer;
        self.input.consume(length);
        outcome
    }

    /// Returns the request and the data length if a message of `length` bytes with this header
    /// answers a READ that has a block, and its data is at the expected position. `in_block`: the
    /// message lies in a block already, possibly that of another READ.
    pub(super) fn read_reply(
        &mut self,
        head: &[u8],
        length: usize,
        in_block: bool,
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
            Some(block) => {
                block.capacity() >= length - READ_DATA_OFFSET && block.headroom() >= READ_DATA_OFFSET
            }
            None => in_block && slot.loan.is_some(),
        };
        if !has_room {
            return Ok(None);
        }
        let (_, payload) = ReadResponse::decode_head(&mut reader)?;
        let data_len = payload.length as usize;
        if data_len > asked {
            return Err(PeerMisbehaved::ReadTooLong);
        }
        // Padding may precede the next message.
        let padding = (length - READ_DATA_OFFSET).checked_sub(data_len);
        let direct =
            payload.offset == READ_DATA_OFFSET && padding.is_some_and(|padding| padding < COMPOUND_ALIGNMENT);
        Ok(direct.then_some((header.message_id, data_len)))
    }

    /// Starts to receive a READ reply of `length` bytes, of which `there` are in the buffer.
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

    /// Handles a target that is full.
    fn finish_target(&mut self) -> Result<(), PeerMisbehaved> {
        match std::mem::replace(&mut self.input.target, Target::Buffer) {
            Target::Buffer => Ok(()),
            Target::Whole {
                mut bytes,
                plain: true,
                ..
            } => self.take_compound(&mut bytes, None),
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
            Target::Sealed {
                loan,
                mut block,
                head,
                length,
                ..
            } => {
                block.set_len(length);
                self.open_sealed_read(loan, block, head)
            }
        }
    }
}
