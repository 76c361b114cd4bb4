//! A line to a server that can be cut for a while: nothing is delivered, and nothing is reported,
//! until it is mended. It counts what comes back.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// A line that lives as long as the test's process: its threads wait in the kernel.
pub(crate) struct Line {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    is_cut: Mutex<bool>,
    mended: Condvar,
    /// Bytes in both directions.
    bytes: AtomicU64,
    /// Bytes a second of all connections together; 0: as fast as it can.
    rate: AtomicU64,
    /// Held by what is on a slow line.
    turn: Mutex<()>,
}

impl State {
    /// Waits until the line delivers.
    fn pass(&self, bytes: usize) {
        let is_cut = self.is_cut.lock().unwrap();
        drop(self.mended.wait_while(is_cut, |is_cut| *is_cut).unwrap());
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
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<State>::default();
        let known = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                known.pass(0);
                let Ok(server) = TcpStream::connect(server) else {
                    continue;
                };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let state = Arc::clone(&known);
                    thread::spawn(move || carry(from, to, &state));
                }
            }
        });
        Self { address, state }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the bytes delivered so far, in both directions.
    #[allow(dead_code, reason = "not every test program counts them")]
    pub(crate) fn bytes(&self) -> u64 {
        self.state.bytes.load(Ordering::SeqCst)
    }

    /// Makes the line slow, or fast again: 0.
    #[allow(dead_code, reason = "not every test program has a slow line")]
    pub(crate) fn limit(&self, bytes_per_s: u64) {
        self.state.rate.store(bytes_per_s, Ordering::SeqCst);
    }

    /// Cuts the line.
    pub(crate) fn cut(&self) {
        *self.state.is_cut.lock().unwrap() = true;
    }

    /// Mends the line: what was under way is delivered.
    pub(crate) fn mend(&self) {
        *self.state.is_cut.lock().unwrap() = false;
        self.state.mended.notify_all();
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, state: &State) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        state.pass(count);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    _ = from.shutdown(Shutdown::Both);
    _ = to.shutdown(Shutdown::Both);
}
