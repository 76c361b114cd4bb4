//! Measurements by sockets between the two namespaces, independent of the link's own counters.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::error::LinkError;
use super::spec::{FRAMING_BYTES, Rate, payload_on_wire};
use super::{Link, Side};

/// IPv4 and UDP headers.
const UDP_HEADERS: u32 = 28;
/// Receive buffer in bytes, so that the receiver itself loses no datagrams.
const RECEIVE_BUFFER_BYTES: usize = 32 << 20;
/// Interval between small bursts of datagrams: a sleep is not exact enough for single ones.
const TICK: Duration = Duration::from_micros(500);
/// Longest silence of a measurement, in addition to the round trip.
const SILENCE: Duration = Duration::from_secs(2);
/// Connections of [`tcp_rate`], whose windows together fill the line.
const CONNECTIONS: usize = 4;
/// Size of a read or write in bytes.
const BLOCK_BYTES: usize = 256 << 10;

/// Measures round trips of small datagrams, one after the other.
///
/// # Errors
/// A reply does not arrive, or no socket can be opened.
pub fn ping(link: &Link, count: usize) -> Result<Vec<Duration>, LinkError> {
    let go = || -> io::Result<Vec<Duration>> {
        let (near, far) = sockets(link)?;
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| echo(&far, &stop));
            let mut trips = Vec::with_capacity(count);
            let result = (|| {
                for number in 0..count as u64 {
                    let begun = Instant::now();
                    near.send(&number.to_ne_bytes())?;
                    let mut answer = [0; 8];
                    near.recv(&mut answer)?;
                    trips.push(begun.elapsed());
                }
                Ok(())
            })();
            stop.store(true, Ordering::Release);
            result.map(|()| trips)
        })
    };
    go().map_err(|error| LinkError::of("ping the far end", error))
}

fn echo(far: &UdpSocket, stop: &AtomicBool) {
    _ = far.set_read_timeout(Some(Duration::from_millis(20)));
    let mut room = [0; 2048];
    while !stop.load(Ordering::Acquire) {
        if let Ok((length, from)) = far.recv_from(&mut room) {
            _ = far.send_to(&room[..length], from);
        }
    }
}

/// Measures the rate from near to far in bits a second on the wire, by datagrams sent slightly faster
/// than the line.
///
/// # Errors
/// No datagrams arrive, or the link has no rate.
pub fn udp_rate(link: &Link, span: Duration) -> Result<f64, LinkError> {
    let rate = link.spec().up.ok_or_else(no_rate)?;
    let payload = u32::from(link.spec().mtu) - UDP_HEADERS;
    let wire = u64::from(payload + UDP_HEADERS + FRAMING_BYTES);
    let [delay, _] = link.spec().delays();
    let warm_up = Duration::from_millis(300) + delay;
    // Slightly more than the line carries, so that it is never idle.
    let flow = Flood {
        payload: payload as usize,
        wire,
        rate: Rate(rate.0 + rate.0 / 25),
        span: span + warm_up,
    };
    let begun = Instant::now();
    let (mut first, mut last, mut count) = (None, begun, 0_u64);
    flow.run(link, |at| {
        if at < begun + warm_up {
            return;
        }
        if first.is_none() {
            first = Some(at);
        } else if at <= begun + warm_up + span {
            count += 1;
            last = at;
        }
    })?;
    let taken = first.map_or(0.0, |first| (last - first).as_secs_f64());
    if taken <= 0.0 {
        return Err(LinkError::of(
            "measure a rate",
            io::Error::other("no datagram arrived"),
        ));
    }
    Ok((count * wire * 8) as f64 / taken)
}

/// Measures the loss from near to far. Returns the datagrams sent and those that arrived.
///
/// # Errors
/// No socket can be opened.
pub fn loss(link: &Link, datagrams: u64) -> Result<(u64, u64), LinkError> {
    const PAYLOAD: u32 = 200;
    /// Rate that every machine reaches (a guess).
    const MOST_A_SECOND: u64 = 20_000;
    let wire = u64::from(PAYLOAD + UDP_HEADERS + FRAMING_BYTES);
    let easy = Rate(MOST_A_SECOND * wire * 8);
    let rate = link.spec().up.map_or(easy, |rate| Rate(rate.0 / 2).min(easy));
    let flow = Flood {
        payload: PAYLOAD as usize,
        wire,
        rate,
        span: rate.time_of(datagrams * wire),
    };
    let mut arrived = 0;
    let sent = flow.run(link, |_| arrived += 1)?;
    Ok((sent, arrived))
}

fn no_rate() -> LinkError {
    LinkError::Spec("a link without a rate has none to measure".to_owned())
}

/// Datagrams at a rate for some time.
struct Flood {
    payload: usize,
    wire: u64,
    rate: Rate,
    span: Duration,
}

impl Flood {
    /// Sends and receives. Returns the number sent.
    fn run(&self, link: &Link, mut arrived: impl FnMut(Instant)) -> Result<u64, LinkError> {
        let mut go = || -> io::Result<u64> {
            let (near, far) = sockets(link)?;
            use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};
            // Only root can exceed the system's limit.
            set_socket_recv_buffer_size_force(&far, RECEIVE_BUFFER_BYTES)
                .or_else(|_| set_socket_recv_buffer_size(&far, RECEIVE_BUFFER_BYTES))?;
            let done = AtomicBool::new(false);
            let [delay, _] = link.spec().delays();
            far.set_read_timeout(Some(delay + Duration::from_millis(300)))?;
            thread::scope(|scope| {
                let sender = scope.spawn(|| {
                    let sent = self.send(&near);
                    done.store(true, Ordering::Release);
                    sent
                });
                let mut room = vec![0; self.payload];
                loop {
                    let over = done.load(Ordering::Acquire);
                    match far.recv(&mut room) {
                        Ok(_) => arrived(Instant::now()),
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                            if over {
                                break;
                            }
                        }
                        Err(error) => return Err(error),
                    }
                }
                sender
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        };
        go().map_err(|error| LinkError::of("send datagrams", error))
    }

    fn send(&self, near: &UdpSocket) -> io::Result<u64> {
        let packet = vec![0x5A; self.payload];
        let begun = Instant::now();
        let most = self.rate.bytes_in(self.span) / self.wire;
        let mut sent = 0;
        while sent < most {
            let allowed = self.rate.bytes_in(begun.elapsed()) / self.wire;
            while sent < allowed.min(most) {
                near.send(&packet)?;
                sent += 1;
            }
            thread::sleep(TICK);
        }
        Ok(sent)
    }
}

/// Opens a datagram socket at each end and connects the near one.
fn sockets(link: &Link) -> io::Result<(UdpSocket, UdpSocket)> {
    let far = link
        .run(Side::Far, || UdpSocket::bind((super::FAR, 0)))
        .flatten()?;
    let to = far.local_addr()?;
    let near = link
        .run(Side::Near, || UdpSocket::bind((super::NEAR, 0)))
        .flatten()?;
    near.connect(to)?;
    near.set_read_timeout(Some(link.spec().rtt + SILENCE))?;
    Ok((near, far))
}

/// Measures the rate from far to near in bits a second on the wire, by TCP with windows larger than the
/// content of the line. The receiver counts the payload; headers and framing are added per segment.
///
/// # Errors
/// A connection fails, or the link has no rate.
pub fn tcp_rate(link: &Link, span: Duration) -> Result<f64, LinkError> {
    link.spec().down.ok_or_else(no_rate)?;
    // Slow start and the growth of the receive window (a guess, checked by the result).
    let warm_up = Duration::from_secs(1) + link.spec().rtt * 20;
    let go = || -> io::Result<f64> {
        let (near, far) = connections(link, CONNECTIONS)?;
        let received = AtomicU64::new(0);
        thread::scope(|scope| {
            for stream in &far {
                scope.spawn(move || {
                    let block = vec![0; BLOCK_BYTES];
                    let mut stream = stream;
                    // Until the other end closes the connection.
                    while stream.write_all(&block).is_ok() {}
                });
            }
            for stream in &near {
                let received = &received;
                scope.spawn(move || {
                    let mut room = vec![0; BLOCK_BYTES];
                    let mut stream = stream;
                    while let Ok(length @ 1..) = stream.read(&mut room) {
                        received.fetch_add(length as u64, Ordering::Relaxed);
                    }
                });
            }
            thread::sleep(warm_up);
            let (begun, before) = (Instant::now(), received.load(Ordering::Relaxed));
            thread::sleep(span);
            let (taken, after) = (begun.elapsed(), received.load(Ordering::Relaxed));
            for stream in near.iter().chain(&far) {
                _ = stream.shutdown(std::net::Shutdown::Both);
            }
            let wire = payload_on_wire(after - before, link.spec().mtu);
            Ok((wire * 8) as f64 / taken.as_secs_f64())
        })
    };
    go().map_err(|error| LinkError::of("measure TCP", error))
}

/// Opens connections from the near end. Returns the sockets of both ends.
fn connections(link: &Link, count: usize) -> io::Result<(Vec<TcpStream>, Vec<TcpStream>)> {
    let listener = link
        .run(Side::Far, || TcpListener::bind((super::FAR, 0)))
        .flatten()?;
    let to = listener.local_addr()?;
    link.run(Side::Near, || {
        let (mut near, mut far) = (Vec::new(), Vec::new());
        for _ in 0..count {
            near.push(TcpStream::connect_timeout(&to, link.spec().rtt + SILENCE)?);
            far.push(listener.accept()?.0);
        }
        Ok((near, far))
    })
    .flatten()
}
