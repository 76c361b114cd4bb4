//! Entry points for fuzz targets and storms: connections that take frames without sockets, and a
//! hook that changes responses.

pub mod reply_mutator;

use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use ropeway_smb_proto::server::ConnectionId;

use crate::connection::Driver;
use crate::login::throttle::LoginThrottle;
use crate::login::unauthenticated::UnauthenticatedConnections;
use crate::ops::deliver::deliver;
use crate::options::ServerOptions;
use crate::share::Share;
use crate::state::SharedState;
use crate::testing::MemoryStore;

/// Decodes what may be the record of a persistent handle, and encodes it again.
///
/// # Panics
/// A record that was decoded is not the same after it was encoded.
pub fn handle_record(bytes: &[u8]) {
    crate::handle_journal::fuzz_record(bytes);
}

/// A server without a listener.
pub struct FrameHost {
    shared: Arc<SharedState>,
    connections: AtomicU64,
}

/// One connection of a server.
pub struct FrameServer {
    shared: Arc<SharedState>,
    driver: Driver,
}

/// Returns a socket that nothing is sent on; a connection needs one.
fn socket() -> TcpStream {
    static PAIR: OnceLock<(TcpStream, TcpStream)> = OnceLock::new();
    let (near, _) = PAIR.get_or_init(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("loopback");
        (near, listener.accept().expect("loopback").0)
    });
    near.try_clone().expect("a descriptor")
}

impl FrameHost {
    /// Creates a server with these options. It does not observe external changes.
    pub fn new(options: ServerOptions) -> Self {
        let timer = socket().into();
        Self {
            shared: Arc::new(SharedState::new(options, Vec::new(), timer)),
            connections: AtomicU64::new(0),
        }
    }

    /// Opens a connection.
    ///
    /// # Panics
    /// The system has no more descriptors.
    pub fn connect(&self) -> FrameServer {
        let shared = Arc::clone(&self.shared);
        let peer = ([127, 0, 0, 1], 1).into();
        let id = ConnectionId(self.connections.fetch_add(1, Ordering::Relaxed) + 1);
        let (guest, _) = UnauthenticatedConnections::default()
            .enter(std::net::Ipv4Addr::LOCALHOST.into(), id, false)
            .expect("the first");
        let driver = Driver::new(
            Arc::clone(&shared),
            id,
            socket(),
            peer,
            LoginThrottle::off(),
            guest,
        );
        let driver = driver.expect("descriptors");
        FrameServer { shared, driver }
    }

    /// Fires the timers that are due.
    pub fn tick(&self) {
        let now = self.shared.uptime();
        self.shared.hub().handle_timeout(now);
        deliver(&self.shared);
    }

    /// Returns the number of sessions, and of open files and pipes.
    pub fn sizes(&self) -> (usize, usize) {
        let sessions = self.shared.sessions().len();
        (sessions, self.shared.handles_count())
    }
}

impl FrameServer {
    /// Creates a server with one connection and the share `data`, which is in memory and replaces
    /// those of the options.
    ///
    /// # Panics
    /// The system has no more descriptors.
    pub fn new(mut options: ServerOptions) -> Self {
        options.shares = vec![Share::new("data", Arc::new(MemoryStore::default()))];
        FrameHost::new(options).connect()
    }

    /// Executes a frame, given without its length field. Returns the responses with theirs, or
    /// `None` if the connection ends.
    pub fn frame(&mut self, frame: &[u8]) -> Option<Vec<Vec<u8>>> {
        self.driver.serve_frame(frame)
    }

    /// Returns the number of requests that reached the code of their command.
    pub fn handled(&self) -> u64 {
        self.driver.handled()
    }

    /// Loses the connection. Returns the number of sessions that the server has afterwards.
    pub fn lose(mut self) -> usize {
        self.driver.lose();
        self.shared.sessions().len()
    }
}
