//! A session: one valid login, and the connections (channels) that belong to it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use ropeway_block::Block;
use ropeway_smb_proto::client::{
    Compound, DropReason, Misuse, Negotiated, Operation, PeerMisbehaved, Reply, SessionSecret,
};
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::session_setup::SessionFlags;
use ropeway_vfs::Timestamp;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::budget::Budget;
use crate::channel::{Answer, Channel, Control, SessionShared};
use crate::channel_policy::{Advice, ChannelPolicy, LoadSample, earliest_done, earliest_sent};
use crate::compound_support::CompoundSupport;
use crate::driver::Ready;
use crate::error::{Error, LostReason, Result};
use crate::line::LineTotals;
use crate::loss_policy::{LossPolicy, LossSample};
use crate::times;

/// Pause before a request that the server took for outdated is sent again: the lost channel may
/// still have requests running there. A guess; at most [`crate::tree::ATTEMPTS`] pauses.
const OUTDATED_PAUSE: Duration = Duration::from_millis(50);

/// Bytes in flight from which on a line is in use, also if no caller waits. A guess: four of the usual
/// requests, so that each of two connections has one to send and one to come.
const BUSY_BYTES: u64 = 4 << 20;

/// One READ on a long line takes about this long, between these bounds; [`READ_AT_START`] until the rate is
/// known. A rate at which the usual request takes less needs no smaller ones. Guesses.
const READ_TIME: Duration = Duration::from_millis(250);
const READ_MIN: usize = 64 << 10;
const READ_AT_START: usize = 256 << 10;
const READ_USUAL: usize = 1 << 20;

/// A session: one login and its connections.
pub(crate) struct Session {
    /// Number of the session within its link. Files opened in another session are lost.
    pub(crate) number: u64,
    pub(crate) negotiated: Negotiated,
    pub(crate) flags: SessionFlags,
    pub(crate) address: SocketAddr,
    pub(crate) shared: Arc<SessionShared>,
    compounds: Arc<CompoundSupport>,
    pub(crate) secret: Option<SessionSecret>,
    channels: RwLock<Vec<Arc<Channel>>>,
    policy: Mutex<ChannelPolicy>,
    channels_lossy_max: usize,
    is_lossy: AtomicBool,
    losses: Mutex<LossPolicy>,
    started: Instant,
}

/// What a new session is made of.
pub(crate) struct Established {
    pub(crate) number: u64,
    pub(crate) address: SocketAddr,
    pub(crate) shared: Arc<SessionShared>,
    pub(crate) compounds: Arc<CompoundSupport>,
    pub(crate) channels_max: usize,
    /// The number under losses; at most 1 if losses are not looked at.
    pub(crate) channels_lossy_max: usize,
    pub(crate) channel: Channel,
    pub(crate) ready: Ready,
}

/// The outcome of a compound.
pub(crate) enum Outcome {
    Replied(Vec<Reply>),
    /// The connection was lost. The caller may try again if the request may run twice.
    Lost {
        operations: Vec<Operation>,
        sent: bool,
    },
    Failed {
        operations: Vec<Operation>,
        error: Error,
    },
}

impl Outcome {
    /// Takes the payload of a compound that the server did not accept, if it is still available.
    pub(crate) fn take_payload(&mut self) -> Option<Block> {
        match self {
            Self::Replied(replies) => replies.iter_mut().find_map(|reply| reply.returned.take()),
            Self::Lost { operations, .. } | Self::Failed { operations, .. } => operations
                .iter_mut()
                .find_map(|operation| operation.payload.take()),
        }
    }
}

/// Whether an operation sends the data, and does not ask for it.
fn sends(operation: &Operation, bytes: u64) -> bool {
    let is_list = operation.command == Command::Ioctl && operation.body.len() as u64 >= bytes;
    operation.payload.is_some() || is_list
}

impl Session {
    pub(crate) fn new(established: Established) -> Self {
        Self {
            number: established.number,
            negotiated: established.ready.negotiated,
            flags: established.ready.flags,
            address: established.address,
            shared: established.shared,
            compounds: established.compounds,
            secret: established.ready.session,
            channels: RwLock::new(vec![Arc::new(established.channel)]),
            policy: Mutex::new(ChannelPolicy::new(established.channels_max)),
            channels_lossy_max: established.channels_lossy_max,
            is_lossy: AtomicBool::new(false),
            losses: Mutex::new(LossPolicy::new(established.channels_lossy_max)),
            started: Instant::now(),
        }
    }

    /// Returns the server's present time, or an earlier one; `None` if the server does not tell it.
    pub(crate) fn server_time(&self) -> Option<Timestamp> {
        let at_start = times::known(self.negotiated.system_time)?;
        // `started` is later than the moment of the server's answer.
        let elapsed = i128::try_from(self.started.elapsed().as_nanos()).ok()?;
        Some(Timestamp(at_start.0 + elapsed))
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.read_channels()
            .iter()
            .any(|channel| channel.ended().is_none())
    }

    /// Returns the violation that broke the protection of a connection, if any. The session is not
    /// used any more then.
    pub(crate) fn tampered(&self) -> Option<PeerMisbehaved> {
        self.read_channels()
            .iter()
            .find_map(|channel| match channel.ended() {
                Some(LostReason::Misbehaved(fault)) if fault.is_tampering() => Some(fault),
                _ => None,
            })
    }

    /// Whether the session survives the loss of one connection.
    pub(crate) fn has_several_channels(&self) -> bool {
        self.read_channels().len() > 1
    }

    /// Returns why the first connection ended.
    pub(crate) fn ended(&self) -> Option<LostReason> {
        self.read_channels().first().and_then(|channel| channel.ended())
    }

    fn read_channels(&self) -> RwLockReadGuard<'_, Vec<Arc<Channel>>> {
        self.channels.read()
    }

    /// Admits one more connection, which is logged in. Its negotiation is not validated as that of
    /// the first connection is ([MS-SMB2] 3.2.5.5), so it must have the same result.
    pub(crate) fn admit(&self, channel: Channel, ready: &Ready) -> Result<()> {
        if let Some(what) = ready.negotiated.differs_from(&self.negotiated) {
            let fault = format!("another connection was negotiated differently: {what}");
            return Err(Error::PeerMisbehaved(fault));
        }
        let channel = Arc::new(channel);
        if !self.losses.lock().is_watching() {
            for other in self.read_channels().iter() {
                other.send_control(Control::GiveBack);
            }
        }
        self.write_channels().push(Arc::clone(&channel));
        channel.send_control(Control::Admitted);
        tracing::debug!("another connection is open");
        Ok(())
    }

    /// Removes the newest connection that has not ended, if another one stays.
    pub(crate) fn take_newest(&self) -> Option<Arc<Channel>> {
        let mut channels = self.write_channels();
        let live = |channel: &Arc<Channel>| channel.ended().is_none();
        let several = channels.iter().filter(|channel| live(channel)).count() > 1;
        let newest = channels.iter().rposition(live).filter(|_| several);
        newest.map(|index| channels.remove(index))
    }

    /// Ends all connections as lost.
    pub(crate) fn give_up(&self) {
        for channel in self.read_channels().iter() {
            channel.send_control(Control::GiveUp);
        }
    }

    /// Removes all connections, so that the caller can end them.
    pub(crate) fn take_channels(&self) -> Vec<Arc<Channel>> {
        self.write_channels().drain(..).collect()
    }

    /// Returns the most bytes of one READ if the line may be slow: on a lossy line a connection needs
    /// seconds for a large one, and what it is asked for no other connection takes over.
    pub(crate) fn read_of_line(&self) -> Option<usize> {
        if self.channels_lossy_max < 2 {
            return None;
        }
        let channels = self.read_channels();
        let rates = channels.iter().map(|channel| channel.backlog().rate);
        let rates: Vec<u64> = rates.filter(|rate| *rate > 0).collect();
        let rate = match self.is_lossy() {
            // One that TCP has just started is fast for a moment.
            true => rates.iter().sum::<u64>() / rates.len().max(1) as u64,
            false => rates.iter().copied().max().unwrap_or(0),
        };
        let bytes = match rate {
            0 => READ_AT_START,
            rate => (rate as f64 * READ_TIME.as_secs_f64()) as usize,
        };
        (bytes < READ_USUAL).then(|| bytes.clamp(READ_MIN, READ_AT_START).next_multiple_of(READ_MIN))
    }

    /// Whether connections were opened because the line loses segments.
    pub(crate) fn is_lossy(&self) -> bool {
        self.is_lossy.load(Ordering::Relaxed)
    }

    /// Whether a connection of a lossy line has nothing to do.
    pub(crate) fn has_idle(&self) -> bool {
        let channels = self.read_channels();
        let is_idle = |channel: &Arc<Channel>| channel.ended().is_none() && channel.backlog().bytes == 0;
        self.is_lossy() && channels.iter().skip(1).any(is_idle)
    }

    /// Opens no further connections: the server has refused one.
    pub(crate) fn settle_channels(&self) {
        self.policy.lock().settle();
        self.losses.lock().settle();
    }

    /// Whether losses may still open or close connections.
    pub(crate) fn watches_losses(&self) -> bool {
        !self.losses.lock().is_settled()
    }

    /// Returns the advice of the policy for lossy lines. Once it has opened connections, the other
    /// policy has no say any more.
    pub(crate) fn loss_advice(&self, is_used_up: bool, line: &LineTotals) -> Option<Advice> {
        let known = line.get();
        // `advice` takes the locks in the other order: the channels are released first.
        let load = {
            let channels = self.read_channels();
            let live = || channels.iter().filter(|channel| channel.ended().is_none());
            let backlog = || live().map(|channel| channel.backlog().bytes).sum::<u64>();
            LossSample {
                channels: live().count(),
                round_trip: live().filter_map(|channel| channel.round_trip()).min()?,
                line: known.info,
                queued_bytes: known.queued_bytes,
                is_bbr: known.is_bbr(),
                is_busy: is_used_up || backlog() >= BUSY_BYTES,
            }
        };
        let advice = self.losses.lock().advise(self.started.elapsed(), load);
        if advice.is_some() {
            self.is_lossy.store(true, Ordering::Relaxed);
            self.policy.lock().settle();
        }
        advice
    }

    fn write_channels(&self) -> RwLockWriteGuard<'_, Vec<Arc<Channel>>> {
        self.channels.write()
    }

    pub(crate) fn channels(&self) -> usize {
        self.read_channels()
            .iter()
            .filter(|channel| channel.ended().is_none())
            .count()
    }

    pub(crate) fn window(&self) -> u64 {
        self.read_channels().iter().map(|channel| channel.window()).sum()
    }

    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.read_channels()
            .iter()
            .filter_map(|channel| channel.round_trip())
            .min()
    }

    /// Returns the first live connection. Requests without data use it, so that the server
    /// receives them in the order in which they were made.
    fn first(&self) -> Option<Arc<Channel>> {
        let channels = self.read_channels();
        channels.iter().find(|channel| channel.ended().is_none()).cloned()
    }

    /// Returns the connection for a request that carries or asks for `bytes`.
    fn pick(&self, bytes: u64, is_sent: bool) -> Option<Arc<Channel>> {
        let channels = self.read_channels();
        let live = || channels.iter().filter(|channel| channel.ended().is_none());
        let backlogs = live().map(|channel| channel.backlog());
        // Replies to requests without data would wait behind what is read, too, where a connection is slow.
        let picked = match is_sent || self.is_lossy() {
            true => earliest_sent(backlogs, bytes),
            false => earliest_done(backlogs, bytes),
        };
        live().nth(picked?).cloned()
    }

    /// Sends a compound and waits for the replies. `bytes` is the data that it carries or asks for;
    /// a compound with data goes to the connection that will finish it first.
    pub(crate) async fn exchange(&self, compound: Compound, bytes: u64) -> Outcome {
        let command = compound.operations.first().map(|operation| operation.command);
        let requests = compound.operations.len();
        let span = tracing::trace_span!("operation", ?command, requests, bytes);
        let answered = self.exchange_in_span(compound, bytes);
        answered.instrument(span).await
    }

    async fn exchange_in_span(&self, compound: Compound, bytes: u64) -> Outcome {
        let is_sent = compound
            .operations
            .iter()
            .any(|operation| sends(operation, bytes));
        let picked = match bytes {
            0 => self.first(),
            _ => self.pick(bytes, is_sent),
        };
        let Some(channel) = picked else {
            return Outcome::Lost {
                operations: compound.operations,
                sent: false,
            };
        };
        ropeway_vfs::trace::carried_by(channel.number());
        let is_compound = compound.operations.len() > 1;
        let (channel, answer) = match self.carried(channel, compound, bytes, is_sent).await {
            Ok(carried) => carried,
            Err(operations) => {
                let sent = false;
                return Outcome::Lost { operations, sent };
            }
        };
        if is_compound {
            self.note_compound(&answer, channel.ended());
        }
        match answer {
            Answer::Replied(replies) => Outcome::Replied(replies),
            Answer::Refused(Misuse::Ended, operations) => Outcome::Lost {
                operations,
                sent: false,
            },
            Answer::Refused(fault, operations) => Outcome::Failed {
                operations,
                error: Error::Misuse(misuse(fault)),
            },
            Answer::Overdue(operations) => Outcome::Failed {
                operations,
                error: Error::Lost(LostReason::TimedOut),
            },
            Answer::Dropped {
                operations,
                reason: DropReason::CreditsShort,
                ..
            } => Outcome::Failed {
                operations,
                error: Error::PeerMisbehaved("it grants too few credits for a request of this size".into()),
            },
            Answer::Dropped {
                operations,
                reason: DropReason::Outdated,
                ..
            } => {
                tokio::time::sleep(OUTDATED_PAUSE).await;
                // The server did not carry it out.
                let sent = false;
                Outcome::Lost { operations, sent }
            }
            Answer::Dropped { operations, sent, .. } => match self.tampered() {
                // Tampering is the reason, whether the request was carried out or not.
                Some(fault) => Outcome::Failed {
                    operations,
                    error: Error::Tampered(fault),
                },
                None => Outcome::Lost { operations, sent },
            },
        }
    }

    /// Notes what became of a compound: a server may take none.
    fn note_compound(&self, answer: &Answer, ended: Option<LostReason>) {
        match (answer, ended) {
            (Answer::Replied(_), _) => self.compounds.answered(),
            (Answer::Dropped { .. }, Some(LostReason::AnsweredInPart)) => self.compounds.refuse(),
            (Answer::Dropped { sent: true, .. }, Some(reason)) if reason.is_by_server() => {
                self.compounds.lost();
            }
            _ => {}
        }
    }

    /// Sends a compound on a connection, or on others while each takes it back unsent: every
    /// connection that is opened makes the others do so once. Returns the connection that carried
    /// it with its answer, or the operations if no connection is left.
    async fn carried(
        &self,
        mut channel: Arc<Channel>,
        compound: Compound,
        bytes: u64,
        is_sent: bool,
    ) -> std::result::Result<(Arc<Channel>, Answer), Vec<Operation>> {
        let (related, encrypt) = (compound.related, compound.encrypt);
        let mut answer = channel.exchange(compound, bytes).await;
        while let Answer::Dropped {
            operations,
            reason: DropReason::TakenBack,
            ..
        } = answer
        {
            let Some(picked) = self.pick(bytes, is_sent) else {
                return Err(operations);
            };
            channel = picked;
            ropeway_vfs::trace::carried_by(channel.number());
            let again = Compound {
                operations,
                related,
                encrypt,
            };
            answer = channel.exchange(again, bytes).await;
        }
        Ok((channel, answer))
    }

    /// Sends a control message to the first connection, and does not wait.
    pub(crate) fn send_control(&self, side: Control) {
        if let Some(channel) = self.first() {
            channel.send_control(side);
        }
    }

    pub(crate) fn advice(&self, budget: &Budget) -> Option<Advice> {
        // Another task that holds the policy is asking already.
        let mut policy = self.policy.try_lock()?;
        if policy.is_settled() {
            return None;
        }
        let channels = self.read_channels();
        let channels: Vec<_> = channels
            .iter()
            .filter(|channel| channel.ended().is_none())
            .collect();
        let load = LoadSample {
            channels: channels.len(),
            delivered: channels.iter().map(|channel| channel.delivered()).sum(),
            round_trip: channels.iter().filter_map(|channel| channel.round_trip()).min()?,
            is_full: budget.is_used_up() && channels.iter().all(|channel| channel.is_steady()),
        };
        policy.advise(self.started.elapsed(), load)
    }
}

/// Returns the message for a misuse by the caller.
fn misuse(fault: Misuse) -> &'static str {
    match fault {
        Misuse::TooMany => "too many requests at once",
        Misuse::CompoundLength => "a compound has 1 to 64 operations",
        Misuse::TooLong => "a request is longer than the server allows",
        Misuse::Block => "a block does not fit its request",
        Misuse::NoEncryption => "the share demands encryption and the connection has none",
        _ => "the request cannot be sent",
    }
}
