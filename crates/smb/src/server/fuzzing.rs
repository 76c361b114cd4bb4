//! One connection's frames over a store in memory, without sockets and without waiting: for fuzz targets.

use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, OnceLock};

use ropeway_smb_proto::server::ConnectionId;
use ropeway_smb_proto::server::hub::Hub;

use super::failures::Delay;
use super::guests::Guests;
use super::names::Names;
use super::run::ServerOptions;
use super::serving::Serving;
use super::share::Share;
use super::shared::{Parts, Shared};
use super::testing::MemoryStore;

/// A server with one connection, in the share `data`.
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

impl FrameServer {
    /// With these options, whose shares are replaced.
    ///
    /// # Panics
    /// The system is out of descriptors.
    pub fn new(options: ServerOptions) -> Self {
        let parts = Parts {
            config: options.config,
            name: options.name,
            shares: vec![Arc::new(Share::new("data", Arc::new(MemoryStore::default())))],
            addresses: Vec::new(),
            io_threads: 1,
            names: Names::new("FUZZ".into(), options.machine, options.directory),
            audit: None,
            give_back: None,
            login_time: options.login_time,
            unsent_max: options.unsent_max,
            send_time: options.send_time,
            hub: Hub::new(options.limits),
            posix_locks: options.posix_locks,
            timer: socket().into(),
        };
        let shared = Arc::new(Shared::new(parts));
        let peer = ([127, 0, 0, 1], 1).into();
        let id = ConnectionId(1);
        let (guest, _) = Guests::default()
            .enter(std::net::Ipv4Addr::LOCALHOST.into(), id, false)
            .expect("the first");
        let serving = Serving::new(Arc::clone(&shared), id, socket(), peer, Delay::off(), guest);
        let serving = serving.expect("descriptors");
        Self { shared, serving }
    }

    /// Executes a frame, given without its length: the answers, with theirs; none if the connection ends.
    pub fn frame(&mut self, frame: &[u8]) -> Option<Vec<Vec<u8>>> {
        self.serving.serve_frame(frame)
    }

    /// The connection is lost: how many sessions there are then.
    pub fn lose(mut self) -> usize {
        self.serving.lose();
        self.shared.sessions().len()
    }
}
