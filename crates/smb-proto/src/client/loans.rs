//! Blocks of READs that are lent: being received into, or with a job.
//!
//! ```text
//! lend -> target of the input --+-> return_block: to the READ that owns it now
//!                \-> CryptoJob -+
//!                               +-> exchange: the frame answers another READ, and the two swap
//!                                   blocks, even if the other's block is lent too
//! ```
//! A READ may be answered while its block is lent, by an error or with data received elsewhere. Its
//! compound then waits until the block returns, so that every answered compound has all its blocks.
//!
//! There are never more loans than READs in flight.

use ropeway_block::BlockMut;
use ropeway_smb_wire::MessageId;

use super::Ticket;
use super::table::{IdMap, Slot, Table, read_length};

/// Identifies a lent block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LoanId(u64);

/// A slot of a compound.
pub(super) type Place = (Ticket, usize);

/// The owner and the capacity of a lent block.
#[derive(Clone, Copy, Debug)]
struct Loan {
    place: Place,
    capacity: usize,
}

/// All lent blocks.
#[derive(Default)]
pub(super) struct Loans {
    loans: IdMap<Loan>,
    made: u64,
}

impl Loans {
    pub(super) fn clear(&mut self) {
        self.loans.clear();
    }
}

impl Table {
    /// Lends the block of a READ that awaits its reply.
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

    /// Returns the slot that owns a lent block.
    pub(super) fn borrower(&self, loan: LoanId) -> Option<Place> {
        self.loans.loans.get(&loan.0).map(|loan| loan.place)
    }

    /// Ends a loan and returns the slot that owns the block.
    pub(super) fn end_loan(&mut self, loan: LoanId) -> Option<Place> {
        let Loan { place, .. } = self.loans.loans.remove(&loan.0)?;
        self.slot_mut(place)?.loan = None;
        Some(place)
    }

    pub(super) fn slot_mut(&mut self, (ticket, index): Place) -> Option<&mut Slot> {
        self.compound_mut(ticket)?.slots.get_mut(index)
    }

    /// Makes READ `id` the owner of the lent block and gives the previous owner the block of `id`,
    /// if both blocks are large enough. Returns `None` if nothing changed; otherwise the block of
    /// `id`, if it was not lent, with its new owner.
    pub(super) fn exchange(&mut self, loan: LoanId, id: MessageId) -> Option<Option<(Place, BlockMut)>> {
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
