//! The link to one server with one login: holds the current session and re-establishes it when it
//! is lost.
//!
//! A request that finds no session establishes one. Requests that arrive meanwhile wait for the
//! same attempt and share its outcome. So nothing runs in the background while the client is idle.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_smb_proto::auth::spnego::SpnegoClient;
use ropeway_smb_proto::client::{ChannelSequence, Config, Connection, SessionSecret};
use ropeway_smb_wire::negotiate::Capabilities;
use ropeway_smb_wire::{Guid, SessionId, Text};
use ropeway_vfs::Verdict;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::budget::Budget;
use crate::caching::Leases;
use crate::channel::{Channel, ChannelStatus, Control, SessionShared};
use crate::channel_policy::Advice;
use crate::client::LostServer;
use crate::compound_support::CompoundSupport;
use crate::driver::{Driver, Ready};
use crate::endpoint::Endpoint;
use crate::error::{Error, LostReason, Result};
use crate::line::LineTotals;
use crate::login::{Authenticator, Login, random};
use crate::options::{ChannelsAtStart, ClientOptions};
use crate::reach::{Reach, SILENCE};
use crate::session::{Established, Session};
use crate::socket;
use crate::warm_channels::WarmChannels;
use crate::window::FAR_ROUND_TRIP;

/// Pauses between attempts to reconnect, doubled from the first to the last. Guesses: a restarted
/// service is back within the first; for a restarted machine the last is short enough.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LAST: Duration = Duration::from_secs(3);

/// A silent server gets an ECHO after this fraction of the time-out. It then has twice as long to
/// answer.
const ECHOS: u32 = 3;

/// Bounds of the interval at which the policy for lossy lines looks, which is a round trip.
const LOSS_LOOK_MIN: Duration = Duration::from_millis(10);
const LOSS_LOOK_MAX: Duration = Duration::from_millis(100);
/// Bytes in flight on a long line until some have arrived, and then this many times what has: TCP's
/// own start is not limited, and a line that turns out to be slow has not all of the data waiting on
/// the connections that it began with. A guess.
const AHEAD_START: u64 = 8 << 20;
const AHEAD_TIMES: u64 = 8;
/// The same for what is read, which no connection can give back once it has asked for it: this many times
/// the most that arrived in one of the last looks, since TCP doubles the rate each round trip. Guesses:
/// three doublings.
const READS_AHEAD_START: u64 = 2 << 20;
const READS_AHEAD_TIMES: u64 = 8;
const READS_AHEAD_LOOKS: usize = 4;
/// The policy for lossy lines ends when nothing filled the line for this time. A guess: a copy that
/// looks for changes in between goes on within it.
const LOSS_IDLE_MAX: Duration = Duration::from_secs(120);

/// Longest time for one attempt to open a TCP connection to a server that is lost: the kernel tries
/// at 0, 1 and 3 s and waits longer each time, so a new attempt sooner finds a line that is back.
pub(crate) const RECONNECT_MAX: Duration = Duration::from_secs(4);

/// The link to one server with one login.
pub(crate) struct Link {
    pub(crate) endpoint: Endpoint,
    pub(crate) options: ClientOptions,
    pub(crate) login: Login,
    pub(crate) authenticator: Arc<Authenticator>,
    client_guid: Guid,
    pub(crate) budget: Arc<Budget>,
    /// The bytes that READ asked for and that have not arrived, on a line that may lose segments.
    pub(crate) reads_ahead: Budget,
    current: Mutex<Option<Arc<Session>>>,
    /// Held while a session is established; waiters then look at `current` and `failure`.
    connecting: tokio::sync::Mutex<()>,
    failure: Mutex<Option<(Instant, Error)>>,
    is_closed: AtomicBool,
    sessions_made: AtomicU64,
    /// Leases of the open files.
    pub(crate) leases: Arc<Leases>,
    /// Whether the server can be reached.
    pub(crate) reach: Arc<Reach>,
    /// What TCP reports of the line.
    pub(crate) line: Arc<LineTotals>,
    /// When an attempt to connect again is given up, while there is one.
    given_up_at: Mutex<Option<Instant>>,
    /// Whether a task looks whether it can be reached again.
    pub(crate) is_recovering: AtomicBool,
    sequence: ChannelSequence,
    /// Whether the server supports compounds.
    pub(crate) compounds: Arc<CompoundSupport>,
}

/// How a new connection starts.
pub(crate) enum Begin<'a> {
    /// Logs in. Holds the number of connections that start together.
    LogIn(SpnegoClient, u16),
    /// Binds to an existing session as a further channel.
    Bind(&'a SessionSecret, SpnegoClient),
    /// Negotiates only; [`Control::Bind`] follows.
    Negotiate { starting_channels: u16 },
}

/// Receives the result of the login on a new connection.
pub(crate) type ReadyReceiver = oneshot::Receiver<Result<Ready>>;

/// An attempt to connect again, until it is dropped.
struct Tried<'a>(&'a Mutex<Option<Instant>>);

impl Drop for Tried<'_> {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}

impl Link {
    /// Connects for the first time. Makes only one attempt, so that a wrong address is reported at
    /// once.
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
            reads_ahead: Budget::capped(options.bytes_in_flight_max),
            current: Mutex::new(None),
            connecting: tokio::sync::Mutex::new(()),
            failure: Mutex::new(None),
            is_closed: AtomicBool::new(false),
            sessions_made: AtomicU64::new(0),
            leases: Arc::default(),
            reach: Arc::default(),
            line: Arc::default(),
            given_up_at: Mutex::default(),
            is_recovering: AtomicBool::new(false),
            sequence: ChannelSequence::default(),
            compounds: Arc::new(CompoundSupport::new(options.compounds)),
            options,
            login,
        });
        let session = link
            .attempt(link.recorded_session(), link.options.timeout)
            .await?;
        *link.current.lock() = Some(session);
        Ok(link)
    }

    /// Returns the session, re-established if it was lost.
    pub(crate) async fn session(self: &Arc<Self>) -> Result<Arc<Session>> {
        let asked_at = Instant::now();
        if let Some(session) = self.live_session()? {
            return Ok(session);
        }
        let _guard = self.connecting.lock().await;
        if let Some(session) = self.live_session()? {
            return Ok(session);
        }
        if let Some((at, error)) = self.failure.lock().clone()
            && (at >= asked_at || matches!(error, Error::Tampered(_)))
        {
            return Err(error);
        }
        // On the heap: every request passes here, and finds a session.
        match Box::pin(self.reconnect(asked_at + self.options.timeout)).await {
            Ok(session) => {
                *self.current.lock() = Some(Arc::clone(&session));
                Ok(session)
            }
            Err(error) => {
                *self.failure.lock() = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Returns the last session, valid or not.
    pub(crate) fn last(&self) -> Arc<Session> {
        let current = self.current.lock().clone();
        current.expect("a link has a session from its creation on")
    }

    /// Returns the session, if it is valid.
    pub(crate) fn live_session(&self) -> Result<Option<Arc<Session>>> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(Error::Lost(LostReason::ClientClosed));
        }
        let current = self.current.lock().clone();
        if let Some(fault) = current.as_ref().and_then(|session| session.tampered()) {
            return Err(Error::Tampered(fault));
        }
        Ok(current.filter(|session| session.is_alive()))
    }

    async fn reconnect(self: &Arc<Self>, deadline: Instant) -> Result<Arc<Session>> {
        let previous = self.last();
        if let Some(reason @ LostReason::Misbehaved(_)) = previous.ended() {
            tracing::warn!(%reason, "reconnecting");
        }
        let previous_id = previous.secret.as_ref().map_or(SessionId(0), SessionSecret::id);
        let mut pause = PAUSE_FIRST;
        let limit = self.options.timeout.min(RECONNECT_MAX);
        let _wanted = self.reach.want();
        *self.given_up_at.lock() = Some(deadline);
        let _tried = Tried(&self.given_up_at);
        loop {
            let error = match tokio::time::timeout_at(deadline, self.attempt(previous_id, limit)).await {
                Ok(Ok(session)) => {
                    tracing::info!(server = %self.endpoint, "reconnected");
                    return Ok(session);
                }
                Ok(Err(error)) if !is_transient(&error) => {
                    // It is there, and refuses.
                    self.reach.heard();
                    return Err(error);
                }
                Ok(Err(error)) => error,
                Err(_) => return Err(Error::Lost(LostReason::NotBack)),
            };
            tracing::debug!(server = %self.endpoint, %error, "no connection yet; trying again");
            if Instant::now() + pause >= deadline {
                return Err(Error::Lost(LostReason::NotBack));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_LAST);
        }
    }

    pub(crate) fn config(&self, previous_session: SessionId) -> Config {
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
            echo_after_owed: (SILENCE / 2).min(self.options.timeout / ECHOS),
            sequence: self.sequence.clone(),
            unprotected_allowed: self.login.accepts_guest(),
            previous_session,
            jobs: crate::driver::jobs(),
            ..Config::default()
        }
    }

    /// Returns the server and who logs in there.
    fn name(&self) -> String {
        format!("{} {}", self.endpoint, self.login.name())
    }

    /// Returns the session that an earlier process may have left at the server; 0 if none is known.
    fn recorded_session(&self) -> SessionId {
        let record = self.options.session_record.as_ref();
        let last = record.and_then(|record| record.last(&self.name()));
        SessionId(last.unwrap_or(0))
    }

    /// Notes a session that begins.
    async fn record_session(&self, session: Option<&SessionSecret>) {
        let (Some(record), Some(session)) = (self.options.session_record.clone(), session) else {
            return;
        };
        let (login, id) = (self.name(), session.id().0);
        let noted = tokio::task::spawn_blocking(move || record.begins(&login, id)).await;
        if let Err(error) = noted.map_err(std::io::Error::other).flatten() {
            tracing::warn!(server = %self.endpoint, %error, "the session cannot be noted for a later process");
        }
    }

    /// Connects and logs in. `limit`: longest time for the TCP connection.
    async fn attempt(self: &Arc<Self>, previous: SessionId, limit: Duration) -> Result<Arc<Session>> {
        // Before connecting, so that the server does not wait for the KDC; without a ticket there
        // is no need to connect.
        let mechanisms = self.authenticator.mechanisms().await?;
        let (leases, reach) = (Arc::clone(&self.leases), Arc::clone(&self.reach));
        let shared = Arc::new(SessionShared::new(leases, reach, Arc::clone(&self.line)));
        let connected =
            socket::connect(&self.endpoint, &self.options.tcp, limit, self.options.timeout).await?;
        let address = connected.address;
        let warm = WarmChannels::begin(self, &connected, &shared);
        let begin = Begin::LogIn(mechanisms, warm.starting_channels());
        let (round_trip, stream) = (connected.round_trip, connected.stream);
        let (channel, ready) = self.start_driver(stream, &shared, previous, begin)?;
        let ready = self.logged_in(ready).await?;
        self.record_session(ready.session.as_ref()).await;
        let number = self.sessions_made.fetch_add(1, Ordering::Relaxed);
        let can_bind = ready
            .negotiated
            .capabilities
            .contains(Capabilities::MULTI_CHANNEL)
            && ready.session.is_some();
        let most = |count: u16| if can_bind { usize::from(count) } else { 1 };
        let channels_max = most(self.options.channels_max);
        let moves_much = self.options.channels_at_start == ChannelsAtStart::ByLine;
        let watches_losses = moves_much && round_trip >= FAR_ROUND_TRIP;
        channel.send_control(Control::Admitted);
        let session = Arc::new(Session::new(Established {
            number,
            address,
            shared,
            compounds: Arc::clone(&self.compounds),
            channels_max,
            channels_lossy_max: match watches_losses {
                true => most(self.options.channels_lossy_max).max(channels_max),
                false => 1,
            },
            channel,
            ready,
        }));
        warm.bind(&session, channels_max);
        if session.watches_losses() {
            self.watch_losses(&session);
        }
        Ok(session)
    }

    /// Opens one more connection to an address that has answered before.
    pub(crate) async fn connect_further(&self, address: SocketAddr) -> Result<TcpStream> {
        let stream = socket::connect_to(address, &self.options.tcp, self.options.timeout).await;
        stream.map_err(|source| Error::local("open another connection", source))
    }

    /// Starts a driver on a connection, which starts as `begin` says.
    pub(crate) fn start_driver(
        &self,
        stream: TcpStream,
        shared: &Arc<SessionShared>,
        previous: SessionId,
        begin: Begin<'_>,
    ) -> Result<(Channel, ReadyReceiver)> {
        let mut connection = Connection::new(self.config(previous), random()?);
        let (begun, starting_channels) = match begin {
            Begin::LogIn(mechanisms, starting_channels) => (connection.log_in(mechanisms), starting_channels),
            Begin::Bind(secret, mechanisms) => (connection.bind(secret, mechanisms), 1),
            Begin::Negotiate { starting_channels } => (Ok(()), starting_channels),
        };
        begun.map_err(|fault| Error::PeerMisbehaved(fault.to_string()))?;
        let status = Arc::new(ChannelStatus::new(
            Arc::clone(&self.budget),
            (self.options.bytes_in_flight_max, self.options.gives_way),
            starting_channels,
            Arc::clone(shared),
        ));
        let (channel, queues) = Channel::new(Arc::clone(&status));
        let (sender, ready) = oneshot::channel();
        let authenticator = Arc::clone(&self.authenticator);
        let local_port = stream.local_addr().map_or(0, |local| local.port());
        let driver = Driver::new(
            stream,
            connection,
            authenticator,
            status,
            queues,
            (sender, self.options.timeout),
        );
        let span = tracing::debug_span!(parent: None, "connection", server = %self.endpoint, local_port);
        tokio::spawn(driver.run().instrument(span));
        Ok((channel, ready))
    }

    /// Waits until a driver's connection is logged in. A caller that gives up drops the channel,
    /// which ends the driver.
    pub(crate) async fn logged_in(&self, ready: ReadyReceiver) -> Result<Ready> {
        match tokio::time::timeout(self.options.timeout, ready).await {
            Ok(Ok(ready)) => ready,
            Ok(Err(_)) => Err(Error::Lost(LostReason::Closed)),
            Err(_) => Err(Error::Lost(LostReason::TimedOut)),
        }
    }

    /// Opens or closes a connection if the policy advises it. Called after each transfer.
    pub(crate) fn consider_channels(self: &Arc<Self>, session: &Arc<Session>) {
        let Some(advice) = session.advice(&self.budget) else {
            return;
        };
        self.follow(advice, session);
    }

    /// Opens or closes connections.
    fn follow(self: &Arc<Self>, advice: Advice, session: &Arc<Session>) {
        match advice {
            Advice::Close(count) => Self::retire_newest(session, count),
            Advice::Open(count) => {
                for _ in 0..count {
                    let (link, session) = (Arc::clone(self), Arc::clone(session));
                    tokio::spawn(async move {
                        if let Err(error) = link.add_channel(&session).await {
                            tracing::debug!(%error, "the server refuses another connection");
                            session.settle_channels();
                        }
                    });
                }
            }
        }
    }

    /// Closes the newest connections, but for the last one, when their requests are answered.
    pub(crate) fn retire_newest(session: &Session, count: usize) {
        for channel in (0..count).map_while(|_| session.take_newest()) {
            tracing::debug!("the newest connection brings no more throughput; closing it");
            channel.send_control(Control::Retire);
        }
    }

    /// Opens more connections if the line loses segments, and closes those that do not add to the rate. Ends
    /// once that is settled, the session has ended, or the line was not in use for a while.
    fn watch_losses(self: &Arc<Self>, session: &Arc<Session>) {
        let before = self.line.get().info.moved_bytes;
        let mut last = before;
        let mut arrived = VecDeque::from([0; READS_AHEAD_LOOKS]);
        let look = session.round_trip().unwrap_or(LOSS_LOOK_MAX);
        let look = look.clamp(LOSS_LOOK_MIN, LOSS_LOOK_MAX);
        self.budget.cap(AHEAD_START);
        self.reads_ahead.cap(READS_AHEAD_START);
        let (link, session) = (Arc::downgrade(self), Arc::downgrade(session));
        tokio::spawn(async move {
            let mut used_at = Instant::now();
            loop {
                tokio::time::sleep(look).await;
                let Some(link) = link.upgrade() else { return };
                let Some(session) = session.upgrade() else {
                    link.lift_caps();
                    return;
                };
                let is_used_up = link.budget.is_used_up() || link.reads_ahead.is_used_up();
                if is_used_up {
                    used_at = Instant::now();
                }
                let moved = link.line.get().info.moved_bytes;
                let all = moved.saturating_sub(before).saturating_mul(AHEAD_TIMES);
                link.budget.cap(AHEAD_START.saturating_add(all));
                arrived.pop_front();
                arrived.push_back(moved.saturating_sub(std::mem::replace(&mut last, moved)));
                let most = arrived.iter().copied().max().unwrap_or(0);
                let most = most.saturating_mul(READS_AHEAD_TIMES);
                link.reads_ahead.cap(READS_AHEAD_START.saturating_add(most));
                if !session.is_alive() || !session.watches_losses() || used_at.elapsed() > LOSS_IDLE_MAX {
                    link.lift_caps();
                    return;
                }
                if let Some(advice) = session.loss_advice(is_used_up, &link.line) {
                    tracing::debug!(?advice, "the line loses segments");
                    link.follow(advice, &session);
                }
            }
        });
    }

    fn lift_caps(&self) {
        self.budget.cap(u64::MAX);
        self.reads_ahead.cap(u64::MAX);
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
        if let Some(fault) = session.tampered() {
            return Err(Error::Tampered(fault));
        }
        let begin = Begin::Bind(secret, mechanisms);
        let (channel, ready) = self.start_driver(stream, &session.shared, SessionId(0), begin)?;
        let ready = self.logged_in(ready).await?;
        session.admit(channel, &ready)
    }

    /// Returns what is known of the server, if it does not answer.
    pub(crate) fn lost(&self) -> Option<LostServer> {
        let deadline = *self.given_up_at.lock();
        let silent = self.reach.lost_for();
        (deadline.is_some() || silent.is_some()).then(|| LostServer {
            host: self.endpoint.host.clone(),
            silent,
            left: deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())),
        })
    }

    pub(crate) fn reconnects(&self) -> u64 {
        self.sessions_made.load(Ordering::Relaxed).saturating_sub(1)
    }

    /// Ends all connections and waits until their drivers have ended. The last one logs off, and
    /// waits for the reply if `waits` is set.
    pub(crate) async fn close(&self, waits: bool) {
        self.is_closed.store(true, Ordering::Release);
        let channels: Vec<_> = self.last().take_channels();
        for channel in &channels {
            channel.send_control(Control::Shutdown { waits });
        }
        for channel in channels {
            channel.closed().await;
        }
    }
}

/// Returns whether another attempt may succeed.
fn is_transient(error: &Error) -> bool {
    match error {
        Error::Local { .. } | Error::Lost(_) => true,
        // Typical of a server that is starting or stopping.
        Error::PeerRefused { .. } => error.verdict() == Verdict::Retry,
        _ => false,
    }
}
