//! The connection: its state and what its owner calls.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::credits::Credits;
use super::frame::{Compressor, Finished};
use super::jobs::JobQueue;
use super::life::Leaving;
use super::receive::Input;
use super::session::{Login, Session};
use super::table::{Table, read_length};
use super::transmit::Control;
use super::{
    CHAINS_MAX, Chain, Config, CreditState, DropReason, EndReason, Event, Misuse, Negotiated, OPERATIONS_MAX,
    PeerMisbehaved, Reply, SessionSecret, Ticket,
};
use crate::crypto::Preauth;
use ropeway_smb_wire::TreeId;
use ropeway_smb_wire::frame::FRAME_LEN_MAX;
use ropeway_smb_wire::header::{Command, HEADER_LEN, HeaderFlags};
use ropeway_smb_wire::session_setup::SessionFlags;

/// Events nobody has taken yet: chains are bounded, notifications are bounded by this.
const EVENTS_MAX: usize = 2 * CHAINS_MAX;

/// One TCP connection to a server; owned by one task. Times are since the connection's start.
///
/// ```text
/// submit, log_in, cancel -> queue -> poll_transmit -> socket -> receive/received -> poll_event
/// ```
///
/// After [`received`](Self::received) or anything that asks for something, poll events, transmits and, if the
/// configuration has them, jobs until there are none. After [`Event::Ended`] there is nothing more to do with it.
pub struct Connection {
    pub(super) config: Config,
    pub(super) salt: [u8; 32],
    pub(super) negotiated: Option<Negotiated>,
    /// Over NEGOTIATE ([MS-SMB2] 3.2.1.2, `Connection.PreauthIntegrityHashValue`).
    pub(super) preauth: Preauth,
    pub(super) login: Login,
    pub(super) session: Option<Session>,
    pub(super) credits: Credits,
    pub(super) table: Table,
    /// Chains not sent yet, in order.
    pub(super) queue: VecDeque<(Ticket, Chain)>,
    /// Our own requests; they go first.
    pub(super) controls: VecDeque<Control>,
    /// Tickets whose requests are to be cancelled.
    pub(super) cancels: VecDeque<Ticket>,
    /// Answers that wait for the negotiation to be validated.
    pub(super) held: Vec<(Ticket, Vec<Reply>)>,
    /// The question is out.
    pub(super) validating: bool,
    pub(super) input: Input,
    pub(super) compressor: Compressor,
    pub(super) jobs: JobQueue,
    /// Frames that jobs have finished; chains bound them.
    pub(super) ready: VecDeque<Finished>,
    pub(super) events: VecDeque<Event>,
    pub(super) ended: Option<EndReason>,
    /// The last events are queued.
    is_settled: bool,
    pub(super) expired: bool,
    /// ECHOs sent for want of credits since there were more.
    pub(super) nudges: u32,
    pub(super) copied: u64,
    tickets: u64,
    pub(super) now: Duration,
    /// When the server last sent something, or since when something is in flight; none: not asked the time yet.
    pub(super) quiet_since: Option<Duration>,
    /// An ECHO for [`Config::echo_after`] is out.
    pub(super) echoing: bool,
    /// Compounds that are answered in part, and since when.
    pub(super) partial: VecDeque<(Ticket, Duration)>,
    /// Shares entered on this connection and not left.
    pub(super) trees: BTreeSet<TreeId>,
    pub(super) leaving: Leaving,
}

impl Connection {
    /// Queues NEGOTIATE. `salt` is random.
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
            nudges: 0,
            copied: 0,
            tickets: 0,
            now: Duration::ZERO,
            quiet_since: None,
            echoing: false,
            partial: VecDeque::new(),
            trees: BTreeSet::new(),
            leaving: Leaving::No,
        }
    }

    /// Queues a chain; it is sent when there is a session and credits suffice, after those submitted before.
    ///
    /// # Errors
    /// [`Misuse`], with the chain.
    #[allow(clippy::result_large_err, reason = "the caller gets its blocks back")]
    pub fn submit(&mut self, chain: Chain) -> Result<Ticket, (Misuse, Chain)> {
        if let Err(misuse) = self.check_chain(&chain) {
            return Err((misuse, chain));
        }
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        let charge = self.chain_charge(&chain);
        self.credits.want(charge);
        self.queue.push_back((ticket, chain));
        Ok(ticket)
    }

    fn check_chain(&self, chain: &Chain) -> Result<(), Misuse> {
        if self.ended.is_some() || self.leaving != Leaving::No {
            return Err(Misuse::Ended);
        }
        if self.queue.len() + self.table.chains() + self.held.len() >= CHAINS_MAX {
            return Err(Misuse::TooMany);
        }
        if chain.operations.is_empty() || chain.operations.len() > OPERATIONS_MAX {
            return Err(Misuse::ChainLength);
        }
        if chain.encrypt && self.session.as_ref().is_some_and(|session| !session.seals()) {
            return Err(Misuse::NoEncryption);
        }
        let limits = self.negotiated.as_ref();
        let mut total = 0;
        for operation in &chain.operations {
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
        // Room for what goes before the messages.
        if total > FRAME_LEN_MAX - 4096 {
            return Err(Misuse::TooLong);
        }
        Ok(())
    }

    /// Withdraws a chain: at once if it was not sent ([`Event::Dropped`]), else by asking the server, which answers in
    /// any case ([`Event::Replied`]).
    pub fn cancel(&mut self, ticket: Ticket) {
        if let Some(place) = self.queue.iter().position(|(queued, _)| *queued == ticket) {
            if let Some((_, chain)) = self.queue.remove(place) {
                self.drop_queued(ticket, chain, DropReason::Cancelled);
            }
        } else if self.table.chain_mut(ticket).is_some() && !self.cancels.contains(&ticket) {
            self.cancels.push_back(ticket);
        }
    }

    pub(super) fn drop_queued(&mut self, ticket: Ticket, chain: Chain, reason: DropReason) {
        let charge = self.chain_charge(&chain);
        self.credits.unwant(charge);
        self.events.push_back(Event::Dropped {
            ticket,
            operations: chain.operations,
            sent: false,
            reason,
        });
    }

    /// What a chain costs; before the negotiation as if every request cost one credit.
    pub(super) fn chain_charge(&self, chain: &Chain) -> u32 {
        chain
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

    /// The socket has no more to give, or failed.
    pub fn closed(&mut self) {
        self.end(EndReason::Closed);
    }

    /// Ends the connection: whatever is under way is given back when events are polled and no job is out.
    pub(super) fn end(&mut self, reason: EndReason) {
        if self.ended.is_some() {
            return;
        }
        self.ended = Some(reason);
        let counts = self
            .negotiated
            .as_ref()
            .is_some_and(Negotiated::has_channel_sequence);
        if counts && self.table.chains() > 0 {
            self.config.sequence.advance();
        }
        self.give_target_back();
        // Parts hold handles on blocks: what was sealed in place is opened again only by its sole owner.
        self.ready.clear();
        self.recall_jobs();
    }

    /// The last events of a connection that has ended; not before the last job is back.
    fn settle_end(&mut self) {
        let Some(reason) = self.ended.filter(|_| !self.is_settled && !self.jobs.are_out()) else {
            return;
        };
        self.is_settled = true;
        for (ticket, replies) in std::mem::take(&mut self.held) {
            // The answers came, but through a negotiation that was not validated.
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
        while let Some((ticket, chain)) = self.queue.pop_front() {
            self.drop_queued(ticket, chain, DropReason::Ended);
        }
        self.controls.clear();
        self.cancels.clear();
        self.partial.clear();
        self.login = Login::None;
        self.events.push_back(Event::Ended(reason));
    }

    /// A payload that was sealed in its block becomes what it was, or `None`.
    pub(super) fn restore(&self, sent: &mut super::table::Sent) {
        let Some((index, before, after)) = sent.sealed_in_place.take() else {
            return;
        };
        let payload = &mut sent.slots[index].operation.payload;
        *payload = payload.take().and_then(|payload| {
            let session = self.session.as_ref()?;
            session.unseal(payload, before, after)
        });
    }

    /// The operations of a chain that was sent, as they were submitted.
    pub(super) fn recover(&self, mut sent: super::table::Sent) -> Vec<super::Operation> {
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

    /// What happened; none: nothing more.
    ///
    /// Once the connection has [`ended`](Self::ended), let what [`poll_transmit`](Self::poll_transmit) gave go first: a
    /// payload that was sealed in its block comes back only if nobody else holds the block.
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

    /// What NEGOTIATE came to.
    pub fn negotiated(&self) -> Option<&Negotiated> {
        self.negotiated.as_ref()
    }

    /// The standing session's keys, to bind further channels ([`bind`](Self::bind)); none without session or keys.
    pub fn session(&self) -> Option<SessionSecret> {
        self.session.as_ref().and_then(Session::secret)
    }

    /// The standing session's flags.
    pub fn session_flags(&self) -> Option<SessionFlags> {
        self.session.as_ref().map(|session| session.flags)
    }

    /// Whether every request of the session is sealed.
    pub fn is_encrypted(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.seal_all)
    }

    /// Whether every request of the session is signed, or sealed.
    pub fn is_signed(&self) -> bool {
        self.session
            .as_ref()
            .is_some_and(|session| session.seal_all || session.sign_all)
    }

    /// The credit account.
    pub fn credits(&self) -> CreditState {
        self.credits.state()
    }

    /// Chains sent and not answered.
    pub fn in_flight(&self) -> usize {
        self.table.chains()
    }

    /// Chains not sent.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Why it ended.
    pub fn ended(&self) -> Option<EndReason> {
        self.ended
    }

    /// Payload bytes that had to be copied in user space, both ways.
    pub fn bytes_copied(&self) -> u64 {
        self.copied
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("negotiated", &self.negotiated)
            .field("credits", &self.credits.state())
            .field("in_flight", &self.table.chains())
            .field("queued", &self.queue.len())
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

/// Whether a chain's operation goes with the one before.
pub(super) fn is_related(chain: &Chain, index: usize) -> bool {
    chain.related && index > 0
}

/// Flags that callers may set.
pub(super) const CALLER_FLAGS: HeaderFlags = HeaderFlags::DFS_OPERATIONS.union(HeaderFlags::REPLAY_OPERATION);
