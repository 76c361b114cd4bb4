//! One server and one login: the session that stands now, and how it comes back when it is lost.
//!
//! A request that finds no session makes one; others that come meanwhile wait for the same attempt and share its
//! outcome. So nothing runs in the background while nobody asks for anything.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use ropeway_block::Block;
use ropeway_smb_proto::auth::spnego::SpnegoClient;
use ropeway_smb_proto::client::{
    Chain, ChannelSequence, Config, Connection, DropReason, Misuse, Negotiated, PeerMisbehaved, Reply,
    SessionSecret,
};
use ropeway_smb_wire::negotiate::Capabilities;
use ropeway_smb_wire::session_setup::SessionFlags;
use ropeway_smb_wire::{Guid, SessionId, Text};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::budget::Budget;
use crate::channel::{Answer, Channel, Common, Shared, Side};
use crate::channels::{Advice, Channels, Load, soonest};
use crate::compound::Compounds;
use crate::driver::{Driver, Ready};
use crate::login::{Authenticator, random};
use crate::rights::Leases;
use crate::spares::Spares;
use crate::{ClientOptions, Endpoint, Error, Login, LostReason, Operation, Result, socket};

/// Pauses between attempts to reconnect: doubled from the first to the last. Guesses: a restarted service is back
/// within the first, a restarted machine does not mind the last.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LAST: Duration = Duration::from_secs(3);

/// A silent server is asked whether it is there after this part of the time-out: then it has twice as long to say so.
const ECHOS: u32 = 3;
/// Before what a server took for outdated is sent again: the channel that was lost may still have something under way
/// there. A guess; [`crate::tree::ATTEMPTS`] times.
const OUTDATED_PAUSE: Duration = Duration::from_millis(50);

/// One server and one login.
pub(crate) struct Link {
    pub(crate) endpoint: Endpoint,
    pub(crate) options: ClientOptions,
    pub(crate) login: Login,
    pub(crate) authenticator: Arc<Authenticator>,
    client_guid: Guid,
    pub(crate) budget: Arc<Budget>,
    current: Mutex<Option<Arc<Session>>>,
    /// Held while a session is made; whoever waits for it then looks at `current` and `failure`.
    connecting: tokio::sync::Mutex<()>,
    failure: Mutex<Option<(Instant, Error)>>,
    is_closed: AtomicBool,
    sessions_made: AtomicU64,
    /// Leases that its opens have.
    pub(crate) leases: Arc<Leases>,
    sequence: ChannelSequence,
    /// Whether the server takes compounds.
    pub(crate) compounds: Arc<Compounds>,
}

/// A login that stands, with its connections.
pub(crate) struct Session {
    /// Counts the sessions of a link: what was opened in another one is gone.
    pub(crate) number: u64,
    pub(crate) negotiated: Negotiated,
    pub(crate) flags: SessionFlags,
    pub(crate) address: SocketAddr,
    pub(crate) common: Arc<Common>,
    compounds: Arc<Compounds>,
    pub(crate) secret: Option<SessionSecret>,
    channels: RwLock<Vec<Arc<Channel>>>,
    policy: Mutex<Channels>,
    started: Instant,
}

/// How a connection begins.
pub(crate) enum Begin<'a> {
    /// With a login of its own; so many connections begin together.
    LogIn(SpnegoClient, u16),
    /// As a further channel.
    Bind(&'a SessionSecret, SpnegoClient),
    /// With the negotiation; [`Side::Bind`] follows.
    Negotiate { together: u16 },
}

/// Tells when a connection is logged in.
pub(crate) type Awaited = oneshot::Receiver<Result<Ready>>;

/// What became of a chain.
pub(crate) enum Outcome {
    Replied(Vec<Reply>),
    /// The connection went down; another attempt may be made if the request bears it.
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
    /// The payload that a chain carried to a server which did not take it, if it can be had still.
    pub(crate) fn take_payload(&mut self) -> Option<Block> {
        match self {
            Self::Replied(replies) => replies.iter_mut().find_map(|reply| reply.returned.take()),
            Self::Lost { operations, .. } | Self::Failed { operations, .. } => operations
                .iter_mut()
                .find_map(|operation| operation.payload.take()),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    /// Connects for the first time: one attempt, so that a wrong address is known at once.
    pub(crate) async fn connect(
        endpoint: &Endpoint,
        login: Login,
        options: ClientOptions,
    ) -> Result<Arc<Self>> {
        options.validate()?;
        let login = login.hashed();
        let link = Arc::new(Self {
            authenticator: Arc::new(Authenticator::new(&login, &endpoint.host)),
            endpoint: endpoint.clone(),
            client_guid: Guid(random()?),
            budget: Arc::new(Budget::new(options.bytes_in_flight_max)),
            current: Mutex::new(None),
            connecting: tokio::sync::Mutex::new(()),
            failure: Mutex::new(None),
            is_closed: AtomicBool::new(false),
            sessions_made: AtomicU64::new(0),
            leases: Arc::default(),
            sequence: ChannelSequence::default(),
            compounds: Arc::default(),
            options,
            login,
        });
        let session = link.attempt(SessionId(0)).await?;
        *lock(&link.current) = Some(session);
        Ok(link)
    }

    /// The session, made again if it was lost.
    pub(crate) async fn session(self: &Arc<Self>) -> Result<Arc<Session>> {
        let asked_at = Instant::now();
        if let Some(session) = self.standing()? {
            return Ok(session);
        }
        let _guard = self.connecting.lock().await;
        if let Some(session) = self.standing()? {
            return Ok(session);
        }
        if let Some((at, error)) = lock(&self.failure).clone()
            && (at >= asked_at || matches!(error, Error::Tampered(_)))
        {
            return Err(error);
        }
        match self.reconnect(asked_at + self.options.timeout).await {
            Ok(session) => {
                *lock(&self.current) = Some(Arc::clone(&session));
                Ok(session)
            }
            Err(error) => {
                *lock(&self.failure) = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// The last session, standing or not.
    pub(crate) fn last(&self) -> Arc<Session> {
        let current = lock(&self.current).clone();
        current.expect("a link has had a session since it was made")
    }

    fn standing(&self) -> Result<Option<Arc<Session>>> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(Error::Lost(LostReason::ClientClosed));
        }
        let current = lock(&self.current).clone();
        if let Some(fault) = current.as_ref().and_then(|session| session.tampered()) {
            return Err(Error::Tampered(fault));
        }
        Ok(current.filter(|session| session.is_standing()))
    }

    async fn reconnect(self: &Arc<Self>, deadline: Instant) -> Result<Arc<Session>> {
        let previous = self.last();
        if let Some(reason @ LostReason::Misbehaved(_)) = previous.ended() {
            tracing::warn!(%reason, "connecting again");
        }
        let previous_id = previous.secret.as_ref().map_or(SessionId(0), SessionSecret::id);
        let mut pause = PAUSE_FIRST;
        loop {
            let error = match tokio::time::timeout_at(deadline, self.attempt(previous_id)).await {
                Ok(Ok(session)) => {
                    tracing::info!(server = %self.endpoint, "connected again");
                    return Ok(session);
                }
                Ok(Err(error)) if !is_passing(&error) => return Err(error),
                Ok(Err(error)) => error,
                Err(_) => return Err(Error::Lost(LostReason::NotBack)),
            };
            tracing::debug!(server = %self.endpoint, %error, "no connection yet");
            if Instant::now() + pause >= deadline {
                return Err(Error::Lost(LostReason::NotBack));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_LAST);
        }
    }

    fn config(&self, previous_session: SessionId) -> Config {
        Config {
            dialects: self.options.dialects.clone(),
            signing: self.options.signing,
            encryption: self.options.encryption,
            compression: self.options.compression,
            client_guid: self.client_guid,
            host: Text::from(self.endpoint.host.as_str()),
            io_max: self.options.io_max,
            silence_max: self.options.timeout,
            echo_after: self.options.timeout / ECHOS,
            sequence: self.sequence.clone(),
            unprotected_allowed: self.login.accepts_guest(),
            previous_session,
            jobs: crate::driver::jobs(),
            ..Config::default()
        }
    }

    async fn attempt(self: &Arc<Self>, previous: SessionId) -> Result<Arc<Session>> {
        // Before the server waits for us: a KDC may take its time, and without a ticket nobody needs to be called.
        let mechanisms = self.authenticator.mechanisms().await?;
        let common = Arc::new(Common::new(Arc::clone(&self.leases)));
        let reached = socket::connect(&self.endpoint, &self.options.tcp, self.options.timeout).await?;
        let address = reached.address;
        let spares = Spares::begin(self, &reached, &common);
        let begin = Begin::LogIn(mechanisms, spares.together());
        let (channel, ready) = self.start_driver(reached.stream, &common, previous, begin)?;
        let ready = self.logged_in(ready).await?;
        let number = self.sessions_made.fetch_add(1, Ordering::Relaxed);
        let can_bind = ready
            .negotiated
            .capabilities
            .contains(Capabilities::MULTI_CHANNEL)
            && ready.session.is_some();
        let channels_max = if can_bind {
            usize::from(self.options.channels_max)
        } else {
            1
        };
        channel.aside(Side::Counts);
        let session = Arc::new(Session {
            number,
            negotiated: ready.negotiated,
            flags: ready.flags,
            address,
            common,
            compounds: Arc::clone(&self.compounds),
            secret: ready.session,
            channels: RwLock::new(vec![Arc::new(channel)]),
            policy: Mutex::new(Channels::new(channels_max)),
            started: Instant::now(),
        });
        spares.bind(&session, channels_max);
        Ok(session)
    }

    /// One more connection to an address that answers.
    pub(crate) async fn connect_further(&self, address: SocketAddr) -> Result<TcpStream> {
        let stream = socket::connect_to(address, &self.options.tcp, self.options.timeout).await;
        stream.map_err(|source| Error::local("open a further connection", source))
    }

    /// Gives a connection to a driver, which begins as told.
    pub(crate) fn start_driver(
        &self,
        stream: TcpStream,
        common: &Arc<Common>,
        previous: SessionId,
        begin: Begin<'_>,
    ) -> Result<(Channel, Awaited)> {
        let mut connection = Connection::new(self.config(previous), random()?);
        let (begun, together) = match begin {
            Begin::LogIn(mechanisms, together) => (connection.log_in(mechanisms), together),
            Begin::Bind(secret, mechanisms) => (connection.bind(secret, mechanisms), 1),
            Begin::Negotiate { together } => (Ok(()), together),
        };
        begun.map_err(|fault| Error::PeerMisbehaved(fault.to_string()))?;
        let shared = Arc::new(Shared::new(
            Arc::clone(&self.budget),
            self.options.bytes_in_flight_max,
            together,
            Arc::clone(common),
        ));
        let (channel, queues) = Channel::new(Arc::clone(&shared));
        let (sender, ready) = oneshot::channel();
        let authenticator = Arc::clone(&self.authenticator);
        let driver = Driver::new(
            stream,
            connection,
            authenticator,
            shared,
            queues,
            (sender, self.options.timeout),
        );
        tokio::spawn(driver.run());
        Ok((channel, ready))
    }

    /// Waits until a driver's connection is logged in. Whoever gives up drops its channel, which ends it.
    pub(crate) async fn logged_in(&self, ready: Awaited) -> Result<Ready> {
        match tokio::time::timeout(self.options.timeout, ready).await {
            Ok(Ok(ready)) => ready,
            Ok(Err(_)) => Err(Error::Lost(LostReason::Closed)),
            Err(_) => Err(Error::Lost(LostReason::TimedOut)),
        }
    }

    /// Asks the policy whether more connections would help; called after each transfer.
    pub(crate) fn consider_channels(self: &Arc<Self>, session: &Arc<Session>) {
        let Some(advice) = session.advice(&self.budget) else {
            return;
        };
        match advice {
            Advice::CloseNewest => {
                let newest = {
                    let mut channels = session.write_channels();
                    // One that ended is none to close, and the last one stays.
                    let standing = |channel: &Arc<Channel>| channel.ended().is_none();
                    let several = channels.iter().filter(|channel| standing(channel)).count() > 1;
                    let newest = channels.iter().rposition(standing).filter(|_| several);
                    newest.map(|index| channels.remove(index))
                };
                if let Some(channel) = newest {
                    tracing::debug!("a further connection carried nothing more; closing it");
                    channel.aside(Side::Shut { waits: true });
                }
            }
            Advice::Open => {
                let (link, session) = (Arc::clone(self), Arc::clone(session));
                tokio::spawn(async move {
                    if let Err(error) = link.add_channel(&session).await {
                        tracing::debug!(%error, "the server takes no further connection");
                        lock(&session.policy).settle();
                    }
                });
            }
        }
    }

    /// Binds one more connection to the session ([MS-SMB2] 3.2.4.1.7).
    pub(crate) async fn add_channel(&self, session: &Arc<Session>) -> Result<()> {
        let has_channels = session
            .negotiated
            .capabilities
            .contains(Capabilities::MULTI_CHANNEL);
        let secret = session.secret.as_ref().filter(|_| has_channels);
        let secret = secret.ok_or(Error::Misuse("the server has no multichannel"))?;
        let mechanisms = self.authenticator.mechanisms().await?;
        let stream = self.connect_further(session.address).await?;
        let begin = Begin::Bind(secret, mechanisms);
        let (channel, ready) = self.start_driver(stream, &session.common, SessionId(0), begin)?;
        let ready = self.logged_in(ready).await?;
        session.admit(channel, &ready)
    }

    pub(crate) fn reconnects(&self) -> u64 {
        self.sessions_made.load(Ordering::Relaxed).saturating_sub(1)
    }

    /// Ends all connections and waits until they are gone; the last one logs off, and its answer is awaited or not.
    pub(crate) async fn close(&self, waits: bool) {
        self.is_closed.store(true, Ordering::Release);
        let channels: Vec<_> = self.last().write_channels().drain(..).collect();
        for channel in &channels {
            channel.aside(Side::Shut { waits });
        }
        for channel in channels {
            channel.gone().await;
        }
    }
}

/// Whether another attempt may go better.
fn is_passing(error: &Error) -> bool {
    match error {
        Error::Local { .. } | Error::Lost(_) => true,
        // A server that starts or stops says such things.
        Error::PeerRefused { .. } => error.verdict() == crate::Verdict::Retry,
        _ => false,
    }
}

impl Session {
    pub(crate) fn is_standing(&self) -> bool {
        self.read_channels()
            .iter()
            .any(|channel| channel.ended().is_none())
    }

    /// What broke the protection of one of its connections: then none of them is used any more.
    fn tampered(&self) -> Option<PeerMisbehaved> {
        self.read_channels()
            .iter()
            .find_map(|channel| match channel.ended() {
                Some(LostReason::Misbehaved(fault)) if fault.is_tampering() => Some(fault),
                _ => None,
            })
    }

    /// Whether it outlives the loss of a connection.
    pub(crate) fn has_several_channels(&self) -> bool {
        self.read_channels().len() > 1
    }

    /// Why the first connection ended.
    fn ended(&self) -> Option<LostReason> {
        self.read_channels().first().and_then(|channel| channel.ended())
    }

    fn read_channels(&self) -> std::sync::RwLockReadGuard<'_, Vec<Arc<Channel>>> {
        self.channels.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more connection, logged in. Nobody asks the server on it whether its negotiation was tampered with, as on the
    /// first ([MS-SMB2] 3.2.5.5): it has to be the same.
    pub(crate) fn admit(&self, channel: Channel, ready: &Ready) -> Result<()> {
        if let Some(what) = ready.negotiated.differs_from(&self.negotiated) {
            let fault = format!("a further connection was negotiated otherwise: {what}");
            return Err(Error::PeerMisbehaved(fault));
        }
        let channel = Arc::new(channel);
        self.write_channels().push(Arc::clone(&channel));
        channel.aside(Side::Counts);
        tracing::debug!("a further connection is open");
        Ok(())
    }

    fn write_channels(&self) -> std::sync::RwLockWriteGuard<'_, Vec<Arc<Channel>>> {
        self.channels.write().unwrap_or_else(PoisonError::into_inner)
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

    /// The first connection that stands: what carries no data goes there, so that servers get it in the order in which it
    /// was asked.
    fn first(&self) -> Option<Arc<Channel>> {
        let channels = self.read_channels();
        channels.iter().find(|channel| channel.ended().is_none()).cloned()
    }

    /// The connection that would be done with so many more bytes first.
    fn pick(&self, bytes: u64) -> Option<Arc<Channel>> {
        let channels = self.read_channels();
        let standing = || channels.iter().filter(|channel| channel.ended().is_none());
        let picked = soonest(standing().map(|channel| channel.work()), bytes)?;
        standing().nth(picked).cloned()
    }

    /// Sends a chain and waits for the answers: data on the connection that will be done with it first. `bytes` is the data
    /// that it carries or asks for.
    pub(crate) async fn exchange(&self, chain: Chain, bytes: u64) -> Outcome {
        let picked = match bytes {
            0 => self.first(),
            _ => self.pick(bytes),
        };
        let Some(channel) = picked else {
            return Outcome::Lost {
                operations: chain.operations,
                sent: false,
            };
        };
        let is_compound = chain.operations.len() > 1;
        let answer = channel.exchange(chain, bytes).await;
        if is_compound {
            match (&answer, channel.ended()) {
                (Answer::Replied(_), _) => self.compounds.answered(),
                (Answer::Dropped { .. }, Some(LostReason::AnsweredInPart)) => self.compounds.refuse(),
                (Answer::Dropped { sent: true, .. }, Some(reason)) if reason.is_of_the_server() => {
                    self.compounds.lost()
                }
                _ => {}
            }
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
                // The server did not do it.
                let sent = false;
                Outcome::Lost { operations, sent }
            }
            Answer::Dropped { operations, sent, .. } => match self.tampered() {
                // Whether it was done or not: that is why.
                Some(fault) => Outcome::Failed {
                    operations,
                    error: Error::Tampered(fault),
                },
                None => Outcome::Lost { operations, sent },
            },
        }
    }

    /// Sends what nobody waits for.
    pub(crate) fn aside(&self, side: Side) {
        if let Some(channel) = self.first() {
            channel.aside(side);
        }
    }

    fn advice(&self, budget: &Budget) -> Option<Advice> {
        // Whoever holds it asks already.
        let mut policy = self.policy.try_lock().ok()?;
        if policy.is_settled() {
            return None;
        }
        let channels = self.read_channels();
        let channels: Vec<_> = channels
            .iter()
            .filter(|channel| channel.ended().is_none())
            .collect();
        let load = Load {
            channels: channels.len(),
            delivered: channels.iter().map(|channel| channel.delivered()).sum(),
            round_trip: channels.iter().filter_map(|channel| channel.round_trip()).min()?,
            is_full: budget.is_used_up() && channels.iter().all(|channel| channel.is_steady()),
        };
        policy.advise(self.started.elapsed(), load)
    }
}

/// What the caller did wrong.
fn misuse(fault: Misuse) -> &'static str {
    match fault {
        Misuse::TooMany => "too many requests at once",
        Misuse::ChainLength => "a chain has 1 to 64 operations",
        Misuse::TooLong => "a request is longer than the server allows",
        Misuse::Block => "a block does not fit its request",
        Misuse::NoEncryption => "the share demands encryption and the connection has none",
        _ => "the request cannot be sent",
    }
}
