//! Starting, serving, stopping.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ropeway_smb_proto::server::ConnectionId;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::sockopt;

use crate::connection::Driver;
use crate::login::throttle::LoginThrottle;
use crate::login::unauthenticated::UnauthenticatedConnections;
use crate::ops::deliver::deliver;
use crate::ops::external;
use crate::options::ServerOptions;
use crate::share::Share;
use crate::state::mailbox::Message;
use crate::state::{Counters, SharedState};

/// Bytes of stack of a connection's thread: no operation recurses. Only what is touched takes memory.
const STACK_LEN: usize = 512 << 10;

/// A connection that says nothing is asked whether it is there after so long, then each so often, so many times.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(60), Duration::from_secs(10), 6);

/// The longest wait for a client or a timer. A timer that is set meanwhile is noticed within this time, or by a nudge.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Connections beyond the bound while those that go for newer ones are still there (a guess).
const LEAVING_MAX: usize = 64;

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
}

/// Stops a server, and tells of it, from another thread.
#[derive(Clone)]
pub struct ServerHandle {
    shared: Arc<SharedState>,
    stop: Arc<OwnedFd>,
}

impl Server {
    /// Listens on `address`.
    ///
    /// # Errors
    /// The address cannot be had.
    pub fn bind(address: SocketAddr, options: ServerOptions) -> io::Result<Self> {
        Self::bind_all(&[address], options).map_err(|(_, error)| error)
    }

    /// Listens on all of `addresses`.
    ///
    /// # Errors
    /// The first address that cannot be had, and why; or there is none, or no more descriptors.
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
        let shared = Arc::new(SharedState::new(options, bound, event()?));
        external::listen(&shared);
        Ok(Self {
            shared,
            listeners,
            stop: Arc::new(stop),
            connections_max,
        })
    }

    /// Where it listens; the first of the addresses.
    ///
    /// # Errors
    /// The system does not say.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let first = self.shared.addresses.first();
        first.copied().ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    /// Everywhere it listens.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.shared.addresses
    }

    /// To stop it with.
    pub fn handle(&self) -> ServerHandle {
        ServerHandle {
            shared: Arc::clone(&self.shared),
            stop: Arc::clone(&self.stop),
        }
    }

    /// Serves until it is stopped; then connections are ended and what was written is made durable.
    ///
    /// # Errors
    /// The listening socket fails, or write-back did.
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
                    // Out of descriptors, or the client has gone: others may still be served.
                    Err(error) => {
                        tracing::warn!(%error, "cannot take a connection");
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

    /// Waits for a client, or for a timer of the hub; whether the server is to stop.
    fn wait(&self) -> io::Result<bool> {
        self.shared.clear_timer();
        let due = {
            let mut hub = self.shared.hub();
            let now = self.shared.uptime();
            hub.handle_timeout(now);
            hub.poll_timeout().map(|due| due.saturating_sub(now))
        };
        deliver(&self.shared);
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
        let entered = match count < self.connections_max.saturating_add(LEAVING_MAX) {
            true => guests.enter(peer.ip(), id, count >= self.connections_max),
            false => None,
        };
        let Some((guest, oldest)) = entered else {
            tracing::warn!(%peer, "too many connections");
            return;
        };
        if let Some(oldest) = oldest {
            tracing::warn!(%peer, "too many connections without a login: the oldest goes");
            self.shared.post(oldest, Message::Evict);
        }
        watch_over(&socket);
        let shared = Arc::clone(&self.shared);
        let serving = match Driver::new(Arc::clone(&shared), id, socket, peer, failures.clone(), guest) {
            Ok(serving) => serving,
            Err(error) => {
                tracing::warn!(%peer, %error, "cannot serve a connection");
                shared.remove_mailbox(id);
                return;
            }
        };
        Counters::add(&shared.counters.connections, 1);
        // Counted down even if serving panics: one connection takes no other with it.
        let counted = Counted::new(open, &shared);
        let thread = std::thread::Builder::new()
            .name(format!("smb-{}", id.0))
            .stack_size(STACK_LEN);
        let spawned = thread.spawn(move || {
            let _counted = counted;
            serving.run();
        });
        if let Err(error) = spawned {
            tracing::warn!(%peer, %error, "no thread for a connection");
            self.shared.remove_mailbox(id);
        }
    }

    /// Makes everything durable before the server says that it has stopped.
    fn flush(&self) -> io::Result<()> {
        // A share that is read-only now may have been written to before.
        for share in &self.shared.all_shares() {
            share.store.sync().map_err(io::Error::other)?;
        }
        Ok(())
    }
}

/// One of the connections that are open.
struct Counted {
    open: Arc<AtomicUsize>,
    shared: Arc<SharedState>,
}

impl Counted {
    fn new(open: &Arc<AtomicUsize>, shared: &Arc<SharedState>) -> Self {
        open.fetch_add(1, Ordering::AcqRel);
        Counters::add(&shared.counters.connections_open, 1);
        Self {
            open: Arc::clone(open),
            shared: Arc::clone(shared),
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::AcqRel);
        let counters = &self.shared.counters;
        counters.connections_open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Dead clients are found.
fn watch_over(socket: &TcpStream) {
    let (idle, interval, count) = KEEPALIVE;
    // What the system does not take is no reason not to serve.
    _ = sockopt::set_socket_keepalive(socket, true);
    _ = sockopt::set_tcp_keepidle(socket, idle);
    _ = sockopt::set_tcp_keepintvl(socket, interval);
    _ = sockopt::set_tcp_keepcnt(socket, count);
}

impl ServerHandle {
    /// Asks it to stop; [`Server::run`] returns.
    pub fn stop(&self) {
        // Fails only when it was asked very often.
        _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
    }

    /// Counts since it started.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// The names of all shares.
    pub fn share_names(&self) -> Vec<String> {
        let shares = self.shared.all_shares();
        shares.iter().map(|share| share.name.clone()).collect()
    }

    /// Bytes of answers that clients have not taken yet.
    pub fn unsent(&self) -> usize {
        self.shared.unsent.bytes()
    }

    /// Sessions, and open files and pipes.
    pub fn sizes(&self) -> (usize, usize) {
        (self.shared.sessions().len(), self.shared.handles_count())
    }

    /// Other shares from now on; those that stay keep their trees, by name.
    pub fn set_shares(&self, shares: Vec<Share>) {
        let before = self.shared.all_shares();
        self.shared.set_shares(shares);
        external::listen(&self.shared);
        // What was written there is not found any more when the server stops.
        let now = self.shared.all_shares();
        for old in &before {
            if !now.iter().any(|new| Arc::ptr_eq(&new.store, &old.store))
                && let Err(error) = old.store.sync()
            {
                tracing::warn!(share = old.name, %error, "what was written could not be made durable");
            }
        }
    }
}
