//! Blocks of READs that are away: being received into, or with a job.
//!
//! ```text
//! lend ── a target of the input ──┬── bring_back: to the READ whose it is now
//!                └── a CryptoJob ─┤
//!                                 └── exchange: the frame in it answers another READ; the two change blocks,
//!                                     wherever the other's is
//! ```
//! A READ may be answered while its block is away (an error, or data that came elsewhere): the chain waits until the
//! block is back, so that every chain has all its blocks when it is answered.
//!
//! There are no more loans than READs in flight.

use ropeway_block::BlockMut;

use super::connection::Connection;
use super::dispatch::copy_data;
use super::table::{Numbered, Slot, Table, read_length};
use super::{PeerMisbehaved, Ticket};
use ropeway_smb_wire::MessageId;

/// A block that is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LoanId(u64);

/// A slot of a chain.
type Place = (Ticket, usize);

/// Whose block it is, and how large.
#[derive(Clone, Copy, Debug)]
struct Loan {
    place: Place,
    capacity: usize,
}

/// All blocks that are away.
#[derive(Default)]
pub(super) struct Loans {
    loans: Numbered<Loan>,
    made: u64,
}

impl Loans {
    pub(super) fn clear(&mut self) {
        self.loans.clear();
    }
}

impl Table {
    /// Takes the block of a READ whose answer is awaited.
    pub(super) fn lend(&mut self, id: MessageId) -> Option<(LoanId, BlockMut)> {
        let loan = LoanId(self.loans.made);
        let (slot, place, _) = self.read_slot(id)?;
        let block = slot.operation.receive.take()?;
        slot.loan = Some(loan);
        let capacity = block.capacity();
        self.loans.made += 1;
        self.loans.loans.insert(loan.0, Loan { place, capacity });
        Some((loan, block))
    }

    /// Whose block it is.
    pub(super) fn borrower(&self, loan: LoanId) -> Option<Place> {
        self.loans.loans.get(&loan.0).map(|loan| loan.place)
    }

    /// The block is back; whose it is.
    pub(super) fn end_loan(&mut self, loan: LoanId) -> Option<Place> {
        let Loan { place, .. } = self.loans.loans.remove(&loan.0)?;
        self.slot_mut(place)?.loan = None;
        Some(place)
    }

    pub(super) fn slot_mut(&mut self, (ticket, index): Place) -> Option<&mut Slot> {
        self.chain_mut(ticket)?.slots.get_mut(index)
    }

    /// Makes the lent block that of READ `id`, and gives its owner the other's, if both are large enough. `None`: nothing
    /// changed; otherwise a block that is at home, and whose it is now.
    fn exchange(&mut self, loan: LoanId, id: MessageId) -> Option<Option<(Place, BlockMut)>> {
        let lent = *self.loans.loans.get(&loan.0)?;
        let asked_by_owner = read_length(&self.slot_mut(lent.place)?.operation)?;
        let (slot, place, asked) = self.read_slot(id)?;
        if place == lent.place {
            return Some(None);
        }
        if lent.capacity < asked {
            return None;
        }
        let (block, other) = match (slot.operation.receive.take(), slot.loan) {
            (Some(block), _) if block.capacity() >= asked_by_owner => (Some(block), None),
            (Some(block), _) => {
                slot.operation.receive = Some(block);
                return None;
            }
            (None, other) => (None, Some(other?)),
        };
        if let Some(other) = other {
            let other = self.loans.loans.get_mut(&other.0)?;
            if other.capacity < asked_by_owner {
                return None;
            }
            other.place = lent.place;
        }
        self.slot_mut(place)?.loan = Some(loan);
        self.slot_mut(lent.place)?.loan = other;
        self.loans.loans.get_mut(&loan.0)?.place = place;
        Some(block.map(|block| (lent.place, block)))
    }
}

impl Connection {
    /// Gives a block back to the READ whose it is.
    pub(super) fn bring_back(&mut self, loan: LoanId, block: BlockMut) -> Result<(), PeerMisbehaved> {
        match self.table.end_loan(loan) {
            Some(place) => self.put_back(place, block),
            None => Ok(()),
        }
    }

    /// Whether a lent block is now that of READ `id`.
    pub(super) fn swap(&mut self, loan: LoanId, id: MessageId) -> Result<bool, PeerMisbehaved> {
        match self.table.exchange(loan, id) {
            None => Ok(false),
            Some(None) => Ok(true),
            Some(Some((place, block))) => self.put_back(place, block).map(|()| true),
        }
    }

    /// A block is at home; an answer that has waited for it is whole.
    fn put_back(&mut self, place: Place, mut block: BlockMut) -> Result<(), PeerMisbehaved> {
        block.set_len(0);
        let Some(slot) = self.table.slot_mut(place) else {
            return Ok(());
        };
        let Some(reply) = &mut slot.reply else {
            slot.operation.receive = Some(block);
            return Ok(());
        };
        // Its lengths were checked when it came.
        if let Ok(kept) = copy_data(&reply.header, &reply.message, &mut block) {
            reply.message.truncate(kept);
        }
        self.copied += block.len() as u64;
        reply.payload = Some(block);
        self.complete(place.0)
    }
}
