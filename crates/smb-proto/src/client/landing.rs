//! Sealed answers to READs: received into a block before anybody can know whose they are, and opened there.
//!
//! ```text
//! headroom of the block                | its payload
//! transform header, messages, head     | data | padding, messages
//! ```
//! The guess is that a frame answers the oldest READ that it may answer, by its length; a READ that follows a CREATE has
//! the answer to that before its own. Where it was another's, the two READs swap their blocks, wherever the other's is.
//! Where the data lies elsewhere, the messages are copied out, and counted. Frames may be opened by jobs, several at once.

use ropeway_block::BlockMut;

use super::PeerMisbehaved;
use super::connection::Connection;
use super::jobs::Work;
use super::loans::LoanId;
use super::receive::{Target, fill};
use super::table::CREATED_LEN;
use crate::crypto::TRANSFORM_HEADER_LEN;
use ropeway_smb_wire::frame::{FRAME_HEADER_LEN, Protocol};
use ropeway_smb_wire::header;
use ropeway_smb_wire::read::READ_DATA_OFFSET;
use ropeway_smb_wire::{MessageId, SessionId};

/// Sealed frames up to here stay in the buffer. A guess.
pub(super) const LANDING_MIN: usize = 4096;
/// The most that is guessed to come before a READ's data in a sealed frame: the answer to CREATE without contexts too.
pub(super) const LANDING_HEAD_MAX: usize = TRANSFORM_HEADER_LEN + READ_DATA_OFFSET + CREATED_LEN;

/// A READ's answer in a sealed frame: of whom, where, how long, and how much of it is data.
struct Found {
    id: MessageId,
    at: usize,
    length: usize,
    data_len: usize,
}

impl Connection {
    /// Takes a sealed frame of `length` bytes, of which `there` are in the buffer behind its header, on its way into a
    /// block; whether there is one.
    pub(super) fn begin_landing(&mut self, length: usize, there: usize) -> bool {
        let Some((owner, before)) = self.table.landing(length - TRANSFORM_HEADER_LEN) else {
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
        self.input.target = Target::Landing {
            loan,
            block,
            head,
            filled,
            length: length - head,
        };
        true
    }

    /// A sealed frame lies in a block, its first `head` bytes in the headroom.
    pub(super) fn land(
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
            Ok((session, None)) => self.landed(loan, block, head, session),
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

    /// An opened frame lies in a block.
    pub(super) fn landed(
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
                // Nothing is as it was guessed: in memory of its own it is taken like any other.
                let mut message = block.framed_mut(head)[TRANSFORM_HEADER_LEN..].to_vec();
                self.copied += message.len() as u64;
                self.bring_back(loan, block)?;
                return self.take_message(&mut message, Some(session));
            }
            (Err(misbehaved), _) => return self.refuse_read(loan, block, misbehaved),
        };
        let mut front = message[..found.at].to_vec();
        let mut tail = message[found.at + found.length..].to_vec();
        if !front.is_empty() {
            // What comes first may end the connection: the block has to be where it is looked for then.
            self.bring_back(loan, block)?;
            self.take_chain(&mut front, Some(session))?;
            if self.ended.is_some() {
                return Ok(());
            }
            let lent = self.table.lend(found.id);
            (loan, block) = lent.ok_or(PeerMisbehaved::Unasked(found.id))?;
        }
        block.set_len(found.data_len);
        self.take_read(loan, found.id, block, found.data_len, Some(session))?;
        self.take_chain(&mut tail, Some(session))
    }

    /// The READ in an opened frame that has its data `before` bytes from the start.
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
