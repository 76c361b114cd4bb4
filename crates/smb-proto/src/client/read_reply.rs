//! READ replies whose data lies in its block.
//!
//! Invariant: if a reply is rejected, its block returns to the READ that owns it.

use std::sync::Arc;

use ropeway_block::BlockMut;

use super::connection::Connection;
use super::dispatch::ProtectionCheck;
use super::jobs::Work;
use super::loans::LoanId;
use super::table::{InFlight, Owner};
use super::{PeerMisbehaved, Reply};
use crate::crypto::Signer;
use crate::wire::header::Header;
use crate::wire::read::READ_DATA_OFFSET;
use crate::wire::{MessageId, Reader, SessionId};

/// The outcome of checking a reply.
enum Checked {
    Good(Header, InFlight),
    /// Good if the signature verifies.
    Unverified(Header, InFlight, Arc<Signer>),
    /// The connection has ended.
    Ended,
}

impl Connection {
    /// Handles a READ reply in its block, with its header in the headroom. The `data_len` bytes of
    /// data may be followed by padding. The caller has checked lengths and header.
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
                // A second reply to this request now counts as unsolicited.
                self.table.set_with_job(id, true);
                self.jobs.push(Work::Verify {
                    loan,
                    block,
                    data_len,
                    answer: (header, flight),
                    signer,
                });
                Ok(())
            }
            Ok(Checked::Ended) => self.return_block(loan, block),
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
        if !matches!(flight.owner, Owner::Compound(..)) {
            return Err(PeerMisbehaved::Unasked(id));
        }
        Ok(match self.check_protection(&header, flight, sealed)? {
            ProtectionCheck::Good => Checked::Good(header, flight),
            ProtectionCheck::Ended => Checked::Ended,
            ProtectionCheck::Signed(signer)
                if self.takes_answers() && self.signs_by_job(&signer, message.len()) =>
            {
                Checked::Unverified(header, flight, signer)
            }
            ProtectionCheck::Signed(signer) => {
                self.verify(&signer, message)?;
                Checked::Good(header, flight)
            }
        })
    }

    /// Completes a READ whose reply passed every check.
    pub(super) fn finish_read(
        &mut self,
        loan: LoanId,
        mut block: BlockMut,
        data_len: usize,
        (header, flight): (Header, InFlight),
    ) -> Result<(), PeerMisbehaved> {
        let place = match flight.owner {
            Owner::Compound(ticket, index) => Some((ticket, index)),
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

    /// Rejects a READ reply.
    pub(super) fn refuse_read(
        &mut self,
        loan: LoanId,
        block: BlockMut,
        misbehaved: PeerMisbehaved,
    ) -> Result<(), PeerMisbehaved> {
        // The first error is reported.
        let _ = self.return_block(loan, block);
        Err(misbehaved)
    }
}
