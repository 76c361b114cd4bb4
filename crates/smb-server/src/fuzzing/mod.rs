//! For fuzz targets: connections' frames without sockets and without waiting, and a server that lies.

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

/// A server without a listener.
pub struct FrameHost {
    shared: Arc<SharedState>,
    connections: AtomicU64,
}

/// One connection of a server.
pub struct FrameServer {
    shared: Arc<SharedState>,
    serving: Driver,
}

/// A socket that nothing is sent on: what a connection has in life.
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
    /// With these options and their shares; it watches nothing that happens beside it.
    pub fn new(options: ServerOptions) -> Self {
        let timer = socket().into();
        Self {
            shared: Arc::new(SharedState::new(options, Vec::new(), timer)),
            connections: AtomicU64::new(0),
        }
    }

    /// A new connection.
    ///
    /// # Panics
    /// The system is out of descriptors.
    pub fn connect(&self) -> FrameServer {
        let shared = Arc::clone(&self.shared);
        let peer = ([127, 0, 0, 1], 1).into();
        let id = ConnectionId(self.connections.fetch_add(1, Ordering::Relaxed) + 1);
        let (guest, _) = UnauthenticatedConnections::default()
            .enter(std::net::Ipv4Addr::LOCALHOST.into(), id, false)
            .expect("the first");
        let serving = Driver::new(
            Arc::clone(&shared),
            id,
            socket(),
            peer,
            LoginThrottle::off(),
            guest,
        );
        let serving = serving.expect("descriptors");
        FrameServer { shared, serving }
    }

    /// Executes the timers that are due.
    pub fn tick(&self) {
        let now = self.shared.uptime();
        self.shared.hub().handle_timeout(now);
        deliver(&self.shared);
    }

    /// Sessions, and open files and pipes.
    pub fn sizes(&self) -> (usize, usize) {
        let sessions = self.shared.sessions().len();
        (sessions, self.shared.handles_count())
    }
}

impl FrameServer {
    /// The only connection of a server with these options, whose shares are replaced by `data`, which is in memory.
    ///
    /// # Panics
    /// The system is out of descriptors.
    pub fn new(mut options: ServerOptions) -> Self {
        options.shares = vec![Share::new("data", Arc::new(MemoryStore::default()))];
        FrameHost::new(options).connect()
    }

    /// Executes a frame, given without its length: the answers, with theirs; none if the connection ends.
    pub fn frame(&mut self, frame: &[u8]) -> Option<Vec<Vec<u8>>> {
        self.serving.serve_frame(frame)
    }

    /// Requests that reached the code of their command so far.
    pub fn handled(&self) -> u64 {
        self.serving.handled()
    }

    /// The connection is lost: number of sessions of the server after that.
    pub fn lose(mut self) -> usize {
        self.serving.lose();
        self.shared.sessions().len()
    }
}
