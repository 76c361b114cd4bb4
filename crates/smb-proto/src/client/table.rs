//! The requests in flight.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use ropeway_block::BlockMut;
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::read::READ_DATA_OFFSET;
use ropeway_smb_wire::{AsyncId, MessageId};

use super::frame::Finished;
use super::input::BULK_MIN;
use super::loans::{LoanId, Loans};
use super::{Operation, Reply, Ticket};
use crate::crypto::TRANSFORM_HEADER_LEN;

/// Hashes ids that this end assigns, by one multiplication.
#[derive(Default)]
pub(super) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The bits of the golden ratio (Knuth, volume 3, 6.4).
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

pub(super) type IdMap<T> = HashMap<u64, T, BuildHasherDefault<IdHasher>>;

/// Length of a CREATE reply without contexts, padded ([MS-SMB2] 2.2.14).
pub(super) const CREATE_REPLY_LEN: usize = 152;
/// Maximum number of bytes expected after a READ's data in its frame: padding and a few small
/// replies. A guess.
const TRAILING_MAX: usize = 1024;

/// The originator of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Negotiate,
    SessionSetup,
    Validate,
    Echo,
    /// The ECHO that probes the server.
    KeepAlive,
    TreeDisconnect,
    LogOff,
    Compound(Ticket, usize),
}

/// A request without its final reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    pub(super) owner: Owner,
    pub(super) command: Command,
    pub(super) charge: u16,
    pub(super) ask: u16,
    pub(super) signed: bool,
    pub(super) sealed: bool,
    pub(super) related: bool,
    /// An interim reply arrived: the final reply may take forever.
    pub(super) interim: bool,
    pub(super) async_id: Option<AsyncId>,
    /// The request or its reply is with a job, so no reply is expected from the server.
    pub(super) with_job: bool,
}

/// An operation that was sent.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) id: MessageId,
    pub(super) operation: Operation,
    pub(super) reply: Option<Reply>,
    /// The block is lent. A reply that arrives elsewhere waits for it.
    pub(super) loan: Option<LoanId>,
}

impl Slot {
    /// Returns the slot of an operation whose request is built.
    pub(super) fn sent(id: MessageId, mut operation: Operation) -> Self {
        if operation.forget_body {
            operation.body = Vec::new();
        }
        Self {
            id,
            operation,
            reply: None,
            loan: None,
        }
    }
}

/// A compound that was sent.
#[derive(Debug)]
pub(super) struct SentCompound {
    pub(super) slots: Vec<Slot>,
    /// Number of slots without a reply.
    pub(super) open: usize,
    /// The slot whose payload was sealed in place, and the number of bytes sealed before and after
    /// it.
    pub(super) sealed_in_place: Option<(usize, usize, usize)>,
}

impl SentCompound {
    /// Returns whether every reply is present, with its block.
    pub(super) fn is_complete(&self) -> bool {
        self.open == 0 && self.slots.iter().all(|slot| slot.loan.is_none())
    }

    /// Stores the payload of slot `index` again.
    pub(super) fn keep(&mut self, index: usize, finished: &mut Finished) {
        self.slots[index].operation.payload = finished.payload.take();
        let in_place = finished.sealed_in_place;
        self.sealed_in_place = in_place.map(|(before, after)| (index, before, after));
    }
}

#[derive(Default)]
pub(super) struct Table {
    flights: IdMap<InFlight>,
    compounds: IdMap<SentCompound>,
    pub(super) loans: Loans,
    /// READs with a block that come first in their compound or follow a CREATE, oldest first, with
    /// the number of bytes expected before their data.
    reads: VecDeque<(MessageId, usize)>,
    /// Number of READs large enough to be received into their blocks.
    bulk: usize,
    /// Number of requests in flight without an interim reply.
    owed: usize,
}

impl Table {
    pub(super) fn insert(&mut self, id: MessageId, flight: InFlight) {
        let before = self.flights.insert(id.0, flight);
        assert!(before.is_none(), "message ids are not used twice");
        self.owed += 1;
    }

    pub(super) fn insert_compound(&mut self, ticket: Ticket, sent: SentCompound) {
        let (slot, before) = match &sent.slots[..] {
            [create, read, ..] if create.operation.command == Command::Create => {
                (Some(read), CREATE_REPLY_LEN + READ_DATA_OFFSET)
            }
            slots => (slots.first(), READ_DATA_OFFSET),
        };
        if let Some(slot) = slot
            && slot.operation.receive.is_some()
        {
            self.reads.push_back((slot.id, before));
        }
        self.bulk += sent.slots.iter().filter(|slot| is_bulk(&slot.operation)).count();
        self.compounds.insert(ticket.0, sent);
    }

    pub(super) fn flight(&self, id: MessageId) -> Option<InFlight> {
        self.flights.get(&id.0).copied()
    }

    /// Notes an interim reply.
    pub(super) fn note_interim(&mut self, id: MessageId, async_id: Option<AsyncId>) {
        if let Some(flight) = self.flights.get_mut(&id.0) {
            self.owed -= usize::from(!flight.interim);
            flight.interim = true;
            flight.async_id = async_id;
        }
    }

    pub(super) fn remove(&mut self, id: MessageId) -> Option<InFlight> {
        let is_bulk = self.operation_mut(id).is_some_and(|operation| is_bulk(operation));
        let flight = self.flights.remove(&id.0)?;
        self.bulk -= usize::from(is_bulk);
        self.owed -= usize::from(!flight.interim);
        if flight.command == Command::Read
            && let Some(place) = self.reads.iter().position(|(read, _)| *read == id)
        {
            self.reads.remove(place);
        }
        Some(flight)
    }

    pub(super) fn compound_mut(&mut self, ticket: Ticket) -> Option<&mut SentCompound> {
        self.compounds.get_mut(&ticket.0)
    }

    pub(super) fn remove_compound(&mut self, ticket: Ticket) -> Option<SentCompound> {
        self.compounds.remove(&ticket.0)
    }

    /// Empties the table. Returns all compounds in the order of their tickets.
    pub(super) fn drain(&mut self) -> Vec<(Ticket, SentCompound)> {
        self.flights.clear();
        self.loans.clear();
        self.reads.clear();
        self.bulk = 0;
        self.owed = 0;
        let mut compounds: Vec<_> = self
            .compounds
            .drain()
            .map(|(number, sent)| (Ticket(number), sent))
            .collect();
        compounds.sort_unstable_by_key(|(ticket, _)| *ticket);
        compounds
    }

    /// Returns the operation with this message id.
    pub(super) fn operation_mut(&mut self, id: MessageId) -> Option<&mut Operation> {
        let Owner::Compound(ticket, index) = self.flights.get(&id.0)?.owner else {
            return None;
        };
        let sent = self.compounds.get_mut(&ticket.0)?;
        sent.slots.get_mut(index).map(|slot| &mut slot.operation)
    }

    /// Returns the slot of a READ that awaits its reply, its position, and the length asked for.
    pub(super) fn read_slot(&mut self, id: MessageId) -> Option<(&mut Slot, (Ticket, usize), usize)> {
        let flight = self.flights.get(&id.0).filter(|flight| !flight.with_job)?;
        let Owner::Compound(ticket, index) = flight.owner else {
            return None;
        };
        let slot = self.compounds.get_mut(&ticket.0)?.slots.get_mut(index)?;
        let asked = read_length(&slot.operation)?;
        Some((slot, (ticket, index), asked))
    }

    /// Returns the block of a READ, if it has one that is not lent, and the length asked for.
    pub(super) fn read_target(&mut self, id: MessageId) -> Option<(&mut Option<BlockMut>, usize)> {
        let (slot, _, asked) = self.read_slot(id)?;
        Some((&mut slot.operation.receive, asked))
    }

    /// Notes whether the reply to a request is with a job.
    pub(super) fn set_with_job(&mut self, id: MessageId, with_job: bool) {
        if let Some(flight) = self.flights.get_mut(&id.0) {
            flight.with_job = with_job;
        }
    }

    /// Notes whether the requests of a compound are with a job.
    pub(super) fn set_compound_with_job(&mut self, ticket: Ticket, with_job: bool) {
        let Some(sent) = self.compounds.get(&ticket.0) else {
            return;
        };
        for slot in &sent.slots {
            if let Some(flight) = self.flights.get_mut(&slot.id.0) {
                flight.with_job = with_job;
            }
        }
    }

    /// Returns the oldest READ that a sealed frame with `length` bytes of messages may answer, and
    /// the number of bytes expected before its data. Examines at most 64 READs.
    pub(super) fn guess_read(&mut self, length: usize) -> Option<(MessageId, usize)> {
        for place in 0..self.reads.len().min(64) {
            let (id, before) = self.reads[place];
            if let Some((Some(block), asked)) = self.read_target(id)
                && let Some(length) = length.checked_sub(before)
                && length <= block.capacity().min(asked + TRAILING_MAX)
                && TRANSFORM_HEADER_LEN + before <= block.headroom()
            {
                return Some((id, before));
            }
        }
        None
    }

    /// Returns whether a READ is outstanding that should be received into its block.
    pub(super) fn awaits_bulk(&self) -> bool {
        self.bulk > 0
    }

    pub(super) fn compounds(&self) -> usize {
        self.compounds.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.flights.is_empty()
    }

    pub(super) fn owed(&self) -> usize {
        self.owed
    }
}

fn is_bulk(operation: &Operation) -> bool {
    read_length(operation).is_some_and(|asked| asked >= BULK_MIN)
}

/// Returns the `Length` of an encoded READ request ([MS-SMB2] 2.2.19).
pub(super) fn read_length(operation: &Operation) -> Option<usize> {
    if operation.command != Command::Read {
        return None;
    }
    let bytes = operation.body.get(4..8)?.first_chunk()?;
    usize::try_from(u32::from_le_bytes(*bytes)).ok()
}
