//! A line to a server that can be cut for a while: nothing is delivered, and nothing is reported,
//! until it is mended. It counts what comes back.
//!
//! It can also hold what is under way, as a router does whose queue is long, while new connections pass.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use crate::support::{Place, Served, credentials};

/// Bytes that a connection carries at once, at most.
const PIECE: usize = 64 << 10;

/// A line that lives as long as the test's process: its threads wait in the kernel.
pub(crate) struct Line {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    stopped: Mutex<Stopped>,
    mended: Condvar,
    /// Bytes in both directions.
    bytes: AtomicU64,
    /// Bytes a second of all connections together; 0: as fast as it can.
    rate: AtomicU64,
    /// Held by what is on a slow line.
    turn: Mutex<()>,
}

/// Which connections deliver nothing.
#[derive(Default)]
struct Stopped {
    all: bool,
    /// Those with a lower number.
    below: u64,
    /// The number of the next connection.
    next: u64,
}

impl State {
    /// Waits until the line delivers what a connection carries.
    fn pass(&self, connection: u64, bytes: usize) {
        let stopped = self.stopped.lock().unwrap();
        let waits = |stopped: &mut Stopped| stopped.all || connection < stopped.below;
        drop(self.mended.wait_while(stopped, waits).unwrap());
        match self.rate.load(Ordering::SeqCst) {
            0 => {}
            rate => {
                let _turn = self.turn.lock().unwrap();
                thread::sleep(Duration::from_secs_f64(bytes as f64 / rate as f64));
            }
        }
        self.bytes.fetch_add(bytes as u64, Ordering::SeqCst);
    }
}

impl Line {
    /// Makes a line to a server.
    pub(crate) fn to(server: SocketAddr) -> Self {
        Self::with_queue(server, 0)
    }

    /// Makes a line whose routers keep up to 16 MiB of each connection.
    pub(crate) fn long_queue_to(server: SocketAddr) -> Self {
        Self::with_queue(server, (16 << 20) / PIECE)
    }

    fn with_queue(server: SocketAddr, queue: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<State>::default();
        let known = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let number = {
                    let mut stopped = known.stopped.lock().unwrap();
                    stopped.next += 1;
                    stopped.next - 1
                };
                known.pass(number, 0);
                let Ok(server) = TcpStream::connect(server) else {
                    continue;
                };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let state = Arc::clone(&known);
                    thread::spawn(move || carry(from, to, number, queue, &state));
                }
            }
        });
        Self { address, state }
    }

    /// Starts a gateway to the server.
    pub(crate) fn gateway(&self, flags: &[&str]) -> Served {
        let url = format!("smb://ann@{}/data", self.address);
        let place = Place::in_memory();
        let login = credentials(&place.join(".login"));
        let flags: Vec<&str> = ["--credentials", &login].iter().chain(flags).copied().collect();
        Served::serving(place, Path::new(&url), &flags)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the bytes delivered so far, in both directions.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.bytes.load(Ordering::SeqCst)
    }

    /// Makes the line slow, or fast again: 0.
    pub(crate) fn limit(&self, bytes_per_s: u64) {
        self.state.rate.store(bytes_per_s, Ordering::SeqCst);
    }

    /// Cuts the line.
    pub(crate) fn cut(&self) {
        self.state.stopped.lock().unwrap().all = true;
    }

    /// Holds what the connections of now have under way. New ones pass.
    pub(crate) fn hold(&self) {
        let mut stopped = self.state.stopped.lock().unwrap();
        stopped.below = stopped.next;
    }

    /// Mends the line: what was under way is delivered, even if its sender is gone.
    pub(crate) fn mend(&self) {
        {
            let mut stopped = self.state.stopped.lock().unwrap();
            (stopped.all, stopped.below) = (false, 0);
        }
        self.state.mended.notify_all();
    }
}

/// Carries one direction, with `queue` pieces under way at most. What was sent arrives even if the sender
/// has ended since, and nobody takes the replies.
fn carry(mut from: TcpStream, mut to: TcpStream, connection: u64, queue: usize, state: &Arc<State>) {
    let (put, take) = sync_channel::<Vec<u8>>(queue);
    let state = Arc::clone(state);
    thread::spawn(move || {
        let mut is_taken = true;
        for piece in take {
            state.pass(connection, piece.len());
            is_taken = is_taken && to.write_all(&piece).is_ok();
        }
        _ = to.shutdown(Shutdown::Write);
    });
    let mut buffer = vec![0; PIECE];
    while let Ok(count @ 1..) = from.read(&mut buffer)
        && put.send(buffer[..count].to_vec()).is_ok()
    {}
}
