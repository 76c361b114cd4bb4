//! Sealed replies to READs, received straight into a block and opened there.
//!
//! ```text
//! headroom of the block                    | its payload
//! transform header, messages, header       | data | padding, messages
//! ```
//! Which request a sealed frame answers is unknown until it is opened. The guess is the oldest READ
//! that fits the frame's length; the reply to a READ that follows a CREATE is preceded by the reply
//! to that CREATE. If the guess was wrong, the two READs swap their blocks, even if the other block
//! is lent. If the data is at another position, the messages are copied out and the copy is
//! counted. Several frames may be opened by jobs at once.

use ropeway_block::BlockMut;
use ropeway_smb_wire::frame::{FRAME_HEADER_LEN, Protocol};
use ropeway_smb_wire::header;
use ropeway_smb_wire::read::READ_DATA_OFFSET;
use ropeway_smb_wire::{MessageId, SessionId};

use super::PeerMisbehaved;
use super::connection::Connection;
use super::crypto_job::Work;
use super::input::{Target, fill};
use super::loans::LoanId;
use crate::crypto::TRANSFORM_HEADER_LEN;

/// A READ reply found in a sealed frame: its request, its position and length, and the length of
/// its data.
struct Found {
    id: MessageId,
    at: usize,
    length: usize,
    data_len: usize,
}

impl Connection {
    /// Starts to receive a sealed frame of `length` bytes into a block. `there` bytes of it are in
    /// the buffer, after its frame header. Returns `false` if no READ fits.
    pub(super) fn begin_sealed_read(&mut self, length: usize, there: usize) -> bool {
        let Some((owner, before)) = self.table.guess_read(length - TRANSFORM_HEADER_LEN) else {
            return false;
        };
        let Some((loan, mut block)) = self.table.lend(owner) else {
            return false;
        };
        let head = TRANSFORM_HEADER_LEN + before;
        let bytes = &self.input.buffered()[FRAME_HEADER_LEN..][..there];
        let filled = fill(&mut block, head, bytes);
        self.copied += filled as u64;
        self.input.consume(FRAME_HEADER_LEN + there);
        self.input.target = Target::Sealed {
            loan,
            block,
            head,
            filled,
            length: length - head,
        };
        true
    }

    /// Handles a sealed frame that was received into a block, with its first `head` bytes in the
    /// headroom.
    pub(super) fn open_sealed_read(
        &mut self,
        loan: LoanId,
        mut block: BlockMut,
        head: usize,
    ) -> Result<(), PeerMisbehaved> {
        let bytes = block.framed_mut(head);
        let opened = match self.takes_answers() && self.seals_by_job(bytes.len()) {
            true => self.sealed_by(bytes).and_then(|session| {
                let opener = session.opener().ok_or(PeerMisbehaved::Unopenable)?;
                Ok((session.id, Some(opener)))
            }),
            false => self.open(bytes).map(|(session, _)| (session, None)),
        };
        match opened {
            Ok((session, None)) => self.take_sealed_read(loan, block, head, session),
            Ok((session, Some(opener))) => {
                self.jobs.push(Work::Open {
                    loan,
                    block,
                    head,
                    session,
                    opener,
                });
                Ok(())
            }
            Err(misbehaved) => self.refuse_read(loan, block, misbehaved),
        }
    }

    /// Handles an opened frame in a block.
    pub(super) fn take_sealed_read(
        &mut self,
        mut loan: LoanId,
        mut block: BlockMut,
        head: usize,
        session: SessionId,
    ) -> Result<(), PeerMisbehaved> {
        let message = &block.framed_mut(head)[TRANSFORM_HEADER_LEN..];
        let found = match self.find_read(message, head - TRANSFORM_HEADER_LEN) {
            Ok(found) => found,
            Err(misbehaved) => return self.refuse_read(loan, block, misbehaved),
        };
        let is_its = match &found {
            Some(found) => self.swap(loan, found.id),
            None => Ok(false),
        };
        let (found, message) = match (is_its, found) {
            (Ok(true), Some(found)) => (found, &block.framed_mut(head)[TRANSFORM_HEADER_LEN..]),
            (Ok(_), _) => {
                // The guess failed: copy the message out and handle it like any other.
                let mut message = block.framed_mut(head)[TRANSFORM_HEADER_LEN..].to_vec();
                self.copied += message.len() as u64;
                self.return_block(loan, block)?;
                return self.take_message(&mut message, Some(session));
            }
            (Err(misbehaved), _) => return self.refuse_read(loan, block, misbehaved),
        };
        let mut front = message[..found.at].to_vec();
        let mut tail = message[found.at + found.length..].to_vec();
        if !front.is_empty() {
            // The messages before the READ may end the connection, which looks for the block at its
            // READ.
            self.return_block(loan, block)?;
            self.take_compound(&mut front, Some(session))?;
            if self.ended.is_some() {
                return Ok(());
            }
            let lent = self.table.lend(found.id);
            (loan, block) = lent.ok_or(PeerMisbehaved::Unasked(found.id))?;
        }
        block.set_len(found.data_len);
        self.take_read(loan, found.id, block, found.data_len, Some(session))?;
        self.take_compound(&mut tail, Some(session))
    }

    /// Finds the READ reply whose data begins `before` bytes into an opened frame.
    fn find_read(&mut self, message: &[u8], before: usize) -> Result<Option<Found>, PeerMisbehaved> {
        let mut at = 0;
        while let Some(rest) = message.get(at..)
            && let Some(head) = rest.first_chunk::<READ_DATA_OFFSET>()
            && at + READ_DATA_OFFSET <= before
            && let Ok(Protocol::Smb2) = Protocol::of(rest)
            && let Ok(next) = header::next_message(rest, rest.len())
        {
            let length = next.unwrap_or(rest.len());
            if at + READ_DATA_OFFSET < before {
                at += length;
                continue;
            }
            let found = match length >= READ_DATA_OFFSET {
                true => self.read_reply(head, length, true)?,
                false => None,
            };
            return Ok(found.map(|(id, data_len)| Found {
                id,
                at,
                length,
                data_len,
            }));
        }
        Ok(None)
    }
}
