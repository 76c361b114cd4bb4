//! The thread that answers on the socket of this process, and takes samples.
//!
//! One thread serves a bounded number of clients, and waits for none of them. It makes the socket
//! itself, so that the process neither waits for it nor fails without it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::{Builder, sleep};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send, sockopt};
use rustix::process::geteuid;

use crate::folder::{self, Folder, Listener};
use crate::history::INTERVAL;
use crate::live::{Registered, Shared};
use crate::protocol::{Client, Handler, Reply};

/// Most clients at once. A guess: several times the views that one user has open.
const CLIENTS_MAX: usize = 16;
/// Bytes received at once.
const RECEIVE_MAX: usize = 4096;
/// Pause after a failed accept, e.g. without free descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Longest wait for the socket of a process that says when it is ready.
const READY_MAX: Duration = Duration::from_secs(2);

/// The thread, until this is dropped.
pub(crate) struct Serving {
    stop: Arc<OwnedFd>,
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default)]
struct State {
    /// Whether it is clear that there is a socket, or that there will be none.
    is_clear: bool,
    /// The socket, to remove it at the end.
    listener: Option<Arc<Listener>>,
    ended: bool,
}

struct Connection {
    socket: OwnedFd,
    client: Client,
}

impl Serving {
    /// Starts the thread; `None` if the system refuses.
    pub(crate) fn start(shared: Arc<Shared>) -> Option<Self> {
        let stop = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).ok()?);
        let state: Arc<(Mutex<State>, Condvar)> = Arc::default();
        let serving = Self {
            stop: Arc::clone(&stop),
            state: Arc::clone(&state),
        };
        // With the usual stack: parts may read time zones (jiff: over 128 KiB), and names of users from
        // whatever service the machine has for them.
        let thread = Builder::new().name("live".to_owned());
        let spawned = thread.spawn(move || {
            let listener = listen();
            if let Err(why) = &listener {
                tracing::debug!(why, "this process cannot be seen by `ropeway top`");
            }
            let listener = listener.ok().map(Arc::new);
            {
                let mut state = state.0.lock();
                state.is_clear = true;
                if !state.ended {
                    state.listener.clone_from(&listener);
                }
            }
            state.1.notify_all();
            // Without a socket the samples are still taken, for views inside the process.
            Server {
                shared: &shared,
                stop: &stop,
                listener,
                connections: Vec::new(),
            }
            .run();
        });
        spawned.ok().map(|_| serving)
    }

    /// Waits until it is clear whether there is a socket.
    pub(crate) fn wait(&self) {
        let (state, changed) = &*self.state;
        let mut state = state.lock();
        if !state.is_clear {
            changed.wait_for(&mut state, READY_MAX);
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        {
            let mut state = self.state.0.lock();
            state.ended = true;
            // Now: the process may end before the thread does.
            if let Some(listener) = state.listener.take() {
                listener.remove();
            }
        }
        // Fails only if the counter is full, and then the thread is woken anyway.
        _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
    }
}

fn listen() -> Result<Listener, String> {
    let folder = Folder::make(&folder::own_path()).map_err(|error| error.to_string())?;
    folder
        .listen(std::process::id())
        .map_err(|error| error.to_string())
}

struct Server<'a> {
    shared: &'a Shared,
    stop: &'a OwnedFd,
    listener: Option<Arc<Listener>>,
    connections: Vec<Connection>,
}

impl Server<'_> {
    /// Serves until it is told to stop.
    fn run(&mut self) {
        let mut next_sample = INTERVAL;
        loop {
            let now = self.shared.now();
            if now >= next_sample {
                self.shared.sample();
                // Missed samples are not made up for: the ring spreads them.
                next_sample = now + INTERVAL;
            }
            self.tick();
            match self.wait(next_sample) {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    tracing::debug!(%error, "the socket of this process fails");
                    sleep(ACCEPT_PAUSE);
                }
            }
        }
    }

    /// Sends snapshots that are due, and drops clients that are over.
    fn tick(&mut self) {
        let (shared, now) = (self.shared, self.shared.now());
        for connection in &mut self.connections {
            connection.client.tick(now, &mut Registered(shared));
            connection.send(now, &mut Registered(shared));
        }
        self.connections
            .retain(|connection| !connection.client.is_over(now));
    }

    /// Waits for clients and for the next deadline, and serves whoever is there. Returns whether to
    /// stop.
    fn wait(&mut self, next_sample: Duration) -> io::Result<bool> {
        let now = self.shared.now();
        let deadlines = self
            .connections
            .iter()
            .map(|connection| connection.client.deadline());
        let due = deadlines.fold(next_sample, Duration::min);
        let wait = due.saturating_sub(now) + Duration::from_millis(1);
        let timeout = Timespec {
            // At most a second: samples are due.
            tv_sec: wait.as_secs() as i64,
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        let ready: Vec<PollFlags> = {
            let listener = self.listener.as_ref();
            let stop = PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN);
            let clients = self.connections.iter().map(|connection| {
                let flags = match connection.client.wants_input() {
                    true => PollFlags::IN,
                    false => PollFlags::OUT,
                };
                PollFd::from_borrowed_fd(connection.socket.as_fd(), flags)
            });
            let listener = listener.map(|listener| PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN));
            let mut fds: Vec<PollFd<'_>> = [stop].into_iter().chain(clients).chain(listener).collect();
            match poll(&mut fds, Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            fds.iter().map(PollFd::revents).collect()
        };
        if !ready[0].is_empty() {
            return Ok(true);
        }
        let (shared, now, count) = (self.shared, self.shared.now(), self.connections.len());
        let mut kept = Vec::with_capacity(count + 1);
        for (mut connection, ready) in self.connections.drain(..).zip(&ready[1..]) {
            if ready.is_empty() || connection.serve(now, &mut Registered(shared)) {
                kept.push(connection);
            }
        }
        self.connections = kept;
        if ready.get(count + 1).is_some_and(|ready| !ready.is_empty()) {
            self.accept(now);
        }
        Ok(false)
    }

    fn accept(&mut self, now: Duration) {
        let Some(listener) = &self.listener else { return };
        let socket = match accept_with(listener.as_fd(), SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => socket,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return,
            Err(error) => {
                tracing::debug!(%error, "cannot accept a view of this process");
                return sleep(ACCEPT_PAUSE);
            }
        };
        let why = match sockopt::socket_peercred(&socket) {
            Ok(peer) if peer.uid.is_root() || peer.uid == geteuid() => None,
            Ok(_) => Some("this process belongs to another user"),
            Err(_) => Some("the system does not say who asks"),
        };
        let why =
            why.or_else(|| (self.connections.len() >= CLIENTS_MAX).then_some("too many views are open"));
        if let Some(why) = why {
            // It fits into the empty buffer of a new socket.
            _ = send(&socket, &Reply::refused(why).line(), SendFlags::NOSIGNAL);
            return;
        }
        self.connections.push(Connection {
            socket,
            client: Client::new(now),
        });
    }
}

impl Connection {
    /// Receives and sends what can be. Returns whether the client stays.
    fn serve(&mut self, now: Duration, handler: &mut dyn Handler) -> bool {
        if self.client.wants_input() {
            let mut bytes = [0; RECEIVE_MAX];
            match recv(&self.socket, &mut bytes[..], RecvFlags::empty()) {
                Ok((0, _)) => return false,
                Ok((count, _)) => self.client.input(now, &bytes[..count.min(RECEIVE_MAX)], handler),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        self.send(now, handler)
    }

    /// Sends what can be. Returns whether the client stays.
    fn send(&mut self, now: Duration, handler: &mut dyn Handler) -> bool {
        while !self.client.output().is_empty() {
            match send(&self.socket, self.client.output(), SendFlags::NOSIGNAL) {
                Ok(count) => self.client.sent(now, count, handler),
                Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        !self.client.is_over(now)
    }
}
