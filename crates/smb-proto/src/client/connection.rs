//! The connection: its state, and the calls of its owner.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use ropeway_smb_wire::TreeId;
use ropeway_smb_wire::frame::FRAME_LEN_MAX;
use ropeway_smb_wire::header::{Command, HEADER_LEN, HeaderFlags};
use ropeway_smb_wire::session_setup::SessionFlags;

use super::control::{Control, Logoff};
use super::credits::Credits;
use super::crypto_job::JobQueue;
use super::frame::{Compressor, Finished};
use super::input::Input;
use super::login_state::Login;
use super::session::Session;
use super::table::{Table, read_length};
use super::{
    COMPOUNDS_MAX, Compound, Config, CreditState, DropReason, EndReason, Event, Misuse, Negotiated,
    OPERATIONS_MAX, PeerMisbehaved, Reply, SessionSecret, Ticket,
};
use crate::compression::{CompressionLevel, Saved};
use crate::crypto::Preauth;

/// Maximum number of uncollected events before a notification counts as flooding. Compounds have
/// their own bound.
const EVENTS_MAX: usize = 2 * COMPOUNDS_MAX;

/// One connection to a server, owned by one task. Times count from a start that the owner chooses.
///
/// ```text
/// submit, log_in, cancel -> queue -> poll_transmit -> socket -> receive/received -> poll_event
/// ```
///
/// After [`received`](Self::received) and after every request, poll events, transmits and (if
/// configured) jobs until all return `None`. After [`Event::Ended`] the connection needs no further
/// calls.
pub struct Connection {
    pub(super) config: Config,
    pub(super) salt: [u8; 32],
    pub(super) negotiated: Option<Negotiated>,
    /// Hash of the NEGOTIATE exchange ([MS-SMB2] 3.2.1.2, `Connection.PreauthIntegrityHashValue`).
    pub(super) preauth: Preauth,
    pub(super) login: Login,
    pub(super) session: Option<Session>,
    pub(super) credits: Credits,
    pub(super) table: Table,
    /// Compounds not sent yet, in order.
    pub(super) queue: VecDeque<(Ticket, Compound)>,
    /// The connection's own requests. They are sent before the queue.
    pub(super) controls: VecDeque<Control>,
    /// Tickets whose requests are to be cancelled.
    pub(super) cancels: VecDeque<Ticket>,
    /// Replies withheld until the negotiation is validated.
    pub(super) held: Vec<(Ticket, Vec<Reply>)>,
    /// VALIDATE_NEGOTIATE_INFO is in flight.
    pub(super) validating: bool,
    pub(super) input: Input,
    pub(super) compressor: Compressor,
    pub(super) jobs: JobQueue,
    /// Frames finished by jobs. Bounded by the number of compounds.
    pub(super) ready: VecDeque<Finished>,
    pub(super) events: VecDeque<Event>,
    pub(super) ended: Option<EndReason>,
    /// The final events are queued.
    is_settled: bool,
    pub(super) expired: bool,
    /// ECHOs sent for lack of credits since the last compound was sent.
    pub(super) credit_echoes: u32,
    pub(super) copied: u64,
    pub(super) saved: Saved,
    tickets: u64,
    pub(super) now: Duration,
    /// The later of the server's last message and the start of the first request in flight. `None`
    /// until a call passes the time.
    pub(super) silent_since: Option<Duration>,
    /// A keepalive ECHO ([`Config::echo_after`]) is in flight.
    pub(super) echoing: bool,
    /// Partly answered compounds, with the time of their first reply.
    pub(super) partial: VecDeque<(Ticket, Duration)>,
    /// Trees connected on this connection and not disconnected.
    pub(super) trees: BTreeSet<TreeId>,
    pub(super) logoff: Logoff,
}

impl Connection {
    /// Creates a connection that sends NEGOTIATE first. `salt` must be random.
    pub fn new(config: Config, salt: [u8; 32]) -> Self {
        let target = config.credits_target;
        Self {
            config,
            salt,
            negotiated: None,
            preauth: Preauth::new(),
            login: Login::None,
            session: None,
            credits: Credits::new(target),
            table: Table::default(),
            queue: VecDeque::new(),
            controls: VecDeque::from([Control::Negotiate]),
            cancels: VecDeque::new(),
            held: Vec::new(),
            validating: false,
            input: Input::new(),
            compressor: Compressor::default(),
            jobs: JobQueue::default(),
            ready: VecDeque::new(),
            events: VecDeque::new(),
            ended: None,
            is_settled: false,
            expired: false,
            credit_echoes: 0,
            copied: 0,
            saved: Saved::default(),
            tickets: 0,
            now: Duration::ZERO,
            silent_since: None,
            echoing: false,
            partial: VecDeque::new(),
            trees: BTreeSet::new(),
            logoff: Logoff::None,
        }
    }

    /// Queues a compound. It is sent after those submitted before it, once there are a session and
    /// enough credits.
    ///
    /// # Errors
    /// [`Misuse`], together with the compound.
    #[allow(clippy::result_large_err, reason = "the caller gets its blocks back")]
    pub fn submit(&mut self, compound: Compound) -> Result<Ticket, (Misuse, Compound)> {
        if let Err(misuse) = self.check_compound(&compound) {
            return Err((misuse, compound));
        }
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        let charge = self.compound_charge(&compound);
        self.credits.want(charge);
        self.queue.push_back((ticket, compound));
        Ok(ticket)
    }

    fn check_compound(&self, compound: &Compound) -> Result<(), Misuse> {
        if self.ended.is_some() || self.logoff != Logoff::None {
            return Err(Misuse::Ended);
        }
        if self.queue.len() + self.table.compounds() + self.held.len() >= COMPOUNDS_MAX {
            return Err(Misuse::TooMany);
        }
        if compound.operations.is_empty() || compound.operations.len() > OPERATIONS_MAX {
            return Err(Misuse::CompoundLength);
        }
        if compound.encrypt && self.session.as_ref().is_some_and(|session| !session.seals()) {
            return Err(Misuse::NoEncryption);
        }
        let limits = self.negotiated.as_ref();
        let mut total = 0;
        for operation in &compound.operations {
            if let Command::Negotiate | Command::SessionSetup | Command::Cancel = operation.command {
                return Err(Misuse::Command(operation.command));
            }
            let payload = operation.payload.as_ref().map_or(0, |payload| payload.len());
            total += HEADER_LEN + operation.body.len() + payload + 8;
            if limits.is_some_and(|limits| payload > limits.max_write as usize) {
                return Err(Misuse::TooLong);
            }
            if let Some(block) = &operation.receive {
                let asked = read_length(operation).ok_or(Misuse::Block)?;
                if asked > block.capacity() {
                    return Err(Misuse::Block);
                }
                if limits.is_some_and(|limits| asked > limits.max_read as usize) {
                    return Err(Misuse::TooLong);
                }
            }
        }
        // The frame needs room for what precedes the messages.
        if total > FRAME_LEN_MAX - 4096 {
            return Err(Misuse::TooLong);
        }
        Ok(())
    }

    /// Withdraws a compound. If it is still queued, [`Event::Dropped`] follows. If it was sent, a
    /// CANCEL asks the server to stop, and its replies arrive as usual ([`Event::Replied`]).
    pub fn cancel(&mut self, ticket: Ticket) {
        if let Some(place) = self.queue.iter().position(|(queued, _)| *queued == ticket) {
            if let Some((_, compound)) = self.queue.remove(place) {
                self.drop_queued(ticket, compound, DropReason::Cancelled);
            }
        } else if self.table.compound_mut(ticket).is_some() && !self.cancels.contains(&ticket) {
            self.cancels.push_back(ticket);
        }
    }

    /// Takes a request back that was not sent yet, so that another connection can carry it: it is
    /// reported as [`Event::Dropped`]. Returns whether it could.
    pub fn take_back(&mut self, ticket: Ticket) -> bool {
        let place = self.queue.iter().position(|(queued, _)| *queued == ticket);
        let taken = place.and_then(|place| self.queue.remove(place));
        let is_taken = taken.is_some();
        if let Some((_, compound)) = taken {
            self.drop_queued(ticket, compound, DropReason::TakenBack);
        }
        is_taken
    }

    pub(super) fn drop_queued(&mut self, ticket: Ticket, compound: Compound, reason: DropReason) {
        let charge = self.compound_charge(&compound);
        self.credits.unwant(charge);
        self.events.push_back(Event::Dropped {
            ticket,
            operations: compound.operations,
            sent: false,
            reason,
        });
    }

    /// Returns the credits that a compound costs. Before the negotiation every request counts as
    /// one credit.
    pub(super) fn compound_charge(&self, compound: &Compound) -> u32 {
        compound
            .operations
            .iter()
            .map(|operation| u32::from(self.charge(operation)))
            .sum()
    }

    pub(super) fn charge(&self, operation: &super::Operation) -> u16 {
        let multi_credit = self.negotiated.as_ref().is_some_and(|limits| limits.multi_credit);
        let sent = match &operation.payload {
            Some(payload) => payload.len(),
            None => operation.body.len(),
        };
        let expected = (operation.response_max as usize).max(read_length(operation).unwrap_or(0));
        Credits::charge(multi_credit, sent, expected)
    }

    /// Tells the connection that the socket reached its end, or failed.
    pub fn closed(&mut self) {
        self.end(EndReason::Closed);
    }

    /// Ends the connection. Once every job is back, polling events returns everything in progress.
    pub(super) fn end(&mut self, reason: EndReason) {
        if self.ended.is_some() {
            return;
        }
        self.ended = Some(reason);
        let counts = self
            .negotiated
            .as_ref()
            .is_some_and(Negotiated::has_channel_sequence);
        if counts && self.table.compounds() > 0 {
            self.config.sequence.advance();
        }
        self.return_target();
        // These parts hold handles to blocks. A payload sealed in place is restored only if its
        // block has a single handle.
        self.ready.clear();
        self.recall_jobs();
    }

    /// Queues the final events of an ended connection, once the last job is back.
    fn settle_end(&mut self) {
        let Some(reason) = self.ended.filter(|_| !self.is_settled && !self.jobs.are_out()) else {
            return;
        };
        self.is_settled = true;
        for (ticket, replies) in std::mem::take(&mut self.held) {
            // The replies arrived under a negotiation that was never validated.
            drop(replies);
            self.events.push_back(Event::Dropped {
                ticket,
                operations: Vec::new(),
                sent: true,
                reason: DropReason::Ended,
            });
        }
        for (ticket, sent) in self.table.drain() {
            let operations = self.recover(sent);
            self.events.push_back(Event::Dropped {
                ticket,
                operations,
                sent: true,
                reason: DropReason::Ended,
            });
        }
        while let Some((ticket, compound)) = self.queue.pop_front() {
            self.drop_queued(ticket, compound, DropReason::Ended);
        }
        self.controls.clear();
        self.cancels.clear();
        self.partial.clear();
        self.login = Login::None;
        self.events.push_back(Event::Ended(reason));
    }

    /// Restores a payload that was sealed in its block. It becomes `None` if that fails.
    pub(super) fn restore(&self, sent: &mut super::table::SentCompound) {
        let Some((index, before, after)) = sent.sealed_in_place.take() else {
            return;
        };
        let payload = &mut sent.slots[index].operation.payload;
        *payload = payload.take().and_then(|payload| {
            let session = self.session.as_ref()?;
            session.unseal(payload, before, after)
        });
    }

    /// Returns the operations of a sent compound as they were submitted.
    pub(super) fn recover(&self, mut sent: super::table::SentCompound) -> Vec<super::Operation> {
        self.restore(&mut sent);
        sent.slots
            .into_iter()
            .map(|slot| {
                let mut operation = slot.operation;
                if operation.receive.is_none() {
                    operation.receive = slot.reply.and_then(|reply| reply.payload);
                }
                operation
            })
            .collect()
    }

    /// Returns the next event.
    ///
    /// Once the connection has [`ended`](Self::ended), drop what
    /// [`poll_transmit`](Self::poll_transmit) returned before you poll: a payload that was sealed
    /// in its block is restored only if no other handle to the block exists.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.settle_end();
        self.events.pop_front()
    }

    pub(super) fn notify(&mut self, event: Event) -> Result<(), PeerMisbehaved> {
        if self.events.len() >= EVENTS_MAX {
            return Err(PeerMisbehaved::Flood);
        }
        self.events.push_back(event);
        Ok(())
    }

    /// Returns the result of NEGOTIATE.
    pub fn negotiated(&self) -> Option<&Negotiated> {
        self.negotiated.as_ref()
    }

    /// Returns the keys of the session, with which further channels [`bind`](Self::bind). `None`
    /// without a session or without keys.
    pub fn session(&self) -> Option<SessionSecret> {
        self.session.as_ref().and_then(Session::secret)
    }

    /// Returns the flags of the session.
    pub fn session_flags(&self) -> Option<SessionFlags> {
        self.session.as_ref().map(|session| session.flags)
    }

    /// Returns whether every request of the session is sealed.
    pub fn is_encrypted(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.seal_all)
    }

    /// Returns whether every request of the session is signed or sealed.
    pub fn is_signed(&self) -> bool {
        self.session
            .as_ref()
            .is_some_and(|session| session.seal_all || session.sign_all)
    }

    /// Returns the state of the credit account.
    pub fn credits(&self) -> CreditState {
        self.credits.state()
    }

    /// Returns the number of compounds sent and not fully answered.
    pub fn in_flight(&self) -> usize {
        self.table.compounds()
    }

    /// Returns the number of queued compounds.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Returns why the connection ended.
    pub fn ended(&self) -> Option<EndReason> {
        self.ended
    }

    /// Sets how strongly to compress from now on, where the server and the offer allow it.
    pub fn set_compression_level(&mut self, level: CompressionLevel) {
        self.compressor.level = level;
    }

    /// Returns what compression has saved, in both directions.
    pub fn saved(&self) -> Saved {
        self.saved
    }

    /// Returns the number of payload bytes copied in user space, in both directions.
    pub fn bytes_copied(&self) -> u64 {
        self.copied
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("negotiated", &self.negotiated)
            .field("credits", &self.credits.state())
            .field("in_flight", &self.table.compounds())
            .field("queued", &self.queue.len())
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

/// Returns whether the operation continues the one before it.
pub(super) fn is_related(compound: &Compound, index: usize) -> bool {
    compound.related && index > 0
}

/// Header flags that the caller may set.
pub(super) const CALLER_FLAGS: HeaderFlags = HeaderFlags::DFS_OPERATIONS.union(HeaderFlags::REPLAY_OPERATION);
