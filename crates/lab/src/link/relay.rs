//! A TCP relay with delay and rate, for systems that forbid namespaces. It handles **no packets**:
//! windows, losses and congestion control are those of the loopback device, so every result must say
//! "relay".
//!
//! ```text
//!   client ─▶ 127.0.0.1:near ─▶ reader ─▶ [due times: rate, delay] ─▶ writer ─▶ 127.0.0.1:far ─▶ server
//! ```
//!
//! All connections share one line for each direction. The first bytes of a connection are delayed by a
//! round trip, as by a handshake.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::error::LinkError;
use super::spec::{LinkSpec, Rate, payload_on_wire};

/// Size of a read in bytes: small enough to be no burst at low rates (a guess).
const BLOCK_BYTES: usize = 16 << 10;
/// Least and largest number of blocks in flight in one direction of a connection.
const BLOCKS: std::ops::RangeInclusive<u64> = 16..=8192;
/// Largest number of connections; further ones are closed at once.
const CONNECTIONS_MAX: usize = 256;

/// A running relay; it ends on drop.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

/// Both directions.
#[derive(Debug)]
struct Shared {
    far: SocketAddr,
    rtt: Duration,
    up: Way,
    down: Way,
    stop: AtomicBool,
    streams: Mutex<Vec<Arc<Pair>>>,
}

/// Both sockets of a connection.
#[derive(Debug)]
struct Pair {
    near: TcpStream,
    far: TcpStream,
}

/// The line of one direction.
#[derive(Debug)]
struct Way {
    rate: Option<Rate>,
    delay: Duration,
    mtu: u16,
    blocks: usize,
    busy_until: Mutex<Instant>,
}

impl Way {
    fn new(spec: &LinkSpec, rate: Option<Rate>, delay: Duration) -> Self {
        let bytes = spec.queue_bytes(rate) + rate.map_or(0, |rate| rate.bytes_in(delay));
        let blocks = (bytes / BLOCK_BYTES as u64).clamp(*BLOCKS.start(), *BLOCKS.end());
        Self {
            rate,
            delay,
            mtu: spec.mtu,
            blocks: blocks as usize,
            busy_until: Mutex::new(Instant::now()),
        }
    }

    /// Due time of bytes that arrive now.
    fn due(&self, bytes: usize, not_before: Instant) -> Instant {
        let mut busy_until = self.busy_until.lock();
        let wire = payload_on_wire(bytes as u64, self.mtu);
        let span = self.rate.map_or(Duration::ZERO, |rate| rate.time_of(wire));
        *busy_until = (*busy_until).max(Instant::now()).max(not_before) + span;
        *busy_until + self.delay
    }
}

impl Relay {
    /// Listens on a loopback port and forwards to another. Only delays, rates and MTU of the
    /// specification count.
    ///
    /// # Errors
    /// The port is taken, or the specification needs packets.
    pub fn start(near_port: u16, far_port: u16, spec: &LinkSpec) -> Result<Self, LinkError> {
        spec.check()?;
        let plain = LinkSpec {
            up_delay: spec.up_delay,
            up: spec.up,
            down: spec.down,
            queue: spec.queue,
            mtu: spec.mtu,
            seed: spec.seed,
            ..LinkSpec::new(spec.rtt, None)
        };
        if *spec != plain {
            return Err(LinkError::Spec(
                "a relay has no packets: it knows neither jitter, loss, cuts nor settings of TCP".to_owned(),
            ));
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, near_port))
            .map_err(|error| LinkError::of("listen for the relay", error))?;
        let address = listener
            .local_addr()
            .map_err(|error| LinkError::of("listen for the relay", error))?;
        let [up_delay, down_delay] = spec.delays();
        let shared = Arc::new(Shared {
            far: (Ipv4Addr::LOCALHOST, far_port).into(),
            rtt: spec.rtt,
            up: Way::new(spec, spec.up, up_delay),
            down: Way::new(spec, spec.down, down_delay),
            stop: AtomicBool::new(false),
            streams: Mutex::default(),
        });
        let on_thread = Arc::clone(&shared);
        let listening = thread::Builder::new()
            .name("relay".to_owned())
            .spawn(move || listen(&listener, &on_thread))
            .map_err(|error| LinkError::of("start a thread", error))?;
        Ok(Self {
            address,
            shared,
            listening: Some(listening),
        })
    }

    /// Address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        // Wakes the accept. If that fails, the thread ends with the process.
        let woken = TcpStream::connect_timeout(&self.address, Duration::from_secs(1)).is_ok();
        for pair in self.shared.streams.lock().iter() {
            _ = pair.near.shutdown(Shutdown::Both);
            _ = pair.far.shutdown(Shutdown::Both);
        }
        if let (true, Some(thread)) = (woken, self.listening.take()) {
            _ = thread.join();
        }
    }
}

fn listen(listener: &TcpListener, shared: &Arc<Shared>) {
    thread::scope(|scope| {
        for client in listener.incoming().flatten() {
            if shared.stop.load(Ordering::Acquire) {
                return;
            }
            let mut streams = shared.streams.lock();
            streams.retain(|pair| Arc::strong_count(pair) > 1);
            if streams.len() >= CONNECTIONS_MAX {
                continue;
            }
            // If the server does not answer, the client's connection is closed.
            let Ok(server) = TcpStream::connect(shared.far) else {
                continue;
            };
            _ = client.set_nodelay(true);
            _ = server.set_nodelay(true);
            let pair = Arc::new(Pair {
                near: client,
                far: server,
            });
            streams.push(Arc::clone(&pair));
            drop(streams);
            let not_before = Instant::now() + shared.rtt;
            for up in [true, false] {
                let (pair, way) = (Arc::clone(&pair), if up { &shared.up } else { &shared.down });
                scope.spawn(move || {
                    let (from, to) = if up {
                        (&pair.near, &pair.far)
                    } else {
                        (&pair.far, &pair.near)
                    };
                    carry(from, to, way, not_before);
                });
            }
        }
    });
}

/// Forwards one direction of a connection to its end.
fn carry(mut from: &TcpStream, to: &TcpStream, way: &Way, not_before: Instant) {
    thread::scope(|scope| {
        let (sender, receiver): (SyncSender<(Instant, Vec<u8>)>, Receiver<_>) = sync_channel(way.blocks);
        scope.spawn(move || write(to, &receiver, from));
        let mut room = vec![0; BLOCK_BYTES];
        loop {
            let length = match from.read(&mut room) {
                Ok(0) => break,
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            if sender
                .send((way.due(length, not_before), room[..length].to_vec()))
                .is_err()
            {
                break;
            }
        }
        // The end of the stream is delayed as every byte.
        _ = sender.send((way.due(0, not_before), Vec::new()));
    });
}

fn write(mut to: &TcpStream, receiver: &Receiver<(Instant, Vec<u8>)>, from: &TcpStream) {
    while let Ok((due, bytes)) = receiver.recv() {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if bytes.is_empty() || to.write_all(&bytes).is_err() {
            break;
        }
    }
    _ = to.shutdown(Shutdown::Write);
    _ = from.shutdown(Shutdown::Read);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_late_and_at_the_rate() {
        // Never too early; on a busy machine too late now and then.
        let in_time = (0..5).map(|_| mebibyte_takes()).find(|taken| *taken < 0.6);
        assert!(in_time.is_some());
    }

    /// Returns the seconds that 1 MiB and a reply take, which are as many as the line wants at least.
    fn mebibyte_takes() -> f64 {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let answering = thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).unwrap();
            stream.write_all(&(bytes.len() as u64).to_be_bytes()).unwrap();
        });
        let spec = LinkSpec::new(Duration::from_millis(60), Some(Rate(40_000_000)));
        let relay = Relay::start(0, port, &spec).unwrap();
        let begun = Instant::now();
        let mut client = TcpStream::connect(relay.address()).unwrap();
        client.write_all(&vec![7; 1 << 20]).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, (1_u64 << 20).to_be_bytes());
        // Handshake, bytes, reply: 2 round trips and 223 ms on the line.
        let taken = begun.elapsed().as_secs_f64();
        assert!(taken >= 0.34, "{taken}");
        answering.join().unwrap();
        taken
    }

    #[test]
    fn what_only_packets_have_is_refused() {
        let mut spec = LinkSpec::new(Duration::from_millis(10), None);
        spec.loss = 0.1;
        assert!(matches!(Relay::start(0, 1, &spec), Err(LinkError::Spec(_))));
    }

    #[test]
    fn an_open_connection_does_not_hold_it_up() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let spec = LinkSpec::new(Duration::from_millis(10), None);
        let relay = Relay::start(0, server.local_addr().unwrap().port(), &spec).unwrap();
        let client = TcpStream::connect(relay.address()).unwrap();
        _ = server.accept().unwrap();
        let begun = Instant::now();
        drop(relay);
        assert!(begun.elapsed() < Duration::from_secs(5));
        drop(client);
    }
}
