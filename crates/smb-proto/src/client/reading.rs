//! Answers to READs that lie in their blocks.
//!
//! Invariant: whatever is wrong with an answer, its block goes back to the READ whose it is.

use std::sync::Arc;

use ropeway_block::BlockMut;

use super::connection::Connection;
use super::dispatch::Guard;
use super::jobs::Work;
use super::loans::LoanId;
use super::table::{Flight, Owner};
use super::{PeerMisbehaved, Reply};
use crate::crypto::Signer;
use ropeway_smb_wire::header::Header;
use ropeway_smb_wire::read::READ_DATA_OFFSET;
use ropeway_smb_wire::{MessageId, Reader, SessionId};

/// What is known of an answer.
enum Checked {
    Good(Header, Flight),
    /// If its signature is good.
    Unverified(Header, Flight, Arc<Signer>),
    /// The connection has ended.
    Ended,
}

impl Connection {
    /// A READ's answer that lies in its block, its head in the headroom, perhaps with padding behind its `data_len`
    /// bytes; length and head were checked.
    pub(super) fn take_read(
        &mut self,
        loan: LoanId,
        id: MessageId,
        mut block: BlockMut,
        data_len: usize,
        sealed: Option<SessionId>,
    ) -> Result<(), PeerMisbehaved> {
        match self.check_read(id, &mut block, sealed) {
            Ok(Checked::Good(header, flight)) => self.finish_read(loan, block, data_len, (header, flight)),
            Ok(Checked::Unverified(header, flight, signer)) => {
                // A second answer is one that nobody asked for.
                self.table.set_away(id, true);
                self.jobs.push(Work::Verify {
                    loan,
                    block,
                    data_len,
                    answer: (header, flight),
                    signer,
                });
                Ok(())
            }
            Ok(Checked::Ended) => self.bring_back(loan, block),
            Err(misbehaved) => self.refuse_read(loan, block, misbehaved),
        }
    }

    fn check_read(
        &mut self,
        id: MessageId,
        block: &mut BlockMut,
        sealed: Option<SessionId>,
    ) -> Result<Checked, PeerMisbehaved> {
        let message = block.framed_mut(READ_DATA_OFFSET);
        let header = Header::decode(&mut Reader::new(message, "SMB2 header"))?;
        let flight = self.awaited(&header)?;
        if !matches!(flight.owner, Owner::Chain(..)) {
            return Err(PeerMisbehaved::Unasked(id));
        }
        Ok(match self.guard(&header, flight, sealed)? {
            Guard::Good => Checked::Good(header, flight),
            Guard::Ended => Checked::Ended,
            Guard::Signed(signer) if self.takes_answers() && self.signs_by_job(&signer, message.len()) => {
                Checked::Unverified(header, flight, signer)
            }
            Guard::Signed(signer) => {
                self.verify(&signer, message)?;
                Checked::Good(header, flight)
            }
        })
    }

    /// An answer that is found good.
    pub(super) fn finish_read(
        &mut self,
        loan: LoanId,
        mut block: BlockMut,
        data_len: usize,
        (header, flight): (Header, Flight),
    ) -> Result<(), PeerMisbehaved> {
        let place = match flight.owner {
            Owner::Chain(ticket, index) => Some((ticket, index)),
            _ => None,
        };
        let Some((ticket, index)) = place.filter(|_| self.table.borrower(loan) == place) else {
            return self.refuse_read(loan, block, PeerMisbehaved::Unasked(header.message_id));
        };
        if let Err(misbehaved) = self.answered(&header, flight) {
            return self.refuse_read(loan, block, misbehaved);
        }
        self.table.end_loan(loan);
        block.set_len(data_len);
        let reply = Reply {
            header,
            message: block.framed_mut(READ_DATA_OFFSET)[..READ_DATA_OFFSET].to_vec(),
            payload: Some(block),
            returned: None,
        };
        self.reply_to(ticket, index, reply)
    }

    /// An answer that is none.
    pub(super) fn refuse_read(
        &mut self,
        loan: LoanId,
        block: BlockMut,
        misbehaved: PeerMisbehaved,
    ) -> Result<(), PeerMisbehaved> {
        // What was wrong first is what is told.
        let _ = self.bring_back(loan, block);
        Err(misbehaved)
    }
}
