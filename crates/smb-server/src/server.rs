//! The server: listens, starts a thread for each connection, fires the hub's timers, stops.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ropeway_smb_proto::server::ConnectionId;
use ropeway_smb_wire::SessionId;
use ropeway_tcp::{Congestion, Outcome};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::sockopt;

use crate::connection::Driver;
use crate::login::throttle::LoginThrottle;
use crate::login::unauthenticated::UnauthenticatedConnections;
use crate::ops::deliver::deliver;
use crate::ops::external;
use crate::ops::persistent::look_after;
use crate::ops::restore::restore;
use crate::options::ServerOptions;
use crate::report::{self, ServerReport};
use crate::share::Share;
use crate::state::mailbox::Message;
use crate::state::{Counters, SharedState};

/// Stack of a connection's thread in bytes. No operation recurses, and only touched pages use
/// memory.
const STACK_LEN: usize = 512 << 10;

/// TCP keepalive: idle time before the first probe, time between probes, number of probes.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(60), Duration::from_secs(10), 6);

/// Longest wait for a client or a timer. A new timer is noticed within this time, or at once by
/// [`SharedState::wake_timer`].
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Connections above the limit while evicted ones still end (a guess).
const EVICTED_MAX: usize = 64;

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// A server that listens.
pub struct Server {
    shared: Arc<SharedState>,
    listeners: Vec<TcpListener>,
    stop: Arc<OwnedFd>,
    connections_max: usize,
    congestion: Congestion,
}

/// Stops and inspects a server from another thread.
#[derive(Clone)]
pub struct ServerHandle {
    shared: Arc<SharedState>,
    stop: Arc<OwnedFd>,
}

impl Server {
    /// Listens on `address`.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn bind(address: SocketAddr, options: ServerOptions) -> io::Result<Self> {
        Self::bind_all(&[address], options).map_err(|(_, error)| error)
    }

    /// Listens on all of `addresses`.
    ///
    /// # Errors
    /// The first address that cannot be bound, with the cause; or there are no addresses or no more
    /// descriptors.
    pub fn bind_all(
        addresses: &[SocketAddr],
        options: ServerOptions,
    ) -> Result<Self, (SocketAddr, io::Error)> {
        let mut listeners = Vec::with_capacity(addresses.len());
        let mut bound = Vec::with_capacity(addresses.len());
        for &address in addresses {
            let listener = listen(address).map_err(|error| (address, error))?;
            bound.push(listener.local_addr().map_err(|error| (address, error))?);
            listeners.push(listener);
        }
        let any = SocketAddr::from(([0, 0, 0, 0], 0));
        let Some(&first) = addresses.first() else {
            return Err((any, io::Error::from(io::ErrorKind::InvalidInput)));
        };
        let event = || {
            eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(|error| (first, error.into()))
        };
        let stop = event()?;
        let connections_max = options.connections_max;
        let congestion = options.congestion.clone();
        let shared = Arc::new(SharedState::new(options, bound, event()?));
        external::listen(&shared);
        restore(&shared);
        Ok(Self {
            shared,
            listeners,
            stop: Arc::new(stop),
            connections_max,
            congestion,
        })
    }

    /// Returns the first address that the server listens on.
    ///
    /// # Errors
    /// The server listens nowhere.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let first = self.shared.addresses.first();
        first.copied().ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    /// Returns all addresses that the server listens on.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.shared.addresses
    }

    /// Returns a handle to stop the server with.
    pub fn handle(&self) -> ServerHandle {
        ServerHandle {
            shared: Arc::clone(&self.shared),
            stop: Arc::clone(&self.stop),
        }
    }

    /// Serves until [`ServerHandle::stop`]. Then it ends all connections and makes all written data
    /// durable.
    ///
    /// # Errors
    /// The listening socket or the write-back failed.
    pub fn run(self) -> io::Result<()> {
        let open = Arc::new(AtomicUsize::new(0));
        let (failures, guests) = (LoginThrottle::default(), UnauthenticatedConnections::default());
        let numbers = AtomicU64::new(0);
        loop {
            if self.wait()? {
                break;
            }
            for listener in &self.listeners {
                match listener.accept() {
                    Ok((socket, peer)) => self.take(socket, peer, &open, (&failures, &guests), &numbers),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    // There are no more descriptors, or the client has gone. Other clients can
                    // still be served.
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        std::thread::sleep(Duration::from_millis(50));
                    }
                }
            }
        }
        self.shared.stop_all();
        let deadline = Instant::now() + Duration::from_secs(5);
        while open.load(Ordering::Acquire) > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.flush()
    }

    /// Waits for a client or a timer of the hub. Returns whether the server must stop.
    fn wait(&self) -> io::Result<bool> {
        self.shared.clear_timer();
        let due = {
            let mut hub = self.shared.hub();
            let now = self.shared.uptime();
            hub.handle_timeout(now);
            hub.poll_timeout().map(|due| due.saturating_sub(now))
        };
        deliver(&self.shared);
        look_after(&self.shared);
        self.shared.memory.tend(self.shared.uptime());
        let wait = due.unwrap_or(WAIT_MAX).clamp(Duration::from_millis(10), WAIT_MAX);
        let timeout = Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        let stop = PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN);
        let timer = PollFd::from_borrowed_fd(self.shared.timer_fd(), PollFlags::IN);
        let listeners = self.listeners.iter();
        let mut fds: Vec<PollFd<'_>> = [stop, timer]
            .into_iter()
            .chain(listeners.map(|listener| PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)))
            .collect();
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(!fds[0].revents().is_empty()),
            Err(error) => Err(error.into()),
        }
    }

    fn take(
        &self,
        socket: TcpStream,
        peer: SocketAddr,
        open: &Arc<AtomicUsize>,
        (failures, guests): (&LoginThrottle, &UnauthenticatedConnections),
        numbers: &AtomicU64,
    ) {
        let id = ConnectionId(numbers.fetch_add(1, Ordering::Relaxed) + 1);
        let count = open.load(Ordering::Relaxed);
        let entered = match count < self.connections_max.saturating_add(EVICTED_MAX) {
            true => guests.enter(peer.ip(), id, count >= self.connections_max),
            false => None,
        };
        let Some((guest, oldest)) = entered else {
            tracing::warn!(%peer, "too many connections");
            return;
        };
        if let Some(oldest) = oldest {
            tracing::warn!(%peer, "too many connections without a login: the oldest one is ended");
            self.shared.post(oldest, Message::Evict);
        }
        enable_keepalive(&socket);
        if let Err(error) = self.congestion.prepare(&socket) {
            tracing::warn!(%peer, %error, "the congestion control {} cannot be used", self.congestion);
        }
        match self.congestion.suit(&socket) {
            Outcome::Unchanged => {}
            outcome => tracing::debug!(%peer, ?outcome, "a client on a long line: BBR was asked for"),
        }
        let shared = Arc::clone(&self.shared);
        let driver = match Driver::new(Arc::clone(&shared), id, socket, peer, failures.clone(), guest) {
            Ok(driver) => driver,
            Err(error) => {
                tracing::warn!(%peer, %error, "cannot serve a connection");
                shared.remove_mailbox(id);
                return;
            }
        };
        Counters::add(&shared.counters.connections, 1);
        // The count goes down even after a panic, so that one connection does not take down others.
        let counted = ConnectionCount::new(open, &shared);
        let thread = std::thread::Builder::new()
            .name(format!("smb-{}", id.0))
            .stack_size(STACK_LEN);
        let spawned = thread.spawn(move || {
            let _counted = counted;
            driver.run();
        });
        if let Err(error) = spawned {
            tracing::warn!(%peer, %error, "cannot start a thread for a connection");
            self.shared.remove_mailbox(id);
        }
    }

    /// Makes everything durable before the server reports that it has stopped.
    fn flush(&self) -> io::Result<()> {
        // A share that is read-only now may have been writable before.
        for share in &self.shared.all_shares() {
            share.store.sync().map_err(io::Error::other)?;
        }
        Ok(())
    }
}

/// Counts one connection as open while it lives.
struct ConnectionCount {
    open: Arc<AtomicUsize>,
    shared: Arc<SharedState>,
}

impl ConnectionCount {
    fn new(open: &Arc<AtomicUsize>, shared: &Arc<SharedState>) -> Self {
        open.fetch_add(1, Ordering::AcqRel);
        Counters::add(&shared.counters.connections_open, 1);
        Self {
            open: Arc::clone(open),
            shared: Arc::clone(shared),
        }
    }
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::AcqRel);
        let counters = &self.shared.counters;
        counters.connections_open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Enables TCP keepalive, so that dead clients are detected.
fn enable_keepalive(socket: &TcpStream) {
    let (idle, interval, count) = KEEPALIVE;
    // The server works without it, so errors do not matter.
    _ = sockopt::set_socket_keepalive(socket, true);
    _ = sockopt::set_tcp_keepidle(socket, idle);
    _ = sockopt::set_tcp_keepintvl(socket, interval);
    _ = sockopt::set_tcp_keepcnt(socket, count);
}

impl ServerHandle {
    /// Asks the server to stop. [`Server::run`] then returns.
    pub fn stop(&self) {
        // This fails only if the counter is full, and then the server stops anyway.
        _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
    }

    /// Returns the counters since the start.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Returns the names of all shares.
    pub fn share_names(&self) -> Vec<String> {
        let shares = self.shared.all_shares();
        shares.iter().map(|share| share.name.clone()).collect()
    }

    /// Returns the number of response bytes that clients have not received yet.
    pub fn unsent(&self) -> usize {
        self.shared.unsent.bytes()
    }

    /// Returns the number of sessions, and of open files and pipes.
    pub fn sizes(&self) -> (usize, usize) {
        (self.shared.sessions().len(), self.shared.handles_count())
    }

    /// Returns what the server does now, with at most `rows` sessions and `rows` open files.
    pub fn report(&self, rows: usize) -> ServerReport {
        report::of(&self.shared, rows)
    }

    /// Ends a session, as if its client had logged off. Its client may log in again. Returns whether
    /// there was such a session.
    pub fn close_session(&self, id: u64) -> bool {
        let session = self.shared.sessions().remove(SessionId(id));
        let Some(session) = session else { return false };
        tracing::info!(session = id, "a session is ended");
        crate::ops::session::ended(&self.shared, &session);
        true
    }

    /// Replaces the shares. Shares that keep their name keep their trees.
    pub fn set_shares(&self, shares: Vec<Share>) {
        let before = self.shared.all_shares();
        self.shared.set_shares(shares);
        external::listen(&self.shared);
        // A store that is removed is not flushed when the server stops, so flush it now.
        let now = self.shared.all_shares();
        for old in &before {
            if !now.iter().any(|new| Arc::ptr_eq(&new.store, &old.store))
                && let Err(error) = old.store.sync()
            {
                tracing::warn!(share = old.name, %error, "cannot flush a removed share");
            }
        }
    }
}
