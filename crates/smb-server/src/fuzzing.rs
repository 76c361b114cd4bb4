//! For fuzz targets: connections' frames without sockets and without waiting, and a server that lies.

use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use ropeway_smb_proto::server::ConnectionId;
use ropeway_smb_proto::server::hub::Hub;
use ropeway_smb_wire::SessionId;

use super::failures::Delay;
use super::guests::Guests;
use super::names::Names;
use super::run::ServerOptions;
use super::serving::Serving;
use super::share::Share;
use super::shared::{Parts, Shared};
use super::testing::MemoryStore;

/// A reply on its way out, and the session whose key signs it.
pub type Outgoing = (Vec<u8>, Option<SessionId>);

/// Changes what a server says.
pub trait Liar: Send + Sync {
    /// The frames that are sent in place of one with these replies; each is signed, compressed and sealed as a true one.
    fn change(&self, replies: Vec<Outgoing>) -> Vec<Vec<Outgoing>>;

    /// Changes a frame that is ready to be sent, behind its four bytes of length.
    fn damage(&self, frame: &mut Vec<u8>);
}

/// A server without a listener.
pub struct FrameHost {
    shared: Arc<Shared>,
    connections: AtomicU64,
}

/// One connection of a server.
pub struct FrameServer {
    shared: Arc<Shared>,
    serving: Serving,
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
        let parts = Parts {
            config: options.config,
            name: options.name,
            shares: options.shares.into_iter().map(Arc::new).collect(),
            addresses: Vec::new(),
            io_threads: 1,
            names: Names::new("FUZZ".into(), options.machine, options.directory),
            audit: None,
            give_back: None,
            login_time: options.login_time,
            unsent_max: options.unsent_max,
            send_time: options.send_time,
            liar: None,
            hub: Hub::new(options.limits),
            posix_locks: options.posix_locks,
            timer: socket().into(),
        };
        Self {
            shared: Arc::new(Shared::new(parts)),
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
        let (guest, _) = Guests::default()
            .enter(std::net::Ipv4Addr::LOCALHOST.into(), id, false)
            .expect("the first");
        let serving = Serving::new(Arc::clone(&shared), id, socket(), peer, Delay::off(), guest);
        let serving = serving.expect("descriptors");
        FrameServer { shared, serving }
    }

    /// Executes the timers that are due.
    pub fn tick(&self) {
        let now = self.shared.now_ms();
        self.shared.hub().handle_timeout(now);
        self.shared.deliver();
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
