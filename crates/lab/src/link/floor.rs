//! The floor: time of bare TCP for the same bytes. No copy over the link can be faster with the same
//! settings.
//!
//! Each connection first makes four round trips of a few bytes, as many as a file protocol needs (for
//! SMB: NEGOTIATE, two SESSION_SETUP, TREE_CONNECT). Then it sends the bytes, and the receiver confirms
//! them.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::error::LinkError;
use super::spec::{Rate, payload_on_wire};
use super::{FAR, Link, Side};

/// Round trips before the first byte.
const ROUND_TRIPS: usize = 4;
/// Bytes of one read or write.
const BLOCK_BYTES: usize = 256 << 10;
/// Longest silence of the other end.
const SILENCE: Duration = Duration::from_secs(60);

/// Returns true to stop.
type Stop<'a> = &'a (dyn Fn() -> bool + Sync);

/// Direction of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Flow {
    /// From near to far.
    Up,
    /// From far to near.
    Down,
}

/// Returns the time of a payload on the wire of a link; `None` without a rate.
pub fn line_time(bytes: u64, rate: Option<Rate>, mtu: u16) -> Option<Duration> {
    rate.map(|rate| rate.time_of(payload_on_wire(bytes, mtu)))
}

/// Moves bytes over several connections at once. Returns the time from the first SYN to the last
/// confirmation. Stops when `stop` returns true.
///
/// # Errors
/// A connection fails, or the measurement was stopped (`Interrupted`).
pub fn floor(
    link: &Link,
    bytes: u64,
    connections: usize,
    flow: Flow,
    stop: Stop<'_>,
) -> Result<Duration, LinkError> {
    let go = || -> io::Result<Duration> {
        let listener = link.run(Side::Far, || TcpListener::bind((FAR, 0))).flatten()?;
        let to = listener.local_addr()?;
        let share = |index: usize| {
            let (each, rest) = (bytes / connections as u64, bytes % connections as u64);
            each + u64::from((index as u64) < rest)
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::scope(|inner| {
                    for _ in 0..connections {
                        // If a connection never arrives, the near end reports its failure, and its end closes
                        // the listener below.
                        let Ok((stream, _)) = listener.accept() else {
                            return;
                        };
                        inner.spawn(move || far_end(stream, flow, stop));
                    }
                });
            });
            let result = link.run(Side::Near, || {
                let begun = Instant::now();
                thread::scope(|inner| {
                    let ends: Vec<_> = (0..connections)
                        .map(|index| inner.spawn(move || near_end(to, share(index), flow, stop)))
                        .collect();
                    let results = ends.into_iter().map(|end| {
                        end.join()
                            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                    });
                    results
                        .collect::<Vec<io::Result<()>>>()
                        .into_iter()
                        .collect::<io::Result<()>>()
                })
                .map(|()| begun.elapsed())
            });
            // Wakes a pending accept.
            _ = rustix::net::shutdown(&listener, rustix::net::Shutdown::Both);
            result.flatten()
        })
    };
    go().map_err(|error| LinkError::of("measure bare TCP", error))
}

fn prepared(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(SILENCE))
}

fn near_end(to: SocketAddr, bytes: u64, flow: Flow, stop: Stop<'_>) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&to, SILENCE)?;
    prepared(&stream)?;
    for _ in 0..ROUND_TRIPS {
        stream.write_all(&bytes.to_be_bytes())?;
        stream.read_exact(&mut [0; 8])?;
    }
    match flow {
        Flow::Up => {
            send(&mut stream, bytes, stop)?;
            stream.read_exact(&mut [0; 1])
        }
        Flow::Down => receive(&mut stream, bytes, stop),
    }
}

fn far_end(mut stream: TcpStream, flow: Flow, stop: Stop<'_>) -> io::Result<()> {
    prepared(&stream)?;
    let mut number = [0; 8];
    for _ in 0..ROUND_TRIPS {
        stream.read_exact(&mut number)?;
        stream.write_all(&number)?;
    }
    let bytes = u64::from_be_bytes(number);
    match flow {
        Flow::Up => {
            receive(&mut stream, bytes, stop)?;
            stream.write_all(&[1])
        }
        Flow::Down => send(&mut stream, bytes, stop),
    }
}

fn send(stream: &mut TcpStream, mut bytes: u64, stop: Stop<'_>) -> io::Result<()> {
    let block = vec![0; BLOCK_BYTES];
    while bytes > 0 {
        check_stop(stream, stop)?;
        let part = bytes.min(BLOCK_BYTES as u64) as usize;
        stream.write_all(&block[..part])?;
        bytes -= part as u64;
    }
    Ok(())
}

fn receive(stream: &mut TcpStream, mut bytes: u64, stop: Stop<'_>) -> io::Result<()> {
    let mut room = vec![0; BLOCK_BYTES];
    while bytes > 0 {
        check_stop(stream, stop)?;
        let most = bytes.min(BLOCK_BYTES as u64) as usize;
        match stream.read(&mut room[..most])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => bytes -= length as u64,
        }
    }
    Ok(())
}

/// Fails if the measurement was stopped, and then also stops the other end.
fn check_stop(stream: &TcpStream, stop: Stop<'_>) -> io::Result<()> {
    if !stop() {
        return Ok(());
    }
    _ = stream.shutdown(std::net::Shutdown::Both);
    Err(io::ErrorKind::Interrupted.into())
}
