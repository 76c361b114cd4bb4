//! Starting, serving, stopping.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ropeway_smb_proto::auth::ntlm::ServerNames;
use ropeway_smb_proto::compression::Algorithms;
use ropeway_smb_proto::server::hub::{Hub, HubLimits};
use ropeway_smb_proto::server::{Accounts, Config, ConnectionId, Random, Sealing};
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_smb_wire::{Guid, Text};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::sockopt;

use super::audit::Audit;
use super::failures::Delay;
use super::guests::Guests;
use super::mailbox::Message;
use super::names::{self, Directory, Names};
use super::outside;
use super::serving::Serving;
use super::share::Share;
use super::shared::{Counters, Parts, Shared};

/// Bytes of stack of a connection's thread: no operation recurses. Only what is touched takes memory.
const STACK_LEN: usize = 512 << 10;

/// A connection that says nothing is asked whether it is there after so long, then each so often, so many times.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(60), Duration::from_secs(10), 6);

/// Connections beyond the bound while those that go for newer ones are still there (a guess).
const LEAVING_MAX: usize = 64;

/// How a server serves.
pub struct ServerOptions {
    /// The protocol's side.
    pub config: Config,
    /// What the server calls itself, for users' eyes.
    pub name: String,
    /// What is shared.
    pub shares: Vec<Share>,
    /// What spans connections is bounded by this.
    pub limits: HubLimits,
    /// The most connections at once.
    pub connections_max: usize,
    /// A connection that nobody has logged in on ends after so long.
    pub login_time: Duration,
    /// Bytes of answers that clients have not taken, of all connections together: beyond, each is given one request's after
    /// the other.
    pub unsent_max: usize,
    /// A connection ends that takes nothing of its answers for so long; sooner while there are too many.
    pub send_time: Duration,
    /// Threads for what waits for a device.
    pub io_threads: usize,
    /// Byte-range locks of clients and locks of local programs exclude each other, where the store has such locks.
    pub posix_locks: bool,
    /// Who there is, for clients that ask for names of accounts.
    pub directory: Arc<dyn Directory>,
    /// What the server's own SIDs have that no other machine's have: S-1-5-21 and these. At random, unless they are to
    /// stay the same when the server starts again.
    pub machine: [u32; 3],
    /// Who is told what clients do.
    pub audit: Option<Arc<dyn Audit>>,
    /// Gives the system back what was freed and the allocator keeps; called when a connection has ended that had much.
    pub give_back: Option<fn()>,
    /// Changes the answers.
    #[cfg(feature = "fuzzing")]
    #[doc(hidden)]
    pub liar: Option<Arc<dyn super::fuzzing::Liar>>,
}

impl ServerOptions {
    /// Defaults for a machine of this size: everything from SMB 2.0.2 to 3.1.1, signatures required.
    pub fn new(name: &str, accounts: Accounts) -> Self {
        let random: Random = Arc::new(|bytes: &mut [u8]| fill_random(bytes));
        let mut server_guid = [0; 16];
        random(&mut server_guid);
        let mut machine = [0; 12];
        random(&mut machine);
        let (numbers, _) = machine.as_chunks::<4>();
        let upper: String = name.chars().take(15).collect::<String>().to_uppercase();
        let config = Config {
            server_guid: Guid(server_guid),
            names: ServerNames {
                netbios_computer: Text::from(upper.as_str()),
                netbios_domain: Text::from(upper.as_str()),
                dns_computer: Text::from(name),
                dns_domain: Text::from(""),
            },
            dialect_min: Dialect::Smb202,
            dialect_max: Dialect::Smb311,
            signing_required: true,
            sealing: Sealing::Offered,
            anonymous: false,
            guest: false,
            multichannel: true,
            leasing: true,
            compression: Algorithms {
                lz4: true,
                lznt1: false,
                pattern_v1: true,
            },
            io_max: Config::IO_MAX,
            credits_max: Config::CREDITS_MAX,
            sessions_per_connection_max: 256,
            accounts,
            mechanisms: None,
            random,
        };
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            config,
            name: name.to_owned(),
            shares: Vec::new(),
            limits: HubLimits::default(),
            connections_max: 4096,
            // A guess: people type passwords before they connect.
            login_time: Duration::from_secs(60),
            unsent_max: unsent_max(),
            // A guess: longer than a path that fails and comes back.
            send_time: Duration::from_secs(60),
            // Devices answer several requests at once, so more than there are processors. A guess.
            io_threads: (4 * processors).clamp(8, 64),
            posix_locks: true,
            directory: Arc::new(names::Empty),
            machine: std::array::from_fn(|at| u32::from_le_bytes(numbers[at])),
            audit: None,
            give_back: None,
            #[cfg(feature = "fuzzing")]
            liar: None,
        }
    }
}

/// A sixteenth of the machine's memory, and at least 64 MiB (a guess).
fn unsent_max() -> usize {
    let info = rustix::system::sysinfo();
    let units = usize::try_from(info.totalram).unwrap_or(usize::MAX);
    let unit = usize::try_from(info.mem_unit).unwrap_or(1);
    (units / 16).saturating_mul(unit).max(64 << 20)
}

/// From the kernel.
fn fill_random(mut bytes: &mut [u8]) {
    while !bytes.is_empty() {
        match rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => bytes = &mut bytes[count..],
            Err(rustix::io::Errno::INTR) => {}
            // getrandom(2): with these flags and a valid buffer nothing else can go wrong.
            Err(error) => panic!("the kernel has no random numbers: {error}"),
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// A server that listens.
pub struct Server {
    shared: Arc<Shared>,
    listeners: Vec<TcpListener>,
    stop: Arc<OwnedFd>,
    connections_max: usize,
}

/// Stops a server, and tells of it, from another thread.
#[derive(Clone)]
pub struct ServerHandle {
    shared: Arc<Shared>,
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
        let netbios = options.config.names.netbios_computer.clone();
        let parts = Parts {
            config: options.config,
            name: options.name,
            shares: options.shares.into_iter().map(Arc::new).collect(),
            addresses: bound,
            io_threads: options.io_threads,
            names: Names::new(netbios, options.machine, options.directory),
            audit: options.audit,
            give_back: options.give_back,
            login_time: options.login_time,
            unsent_max: options.unsent_max,
            send_time: options.send_time,
            #[cfg(feature = "fuzzing")]
            liar: options.liar,
            hub: Hub::new(options.limits),
            posix_locks: options.posix_locks,
            timer: event()?,
        };
        let shared = Arc::new(Shared::new(parts));
        outside::listen(&shared);
        Ok(Self {
            shared,
            listeners,
            stop: Arc::new(stop),
            connections_max: options.connections_max,
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
        let (failures, guests) = (Delay::default(), Guests::default());
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
        self.shared.was_nudged();
        let due = {
            let mut hub = self.shared.hub();
            let now = self.shared.now_ms();
            hub.handle_timeout(now);
            hub.poll_timeout().map(|due| due.saturating_sub(now))
        };
        self.shared.deliver();
        // Timers that are set meanwhile are noticed within this, or by a nudge.
        let wait_ms = due.unwrap_or(1000).clamp(10, 1000);
        let timeout = Timespec {
            tv_sec: (wait_ms / 1000) as i64,
            tv_nsec: (wait_ms % 1000) as i64 * 1_000_000,
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
        (failures, guests): (&Delay, &Guests),
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
            self.shared.post(oldest, Message::Crowded);
        }
        watch_over(&socket);
        let shared = Arc::clone(&self.shared);
        let serving = match Serving::new(Arc::clone(&shared), id, socket, peer, failures.clone(), guest) {
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
    shared: Arc<Shared>,
}

impl Counted {
    fn new(open: &Arc<AtomicUsize>, shared: &Arc<Shared>) -> Self {
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
        outside::listen(&self.shared);
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
