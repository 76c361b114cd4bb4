//! Bytes from the server: into a small buffer until it is clear whose they are, then straight to where they belong.
//!
//! ```text
//! buffer    | frame | frame | beginning of a frame |      heads and small messages
//! read      head copied into the block's headroom, data received into the block
//! landing   a sealed frame in the block of some READ, opened in place; two READs swap blocks if it was another's
//! whole     any other frame longer than the buffer, in memory of its own
//! ```
//!
//! No length is believed: a frame is no longer than what the ends agreed on, a READ's data no longer than was asked for.

use std::time::Duration;

use ropeway_block::BlockMut;

use super::connection::Connection;
use super::{EndReason, PeerMisbehaved, Receive};
use crate::crypto::TRANSFORM_HEADER_LEN;
use crate::wire::frame::{FRAME_HEADER_LEN, FRAME_LEN_MAX, Protocol, frame_len};
use crate::wire::header::{Command, Header};
use crate::wire::read::{READ_DATA_OFFSET, ReadResponse};
use crate::wire::{MessageId, NtStatus, Reader};

/// Length of the buffer: small replies of a whole round trip. A guess.
const BUFFER_LEN: usize = 64 * 1024;
/// Bytes asked for at once while READs are awaited, so that little of their data has to be copied out of the buffer.
const STEP: usize = 1024;
/// Sealed frames up to here stay in the buffer. A guess.
const SEALED_SMALL: usize = 4096;
/// What a sealed READ reply has before its data.
const SEALED_HEAD: usize = TRANSFORM_HEADER_LEN + READ_DATA_OFFSET;
/// The longest frame before anything is agreed on, and what is allowed for heads and compounds afterwards.
const SLACK: usize = 64 * 1024;

/// What is being received.
pub(super) struct Input {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    target: Target,
    frame_max: usize,
}

/// Where the present frame goes.
enum Target {
    Buffer,
    Read {
        id: MessageId,
        block: BlockMut,
        filled: usize,
        length: usize,
    },
    Landing {
        owner: MessageId,
        block: BlockMut,
        filled: usize,
        length: usize,
    },
    Whole {
        bytes: Vec<u8>,
        filled: usize,
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
            Self::Whole { bytes, filled } => &mut bytes[*filled..],
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

    fn buffered(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    fn consume(&mut self, count: usize) {
        self.start += count;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Room in the buffer: enough for the frame that began, or a step, or all there is.
    fn room(&mut self, step: usize) -> std::ops::Range<usize> {
        let missing = match self.buffered().first_chunk() {
            Some(head) => frame_len(*head).map_or(0, |length| {
                (FRAME_HEADER_LEN + length).saturating_sub(self.end - self.start)
            }),
            None => 0,
        };
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

impl Connection {
    /// Where to receive. Both are empty only when the connection has ended.
    pub fn receive(&mut self) -> Receive<'_> {
        if self.ended.is_some() {
            return Receive {
                first: &mut [],
                second: &mut [],
            };
        }
        let step = if self.table.reads() > 0 { STEP } else { BUFFER_LEN };
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
        let (id, block) = match std::mem::replace(&mut self.input.target, Target::Buffer) {
            Target::Read { id, block, .. } => (id, block),
            Target::Landing { owner, block, .. } => (owner, block),
            Target::Buffer | Target::Whole { .. } => return,
        };
        self.give_back(id, block);
    }

    fn give_back(&mut self, id: MessageId, mut block: BlockMut) {
        block.set_len(0);
        if let Some(operation) = self.table.operation_mut(id) {
            operation.receive = Some(block);
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

    /// Deals with the frame at the buffer's start; whether there was enough of it.
    fn take_buffered(&mut self) -> Result<bool, PeerMisbehaved> {
        let buffered = self.input.buffered();
        let Some(frame_header) = buffered.first_chunk::<FRAME_HEADER_LEN>() else {
            return Ok(false);
        };
        let length = frame_len(*frame_header)?;
        if length > self.input.frame_max {
            return Err(PeerMisbehaved::FrameTooLong(length));
        }
        let there = &buffered[FRAME_HEADER_LEN..];
        let there = &there[..there.len().min(length)];
        let there_len = there.len();
        if there_len < length.min(SEALED_HEAD) {
            return Ok(false);
        }
        match Protocol::of(there)? {
            Protocol::Smb2 if length >= READ_DATA_OFFSET => {
                let mut head = [0; READ_DATA_OFFSET];
                head.copy_from_slice(&there[..READ_DATA_OFFSET]);
                if let Some((id, data_len)) = self.read_reply(&head, length, None)? {
                    self.begin_read(id, data_len, &head, there_len - READ_DATA_OFFSET);
                    return Ok(true);
                }
            }
            Protocol::Transform if length > SEALED_SMALL && self.begin_landing(length, there_len) => {
                return Ok(true);
            }
            _ => {}
        }
        if there_len == length {
            return self.take_in_buffer(length).map(|()| true);
        }
        if FRAME_HEADER_LEN + length > self.input.buffer.len() {
            let mut bytes = vec![0; length];
            bytes[..there_len].copy_from_slice(&self.input.buffered()[FRAME_HEADER_LEN..][..there_len]);
            self.input.consume(FRAME_HEADER_LEN + there_len);
            self.input.target = Target::Whole {
                bytes,
                filled: there_len,
            };
            return Ok(true);
        }
        Ok(false)
    }

    /// A frame that is all in the buffer, taken in place.
    fn take_in_buffer(&mut self, length: usize) -> Result<(), PeerMisbehaved> {
        let at = self.input.start + FRAME_HEADER_LEN;
        let mut buffer = std::mem::take(&mut self.input.buffer);
        let outcome = self.take_message(&mut buffer[at..at + length], None);
        self.input.buffer = buffer;
        self.input.consume(FRAME_HEADER_LEN + length);
        outcome
    }

    /// Whether a message with this head is the answer to a READ that has a block, alone in its frame: which, and how
    /// much data. `lent`: a READ whose block is taken already.
    fn read_reply(
        &mut self,
        head: &[u8],
        length: usize,
        lent: Option<MessageId>,
    ) -> Result<Option<(MessageId, usize)>, PeerMisbehaved> {
        let mut reader = Reader::new(head, "SMB2 READ Response");
        let header = Header::decode(&mut reader)?;
        let full = matches!(header.status, NtStatus::SUCCESS | NtStatus::BUFFER_OVERFLOW);
        if header.command != Command::Read || !full || header.next_command != 0 || !header.is_response() {
            return Ok(None);
        }
        let Some((block, asked)) = self.table.read_target(header.message_id) else {
            return Ok(None);
        };
        if block.is_none() && lent != Some(header.message_id) {
            return Ok(None);
        }
        let (_, payload) = ReadResponse::decode_head(&mut reader)?;
        let data_len = payload.length as usize;
        if data_len > asked {
            return Err(PeerMisbehaved::ReadTooLong);
        }
        let direct = payload.offset == READ_DATA_OFFSET && READ_DATA_OFFSET + data_len == length;
        Ok(direct.then_some((header.message_id, data_len)))
    }

    fn begin_read(&mut self, id: MessageId, length: usize, head: &[u8], there: usize) {
        let Some(mut block) = self.table.read_target(id).and_then(|(block, _)| block.take()) else {
            return;
        };
        let room = block.headroom_mut();
        let at = room.len() - READ_DATA_OFFSET;
        room[at..].copy_from_slice(head);
        let from = FRAME_HEADER_LEN + READ_DATA_OFFSET;
        block.capacity_mut()[..there].copy_from_slice(&self.input.buffered()[from..][..there]);
        self.copied += there as u64;
        self.input.consume(from + there);
        self.input.target = Target::Read {
            id,
            block,
            filled: there,
            length,
        };
    }

    fn begin_landing(&mut self, length: usize, there: usize) -> bool {
        let data_len = length - SEALED_HEAD;
        let Some(owner) = self.table.landing(data_len) else {
            return false;
        };
        let Some(mut block) = self.table.read_target(owner).and_then(|(block, _)| block.take()) else {
            return false;
        };
        let bytes = &self.input.buffered()[FRAME_HEADER_LEN..][..there];
        let (head, data) = bytes.split_at(SEALED_HEAD);
        let room = block.headroom_mut();
        let at = room.len() - SEALED_HEAD;
        room[at..].copy_from_slice(head);
        block.capacity_mut()[..data.len()].copy_from_slice(data);
        let filled = data.len();
        self.copied += filled as u64;
        self.input.consume(FRAME_HEADER_LEN + there);
        self.input.target = Target::Landing {
            owner,
            block,
            filled,
            length: data_len,
        };
        true
    }

    /// The target is full.
    fn finish_target(&mut self) -> Result<(), PeerMisbehaved> {
        match std::mem::replace(&mut self.input.target, Target::Buffer) {
            Target::Buffer => Ok(()),
            Target::Whole { mut bytes, .. } => self.take_message(&mut bytes, None),
            Target::Read {
                id,
                mut block,
                length,
                ..
            } => {
                block.set_len(length);
                self.take_read(id, block, None)
            }
            Target::Landing {
                owner,
                mut block,
                length,
                ..
            } => {
                block.set_len(length);
                self.land(owner, block)
            }
        }
    }

    /// A sealed frame lies in `owner`'s block.
    fn land(&mut self, owner: MessageId, mut block: BlockMut) -> Result<(), PeerMisbehaved> {
        let bytes = block.framed_mut(SEALED_HEAD);
        let opened = self.open(bytes);
        let (session, message) = match opened {
            Ok(opened) => opened,
            Err(misbehaved) => {
                self.give_back(owner, block);
                return Err(misbehaved);
            }
        };
        let direct = match (message.first_chunk(), Protocol::of(message)) {
            (Some(head), Ok(Protocol::Smb2)) => {
                let head: [u8; READ_DATA_OFFSET] = *head;
                let length = message.len();
                self.read_reply(&head, length, Some(owner))
            }
            _ => Ok(None),
        };
        let direct = match direct {
            Ok(direct) => direct,
            Err(misbehaved) => {
                self.give_back(owner, block);
                return Err(misbehaved);
            }
        };
        match direct {
            Some((id, length)) if id == owner || self.swap(owner, id, &block) => {
                block.set_len(length);
                self.take_read(id, block, Some(session))
            }
            _ => {
                let length = block.len();
                let mut message = block.framed_mut(READ_DATA_OFFSET).to_vec();
                self.copied += length as u64;
                self.give_back(owner, block);
                self.take_message(&mut message, Some(session))
            }
        }
    }

    /// Gives `owner` the block of `id`, whose data is in `block`, if both are large enough.
    fn swap(&mut self, owner: MessageId, id: MessageId, block: &BlockMut) -> bool {
        let Some((_, asked_by_owner)) = self.table.read_target(owner) else {
            return false;
        };
        let Some((target, asked)) = self.table.read_target(id) else {
            return false;
        };
        let fits = target
            .as_ref()
            .is_some_and(|other| other.capacity() >= asked_by_owner);
        if !fits || block.capacity() < asked {
            return false;
        }
        if let Some(other) = target.take() {
            self.give_back(owner, other);
        }
        true
    }
}
