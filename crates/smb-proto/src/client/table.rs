//! What was sent and awaits its answer.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use ropeway_block::BlockMut;

use super::frame::Finished;
use super::loans::{LoanId, Loans};
use super::receive::BULK_MIN;
use super::{Operation, Reply, Ticket};
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::read::READ_DATA_OFFSET;
use ropeway_smb_wire::{AsyncId, MessageId};

/// Hashes numbers that we chose ourselves: a multiplication spreads them.
#[derive(Default)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The golden ratio's bits (Knuth, volume 3, 6.4).
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

pub(super) type Numbered<T> = HashMap<u64, T, BuildHasherDefault<Spread>>;

/// The answer to a CREATE without contexts, padded ([MS-SMB2] 2.2.14).
pub(super) const CREATED_LEN: usize = 152;
/// What may follow a READ's data in its frame: padding, and the answers to a few small requests. A guess.
const BEHIND_MAX: usize = 1024;

/// Whose request it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Negotiate,
    SessionSetup,
    Validate,
    Echo,
    /// The ECHO that asks whether the server is there.
    KeepAlive,
    TreeDisconnect,
    LogOff,
    Chain(Ticket, usize),
}

/// A request without its final answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) owner: Owner,
    pub(super) command: Command,
    pub(super) charge: u16,
    pub(super) ask: u16,
    pub(super) signed: bool,
    pub(super) sealed: bool,
    pub(super) related: bool,
    /// An interim reply came: the answer may take for ever.
    pub(super) interim: bool,
    pub(super) async_id: Option<AsyncId>,
    /// The request, or the answer, is with a job: nothing is awaited from the server.
    pub(super) away: bool,
}

/// An operation that was sent.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) id: MessageId,
    pub(super) operation: Operation,
    pub(super) reply: Option<Reply>,
    /// Its block is away; an answer that comes otherwise waits for it.
    pub(super) loan: Option<LoanId>,
}

/// A chain that was sent.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) slots: Vec<Slot>,
    /// Slots without reply.
    pub(super) open: usize,
    /// The payload of this slot was sealed in place, with so many bytes before and after it.
    pub(super) sealed_in_place: Option<(usize, usize, usize)>,
}

impl Sent {
    /// Whether every answer is there, with its block.
    pub(super) fn is_complete(&self) -> bool {
        self.open == 0 && self.slots.iter().all(|slot| slot.loan.is_none())
    }

    /// Takes back the payload of slot `index`.
    pub(super) fn keep(&mut self, index: usize, finished: &mut Finished) {
        self.slots[index].operation.payload = finished.payload.take();
        let in_place = finished.sealed_in_place;
        self.sealed_in_place = in_place.map(|(before, after)| (index, before, after));
    }
}

#[derive(Default)]
pub(super) struct Table {
    flights: Numbered<Flight>,
    chains: Numbered<Sent>,
    pub(super) loans: Loans,
    /// READs that have a block and come first in their chain, or follow a CREATE, by age; and what the messages of their
    /// answer are expected to have before the data.
    reads: VecDeque<(MessageId, usize)>,
    /// READs of so much that their data should be received where it belongs.
    bulk: usize,
    /// Flights without interim reply.
    owed: usize,
}

impl Table {
    pub(super) fn insert(&mut self, id: MessageId, flight: Flight) {
        let before = self.flights.insert(id.0, flight);
        assert!(before.is_none(), "message ids are not used twice");
        self.owed += 1;
    }

    pub(super) fn insert_chain(&mut self, ticket: Ticket, sent: Sent) {
        let (slot, before) = match &sent.slots[..] {
            [create, read, ..] if create.operation.command == Command::Create => {
                (Some(read), CREATED_LEN + READ_DATA_OFFSET)
            }
            slots => (slots.first(), READ_DATA_OFFSET),
        };
        if let Some(slot) = slot
            && slot.operation.receive.is_some()
        {
            self.reads.push_back((slot.id, before));
        }
        self.bulk += sent.slots.iter().filter(|slot| is_bulk(&slot.operation)).count();
        self.chains.insert(ticket.0, sent);
    }

    pub(super) fn flight(&self, id: MessageId) -> Option<Flight> {
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

    pub(super) fn remove(&mut self, id: MessageId) -> Option<Flight> {
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

    pub(super) fn chain_mut(&mut self, ticket: Ticket) -> Option<&mut Sent> {
        self.chains.get_mut(&ticket.0)
    }

    pub(super) fn remove_chain(&mut self, ticket: Ticket) -> Option<Sent> {
        self.chains.remove(&ticket.0)
    }

    /// All chains, by ticket; the table is empty afterwards.
    pub(super) fn drain(&mut self) -> Vec<(Ticket, Sent)> {
        self.flights.clear();
        self.loans.clear();
        self.reads.clear();
        self.bulk = 0;
        self.owed = 0;
        let mut chains: Vec<_> = self
            .chains
            .drain()
            .map(|(number, sent)| (Ticket(number), sent))
            .collect();
        chains.sort_unstable_by_key(|(ticket, _)| *ticket);
        chains
    }

    /// The operation behind a message id.
    pub(super) fn operation_mut(&mut self, id: MessageId) -> Option<&mut Operation> {
        let Owner::Chain(ticket, index) = self.flights.get(&id.0)?.owner else {
            return None;
        };
        let sent = self.chains.get_mut(&ticket.0)?;
        sent.slots.get_mut(index).map(|slot| &mut slot.operation)
    }

    /// The slot of a READ whose answer is awaited, where it is in its chain, and how much was asked for.
    pub(super) fn read_slot(&mut self, id: MessageId) -> Option<(&mut Slot, (Ticket, usize), usize)> {
        let flight = self.flights.get(&id.0).filter(|flight| !flight.away)?;
        let Owner::Chain(ticket, index) = flight.owner else {
            return None;
        };
        let slot = self.chains.get_mut(&ticket.0)?.slots.get_mut(index)?;
        let asked = read_length(&slot.operation)?;
        Some((slot, (ticket, index), asked))
    }

    /// A READ's block, if it has one that is not taken, and how much was asked for.
    pub(super) fn read_target(&mut self, id: MessageId) -> Option<(&mut Option<BlockMut>, usize)> {
        let (slot, _, asked) = self.read_slot(id)?;
        Some((&mut slot.operation.receive, asked))
    }

    /// Notes that a request's answer is with a job.
    pub(super) fn set_away(&mut self, id: MessageId, away: bool) {
        if let Some(flight) = self.flights.get_mut(&id.0) {
            flight.away = away;
        }
    }

    /// Notes that a chain's requests are with a job, or not any more.
    pub(super) fn set_chain_away(&mut self, ticket: Ticket, away: bool) {
        let Some(sent) = self.chains.get(&ticket.0) else {
            return;
        };
        for slot in &sent.slots {
            if let Some(flight) = self.flights.get_mut(&slot.id.0) {
                flight.away = away;
            }
        }
    }

    /// The oldest READ whose answer messages of `length` bytes in all may be, and what they are expected to have before
    /// the data; 64 are looked at.
    pub(super) fn landing(&mut self, length: usize) -> Option<(MessageId, usize)> {
        for place in 0..self.reads.len().min(64) {
            let (id, before) = self.reads[place];
            if let Some((Some(block), asked)) = self.read_target(id)
                && let Some(length) = length.checked_sub(before)
                && length <= block.capacity().min(asked + BEHIND_MAX)
            {
                return Some((id, before));
            }
        }
        None
    }

    /// Whether data is awaited that should be received where it belongs.
    pub(super) fn awaits_bulk(&self) -> bool {
        self.bulk > 0
    }

    pub(super) fn chains(&self) -> usize {
        self.chains.len()
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

/// `Length` of a READ's encoded body ([MS-SMB2] 2.2.19).
pub(super) fn read_length(operation: &Operation) -> Option<usize> {
    if operation.command != Command::Read {
        return None;
    }
    let bytes = operation.body.get(4..8)?.first_chunk()?;
    usize::try_from(u32::from_le_bytes(*bytes)).ok()
}
