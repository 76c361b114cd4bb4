//! READ replies whose data lies in its block.
//!
//! Invariant: if a reply is rejected, its block returns to the READ that owns it.

use std::sync::Arc;

use ropeway_block::BlockMut;
use ropeway_smb_wire::header::{Command, HEADER_LEN, Header};
use ropeway_smb_wire::read::{READ_DATA_OFFSET, ReadResponse};
use ropeway_smb_wire::{DecodeError, MessageId, NtStatus, Reader, SessionId};

use super::connection::Connection;
use super::crypto_job::Work;
use super::dispatch::ProtectionCheck;
use super::loans::{LoanId, Place};
use super::table::{InFlight, Owner};
use super::{PeerMisbehaved, Reply};
use crate::crypto::Signer;

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

impl Connection {
    /// Returns a block to the READ that owns it.
    pub(super) fn return_block(&mut self, loan: LoanId, block: BlockMut) -> Result<(), PeerMisbehaved> {
        match self.table.end_loan(loan) {
            Some(place) => self.store_block(place, block),
            None => Ok(()),
        }
    }

    /// Returns whether the lent block now belongs to READ `id`.
    pub(super) fn swap(&mut self, loan: LoanId, id: MessageId) -> Result<bool, PeerMisbehaved> {
        match self.table.exchange(loan, id) {
            None => Ok(false),
            Some(None) => Ok(true),
            Some(Some((place, block))) => self.store_block(place, block).map(|()| true),
        }
    }

    /// Stores a returned block and completes a reply that waited for it.
    fn store_block(&mut self, place: Place, mut block: BlockMut) -> Result<(), PeerMisbehaved> {
        block.set_len(0);
        let Some(slot) = self.table.slot_mut(place) else {
            return Ok(());
        };
        let Some(reply) = &mut slot.reply else {
            slot.operation.receive = Some(block);
            return Ok(());
        };
        // The lengths were checked on arrival.
        if let Ok(kept) = copy_data(&reply.header, &reply.message, &mut block) {
            reply.message.truncate(kept);
        }
        self.copied += block.len() as u64;
        reply.payload = Some(block);
        self.complete(place.0)
    }
}

/// Copies the data of a READ reply into its block and returns the length of the message before the
/// data. For any other reply the block stays empty. The caller has checked that the data is no
/// longer than asked for.
pub(super) fn copy_data(header: &Header, message: &[u8], block: &mut BlockMut) -> Result<usize, DecodeError> {
    block.set_len(0);
    let full = matches!(header.status, NtStatus::SUCCESS | NtStatus::BUFFER_OVERFLOW);
    if header.command != Command::Read || !full {
        return Ok(message.len());
    }
    let mut reader = Reader::at(message, HEADER_LEN, "SMB2 READ Response");
    let (_, payload) = ReadResponse::decode_head(&mut reader)?;
    let data = &message[payload.range(message.len())?];
    block.capacity_mut()[..data.len()].copy_from_slice(data);
    block.set_len(data.len());
    Ok(payload.offset.min(message.len()))
}
